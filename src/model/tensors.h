/* tensors.h - the one table of a GPT-2's tensors.
 *
 * It drives allocation, initialisation, block planning, the optimizer, checkpoints,
 * converters and tests; there is no second list of tensors anywhere.
 *
 * Three orders of the same slices (one slice = one tensor of one layer):
 *   storage order (a)     tensor kind by kind, each for all layers: llm.c's file order
 *   production order (b)  the order in which backward finishes their gradients
 *   canonical vector      order (a), packed without padding between slices (wte has Vp
 *                         rows): what checkpoints address elements by
 * In memory every slice starts on a multiple of 64 bytes; the gap elements are zero and
 * stay zero.
 */
#ifndef WEFT_MODEL_TENSORS_H
#define WEFT_MODEL_TENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/shape.h"

enum tensor_kind {
    WTE,
    WPE,
    LN1W,
    LN1B,
    QKVW,
    QKVB,
    ATTPROJW,
    ATTPROJB,
    LN2W,
    LN2B,
    FCW,
    FCB,
    FCPROJW,
    FCPROJB,
    LNFW,
    LNFB,
    TENSOR_KINDS
};

enum init_law { INIT_ZERO, INIT_ONE, INIT_NORMAL, INIT_NORMAL_RESIDUAL };

struct tensor_info {
    const char *name;
    bool per_layer;
    bool decays; /* weight decay: the matrices only */
    enum init_law
        init; /* N(0, 0.02), or N(0, 0.02 / sqrt(2L)) for residual projections */
};

extern const struct tensor_info tensor_table[TENSOR_KINDS];

/* Rows and columns of one slice; vectors have rows = 1. Matrices are [out][in]. */
void tensor_dims(const struct shape *s, enum tensor_kind kind, size_t *rows,
                 size_t *cols);

struct slice {
    enum tensor_kind kind;
    size_t layer; /* 0 for tensors that have no layers */
    size_t rows, cols;
    size_t elems;            /* rows * cols */
    size_t offset;           /* in memory, from the base of the parameters [elements] */
    size_t span;             /* elems rounded up to 16: the place it takes in memory */
    size_t canonical_offset; /* in the canonical vector [elements] */
};

enum layout_order { LAYOUT_PRODUCTION, LAYOUT_STORAGE };

struct layout {
    struct shape shape;
    enum layout_order order; /* of the slices in memory */
    size_t n_slices;
    struct slice *slices;   /* listed in production order, whatever `order` is */
    size_t elems;           /* total span: floats to allocate */
    size_t canonical_elems; /* length of the canonical vector */
    size_t *index;          /* [kind * L + layer] -> position in slices */
};

MUST_USE enum status layout_init(struct layout *l, const struct shape *s,
                                 enum layout_order order);
/* The same with wte first in production order: where its embedding's part is summed
 * apart, its gradient is finished by the head. */
MUST_USE enum status layout_init_split(struct layout *l, const struct shape *s,
                                       enum layout_order order);
void layout_release(struct layout *l);

/* The slice of one tensor of one layer (layer 0 for tensors without layers). */
const struct slice *layout_slice(const struct layout *l, enum tensor_kind kind,
                                 size_t layer);

/* Calls visit(slice, arg) in storage order (a). */
void layout_each_canonical(const struct layout *l,
                           void (*visit)(const struct slice *s, void *arg), void *arg);

/* Initial values of rows [row0, row1) of a slice, written to `out` (the slice's place in
 * memory). Pure in (seed, tensor, element): the same bits on any rank, thread or layout.
 * Padding rows of wte are 0. */
void tensor_init_rows(const struct layout *l, const struct slice *s, uint64_t seed,
                      size_t row0, size_t row1, float *out);

/* The slice whose place in memory holds element `offset`. */
const struct slice *layout_slice_at(const struct layout *l, size_t offset);

/* "fcw[7]", "wte": buf >= 32 bytes. */
const char *slice_name(const struct slice *s, char *buf, size_t buf_bytes);

#endif
