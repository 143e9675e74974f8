/* SPDX-License-Identifier: MIT */
/* Forward tiles. */
#include "model/factor.h"
#include "model/model.h"

/* Columns j of y = b (+ res) + x W^T, for the rows of chunk c; W [out][in] is the matrix
 * `kind` of layer l, y and res [N][out], x [N][in]. Returns the tile's place in y. */
static float *linear(const struct model *m, enum tensor_kind kind, enum tensor_kind bias,
                     size_t l, size_t c, size_t j, struct factor x, const float *res,
                     float *y, void *work)
{
    struct span rows = tiling_chunk_rows(&m->tiling, c);
    struct span cols = tiling_columns(&m->tiling.forward[kind], j);
    size_t out, in;

    tensor_dims(&m->shape, kind, &out, &in);
    size_t at = rows.begin * out + cols.begin;

    if (m->half) {
        struct bf16_product p = {.rows = rows.size,
                                 .columns = cols.size,
                                 .depth = in,
                                 .A = x.half + rows.begin * x.ld_half,
                                 .lda = x.ld_half,
                                 .B = packed_forward(m, kind, l),
                                 .column0 = cols.begin,
                                 .bias = model_param(m, bias, l) + cols.begin,
                                 .add = res ? res + at : NULL,
                                 .ldadd = out,
                                 .C = y + at,
                                 .ldc = out};

        m->half->product(&p, work);
        return y + at;
    }
    const struct linear product = {.rows = rows.size,
                                   .out = cols.size,
                                   .in = in,
                                   .x = x.x + rows.begin * in,
                                   .ldx = in,
                                   .W = model_param(m, kind, l) + cols.begin * in,
                                   .ldw = in,
                                   .bias = model_param(m, bias, l) + cols.begin,
                                   .add = res ? res + at : NULL,
                                   .ldadd = out,
                                   .y = y + at,
                                   .ldy = out};

    gemm_linear(m->kernels, &product);
    return y + at;
}

/* Rows of a row tile of x [N][columns] that nothing but products will read. */
static void round_tile(const struct model *m, float *x, struct span rows, size_t columns)
{
    if (m->half)
        m->half->round_rows(x + rows.begin * columns, columns, rows.size, columns);
}

static float *layer_output(const struct model *m, size_t l)
{
    return l + 1 < m->shape.L ? m->layers[l + 1].x : m->x_last;
}

void forward_embedding(const struct model *m, const int32_t *tokens, size_t r)
{
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->embedding_fwd(m->layers[0].x + s.begin * C, model_param(m, WTE, 0),
                              model_param(m, WPE, 0), tokens + s.begin,
                              m->positions + s.begin, s.size, C);
}

void forward_norm1(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->layernorm_fwd(model_work(m, l)->ln1 + s.begin * C, ls->ln1_mean + s.begin,
                              ls->ln1_rstd + s.begin, ls->x + s.begin * C,
                              model_param(m, LN1W, l), model_param(m, LN1B, l), s.size,
                              C);
    round_tile(m, model_work(m, l)->ln1, s, C);
}

void forward_qkv(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    linear(m, QKVW, QKVB, l, c, j, rounded(model_work(m, l)->ln1, m->shape.C), NULL,
           m->layers[l].qkv, work);
}

/* Columns of head h of rows [T] of att. */
static void copy_head(const struct model *m, size_t l, size_t b, size_t h)
{
    size_t C = m->shape.C;
    size_t D = C / m->shape.H;
    size_t at = b * m->tiling.T * C + h * D;

    for (size_t t = 0; t < m->tiling.T; t++, at += C)
        m->half->round(model_work(m, l)->att_half + at, m->layers[l].att + at, D);
}

void forward_attention(const struct model *m, size_t l, size_t b, size_t g, float *work)
{
    const struct layer_state *ls = &m->layers[l];
    size_t T = m->tiling.T;
    size_t C = m->shape.C;
    size_t H = m->shape.H;
    size_t first, last;

    tiling_heads(&m->tiling, &m->shape, g, &first, &last);
    for (size_t h = first; h < last; h++) {
        m->kernels->attention_fwd(ls->att + b * T * C, ls->lse + (b * H + h) * T,
                                  ls->qkv + b * T * 3 * C, T, C, H, h, work);
        if (m->half)
            copy_head(m, l, b, h);
    }
}

void forward_attproj(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_state *ls = &m->layers[l];

    linear(m, ATTPROJW, ATTPROJB, l, c, j,
           with_copy(ls->att, model_work(m, l)->att_half, m->shape.C), ls->x, ls->mid,
           work);
}

void forward_norm2(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->layernorm_fwd(model_work(m, l)->ln2 + s.begin * C, ls->ln2_mean + s.begin,
                              ls->ln2_rstd + s.begin, ls->mid + s.begin * C,
                              model_param(m, LN2W, l), model_param(m, LN2B, l), s.size,
                              C);
    round_tile(m, model_work(m, l)->ln2, s, C);
}

void forward_fc(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_state *ls = &m->layers[l];
    const struct layer_work *w = model_work(m, l);
    size_t rows = tiling_chunk_rows(&m->tiling, c).size;
    size_t cols = tiling_columns(&m->tiling.forward[FCW], j).size;
    const float *fc =
        linear(m, FCW, FCB, l, c, j, rounded(w->ln2, m->shape.C), NULL, ls->fc, work);
    size_t F = 4 * m->shape.C;

    for (size_t n = 0; n < rows * F; n += F) {
        float *gelu = m->half ? work : w->gelu + (fc - ls->fc) + n;

        if (!m->half)
            memory_fetch(gelu + F, cols * sizeof *gelu);
        m->kernels->gelu_fwd(gelu, fc + n, cols);
        if (m->half)
            m->half->round(w->gelu_half + (fc - ls->fc) + n, gelu, cols);
    }
}

void forward_fcproj(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);

    linear(m, FCPROJW, FCPROJB, l, c, j, with_copy(w->gelu, w->gelu_half, 4 * m->shape.C),
           m->layers[l].mid, layer_output(m, l), work);
}

void forward_final_norm(const struct model *m, size_t r)
{
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;

    m->kernels->layernorm_fwd(m->lnf + s.begin * C, m->lnf_mean + s.begin,
                              m->lnf_rstd + s.begin, m->x_last + s.begin * C,
                              model_param(m, LNFW, 0), model_param(m, LNFB, 0), s.size,
                              C);
    round_tile(m, m->lnf, s, C);
}
