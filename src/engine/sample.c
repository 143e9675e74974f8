/* SPDX-License-Identifier: MIT */
#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct candidate {
    double weight; /* the logit, then exp((logit - max) / temperature) */
    size_t id;
};

size_t sample_work_bytes(size_t V)
{
    return V * sizeof(struct candidate);
}

void sample_penalize(float *logits, size_t V, const uint32_t *ids, size_t n,
                     double penalty, void *work)
{
    unsigned char *done = work;

    memset(done, 0, V);
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= V || done[ids[i]])
            continue;
        float *logit = &logits[ids[i]];

        done[ids[i]] = 1;
        *logit =
            (float)(*logit > 0 ? (double)*logit / penalty : (double)*logit * penalty);
    }
}

static int likelier_first(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;

    if (x->weight > y->weight)
        return -1;
    if (x->weight < y->weight)
        return 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void swap(struct candidate *a, struct candidate *b)
{
    struct candidate kept = *a;

    *a = *b;
    *b = kept;
}

/* Puts the k likeliest of c[0..n) in front, in no order (Hoare's quickselect): sorting
 * them all would take as long as the model does. */
static void select_likeliest(struct candidate *c, size_t n, size_t k)
{
    size_t begin = 0;
    size_t end = n;

    while (end - begin > 1 && k > begin && k < end) {
        size_t edge = begin;

        swap(&c[begin + (end - begin) / 2], &c[end - 1]);
        for (size_t i = begin; i + 1 < end; i++)
            if (likelier_first(&c[i], &c[end - 1]) < 0)
                swap(&c[i], &c[edge++]);
        swap(&c[edge], &c[end - 1]);
        if (k <= edge)
            end = edge;
        else
            begin = edge + 1;
    }
}

static size_t most_likely(const float *logits, size_t V)
{
    size_t best = V;

    for (size_t i = 0; i < V; i++)
        if (isfinite(logits[i]) && (best == V || logits[i] > logits[best]))
            best = i;
    return best;
}

static double sum_weights(const struct candidate *c, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += c[i].weight;
    return sum;
}

/* Sorts the fewest candidates whose weights reach the share p of the total to the front
 * and returns their number. Few are enough as a rule: more are looked at step by step. */
static size_t nucleus(struct candidate *c, size_t n, double p)
{
    double needed = p * sum_weights(c, n);
    double sum = 0;
    size_t k = 0;

    for (size_t step = 64; k < n && (k == 0 || sum < needed); step *= 4) {
        size_t more = min_size(step, n - k);

        select_likeliest(c + k, n - k, more);
        qsort(c + k, more, sizeof *c, likelier_first);
        for (; more > 0 && (k == 0 || sum < needed); more--)
            sum += c[k++].weight;
    }
    return k;
}

/* The tokens that may be drawn, with their weights. */
static size_t make_candidates(const struct sample_options *o, const float *logits,
                              size_t V, double largest, struct candidate *c)
{
    size_t n = 0;

    for (size_t i = 0; i < V; i++)
        if (isfinite(logits[i]))
            c[n++] = (struct candidate){(double)logits[i], i};
    if (o->top_k && o->top_k < n) {
        select_likeliest(c, n, o->top_k);
        n = o->top_k;
        qsort(c, n, sizeof *c, likelier_first);
    }
    for (size_t i = 0; i < n; i++)
        c[i].weight = exp((c[i].weight - largest) / o->temperature);
    return o->top_p < 1 ? nucleus(c, n, o->top_p) : n;
}

enum status sample_token(const struct sample_options *o, const float *logits, size_t V,
                         double u, void *work, int32_t *token)
{
    struct candidate *c = work;
    size_t best = most_likely(logits, V);
    double sum = 0;

    if (best == V)
        return fail(ST_NUMERIC, "logits: none of %zu is a finite number", V);
    *token = (int32_t)best;
    if (!(o->temperature > 0))
        return ST_OK;
    size_t n = make_candidates(o, logits, V, (double)logits[best], c);
    double total = sum_weights(c, n);

    for (size_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum > u * total) {
            *token = (int32_t)c[i].id;
            return ST_OK;
        }
    }
    return ST_OK; /* rounding at the very end: the most likely */
}
