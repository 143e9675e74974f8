/* SPDX-License-Identifier: MIT */
/* Forward tiles. A product's bias (and residual) is written first and the product added
 * to it, so that no separate pass over the output is needed. */
#include "model/model.h"

#include <math.h>

/* y = b (+ res) + x W^T; W [out][in] */
static void linear(const struct model *m, float *y, const float *x, const float *W,
                   const float *b, const float *res, size_t rows, size_t in, size_t out)
{
    m->kernels->bias_rows(y, out, b, res, out, rows, out);
    gemm(false, true, rows, out, in, x, in, W, in, 1, y, out);
}

static float *layer_output(const struct model *m, size_t l)
{
    return l + 1 < m->shape.L ? m->layers[l + 1].x : m->x_last;
}

void forward_embedding(const struct model *m, const int32_t *tokens, size_t r)
{
    struct row_span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->embedding_fwd(m->layers[0].x + s.begin * C, model_param(m, WTE, 0),
                              model_param(m, WPE, 0), tokens + s.begin,
                              m->positions + s.begin, s.rows, C);
}

void forward_qkv(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    struct row_span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    float *ln1 = m->work[l % 2].ln1 + s.begin * C;

    m->kernels->layernorm_fwd(ln1, ls->ln1_mean + s.begin, ls->ln1_rstd + s.begin,
                              ls->x + s.begin * C, model_param(m, LN1W, l),
                              model_param(m, LN1B, l), s.rows, C);
    linear(m, ls->qkv + s.begin * 3 * C, ln1, model_param(m, QKVW, l),
           model_param(m, QKVB, l), NULL, s.rows, C, 3 * C);
}

void forward_attention(const struct model *m, size_t l, size_t b, size_t g, float *work)
{
    const struct layer_state *ls = &m->layers[l];
    size_t T = m->tiling.T;
    size_t C = m->shape.C;
    size_t H = m->shape.H;
    size_t first, last;

    tiling_heads(&m->tiling, &m->shape, g, &first, &last);
    for (size_t h = first; h < last; h++)
        m->kernels->attention_fwd(ls->att + b * T * C, ls->lse + (b * H + h) * T,
                                  ls->qkv + b * T * 3 * C, T, C, H, h, work);
}

void forward_mlp(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    const struct work_set *w = &m->work[l % 2];
    struct row_span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    size_t F = 4 * C;
    float *mid = ls->mid + s.begin * C;
    float *ln2 = w->ln2 + s.begin * C;
    float *fc = ls->fc + s.begin * F;
    float *gelu = w->gelu + s.begin * F;

    linear(m, mid, ls->att + s.begin * C, model_param(m, ATTPROJW, l),
           model_param(m, ATTPROJB, l), ls->x + s.begin * C, s.rows, C, C);
    m->kernels->layernorm_fwd(ln2, ls->ln2_mean + s.begin, ls->ln2_rstd + s.begin, mid,
                              model_param(m, LN2W, l), model_param(m, LN2B, l), s.rows,
                              C);
    linear(m, fc, ln2, model_param(m, FCW, l), model_param(m, FCB, l), NULL, s.rows, C,
           F);
    m->kernels->gelu_fwd(gelu, fc, s.rows * F);
    linear(m, layer_output(m, l) + s.begin * C, gelu, model_param(m, FCPROJW, l),
           model_param(m, FCPROJB, l), mid, s.rows, F, C);
}

void forward_final_norm(const struct model *m, size_t r)
{
    struct row_span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->layernorm_fwd(m->lnf + s.begin * C, m->lnf_mean + s.begin,
                              m->lnf_rstd + s.begin, m->x_last + s.begin * C,
                              model_param(m, LNFW, 0), model_param(m, LNFB, 0), s.rows,
                              C);
}

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
    struct row_span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;
    float *logits = m->logits[c % 2] + vs.begin;
    float *max = m->stat_max + v * m->tiling.N + s.begin;
    float *sum = m->stat_sum + v * m->tiling.N + s.begin;

    gemm(false, true, s.rows, vs.padded, C, m->lnf + s.begin * C, C,
         model_param(m, WTE, 0) + vs.begin * C, C, 0, logits, Vp);
    if (vs.valid > 0) {
        m->kernels->softmax_stats(max, sum, logits, Vp, s.rows, vs.valid);
        return;
    }
    /* A tile of nothing but padding adds nothing to any row. */
    for (size_t n = 0; n < s.rows; n++) {
        max[n] = -INFINITY;
        sum[n] = 0;
    }
}

double head_loss(const struct model *m, const int32_t *targets, size_t c)
{
    struct row_span s = tiling_chunk_rows(&m->tiling, c);
    const struct tiling *t = &m->tiling;
    double total = 0;

    for (size_t i = 0; i < s.rows; i++) {
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

void head_softmax_grad(const struct model *m, const int32_t *targets, size_t c, size_t v,
                       float scale)
{
    struct row_span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);

    m->kernels->softmax_grad(m->logits[c % 2] + vs.begin, m->shape.Vp,
                             m->head_lse + s.begin, targets + s.begin, vs.begin, s.rows,
                             vs.valid, vs.padded, scale);
}

void head_weight_grad(const struct model *m, size_t c, size_t v, bool accumulate)
{
    struct row_span s = tiling_chunk_rows(&m->tiling, c);
    struct vocab_span vs = vocab_of(m, v);
    size_t C = m->shape.C;

    gemm(true, false, vs.padded, C, s.rows, m->logits[c % 2] + vs.begin, m->shape.Vp,
         m->lnf + s.begin * C, C, accumulate ? 1 : 0,
         model_grad(m, WTE, 0) + vs.begin * C, C);
}

void head_input_grad(const struct model *m, size_t c, size_t r)
{
    struct row_span chunk = tiling_chunk_rows(&m->tiling, c);
    struct row_span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    size_t Vp = m->shape.Vp;

    gemm(false, false, s.rows, C, Vp, m->logits[c % 2] + (s.begin - chunk.begin) * Vp, Vp,
         model_param(m, WTE, 0), C, 0, m->dlnf + s.begin * C, C);
}
