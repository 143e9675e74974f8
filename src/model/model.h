/* model.h - forward and backward of a GPT-2 as pure functions of one tile each.
 *
 * Pre-layer-norm GPT-2 (Radford et al., "Language models are unsupervised multitask
 * learners", 2019): x = wte[token] + wpe[position]; L times x += attproj(attention(
 * qkv(ln1(x)))), x += fcproj(gelu(fc(ln2(x)))); logits = lnf(x) wte^T.
 *
 * Every function below works on one tile, reads and writes only what its comment says,
 * and takes no locks: the engine makes tasks of them and orders those by dependencies.
 * l is a layer, r a row tile, c a chunk of row tiles, j a tile of the output columns of a
 * matrix product, b a sequence, g a head group, v a vocabulary tile, o a tile of output
 * rows of a weight matrix (tiling.h).
 *
 * With bf16 (`half` set) both factors of each matrix product are rounded first: weights
 * once after each update (packed), what one task makes for others at its end. All else is
 * fp32: sums, what is kept for backward, softmax, layer-norm, the parameters themselves.
 * Where nothing but products reads a matrix, it is rounded in place, row by row, and has
 * the leading dimension 2C as bf16 (marked "rounded"); else there is a second copy.
 *
 * What is kept for backward is 10C + 2 layer-norm statistics + H floats a row and layer,
 * less with `recompute`; layer-norm outputs and gelu are computed again where backward
 * needs them.
 */
#ifndef WEFT_MODEL_MODEL_H
#define WEFT_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "kernels/gemm_bf16.h"
#include "kernels/kernels.h"
#include "model/recompute.h"
#include "model/tensors.h"
#include "model/tiling.h"

/* Kept by forward for backward; one a layer, but what is computed again lies at the same
 * place for all layers. Rows are rows of the micro-batch. */
struct layer_state {
    float *x;                   /* [N][C] the residual stream that enters the layer */
    float *ln1_mean, *ln1_rstd; /* [N] */
    float *qkv;                 /* [N][3C] */
    float *att;                 /* [N][C] attention output, heads side by side */
    float *lse;                 /* [B][H][T] log-sum-exp of the scores */
    float *mid;                 /* [N][C] the residual stream after attention */
    float *ln2_mean, *ln2_rstd; /* [N] */
    float *fc;                  /* [N][4C] before gelu */
};

/* Used by one layer at a time. With two sets layer l uses set l % 2, so that the next
 * layer can begin while weight gradients of this one are still being added up. These go
 * before input gradients: where few workers share them one set is as fast. */
struct layer_work {
    float *ln1;      /* [N][C]  output of ln1; rounded */
    float *ln2;      /* [N][C]  output of ln2; rounded */
    float *gelu;     /* [N][4C] fp32 only */
    bf16 *gelu_half; /* [N][4C] bf16 only */
    bf16 *att_half;  /* [N][C]  att of the layer at hand */
    float *dx;       /* [N][C]  gradient of the layer's output */
    float *dmid;     /* [N][C]  gradient of mid */
    float *dfc;      /* [N][4C] fp32 only */
    float *dfcb;     /* [chunks][4C] bf16 only: sums of dfc's rows before it is rounded */
    float *datt;     /* [N][C]  */
    float *dqkv;     /* [N][3C] */
    bf16 *dx_half, *dmid_half;            /* [N][C] */
    bf16 *dfc_half, *dqkv_half;           /* [N][4C], [N][3C] */
    float *dln1w, *dln1b, *dln2w, *dln2b; /* [row_tiles][C] partial sums */
};

struct model {
    struct shape shape;
    struct tiling tiling; /* of the micro-batch at hand */
    enum recompute recompute;
    const struct kernels *kernels;
    const struct gemm_bf16 *half; /* NULL: fp32 */
    bf16_pair *packed;            /* weights for products (packed.c) */
    const struct layout *layout;
    const float *params;
    float *grads; /* NULL when the model was made for inference */

    int32_t *positions;         /* [N] */
    struct layer_state *layers; /* [L]; entry L-1's output goes to x_last */
    float *x_last;              /* [N][C] residual stream after the last layer */
    float *lnf_mean, *lnf_rstd; /* [N] */
    float *lnf; /* [N][C] rounded; in the place of a set's ln1, which is free by then */
    float *dlnfw, *dlnfb;       /* [row_tiles][C] partial sums */
    float *logits[2];           /* [chunk rows][Vp]; chunk c uses buffer c % 2.
                                   Gradients are rounded, tile by tile. Of one
                                   chunk there is one, of dlnf too */
    float *dlnf[2];             /* [head_lanes][chunk rows][C] partial sums */
    float *stat_max, *stat_sum; /* [vocab_tiles][N] softmax statistics a tile */
    float *head_lse;            /* [N] */
    float *row_loss;            /* [N] */
    size_t sets;                /* 1 or 2 */
    struct layer_work work[2];
};

/* Bytes that model_place needs for micro-batches of up to B sequences of T tokens; with
 * train false only what forward needs (layers share one state). half: with bf16. */
size_t model_bytes(const struct shape *s, size_t B, size_t T, bool train,
                   enum recompute recompute, size_t sets, bool half);

/* Takes all buffers but `packed` from the arena (sized by model_bytes) and sets the
 * tiling; m->half, m->recompute and m->sets are set before. layers has room for L
 * entries. */
void model_place(struct model *m, struct arena *arena, struct layer_state *layers,
                 size_t B, size_t T, bool train);

/* Bytes of work that the bf16 form of any function below that has `work` needs, for the
 * caller's own, 64-byte-aligned; fp32 needs none (NULL). */
size_t model_work_bytes(const struct shape *s, size_t B, size_t T);

/* ---- weights for bf16 products: packed.c ---- */
/* Elements of `packed`: a forward and, to train, a backward form of each matrix. */
size_t packed_pairs(const struct shape *s, bool train);
/* Rounds and packs rows of a matrix of layer l, or a vocabulary tile of wte; row0 is a
 * multiple of BF16_PANEL, row1 too or the last. */
void pack_weights(const struct model *m, enum tensor_kind kind, size_t l, size_t row0,
                  size_t row1);
/* The form of y = x W^T, and that of dx = dy W. */
const bf16_pair *packed_forward(const struct model *m, enum tensor_kind kind, size_t l);
const bf16_pair *packed_backward(const struct model *m, enum tensor_kind kind, size_t l);
/* The latter of vocabulary tile v alone. */
const bf16_pair *packed_backward_tile(const struct model *m, size_t v);

/* What computes row tile r, and what computes columns j of chunk c, in layer l. */
typedef void model_rows(const struct model *m, size_t l, size_t r);
typedef void model_columns(const struct model *m, size_t l, size_t c, size_t j,
                           void *work);

/* ---- forward ---- */
void forward_embedding(const struct model *m, const int32_t *tokens, size_t r); /* x[0] */
model_rows forward_norm1;  /* x -> ln1 */
model_columns forward_qkv; /* ln1 -> qkv */
/* work: attention_work_elems(T, C/H) floats of the caller's own. */
void forward_attention(const struct model *m, size_t l, size_t b, size_t g, float *work);
model_columns forward_attproj;                            /* att, x -> mid */
model_rows forward_norm2;                                 /* mid -> ln2 */
model_columns forward_fc;                                 /* ln2 -> fc, gelu */
model_columns forward_fcproj;                             /* gelu, mid -> x of l + 1 */
void forward_final_norm(const struct model *m, size_t r); /* x_last -> lnf */

/* ---- head and loss, chunk by chunk: no N x Vp buffer ---- */
/* logits, statistics */
void head_logits(const struct model *m, size_t c, size_t v, void *work);
/* row_loss and head_lse of the chunk's rows; returns the sum of the losses in row order.
 * targets [N]; -1 means no target and no loss. */
double head_loss(const struct model *m, const int32_t *targets, size_t c);
/* logits become their gradient, times `scale` (1 / tokens of the global batch); from it
 * the gradient of wte's rows ("+=" with accumulate) and the part of lane v % head_lanes
 * of dlnf, which tiles of a lane add to in ascending order. */
void head_grad(const struct model *m, const int32_t *targets, size_t c, size_t v,
               float scale, bool accumulate, void *work);
/* Logits [rows][V] of rows of the micro-batch, after forward. */
void model_logits(const struct model *m, size_t row, size_t rows, float *logits,
                  void *work);
/* Sum of the lanes of dlnf -> dx, partial sums. */
void backward_final_norm(const struct model *m, size_t c, size_t r);
void final_norm_weight_grad(const struct model *m, bool accumulate);

/* ---- backward of layer l ---- */
model_columns backward_fcproj; /* dx, fc -> dfc, dfcb, gelu */
/* dmid is the gradient of ln2's output until backward_norm2 makes mid's of it. */
model_columns backward_fc; /* dfc -> dmid */
model_rows backward_norm2; /* dmid, dx, mid, att -> dmid, ln2, att_half, partial sums */
model_columns backward_attproj; /* dmid -> datt */
void backward_attention(const struct model *m, size_t l, size_t b, size_t g, float *work);
/* dx of layer l - 1, of the embedding where l is 0 (in its set; in the place of layer l's
 * if there is one set), is that of ln1's output at first. */
model_columns backward_qkv; /* dqkv -> dx */
model_rows backward_norm1;  /* dx, dmid, x -> dx, ln1, partial sums */

/* Weight and bias gradient of output-row tile o of one matrix of layer l: kind is QKVW,
 * ATTPROJW, FCW or FCPROJW. accumulate: "+=" instead of "=". */
void weight_grad(const struct model *m, enum tensor_kind kind, size_t l, size_t o,
                 bool accumulate, void *work);
void norm_weight_grad(const struct model *m, size_t l, bool second, bool accumulate);

/* wte gradient of vocabulary tile v "+=", after the head's part; wpe tile "=" or "+=". */
void backward_tokens(const struct model *m, const int32_t *tokens, size_t v);
void backward_positions(const struct model *m, size_t tile, bool accumulate);
/* The embedding's part of the wte gradient by itself: rows [r0, r1) of [n][C], where
 * token number i of the micro-batch is row index[i]; "=" or "+=". */
void backward_token_rows(const struct model *m, const int32_t *index, float *rows,
                         size_t r0, size_t r1, bool accumulate);

/* The set of work buffers that layer l uses, and the buffers. */
static inline size_t model_set(const struct model *m, size_t l)
{
    return l % m->sets;
}

static inline const struct layer_work *model_work(const struct model *m, size_t l)
{
    return &m->work[model_set(m, l)];
}

/* Where a slice's parameters and gradients are. */
static inline const float *model_param(const struct model *m, enum tensor_kind kind,
                                       size_t layer)
{
    return m->params + layout_slice(m->layout, kind, layer)->offset;
}

static inline float *model_grad(const struct model *m, enum tensor_kind kind,
                                size_t layer)
{
    return m->grads + layout_slice(m->layout, kind, layer)->offset;
}

#endif
