/* SPDX-License-Identifier: MIT */
/* Weights as bf16 products want them: the forward forms of all matrices, wte first, then
 * the backward forms in the same order. The backward form of wte is one for each
 * vocabulary tile, because the products that sum over the vocabulary do so tile by tile.
 */
#include "model/model.h"

static const enum tensor_kind layer_matrices[] = {QKVW, ATTPROJW, FCW, FCPROJW};
enum { LAYER_MATRICES = sizeof layer_matrices / sizeof *layer_matrices };

static size_t pairs_of(const struct shape *s, enum tensor_kind kind)
{
    size_t out, in;

    tensor_dims(s, kind, &out, &in);
    return gemm_bf16_packed_pairs(out, in);
}

/* Pairs before a matrix of layer l. */
static size_t pairs_before(const struct shape *s, enum tensor_kind kind, size_t l)
{
    size_t before = 0;
    size_t layer = 0;

    if (kind == WTE)
        return 0;
    for (size_t i = 0; i < LAYER_MATRICES; i++) {
        if (layer_matrices[i] == kind)
            before = layer;
        layer += pairs_of(s, layer_matrices[i]);
    }
    return pairs_of(s, WTE) + l * layer + before;
}

/* Of one of the two forms. */
static size_t all_pairs(const struct shape *s)
{
    return pairs_before(s, QKVW, s->L);
}

size_t packed_pairs(const struct shape *s, bool train)
{
    return (train ? 2 : 1) * all_pairs(s);
}

const bf16_pair *packed_forward(const struct model *m, enum tensor_kind kind, size_t l)
{
    return m->packed + pairs_before(&m->shape, kind, l);
}

const bf16_pair *packed_backward(const struct model *m, enum tensor_kind kind, size_t l)
{
    return m->packed + all_pairs(&m->shape) + pairs_before(&m->shape, kind, l);
}

const bf16_pair *packed_backward_tile(const struct model *m, size_t v)
{
    return packed_backward(m, WTE, 0) +
           gemm_bf16_packed_pairs(v * m->tiling.vocab_tile, m->shape.C);
}

void pack_weights(const struct model *m, enum tensor_kind kind, size_t l, size_t row0,
                  size_t row1)
{
    size_t at = pairs_before(&m->shape, kind, l);
    bf16_pair *backward = m->grads ? m->packed + all_pairs(&m->shape) + at : NULL;
    const float *W = model_param(m, kind, l);
    size_t out, in;

    tensor_dims(&m->shape, kind, &out, &in);
    m->half->pack(m->packed + at, kind == WTE ? NULL : backward, W, out, in, row0, row1);
    if (kind == WTE && backward)
        m->half->pack(NULL, backward + gemm_bf16_packed_pairs(row0, in), W + row0 * in,
                      row1 - row0, in, 0, row1 - row0);
}
