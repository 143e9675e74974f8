/* SPDX-License-Identifier: MIT */
#include "model/tiling.h"

#include "base/memory.h"
#include "kernels/gemm_bf16.h"

#ifndef WEFT_FINE_TILES
enum {
    PRODUCT_ROWS = CHUNK_ROWS,
    MIN_ROW_TILE = 32,
    ROW_TILE_ELEMS = 48 * 1024, /* and no fewer elements */
    ROW_TILES_WANTED = 8,
    /* The library's kernel is 48 columns wide, a panel of bf16 weights 32; that of gelu
     * takes 128 elements. */
    COLUMN_GRAIN = 96,
    GELU_GRAIN = 128,
    MIN_COLUMN_TILE = 96,
    MAX_COLUMN_TILE = 768, /* a chunk of it stays in cache for gelu */
    PRODUCT_TASKS_WANTED = 16,
    ATTENTION_TASKS_WANTED = 32,
    MAX_VOCAB_TILE = 1024, /* logits of a chunk stay in cache for what follows */
    HEAD_LANES = 16,
    MIN_WEIGHT_TILE = 192,
    MAX_WEIGHT_TILE = 384,
    WEIGHT_GRAIN = 96,
    WEIGHT_TASKS_WANTED = 8,
    POSITION_TILE = 64
};
/* A smaller task is not worth the time to wake a worker for it. */
static const double least_flops = 32e6;
#else
/* Tests: small models in as many tiles as large ones, none of them whole. */
enum {
    PRODUCT_ROWS = 56,
    MIN_ROW_TILE = 8,
    ROW_TILE_ELEMS = 64,
    ROW_TILES_WANTED = 8,
    COLUMN_GRAIN = BF16_PANEL,
    GELU_GRAIN = BF16_PANEL,
    MIN_COLUMN_TILE = BF16_PANEL,
    MAX_COLUMN_TILE = BF16_PANEL,
    PRODUCT_TASKS_WANTED = 16,
    ATTENTION_TASKS_WANTED = 32,
    MAX_VOCAB_TILE = 128,
    HEAD_LANES = 4,
    MIN_WEIGHT_TILE = 17,
    MAX_WEIGHT_TILE = 31,
    WEIGHT_GRAIN = 1,
    WEIGHT_TASKS_WANTED = 8,
    POSITION_TILE = 9
};
static const double least_flops = 0;
#endif

static size_t clamp(size_t n, size_t low, size_t high)
{
    return n < low ? low : n > high ? high : n;
}

/* ---- rows ---- */

/* A power of two, so that chunks of as many tiles have at most PRODUCT_ROWS rows. */
static size_t tiles_a_chunk(size_t chunks)
{
    size_t tiles = 1;

    while (tiles * chunks < ROW_TILES_WANTED)
        tiles *= 2;
    return tiles;
}

static void cut_rows(struct tiling *t, size_t C)
{
    size_t chunks = tiling_max_chunks(t->N);
    size_t tiles = tiles_a_chunk(chunks);
    size_t least = max_size(MIN_ROW_TILE, ROW_TILE_ELEMS / C);

    while (tiles > 1 && ceil_div(t->N, chunks * tiles) < least)
        tiles /= 2;
    t->row_tile = round_up(ceil_div(t->N, chunks * tiles), 8);
    t->row_tiles = ceil_div(t->N, t->row_tile);
    t->chunk_tiles = min_size(tiles, t->row_tiles);
    t->chunks = ceil_div(t->row_tiles, t->chunk_tiles);
}

size_t tiling_max_chunks(size_t N)
{
    return ceil_div(N, PRODUCT_ROWS);
}

size_t tiling_max_row_tiles(size_t N)
{
    size_t most = 0;

    /* Not monotonous: few chunks have more tiles each. */
    for (size_t c = 1; c <= tiling_max_chunks(N) && c <= ROW_TILES_WANTED; c++)
        most = max_size(most, c * tiles_a_chunk(c));
    return max_size(most, tiling_max_chunks(N));
}

static struct span span_at(size_t begin, size_t size, size_t total)
{
    return (struct span){begin, min_size(total - begin, size)};
}

struct span tiling_rows(const struct tiling *t, size_t r)
{
    return span_at(r * t->row_tile, t->row_tile, t->N);
}

struct span tiling_chunk_rows(const struct tiling *t, size_t c)
{
    size_t rows = t->chunk_tiles * t->row_tile;

    return span_at(c * rows, rows, t->N);
}

struct span tiling_chunk_tiles(const struct tiling *t, size_t c)
{
    return span_at(c * t->chunk_tiles, t->chunk_tiles, t->row_tiles);
}

void tiling_chunks_of_sequence(const struct tiling *t, size_t b, size_t *first,
                               size_t *last)
{
    size_t rows = t->chunk_tiles * t->row_tile;

    *first = b * t->T / rows;
    *last = ((b + 1) * t->T - 1) / rows + 1;
}

/* ---- columns ---- */

/* The multiple of grain, from low to twice that, that leaves the last tile the least
 * short. */
static size_t even_tile(size_t columns, size_t low, size_t grain)
{
    size_t first = round_up(low, grain);
    size_t best = first;

    for (size_t tile = first; tile < 2 * first; tile += grain)
        if (round_up(columns, tile) < round_up(columns, best))
            best = tile;
    return best;
}

/* A product of `rows` rows and `columns` columns with k terms a sum, `chunks` of them
 * side by side. */
static struct column_cut cut_columns(size_t rows, size_t chunks, size_t columns, size_t k,
                                     size_t grain)
{
    size_t wanted = ceil_div(PRODUCT_TASKS_WANTED, chunks);
    size_t low = clamp(ceil_div(columns, wanted), MIN_COLUMN_TILE, MAX_COLUMN_TILE);
    double least = least_flops / (2 * (double)rows * (double)k);

    if (least > (double)low)
        low = least < (double)columns ? (size_t)least : columns;
    size_t tile = min_size(columns, even_tile(columns, low, grain));

    return (struct column_cut){columns, tile, ceil_div(columns, tile)};
}

/* Columns in as few even tiles as go. */
static struct column_cut cut_evenly(size_t columns, size_t most)
{
    size_t tile = round_up(ceil_div(columns, ceil_div(columns, most)), COLUMN_GRAIN);

    tile = min_size(columns, tile);
    return (struct column_cut){columns, tile, ceil_div(columns, tile)};
}

static void cut_products(struct tiling *t, const struct shape *s)
{
    static const enum tensor_kind matrices[] = {QKVW, ATTPROJW, FCW, FCPROJW};
    size_t rows = min_size(t->N, t->chunk_tiles * t->row_tile);

    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        enum tensor_kind kind = matrices[i];
        size_t out, in;

        tensor_dims(s, kind, &out, &in);
        t->forward[kind] = cut_columns(rows, t->chunks, out, in,
                                       kind == FCW ? GELU_GRAIN : COLUMN_GRAIN);
        t->backward[kind] = cut_columns(rows, t->chunks, in, out,
                                        kind == FCPROJW ? GELU_GRAIN : COLUMN_GRAIN);
        t->weight[kind] = cut_evenly(in, MAX_COLUMN_TILE);
    }
}

struct span tiling_columns(const struct column_cut *cut, size_t j)
{
    return span_at(j * cut->tile, cut->tile, cut->columns);
}

/* Depends on the shape alone: parameters and gradients of wte are cut by it. */
static size_t vocab_tile(const struct shape *s)
{
    double least = least_flops / (2 * PRODUCT_ROWS * (double)s->C);
    size_t tile = min_size(MAX_VOCAB_TILE, ceil_div(s->Vp, PRODUCT_TASKS_WANTED));

    if (least > (double)tile)
        tile = least < (double)s->Vp ? (size_t)least : s->Vp;
    return min_size(s->Vp, round_up(tile, VOCAB_PAD));
}

void tiling_init(struct tiling *t, const struct shape *s, size_t B, size_t T)
{
    *t = (struct tiling){.B = B, .T = T, .N = B * T};
    cut_rows(t, s->C);
    cut_products(t, s);
    t->head_groups = min_size(s->H, ceil_div(ATTENTION_TASKS_WANTED, B));
    t->vocab_tile = vocab_tile(s);
    t->vocab_tiles = ceil_div(s->Vp, t->vocab_tile);
    t->head_lanes = min_size(t->vocab_tiles, HEAD_LANES);
}

/* ---- heads and gradients ---- */

void tiling_heads(const struct tiling *t, const struct shape *s, size_t g, size_t *first,
                  size_t *last)
{
    *first = g * s->H / t->head_groups;
    *last = (g + 1) * s->H / t->head_groups;
}

static size_t weight_tile(size_t rows)
{
    size_t tile = clamp(rows / WEIGHT_TASKS_WANTED, MIN_WEIGHT_TILE, MAX_WEIGHT_TILE);

    return min_size(rows, even_tile(rows, tile, WEIGHT_GRAIN));
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
