/* SPDX-License-Identifier: MIT */
#include "engine/score.h"

#include "base/memory.h"

struct pass {
    struct decoder *d;
    struct decode_row rows[DECODE_ROWS];
    size_t n_rows;
    struct score *of[DECODE_ROWS]; /* whose the i-th row with output is */
    int32_t target[DECODE_ROWS];
    double loss[DECODE_ROWS];
    size_t n_outputs;
};

static void use(void *arg, size_t i, float *logits)
{
    struct pass *p = arg;

    p->loss[i] = decoder_loss(p->d, logits, p->target[i]);
}

static void run_pass(struct pass *p)
{
    decoder_pass(p->d, p->rows, p->n_rows, use, p);
    for (size_t i = 0; i < p->n_outputs; i++)
        p->of[i]->loss += p->loss[i];
    p->n_rows = 0;
    p->n_outputs = 0;
}

/* The row of token i, which predicts the next one. */
static void add_row(struct pass *p, struct score *s, size_t i)
{
    bool output = i + 1 >= s->first;

    p->rows[p->n_rows++] = (struct decode_row){s->sequence, i, s->tokens[i], output};
    if (output) {
        p->of[p->n_outputs] = s;
        p->target[p->n_outputs++] = s->tokens[i + 1];
    }
}

void score_all(struct decoder *d, struct score *scores, size_t n)
{
    struct pass p = {.d = d};

    for (size_t k = 0; k < n; k++) {
        struct score *s = &scores[k];

        require(s->n >= 2 && s->first >= 1 && s->cached < s->first);
        s->loss = 0;
        for (size_t i = s->cached; i + 1 < s->n; i++) {
            add_row(&p, s, i);
            if (p.n_rows == DECODE_ROWS)
                run_pass(&p);
        }
    }
    if (p.n_rows > 0)
        run_pass(&p);
}

uint64_t score_windows_count(const struct score_windows *w)
{
    if (w->tokens < 2)
        return 0;
    if (w->tokens - 1 <= w->T)
        return 1;
    return 1 + (w->tokens - 1 - w->T + w->stride - 1) / w->stride;
}

void score_window(const struct score_windows *w, uint64_t k, uint64_t *begin, size_t *n,
                  size_t *first)
{
    *begin = k * w->stride;
    *n = (size_t)(w->tokens - *begin < w->T + 1 ? w->tokens - *begin : w->T + 1);
    *first = k == 0 ? 1 : w->T - w->stride + 1;
}
