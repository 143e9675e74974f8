/* SPDX-License-Identifier: MIT */
/* Backward tiles of a layer. Input gradients go by chunk of rows and tile of columns,
 * weight gradients by weight tile over all rows of the micro-batch. */
#include "model/factor.h"
#include "model/model.h"

#include <string.h>

/* Columns j of dy W, for the rows of chunk c; W [out][in] is the matrix `kind` of layer
 * l, dy [N][out]. Where it goes is left open. */
static struct bf16_product input_grad_half(const struct model *m, enum tensor_kind kind,
                                           size_t l, size_t c, size_t j, struct factor dy)
{
    struct span rows = tiling_chunk_rows(&m->tiling, c);
    struct span cols = tiling_columns(&m->tiling.backward[kind], j);
    size_t out, in;

    tensor_dims(&m->shape, kind, &out, &in);
    return (struct bf16_product){.rows = rows.size,
                                 .columns = cols.size,
                                 .depth = out,
                                 .A = dy.half + rows.begin * dy.ld_half,
                                 .lda = dy.ld_half,
                                 .B = packed_backward(m, kind, l),
                                 .column0 = cols.begin};
}

/* The same as dx [N][in], whose tile it fills. Returns the tile's place in dx. */
static float *linear_input_grad(const struct model *m, enum tensor_kind kind, size_t l,
                                size_t c, size_t j, struct factor dy, float *dx,
                                void *work)
{
    struct span rows = tiling_chunk_rows(&m->tiling, c);
    struct span cols = tiling_columns(&m->tiling.backward[kind], j);
    size_t out, in;

    tensor_dims(&m->shape, kind, &out, &in);
    dx += rows.begin * in + cols.begin;
    if (m->half) {
        struct bf16_product p = input_grad_half(m, kind, l, c, j, dy);

        p.C = dx;
        p.ldc = in;
        m->half->product(&p, work);
        return dx;
    }
    gemm(false, false, rows.size, cols.size, out, dy.x + rows.begin * out, out,
         model_param(m, kind, l) + cols.begin, in, 0, dx, in);
    return dx;
}

/* Rows of a row tile of x [N][columns], which others than products read too. */
static void copy_tile(const struct model *m, bf16 *half, const float *x, struct span rows,
                      size_t columns)
{
    size_t at = rows.begin * columns;

    if (m->half)
        m->half->round(half + at, x + at, rows.size * columns);
}

/* Nothing but products reads dfc, so that fp32 lasts as long as the tile is in cache; but
 * for its bias, whose gradient is not made of what has been rounded. */
static void fcproj_half(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);
    struct bf16_product p =
        input_grad_half(m, FCPROJW, l, c, j, with_copy(w->dx, w->dx_half, m->shape.C));
    size_t F = 4 * m->shape.C;
    size_t at = tiling_chunk_rows(&m->tiling, c).begin * F + p.column0;
    float *dfc = work;
    float *rest = dfc + round_up(p.rows * p.columns, CACHE_LINE / sizeof *dfc);

    p.C = dfc;
    p.ldc = p.columns;
    m->half->product(&p, rest);
    for (size_t n = 0; n < p.rows; n++, dfc += p.columns, at += F) {
        m->kernels->gelu_bwd(dfc, rest, dfc, m->layers[l].fc + at, p.columns);
        m->half->round(w->dfc_half + at, dfc, p.columns);
        m->half->round(w->gelu_half + at, rest, p.columns);
    }
    m->kernels->bias_grad(w->dfcb + c * F + p.column0, work, p.columns, p.rows, p.columns,
                          false);
}

void backward_fcproj(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);

    if (m->half) {
        fcproj_half(m, l, c, j, work);
        return;
    }
    size_t rows = tiling_chunk_rows(&m->tiling, c).size;
    size_t cols = tiling_columns(&m->tiling.backward[FCPROJW], j).size;
    size_t C = m->shape.C;
    size_t F = 4 * C;
    float *dfc = linear_input_grad(m, FCPROJW, l, c, j, with_copy(w->dx, w->dx_half, C),
                                   w->dfc, work);
    ptrdiff_t at = dfc - w->dfc;
    const float *fc = m->layers[l].fc + at;

    for (size_t n = 0; n < rows * F; n += F) {
        memory_fetch(fc + n + F, cols * sizeof *fc);
        memory_fetch(w->gelu + at + n + F, cols * sizeof *fc);
        m->kernels->gelu_bwd(dfc + n, w->gelu + at + n, dfc + n, fc + n, cols);
    }
}

void backward_fc(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);

    linear_input_grad(m, FCW, l, c, j, with_copy(w->dfc, w->dfc_half, 4 * m->shape.C),
                      w->dmid, work);
}

void backward_norm2(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    const struct layer_work *w = model_work(m, l);
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    size_t at = s.begin * C;
    const float *mean = ls->ln2_mean + s.begin;
    const float *rstd = ls->ln2_rstd + s.begin;

    m->kernels->layernorm_redo(w->ln2 + at, ls->mid + at, mean, rstd,
                               model_param(m, LN2W, l), model_param(m, LN2B, l), s.size,
                               C);
    if (m->half)
        m->half->round_rows(w->ln2 + at, C, s.size, C);
    m->kernels->layernorm_bwd(w->dmid + at, w->dln2w + r * C, w->dln2b + r * C,
                              w->dmid + at, w->dx + at, ls->mid + at,
                              model_param(m, LN2W, l), mean, rstd, s.size, C);
    copy_tile(m, w->dmid_half, w->dmid, s, C);
    copy_tile(m, w->att_half, ls->att, s, C);
}

void backward_attproj(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);

    linear_input_grad(m, ATTPROJW, l, c, j, with_copy(w->dmid, w->dmid_half, m->shape.C),
                      w->datt, work);
}

/* Columns of head h of rows [T] of the gradients of q, k and v. */
static void copy_head(const struct model *m, const struct layer_work *w, size_t b,
                      size_t h)
{
    size_t C = m->shape.C;
    size_t D = C / m->shape.H;
    size_t at = b * m->tiling.T * 3 * C + h * D;

    for (size_t t = 0; t < 3 * m->tiling.T; t++, at += C)
        m->half->round(w->dqkv_half + at, w->dqkv + at, D);
}

void backward_attention(const struct model *m, size_t l, size_t b, size_t g, float *work)
{
    const struct layer_state *ls = &m->layers[l];
    const struct layer_work *w = model_work(m, l);
    size_t T = m->tiling.T;
    size_t C = m->shape.C;
    size_t H = m->shape.H;
    size_t at = b * T * C;
    size_t first, last;

    tiling_heads(&m->tiling, &m->shape, g, &first, &last);
    for (size_t h = first; h < last; h++) {
        m->kernels->attention_bwd(w->dqkv + 3 * at, w->datt + at, ls->qkv + 3 * at,
                                  ls->att + at, ls->lse + (b * H + h) * T, T, C, H, h,
                                  work);
        if (m->half)
            copy_head(m, w, b, h);
    }
}

/* Its dx is that of the output of the layer before; of the embedding when l is 0. */
static const struct layer_work *work_below(const struct model *m, size_t l)
{
    return model_work(m, l + 1);
}

void backward_qkv(const struct model *m, size_t l, size_t c, size_t j, void *work)
{
    const struct layer_work *w = model_work(m, l);

    linear_input_grad(m, QKVW, l, c, j, with_copy(w->dqkv, w->dqkv_half, 3 * m->shape.C),
                      work_below(m, l)->dx, work);
}

void backward_norm1(const struct model *m, size_t l, size_t r)
{
    const struct layer_state *ls = &m->layers[l];
    const struct layer_work *w = model_work(m, l);
    struct span s = tiling_rows(&m->tiling, r);
    size_t C = m->shape.C;
    size_t at = s.begin * C;
    const float *mean = ls->ln1_mean + s.begin;
    const float *rstd = ls->ln1_rstd + s.begin;
    const struct layer_work *below = work_below(m, l);
    float *dx = below->dx + at;

    m->kernels->layernorm_redo(w->ln1 + at, ls->x + at, mean, rstd,
                               model_param(m, LN1W, l), model_param(m, LN1B, l), s.size,
                               C);
    if (m->half)
        m->half->round_rows(w->ln1 + at, C, s.size, C);
    m->kernels->layernorm_bwd(dx, w->dln1w + r * C, w->dln1b + r * C, dx, w->dmid + at,
                              ls->x + at, model_param(m, LN1W, l), mean, rstd, s.size, C);
    copy_tile(m, below->dx_half, below->dx, s, C);
}

struct product {
    struct factor dy, x;
    enum tensor_kind bias;
};

/* What the gradient of one matrix is made of: dW = dy^T x. Without dy in fp32 (bf16, FCW)
 * the bias's comes from dfcb. */
static struct product product_of(const struct model *m, enum tensor_kind kind, size_t l)
{
    const struct layer_work *w = model_work(m, l);
    const struct layer_state *ls = &m->layers[l];
    size_t C = m->shape.C;

    switch (kind) {
    case QKVW:
        return (struct product){with_copy(w->dqkv, w->dqkv_half, 3 * C),
                                rounded(w->ln1, C), QKVB};
    case ATTPROJW:
        return (struct product){with_copy(w->dmid, w->dmid_half, C),
                                with_copy(ls->att, w->att_half, C), ATTPROJB};
    case FCW:
        return (struct product){with_copy(w->dfc, w->dfc_half, 4 * C), rounded(w->ln2, C),
                                FCB};
    default:
        require(kind == FCPROJW);
        return (struct product){with_copy(w->dx, w->dx_half, C),
                                with_copy(w->gelu, w->gelu_half, 4 * C), FCPROJB};
    }
}

/* Of output rows row0 .. row0 + rows - 1 of a matrix of layer l, over the rows of chunk
 * c: at once with their product, which has just read the same columns of dy. */
static void bias_grad(const struct model *m, struct product p, size_t l, size_t c,
                      size_t row0, size_t rows, bool accumulate)
{
    float *db = model_grad(m, p.bias, l) + row0;
    size_t out = layout_slice(m->layout, p.bias, l)->cols;
    struct span terms = tiling_chunk_rows(&m->tiling, c);

    if (p.dy.x)
        m->kernels->bias_grad(db, p.dy.x + terms.begin * out + row0, out, terms.size,
                              rows, accumulate || c > 0);
    else
        m->kernels->add_partials(db, model_work(m, l)->dfcb + c * out + row0, 1, rows,
                                 accumulate || c > 0);
}

void weight_grad(const struct model *m, enum tensor_kind kind, size_t l, size_t o,
                 bool accumulate, void *work)
{
    struct product p = product_of(m, kind, l);
    const struct column_cut *cut = &m->tiling.weight[kind];
    size_t N = m->tiling.N;
    size_t out, in;

    tensor_dims(&m->shape, kind, &out, &in);
    size_t tile = tiling_weight_rows(&m->shape, kind);
    size_t row0 = o * tile;
    size_t rows = min_size(out, row0 + tile) - row0;
    float *dW = model_grad(m, kind, l) + row0 * in;

    if (m->half) {
        struct bf16_weight_grad g = {.rows = N,
                                     .out = rows,
                                     .in = in,
                                     .dy = p.dy.half + row0,
                                     .lddy = p.dy.ld_half,
                                     .x = p.x.half,
                                     .ldx = p.x.ld_half,
                                     .dW = dW,
                                     .lddw = in,
                                     .accumulate = accumulate};

        m->half->weight_grad(&g, work);
    }
    for (size_t j = 0; j < cut->tiles; j++)
        for (size_t c = 0; c < m->tiling.chunks; c++) {
            if (j == 0)
                bias_grad(m, p, l, c, row0, rows, accumulate);
            if (m->half)
                continue;

            struct span cols = tiling_columns(cut, j);
            struct span terms = tiling_chunk_rows(&m->tiling, c);

            gemm(true, false, rows, cols.size, terms.size,
                 p.dy.x + terms.begin * out + row0, out,
                 p.x.x + terms.begin * in + cols.begin, in, accumulate || c > 0 ? 1 : 0,
                 dW + cols.begin, in);
        }
}

void norm_weight_grad(const struct model *m, size_t l, bool second, bool accumulate)
{
    const struct layer_work *w = model_work(m, l);
    size_t tiles = m->tiling.row_tiles;
    size_t C = m->shape.C;

    m->kernels->add_partials(model_grad(m, second ? LN2W : LN1W, l),
                             second ? w->dln2w : w->dln1w, tiles, C, accumulate);
    m->kernels->add_partials(model_grad(m, second ? LN2B : LN1B, l),
                             second ? w->dln2b : w->dln1b, tiles, C, accumulate);
}

/* Where layer 0 left it. */
static const float *embedding_grad(const struct model *m)
{
    return work_below(m, 0)->dx;
}

void backward_tokens(const struct model *m, const int32_t *tokens, size_t v)
{
    size_t v0 = v * m->tiling.vocab_tile;
    size_t v1 = min_size(m->shape.Vp, v0 + m->tiling.vocab_tile);

    m->kernels->embedding_bwd_tokens(model_grad(m, WTE, 0), embedding_grad(m), tokens,
                                     m->tiling.N, m->shape.C, v0, v1);
}

void backward_token_rows(const struct model *m, const int32_t *index, float *rows,
                         size_t r0, size_t r1, bool accumulate)
{
    size_t C = m->shape.C;

    if (!accumulate)
        memset(rows + r0 * C, 0, (r1 - r0) * C * sizeof *rows);
    m->kernels->embedding_bwd_tokens(rows, embedding_grad(m), index, m->tiling.N, C, r0,
                                     r1);
}

void backward_positions(const struct model *m, size_t tile, bool accumulate)
{
    const struct tiling *t = &m->tiling;
    size_t C = m->shape.C;
    size_t height = tiling_grad_tile_elems(t, &m->shape, WPE) / C;
    size_t t0 = tile * height;
    size_t t1 = min_size(m->shape.T, t0 + height);
    float *dwpe = model_grad(m, WPE, 0);

    /* Positions beyond the batch's sequences have no gradient. */
    if (!accumulate && t1 > t->T)
        for (size_t i = (t0 > t->T ? t0 : t->T) * C; i < t1 * C; i++)
            dwpe[i] = 0;
    if (t0 < t->T)
        m->kernels->embedding_bwd_positions(dwpe, embedding_grad(m), t->B, t->T, C, t0,
                                            min_size(t1, t->T), accumulate);
}
