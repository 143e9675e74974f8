/* SPDX-License-Identifier: MIT */
/* Head and loss. A tile of logits that has become its gradient is used at once for both
 * products, while it is in cache; the gradient of the head's input is a sum over the
 * vocabulary, which is made in lanes so that tiles need not wait for each other. */
#include "model/model.h"

#include <math.h>
#include <string.h>

struct vocab_span {
    size_t begin, padded, valid; /* rows of wte; valid of them are real ids */
};

static struct vocab_span vocab_of(const struct model *m, size_t v)
{
    struct vocab_span s = {.begin = v * m->tiling.vocab_tile};
    size_t end = min_size(m->shape.Vp, s.begin + m->tiling.vocab_tile);

    s.padded = end - s.begin;
    s.valid = s.begin < m->shape.V ? min_size(m->shape.V, end) - s.begin : 0;
    return s;
}

void head_logits(const struct model *m, size_t c, size_t v)
{
    struct span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;
    float *logits = m->logits[c % 2] + vs.begin;
    float *max = m->stat_max + v * m->tiling.N + s.begin;
    float *sum = m->stat_sum + v * m->tiling.N + s.begin;

    gemm(false, true, s.size, vs.padded, C, m->lnf + s.begin * C, C,
         model_param(m, WTE, 0) + vs.begin * C, C, 0, logits, Vp);
    if (vs.valid > 0) {
        m->kernels->softmax_stats(max, sum, logits, Vp, s.size, vs.valid);
        return;
    }
    /* A tile of nothing but padding adds nothing to any row. */
    for (size_t n = 0; n < s.size; n++) {
        max[n] = -INFINITY;
        sum[n] = 0;
    }
}

double head_loss(const struct model *m, const int32_t *targets, size_t c)
{
    struct span s = tiling_chunk_rows(&m->tiling, c);
    const struct tiling *t = &m->tiling;
    double total = 0;

    for (size_t i = 0; i < s.size; i++) {
        size_t n = s.begin + i;
        float max = -INFINITY;
        float sum = 0;

        for (size_t v = 0; v < t->vocab_tiles; v++)
            max = fmaxf(max, m->stat_max[v * t->N + n]);
        for (size_t v = 0; v < t->vocab_tiles; v++)
            if (m->stat_sum[v * t->N + n] > 0)
                sum += m->stat_sum[v * t->N + n] * expf(m->stat_max[v * t->N + n] - max);
        m->head_lse[n] = max + logf(sum);
        m->row_loss[n] = 0;
        if (targets[n] >= 0)
            m->row_loss[n] =
                m->head_lse[n] - m->logits[c % 2][i * m->shape.Vp + (size_t)targets[n]];
        total += (double)m->row_loss[n];
    }
    return total;
}

void head_grad(const struct model *m, const int32_t *targets, size_t c, size_t v,
               float scale, bool accumulate)
{
    const struct tiling *t = &m->tiling;
    struct span s = tiling_chunk_rows(t, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;
    float *logits = m->logits[c % 2] + vs.begin;
    float *dlnf = m->dlnf[c % 2] + v % t->head_lanes * s.size * C;

    m->kernels->softmax_grad(logits, Vp, m->head_lse + s.begin, targets + s.begin,
                             vs.begin, s.size, vs.valid, vs.padded, scale);
    gemm(false, false, s.size, C, vs.padded, logits, Vp,
         model_param(m, WTE, 0) + vs.begin * C, C, v < t->head_lanes ? 0 : 1, dlnf, C);
    gemm(true, false, vs.padded, C, s.size, logits, Vp, m->lnf + s.begin * C, C,
         accumulate ? 1 : 0, model_grad(m, WTE, 0) + vs.begin * C, C);
}

/* Rows of row tile r: the lanes in ascending order. */
static void add_lanes(const struct model *m, float *dlnf, size_t c, size_t r)
{
    struct span chunk = tiling_chunk_rows(&m->tiling, c);
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    const float *lane = m->dlnf[c % 2] + (s.begin - chunk.begin) * C;

    memcpy(dlnf, lane, s.size * C * sizeof *dlnf);
    for (size_t i = 1; i < m->tiling.head_lanes; i++) {
        lane += chunk.size * C;
        for (size_t n = 0; n < s.size * C; n++)
            dlnf[n] += lane[n];
    }
}

void backward_final_norm(const struct model *m, size_t c, size_t r)
{
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    size_t at = s.begin * C;
    float *dx = m->work[(m->shape.L - 1) % 2].dx + at;

    add_lanes(m, dx, c, r);
    m->kernels->layernorm_bwd(dx, m->dlnfw + r * C, m->dlnfb + r * C, dx, NULL,
                              m->x_last + at, model_param(m, LNFW, 0),
                              m->lnf_mean + s.begin, m->lnf_rstd + s.begin, s.size, C);
}

void final_norm_weight_grad(const struct model *m, bool accumulate)
{
    size_t tiles = m->tiling.row_tiles;
    size_t C = m->shape.C;

    m->kernels->add_partials(model_grad(m, LNFW, 0), m->dlnfw, tiles, C, accumulate);
    m->kernels->add_partials(model_grad(m, LNFB, 0), m->dlnfb, tiles, C, accumulate);
}
