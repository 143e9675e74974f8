/* SPDX-License-Identifier: MIT */
/* Head and loss. A tile of logits that has become its gradient is used at once for both
 * products, while it is in cache; the gradient of the head's input is a sum over the
 * vocabulary, which is made in lanes so that tiles need not wait for each other. */
#include "model/factor.h"
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

/* Columns [begin, begin + columns) of the logits of rows. */
static void logits_of(const struct model *m, size_t row, size_t rows, size_t begin,
                      size_t columns, float *logits, size_t ld, void *work)
{
    size_t C = m->shape.C;

    if (m->half) {
        struct factor x = rounded(m->lnf, C);
        struct bf16_product p = {.rows = rows,
                                 .columns = columns,
                                 .depth = C,
                                 .A = x.half + row * x.ld_half,
                                 .lda = x.ld_half,
                                 .B = packed_forward(m, WTE, 0),
                                 .column0 = begin,
                                 .C = logits,
                                 .ldc = ld};

        m->half->product(&p, work);
        return;
    }
    gemm(false, true, rows, columns, C, m->lnf + row * C, C,
         model_param(m, WTE, 0) + begin * C, C, 0, logits, ld);
}

void head_logits(const struct model *m, size_t c, size_t v, void *work)
{
    struct span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t Vp = m->shape.Vp;
    float *logits = m->logits[c % 2] + vs.begin;
    float *max = m->stat_max + v * m->tiling.N + s.begin;
    float *sum = m->stat_sum + v * m->tiling.N + s.begin;

    logits_of(m, s.begin, s.size, vs.begin, vs.padded, logits, Vp, work);
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

void model_logits(const struct model *m, size_t row, size_t rows, float *logits,
                  void *work)
{
    size_t V = m->shape.V;

    for (size_t r = 0; r < rows; r += CHUNK_ROWS)
        logits_of(m, row + r, min_size(CHUNK_ROWS, rows - r), 0, V, logits + r * V, V,
                  work);
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

/* Both products of a tile of logits that has become its gradient. */
static void head_products(const struct model *m, size_t c, size_t v, bool accumulate)
{
    const struct tiling *t = &m->tiling;
    struct span s = tiling_chunk_rows(t, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;
    const float *logits = m->logits[c % 2] + vs.begin;
    float *dlnf = m->dlnf[c % 2] + v % t->head_lanes * s.size * C;

    gemm(false, false, s.size, C, vs.padded, logits, Vp,
         model_param(m, WTE, 0) + vs.begin * C, C, v < t->head_lanes ? 0 : 1, dlnf, C);
    gemm(true, false, vs.padded, C, s.size, logits, Vp, m->lnf + s.begin * C, C,
         accumulate ? 1 : 0, model_grad(m, WTE, 0) + vs.begin * C, C);
}

static void head_products_half(const struct model *m, size_t c, size_t v, bool accumulate,
                               void *work)
{
    const struct tiling *t = &m->tiling;
    struct span s = tiling_chunk_rows(t, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;
    float *logits = m->logits[c % 2] + vs.begin;
    float *dlnf = m->dlnf[c % 2] + v % t->head_lanes * s.size * C;
    struct factor dy = rounded(logits, Vp);
    struct factor x = rounded(m->lnf, C);

    m->half->round_rows(logits, Vp, s.size, vs.padded);
    struct bf16_product p = {
        .rows = s.size,
        .columns = C,
        .depth = vs.padded,
        .A = dy.half,
        .lda = dy.ld_half,
        .B = packed_backward_tile(m, v),
        .add = v < t->head_lanes ? NULL : dlnf,
        .ldadd = C,
        .C = dlnf,
        .ldc = C,
    };
    struct bf16_weight_grad g = {.rows = s.size,
                                 .out = vs.padded,
                                 .in = C,
                                 .dy = dy.half,
                                 .lddy = dy.ld_half,
                                 .x = x.half + s.begin * x.ld_half,
                                 .ldx = x.ld_half,
                                 .dW = model_grad(m, WTE, 0) + vs.begin * C,
                                 .lddw = C,
                                 .accumulate = accumulate};

    m->half->product(&p, work);
    m->half->weight_grad(&g, work);
}

void head_grad(const struct model *m, const int32_t *targets, size_t c, size_t v,
               float scale, bool accumulate, void *work)
{
    struct span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);

    m->kernels->softmax_grad(m->logits[c % 2] + vs.begin, m->shape.Vp,
                             m->head_lse + s.begin, targets + s.begin, vs.begin, s.size,
                             vs.valid, vs.padded, scale);
    if (m->half)
        head_products_half(m, c, v, accumulate, work);
    else
        head_products(m, c, v, accumulate);
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
    const struct layer_work *w = model_work(m, m->shape.L - 1);
    float *dx = w->dx + at;

    add_lanes(m, dx, c, r);
    m->kernels->layernorm_bwd(dx, m->dlnfw + r * C, m->dlnfb + r * C, dx, NULL,
                              m->x_last + at, model_param(m, LNFW, 0),
                              m->lnf_mean + s.begin, m->lnf_rstd + s.begin, s.size, C);
    if (m->half)
        m->half->round(w->dx_half + at, dx, s.size * C);
}

void final_norm_weight_grad(const struct model *m, bool accumulate)
{
    size_t tiles = m->tiling.row_tiles;
    size_t C = m->shape.C;

    m->kernels->add_partials(model_grad(m, LNFW, 0), m->dlnfw, tiles, C, accumulate);
    m->kernels->add_partials(model_grad(m, LNFB, 0), m->dlnfb, tiles, C, accumulate);
}
