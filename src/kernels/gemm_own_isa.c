/* SPDX-License-Identifier: MIT */
/* gemm_own_isa.c - blocked matrix products.
 *
 * op(B) is taken in panels of three vectors of columns and DEPTH rows, which lie packed
 * in the first caches while all rows of C pass: eight at a time, so that 24 sums stay in
 * registers and each number of A is used three times. Rows of A are read where they lie;
 * columns, which are far apart, are packed before. While a panel is multiplied the next
 * one is fetched from memory, line by line between the sums, and so are the rows of C
 * that come next: without that a third of the time is waiting.
 *
 * Each element of C is summed in one accumulator a block of DEPTH, k ascending, and
 * blocks are added in ascending order: its bits depend on k alone.
 */
#include "kernels/gemm_own.h"
#include "kernels/isa.h"
#include "kernels/transpose.h"

#include "base/memory.h"

#if VEC_ELEMS == 16
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif

enum {
    VECS = 3,
    PANEL = VECS * VEC_ELEMS,
    DEPTH = 384,
    LEFT = 96 * 1024, /* numbers of A packed at a time, on the stack: they share the
                         second cache with what comes from memory */
    LINE = CACHE_LINE / sizeof(float)
};

/* ---- packing ---- */

/* A panel of `columns` columns whose numbers of one column are side by side. */
static void pack_columns(float *restrict to, const float *restrict from, size_t ld,
                         size_t columns, size_t depth)
{
    if (columns < PANEL)
        memset(to, 0, depth * PANEL * sizeof *to);
    transpose(to, PANEL, from, ld, columns, depth);
}

/* One whose numbers of one row are side by side. */
static void pack_rows(float *restrict to, const float *restrict from, size_t ld,
                      size_t columns, size_t depth)
{
    memset(to, 0, depth * PANEL * sizeof *to);
    for (size_t k = 0; k < depth; k++)
        memcpy(to + k * PANEL, from + k * ld, columns * sizeof *to);
}

/* Columns of A as groups of ROWS: number k of column i of one is at [k * ROWS + i]. */
static void pack_left(float *restrict to, const float *restrict from, size_t ld,
                      size_t rows, size_t depth)
{
    for (size_t i = 0; i < rows; i += ROWS, from += ROWS) {
        const size_t height = min_size(ROWS, rows - i);

        for (size_t k = 0; k < depth; k++, to += ROWS) {
            if (height == ROWS)
                memcpy(to, from + k * ld, ROWS * sizeof *to);
            else
                memcpy(to, from + k * ld, height * sizeof *to);
        }
    }
}

/* ---- fetching ahead ---- */

/* What memory is fetched next: `beside` lines at a time, then those `step` bytes on;
 * after `turn` times it goes back by `back` bytes. */
struct ahead {
    const char *at;
    size_t beside, beside_step, step;
    size_t turn, done;
    ptrdiff_t back;
    size_t left; /* times */
};

KERNEL_INLINE void fetch(struct ahead *a)
{
    if (a->left == 0)
        return;
    for (size_t i = 0; i < a->beside; i++)
        __builtin_prefetch(a->at + i * a->beside_step, 0, 2);
    a->at += a->step;
    a->left--;
    if (++a->done == a->turn) {
        a->at -= a->back;
        a->done = 0;
    }
}

/* Columns j .. of rows k .. as they lie in B: all lines of a row at a time, or two
 * columns' lines. Nothing where B has ended. */
static struct ahead ahead_of(const struct product *p, size_t k, size_t depth, size_t j)
{
    const size_t rows = min_size(depth, p->k - k), columns = min_size(PANEL, p->n - j);
    const float *from = p->B + k * p->b_k + j * p->b_column;

    if (p->b_column == 1)
        return (struct ahead){.at = (const char *)from,
                              .beside = ceil_div(columns, LINE),
                              .beside_step = CACHE_LINE,
                              .step = p->b_k * sizeof *from,
                              .left = rows};
    const size_t step = p->b_column * sizeof *from, turn = ceil_div(columns, 2);

    return (struct ahead){.at = (const char *)from,
                          .beside = 2,
                          .beside_step = step,
                          .step = 2 * step,
                          .turn = turn,
                          .back = (ptrdiff_t)(2 * step * turn) - CACHE_LINE,
                          .left = turn * ceil_div(rows, LINE)};
}

/* ---- the register tile ---- */

struct tile {
    const float *left; /* row i of k: [i * left_row + k], or packed: [k * ROWS + i] */
    size_t left_row;
    const float *right; /* [k * right_k], PANEL numbers each */
    size_t right_k;
    float *keep; /* where the panel is stored while it is read */
    size_t depth;
    float *C;
    size_t ldc;
    const float *bias, *add; /* what is added to the sums, or NULL */
    size_t ldadd;
    const float *next_C, *next_add; /* the rows that come next */
    const float *next_left;         /* or NULL */
};

KERNEL_INLINE void tile_sums(const struct tile *t, struct ahead *ahead, const size_t rows,
                             const size_t vecs, const bool packed, const bool keep)
{
    const float *left = t->left, *right = t->right;
    const float *next_C = t->next_C, *next_add = t->next_add;
    float *kept = t->keep;
    vec acc[ROWS][VECS];

    UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < vecs; v++)
    acc[i][v] = (vec){0};
    for (size_t k = 0; k < t->depth; k += LINE) {
        const size_t count = min_size(LINE, t->depth - k);

        fetch(ahead);
        UNROLLED(size_t v = 0; v < vecs; v++)
        {
            __builtin_prefetch(next_C + v * VEC_ELEMS, 1, 2);
            __builtin_prefetch(next_add + v * VEC_ELEMS, 0, 2);
        }
        next_C += t->ldc;
        next_add += t->ldadd;
        for (size_t i = 0; t->next_left && i < ROWS; i++)
            __builtin_prefetch(t->next_left + i * t->left_row + k, 0, 2);
            /* Several k at a time would need registers that are not there. */
#pragma GCC unroll 1
        for (size_t w = 0; w < count; w++) {
            vec column[VECS];

            UNROLLED(size_t v = 0; v < vecs; v++)
            {
                column[v] = vec_load(right + v * VEC_ELEMS);
                if (keep)
                    vec_store(kept + v * VEC_ELEMS, column[v]);
            }
            UNROLLED(size_t i = 0; i < rows; i++)
            {
                vec row = vec_splat(packed ? left[i] : left[i * t->left_row + w]);

                UNROLLED(size_t v = 0; v < vecs; v++)
                acc[i][v] += row * column[v];
            }
            right += t->right_k;
            if (keep)
                kept += PANEL;
            if (packed)
                left += ROWS;
        }
        if (!packed)
            left += LINE;
    }
    if (t->bias)
        UNROLLED(size_t v = 0; v < vecs; v++)
        {
            const vec bias = vec_load(t->bias + v * VEC_ELEMS);

            UNROLLED(size_t i = 0; i < rows; i++)
            acc[i][v] += bias;
        }
    if (t->add)
        UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < vecs; v++)
    acc[i][v] += vec_load(t->add + i * t->ldadd + v * VEC_ELEMS);
    UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < vecs; v++)
    vec_store(t->C + i * t->ldc + v * VEC_ELEMS, acc[i][v]);
}

/* The compiler needs to know the numbers of rows and of vectors. */
KERNEL_INLINE void tile_vecs(const struct tile *t, struct ahead *ahead, const size_t rows,
                             size_t vecs, const bool packed)
{
    if (t->keep)
        tile_sums(t, ahead, rows, VECS, packed, true);
    else if (vecs == 3)
        tile_sums(t, ahead, rows, 3, packed, false);
    else if (vecs == 2)
        tile_sums(t, ahead, rows, 2, packed, false);
    else
        tile_sums(t, ahead, rows, 1, packed, false);
}

static void tile(const struct tile *t, struct ahead *ahead, size_t rows, size_t vecs,
                 bool packed)
{
#define TILE_CASE(n)                                                                     \
    case n:                                                                              \
        if (packed)                                                                      \
            tile_vecs(t, ahead, n, vecs, true);                                          \
        else                                                                             \
            tile_vecs(t, ahead, n, vecs, false);                                         \
        break;
    switch (rows) {
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(4)
#if VEC_ELEMS == 16
        TILE_CASE(8)
#endif
    }
#undef TILE_CASE
}

/* The most rows, a power of two, that a tile of `left` rows has. */
static size_t tile_rows(size_t left)
{
    size_t rows = ROWS;

    while (rows > left)
        rows /= 2;
    return rows;
}

/* A tile that ends in the middle of a vector: its sums go by a place of their own. */
static void tile_beside(struct tile t, struct ahead *ahead, size_t rows, size_t columns,
                        bool packed)
{
    _Alignas(64) float sums[ROWS * PANEL];
    struct tile beside = t;

    beside.C = sums;
    beside.ldc = PANEL;
    beside.bias = beside.add = NULL;
    beside.next_C = beside.next_add = sums;
    tile(&beside, ahead, rows, ceil_div(columns, VEC_ELEMS), packed);
    for (size_t i = 0; i < rows; i++)
        for (size_t c = 0; c < columns; c++) {
            float sum = sums[i * PANEL + c];

            if (t.bias)
                sum += t.bias[c];
            if (t.add)
                sum += t.add[i * t.ldadd + c];
            t.C[i * t.ldc + c] = sum;
        }
}

/* ---- the product ---- */

/* A block of op(A) against op(B), and what they are packed into. */
struct block {
    size_t k, depth;
    size_t row, rows;
    float *left, *panel;
};

/* What is added to the sums of a block at row i and column j: those of the blocks before,
 * or what the whole product adds. */
struct added {
    const float *at;
    size_t ld;
};

static struct added added_at(const struct product *p, const struct block *b, size_t i,
                             size_t j)
{
    if (b->k > 0)
        return (struct added){p->C + i * p->ldc + j, p->ldc};
    return (struct added){p->add ? p->add + i * p->ldadd + j : NULL, p->ldadd};
}

/* The tile of `rows` rows at row i and column j, of which `columns` are left. */
static void multiply_tile(const struct product *p, const struct block *b, struct tile *t,
                          struct ahead *ahead, size_t i, size_t j, size_t rows,
                          size_t columns)
{
    const bool packed = p->a_k != 1, last = i + rows == b->row + b->rows;
    const size_t at = i - b->row, next_i = last ? b->row : i + rows,
                 next_j = last && j + PANEL < p->n ? j + PANEL : j;
    const struct added added = added_at(p, b, i, j),
                       next = added_at(p, b, next_i, next_j);

    t->left = packed ? b->left + at / ROWS * ROWS * b->depth + at % ROWS
                     : p->A + i * p->a_row + b->k;
    t->C = p->C + i * p->ldc + j;
    t->next_C = p->C + next_i * p->ldc + next_j;
    t->add = added.at;
    t->ldadd = added.ld;
    t->next_add = next.at ? next.at : t->next_C;
    t->next_left = !packed && j == 0 && !last ? t->left + rows * t->left_row : NULL;
    if (columns % VEC_ELEMS == 0)
        tile(t, ahead, rows, columns / VEC_ELEMS, packed);
    else
        tile_beside(*t, ahead, rows, columns, packed);
}

static void multiply_panel(const struct product *p, const struct block *b, size_t j)
{
    const size_t columns = min_size(PANEL, p->n - j), end = b->row + b->rows;
    const float *B = p->B + b->k * p->b_k + j * p->b_column;
    struct tile t = {.left_row = p->a_row,
                     .right = b->panel,
                     .right_k = PANEL,
                     .depth = b->depth,
                     .ldc = p->ldc,
                     .bias = p->bias && b->k == 0 ? p->bias + j : NULL};
    struct ahead ahead = {0};

    if (j + PANEL < p->n)
        ahead = ahead_of(p, b->k, b->depth, j + PANEL);
    else if (b->k + b->depth < p->k)
        ahead = ahead_of(p, b->k + b->depth, b->depth, 0);
    if (p->b_column != 1) {
        pack_columns(b->panel, B, p->b_column, columns, b->depth);
    } else if (columns < PANEL) {
        pack_rows(b->panel, B, p->b_k, columns, b->depth);
    } else { /* the first rows of C read it where it lies and leave it packed */
        t.right = B;
        t.right_k = p->b_k;
        t.keep = b->panel;
    }
    for (size_t i = b->row, rows; i < end; i += rows) {
        rows = tile_rows(end - i);
        multiply_tile(p, b, &t, &ahead, i, j, rows, columns);
        t.right = b->panel;
        t.right_k = PANEL;
        t.keep = NULL;
    }
}

static void multiply_block(const struct product *p, struct block *b)
{
    const size_t most = LEFT / max_size(b->depth, 1) / ROWS * ROWS;

    for (b->row = 0; b->row < p->m; b->row += b->rows) {
        b->rows = p->m - b->row;
        if (p->a_k != 1) {
            b->rows = min_size(b->rows, most);
            pack_left(b->left, p->A + b->row + b->k * p->a_k, p->a_k, b->rows, b->depth);
        }
        for (size_t j = 0; j < p->n; j += PANEL)
            multiply_panel(p, b, j);
    }
}

void KERNEL(product)(const struct product *p)
{
    _Alignas(64) float left[LEFT], panel[DEPTH * PANEL];
    const size_t blocks = max_size(ceil_div(p->k, DEPTH), 1),
                 depth = round_up(ceil_div(p->k, blocks), LINE);

    for (size_t k = 0; k == 0 || k < p->k; k += depth) {
        struct block b = {
            .k = k, .depth = min_size(depth, p->k - k), .left = left, .panel = panel};

        multiply_block(p, &b);
        if (p->k == 0)
            break;
    }
}
