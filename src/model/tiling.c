/* SPDX-License-Identifier: MIT */
#include "model/tiling.h"

#include "base/memory.h"

enum {
    MIN_ROW_TILE = 32,
    MAX_ROW_TILE = 256,
    ROW_TILES_WANTED = 8,
    ATTENTION_TASKS_WANTED = 32,
    VOCAB_TILE = 2048,
    MIN_WEIGHT_TILE = 16,
    MAX_WEIGHT_TILE = 256,
    WEIGHT_TILES_WANTED = 4,
    CHUNK_ROWS = 256,
    POSITION_TILE = 64
};

static size_t clamp(size_t n, size_t low, size_t high)
{
    return n < low ? low : n > high ? high : n;
}

static size_t row_tile_for(size_t N)
{
    return clamp(round_up(ceil_div(N, ROW_TILES_WANTED), 16), MIN_ROW_TILE, MAX_ROW_TILE);
}

void tiling_init(struct tiling *t, const struct shape *s, size_t B, size_t T)
{
    *t = (struct tiling){.B = B, .T = T, .N = B * T};
    t->row_tile = row_tile_for(t->N);
    t->row_tiles = ceil_div(t->N, t->row_tile);
    t->head_groups = min_size(s->H, ceil_div(ATTENTION_TASKS_WANTED, B));
    t->vocab_tile = min_size(s->Vp, VOCAB_TILE);
    t->vocab_tiles = ceil_div(s->Vp, t->vocab_tile);
    t->chunk_tiles = clamp(CHUNK_ROWS / t->row_tile, 1, t->row_tiles);
    t->chunks = ceil_div(t->row_tiles, t->chunk_tiles);
}

size_t tiling_max_row_tiles(size_t N)
{
    return max_size(ROW_TILES_WANTED, ceil_div(N, MAX_ROW_TILE));
}

static struct row_span rows_between(const struct tiling *t, size_t begin, size_t rows)
{
    return (struct row_span){begin, min_size(t->N - begin, rows)};
}

struct row_span tiling_rows(const struct tiling *t, size_t r)
{
    return rows_between(t, r * t->row_tile, t->row_tile);
}

struct row_span tiling_chunk_rows(const struct tiling *t, size_t c)
{
    size_t rows = t->chunk_tiles * t->row_tile;

    return rows_between(t, c * rows, rows);
}

void tiling_tiles_of_sequence(const struct tiling *t, size_t b, size_t *first,
                              size_t *last)
{
    *first = b * t->T / t->row_tile;
    *last = ((b + 1) * t->T - 1) / t->row_tile + 1;
}

void tiling_sequences_of_tile(const struct tiling *t, size_t r, size_t *first,
                              size_t *last)
{
    struct row_span s = tiling_rows(t, r);

    *first = s.begin / t->T;
    *last = (s.begin + s.rows - 1) / t->T + 1;
}

void tiling_heads(const struct tiling *t, const struct shape *s, size_t g, size_t *first,
                  size_t *last)
{
    *first = g * s->H / t->head_groups;
    *last = (g + 1) * s->H / t->head_groups;
}

static size_t weight_tile(size_t rows)
{
    return clamp(round_up(ceil_div(rows, WEIGHT_TILES_WANTED), 16), MIN_WEIGHT_TILE,
                 MAX_WEIGHT_TILE);
}

size_t tiling_weight_rows(const struct shape *s, enum tensor_kind kind)
{
    size_t rows, cols;

    tensor_dims(s, kind, &rows, &cols);
    return weight_tile(rows);
}

size_t tiling_grad_tile_elems(const struct tiling *t, const struct shape *s,
                              enum tensor_kind kind)
{
    size_t rows, cols;

    tensor_dims(s, kind, &rows, &cols);
    switch (kind) {
    case WTE:
        return t->vocab_tile * cols;
    case WPE:
        return min_size(POSITION_TILE, s->T) * cols;
    case QKVW:
    case ATTPROJW:
    case FCW:
    case FCPROJW:
        return weight_tile(rows) * cols;
    case QKVB:
    case ATTPROJB:
    case FCB:
    case FCPROJB:
        return weight_tile(cols); /* a bias has as many elements as its matrix has rows */
    case LN1W:
    case LN1B:
    case LN2W:
    case LN2B:
    case LNFW:
    case LNFB:
    case TENSOR_KINDS:
        break;
    }
    return rows * cols;
}

size_t tiling_grad_tiles(const struct tiling *t, const struct shape *s,
                         enum tensor_kind kind)
{
    size_t rows, cols;

    tensor_dims(s, kind, &rows, &cols);
    return ceil_div(rows * cols, tiling_grad_tile_elems(t, s, kind));
}
