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

/* Most rows of a chunk: fewer make products slower, more need larger buffers. */
enum { CHUNK_ROWS = 256 };

/* Columns of a matrix in tiles; the last may be narrower. */
struct column_cut {
    size_t columns, tile, tiles;
};

/* Rows are cut twice: what works row by row (layer-norm) goes by row tile, matrix
 * products go by chunk, which is a few row tiles, and by tile of output columns. */
struct tiling {
    size_t B, T, N;  /* N = B*T rows */
    size_t row_tile; /* rows a tile; the last may be shorter */
    size_t row_tiles;
    size_t chunk_tiles; /* row tiles a chunk */
    size_t chunks;
    /* Output columns of y = x W^T and of dx = dy W, for each weight matrix of a layer. */
    struct column_cut forward[TENSOR_KINDS], backward[TENSOR_KINDS];
    /* Columns of a weight's gradient that one product makes; a task makes all of them. */
    struct column_cut weight[TENSOR_KINDS];
    size_t head_groups; /* tasks a sequence in attention; 1 <= groups <= H */
    size_t vocab_tile;  /* rows of wte a tile, a multiple of VOCAB_PAD */
    size_t vocab_tiles;
    size_t head_lanes; /* sums, over every head_lanes-th vocabulary tile, that make the
                          gradient of the head's input */
};

/* In       B, T >= 1, T <= s->T */
void tiling_init(struct tiling *t, const struct shape *s, size_t B, size_t T);

/* Upper bounds of row_tiles and chunks over all micro-batches of at most N rows. */
size_t tiling_max_row_tiles(size_t N);
size_t tiling_max_chunks(size_t N);

/* Consecutive rows of the micro-batch, or columns of a matrix. */
struct span {
    size_t begin, size;
};

/* Rows of row tile r; rows of chunk c; row tiles of chunk c. */
struct span tiling_rows(const struct tiling *t, size_t r);
struct span tiling_chunk_rows(const struct tiling *t, size_t c);
struct span tiling_chunk_tiles(const struct tiling *t, size_t c);
struct span tiling_columns(const struct column_cut *cut, size_t j);

/* Chunks [*first, *last) that hold rows of sequence b. */
void tiling_chunks_of_sequence(const struct tiling *t, size_t b, size_t *first,
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
