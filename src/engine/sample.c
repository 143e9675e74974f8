/* SPDX-License-Identifier: MIT */
#include "engine/sample.h"

#include <math.h>
#include <stdlib.h>

struct candidate {
    double weight; /* exp((logit - max) / temperature) */
    size_t id;
};

size_t sample_work_bytes(size_t V)
{
    return V * sizeof(struct candidate);
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

static size_t most_likely(const float *logits, size_t V)
{
    size_t best = V;

    for (size_t i = 0; i < V; i++)
        if (isfinite(logits[i]) && (best == V || logits[i] > logits[best]))
            best = i;
    return best;
}

/* Number of leading candidates whose weights reach the share p of the total. */
static size_t nucleus(const struct candidate *c, size_t n, double p)
{
    double total = 0;
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        total += c[i].weight;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum >= p * total)
            return i + 1;
    }
    return n;
}

enum status sample_token(const struct sample_options *o, const float *logits, size_t V,
                         double u, void *work, int32_t *token)
{
    struct candidate *c = work;
    size_t best = most_likely(logits, V);
    size_t n = 0;
    double total = 0;
    double sum = 0;

    if (best == V)
        return fail(ST_NUMERIC, "logits: none of %zu is a finite number", V);
    *token = (int32_t)best;
    if (!(o->temperature > 0))
        return ST_OK;
    for (size_t i = 0; i < V; i++)
        if (isfinite(logits[i]))
            c[n++] = (struct candidate){
                exp(((double)logits[i] - (double)logits[best]) / o->temperature), i};
    if ((o->top_k && o->top_k < n) || o->top_p < 1)
        qsort(c, n, sizeof *c, likelier_first);
    if (o->top_k && o->top_k < n)
        n = o->top_k;
    if (o->top_p < 1)
        n = nucleus(c, n, o->top_p);
    for (size_t i = 0; i < n; i++)
        total += c[i].weight;
    for (size_t i = 0; i < n; i++) {
        sum += c[i].weight;
        if (sum > u * total) {
            *token = (int32_t)c[i].id;
            return ST_OK;
        }
    }
    return ST_OK; /* rounding at the very end: the most likely */
}
