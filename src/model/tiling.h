/* tiling.h - how a micro-batch and the weights are cut into tiles.
 *
 * Everything here depends on the shape, B and T only, never on the number of threads or
 * ranks: with a fixed order of every sum that makes results the same bits for any thread
 * count.
 */
#ifndef WEFT_MODEL_TILING_H
#define WEFT_MODEL_TILING_H

#include <stddef.h>

#include "model/tensors.h"

struct tiling {
    size_t B, T, N;  /* N = B*T rows */
    size_t row_tile; /* rows a tile; the last may be shorter */
    size_t row_tiles;
    size_t head_groups; /* tasks a sequence in attention; 1 <= groups <= H */
    size_t vocab_tile;  /* rows of wte a tile, a multiple of VOCAB_PAD */
    size_t vocab_tiles;
    size_t chunk_tiles; /* row tiles whose logits are alive together */
    size_t chunks;
};

/* In       B, T >= 1, T <= s->T */
void tiling_init(struct tiling *t, const struct shape *s, size_t B, size_t T);

/* Upper bound of row_tiles over all micro-batches of at most N rows. */
size_t tiling_max_row_tiles(size_t N);

/* Consecutive rows of the micro-batch. */
struct row_span {
    size_t begin, rows;
};

/* Rows of row tile r; rows of chunk c of row tiles. */
struct row_span tiling_rows(const struct tiling *t, size_t r);
struct row_span tiling_chunk_rows(const struct tiling *t, size_t c);
/* Row tiles [*first, *last) that hold rows of sequence b. */
void tiling_tiles_of_sequence(const struct tiling *t, size_t b, size_t *first,
                              size_t *last);
/* Sequences [*first, *last) that have rows in row tile r. */
void tiling_sequences_of_tile(const struct tiling *t, size_t r, size_t *first,
                              size_t *last);
/* Heads [*first, *last) of group g. */
void tiling_heads(const struct tiling *t, const struct shape *s, size_t g, size_t *first,
                  size_t *last);

/* Gradient tiles of a slice: consecutive elements that one task writes. Weight matrices
 * are cut by output rows and their biases at the same rows; layer-norm vectors are one
 * tile. */
size_t tiling_grad_tile_elems(const struct tiling *t, const struct shape *s,
                              enum tensor_kind kind);
size_t tiling_grad_tiles(const struct tiling *t, const struct shape *s,
                         enum tensor_kind kind);
/* Output rows a tile of the weight matrix `kind`, and the number of such tiles. */
size_t tiling_weight_rows(const struct shape *s, enum tensor_kind kind);

#endif
