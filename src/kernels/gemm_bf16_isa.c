/* SPDX-License-Identifier: MIT */
/* gemm_bf16_isa.c - blocked bf16 products on the register tile of gemm_tile.h.
 *
 * Built for each instruction set. Where the CPU multiplies pairs of bf16 fast
 * (avx512_bf16) a word of the tile is a pair and the packed weights are used as they lie;
 * elsewhere a word is a float: panels are widened as they come into use, and a product
 * runs at the speed of fp32 with half its memory traffic.
 *
 * For each block of depth: all rows of the left side are packed, then panel after panel
 * of the right side meets them. Blocks depend on the depth only, and are added in
 * ascending order.
 */
#include "kernels/gemm_bf16_isa.h"
#include "kernels/gemm_tile.h"
#include "kernels/isa.h"

#include "base/memory.h"

_Static_assert((int)TILE_PANEL == (int)BF16_PANEL, "packed panels are the tile's panels");
_Static_assert((int)TILE_ROWS <= (int)BF16_MAX_TILE_ROWS, "work space");

enum { DEPTH_UNIT = 32 }; /* packed matrices end with zeros at a multiple of this */

/* Elements of depth in one block: equal blocks, of whole units. */
static size_t block_depth(size_t depth)
{
    size_t blocks = ceil_div(depth, (size_t)BF16_DEPTH_WORDS * WORD_ELEMS);

    return blocks > 0 ? round_up(ceil_div(depth, blocks), DEPTH_UNIT) : 0;
}

static bf16_pair pair_of(bf16 even, bf16 odd)
{
    return (bf16_pair)even | (bf16_pair)odd << 16;
}

static void round_all(bf16 *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_round(x[i]);
}

static void widen_all(float *restrict y, const bf16 *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = bf16_value(x[i]);
}

/* What is written lies before what is still to be read. The copies tell the compiler that
 * floats and halves share the memory. */
static void round_rows(float *x, size_t ld, size_t rows, size_t columns)
{
    enum { PIECE = 32 };

    for (size_t r = 0; r < rows; r++) {
        char *row = (char *)(x + r * ld);

        for (size_t c = 0; c < columns; c += PIECE) {
            size_t n = min_size(PIECE, columns - c);
            float whole[PIECE] = {0};
            bf16 half[PIECE];

            if (n == PIECE)
                memcpy(whole, row + c * sizeof *whole, sizeof whole);
            else
                memcpy(whole, row + c * sizeof *whole, n * sizeof *whole);
            round_all(half, whole, PIECE);
            memcpy(row + c * sizeof *half, half, n * sizeof *half);
        }
    }
}

/* ---- packing of weights ---- */

/* A square of W, rounded; zero where W has ended. */
struct square {
    _Alignas(64) bf16 at[BF16_PANEL][BF16_PANEL];
};

static void square_read(struct square *s, const float *W, size_t ldw, size_t rows,
                        size_t columns)
{
    if (rows < BF16_PANEL || columns < BF16_PANEL)
        memset(s, 0, sizeof *s);
    for (size_t r = 0; r < rows; r++) {
        if (columns == BF16_PANEL)
            round_all(s->at[r], W + r * ldw, BF16_PANEL);
        else
            round_all(s->at[r], W + r * ldw, columns);
    }
}

/* Rows are the columns of B, their elements its depth. */
static void square_put_forward(bf16_pair *restrict to, const struct square *restrict s)
{
    for (size_t k = 0; k < BF16_PANEL / 2; k++)
        for (size_t c = 0; c < BF16_PANEL; c++)
            to[k * BF16_PANEL + c] = pair_of(s->at[c][2 * k], s->at[c][2 * k + 1]);
}

/* Rows are the depth of B. */
static void square_put_backward(bf16_pair *restrict to, const struct square *restrict s)
{
    for (size_t k = 0; k < BF16_PANEL / 2; k++)
        for (size_t c = 0; c < BF16_PANEL; c++)
            to[k * BF16_PANEL + c] = pair_of(s->at[2 * k][c], s->at[2 * k + 1][c]);
}

static void pack(bf16_pair *forward, bf16_pair *backward, const float *W, size_t out,
                 size_t in, size_t row0, size_t row1)
{
    const size_t side = BF16_PANEL, forward_panel = round_up(in, side) * side / 2,
                 backward_panel = round_up(out, side) * side / 2;
    struct square s;

    require(row0 % side == 0 && row0 <= row1 && row1 <= out);
    for (size_t r = row0; r < row1; r += side)
        for (size_t c = 0; c < in; c += side) {
            square_read(&s, W + r * in + c, in, min_size(side, row1 - r),
                        min_size(side, in - c));
            if (forward)
                square_put_forward(forward + r / side * forward_panel + c * side / 2, &s);
            if (backward)
                square_put_backward(backward + c / side * backward_panel + r * side / 2,
                                    &s);
        }
}

/* ---- packing of operands into words ---- */

/* TILE_WORDS words of a row, of which `elems` elements are left; then zeros. */
KERNEL_INLINE void row_words(float *restrict to, const bf16 *restrict row, size_t elems)
{
    enum { ALL = TILE_WORDS * WORD_ELEMS };
    bf16 rest[ALL] = {0};

    if (elems < ALL) {
        memcpy(rest, row, elems * sizeof *rest);
        row = rest;
    }
#ifdef __AVX512BF16__
    memcpy(to, row, sizeof rest);
#else
    widen_all(to, row, ALL);
#endif
}

/* Words of `columns` columns at depth k; rows of the matrix are its depth. */
KERNEL_INLINE void column_words(float *restrict to, const bf16 *restrict from, size_t ld,
                                size_t k, size_t depth, size_t columns)
{
    const bf16 *restrict row = from + k * ld;

#ifdef __AVX512BF16__
    bool odd = k + 1 < depth;

    for (size_t c = 0; c < columns; c++) {
        bf16_pair pair = pair_of(row[c], odd ? row[ld + c] : 0);

        memcpy(&to[c], &pair, sizeof pair);
    }
#else
    (void)depth;
    widen_all(to, row, columns);
#endif
}

/* A group of rows, packed by row. */
static void left_by_row(float *to, const bf16 *A, size_t lda, size_t rows, size_t depth)
{
    enum { STEP = TILE_WORDS * WORD_ELEMS };

    for (size_t k = 0; k < round_up(depth, DEPTH_UNIT); k += STEP, to += TILE_BLOCK)
        for (size_t i = 0; i < rows; i++) {
            if (k + STEP <= depth)
                row_words(to + i * TILE_WORDS, A + i * lda + k, STEP);
            else
                row_words(to + i * TILE_WORDS, A + i * lda + k,
                          k < depth ? depth - k : 0);
        }
}

/* A group of columns of A, which are the rows of its transpose, packed by column. */
static void left_by_column(float *to, const bf16 *A, size_t lda, size_t rows,
                           size_t depth)
{
    for (size_t k = 0; k < round_up(depth, DEPTH_UNIT);
         k += WORD_ELEMS, to += TILE_ROWS) {
        if (k >= depth)
            memset(to, 0, TILE_ROWS * sizeof *to);
        else if (rows == TILE_ROWS)
            column_words(to, A, lda, k, depth, TILE_ROWS);
        else
            column_words(to, A, lda, k, depth, rows);
    }
}

/* A panel of a row-major matrix whose rows are the depth. */
static void right_by_column(float *to, const bf16 *B, size_t ldb, size_t columns,
                            size_t depth)
{
    for (size_t k = 0; k < round_up(depth, DEPTH_UNIT);
         k += WORD_ELEMS, to += TILE_PANEL) {
        if (k >= depth || columns < TILE_PANEL)
            memset(to, 0, TILE_PANEL * sizeof *to);
        if (k < depth && columns == TILE_PANEL)
            column_words(to, B, ldb, k, depth, TILE_PANEL);
        else if (k < depth)
            column_words(to, B, ldb, k, depth, columns);
    }
}

/* ---- the blocked product ---- */

/* Where sums go: partial sums of all blocks but the last, and the result. */
struct target {
    float *C; /* fp32: partial sums, and the result where C_bf16 is NULL */
    size_t ldc;
    bf16 *C_bf16;
    size_t ld_bf16;
    const float *bias;
    const float *add;
    size_t ldadd;
};

struct step {
    bool first, last; /* block of depth */
};

/* What a tile at row i and column j does with its sums. */
static struct tile_output output_at(const struct target *t, struct step step, size_t i,
                                    size_t j)
{
    struct tile_output out = {0};

    if (step.first) {
        out.bias = t->bias ? t->bias + j : NULL;
        out.add = t->add ? t->add + i * t->ldadd + j : NULL;
        out.ldadd = t->ldadd;
    } else {
        out.add = t->C + i * t->ldc + j;
        out.ldadd = t->ldc;
    }
    if (step.last && t->C_bf16) {
        out.to_bf16 = t->C_bf16 + i * t->ld_bf16 + j;
        out.ldto = t->ld_bf16;
    } else {
        out.to = t->C + i * t->ldc + j;
        out.ldto = t->ldc;
    }
    return out;
}

/* The last columns, which do not fill a tile: from a tile that is stored beside. */
static void store_part(const struct tile_output *out, const float *restrict sums,
                       size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++, sums += TILE_PANEL)
        for (size_t c = 0; c < columns; c++) {
            float sum = sums[c];

            if (out->bias)
                sum += out->bias[c];
            if (out->add)
                sum += out->add[i * out->ldadd + c];
            if (out->to_bf16)
                out->to_bf16[i * out->ldto + c] = bf16_round(sum);
            else
                out->to[i * out->ldto + c] = sum;
        }
}

/* Rows are cut into groups of nearly the same height: a low last one would waste the
 * registers. */
struct groups {
    size_t rows, count;
};

static struct groups groups_of(size_t rows)
{
    return (struct groups){rows, ceil_div(rows, TILE_ROWS)};
}

static size_t group_begin(struct groups g, size_t at)
{
    return at * g.rows / g.count;
}

/* What a block of depth has in common for all its panels. */
struct block {
    const struct target *target;
    struct step step;
    struct groups groups;
    size_t words, columns; /* columns of the whole product */
    float *left;           /* packed groups, words * TILE_ROWS each */
    float *right;          /* a panel of words */
};

/* The rows of C under the tile that comes `FETCH_TILES` after group g of panel j. */
static void fetch_target(const struct block *b, size_t g, size_t j)
{
    enum { LINE = CACHE_LINE / sizeof(float), FETCH_TILES = 2 };
    const struct target *t = b->target;

    for (g += FETCH_TILES; g >= b->groups.count; g -= b->groups.count)
        j += TILE_PANEL;
    if (j >= b->columns || !t->C)
        return;
    for (size_t i = group_begin(b->groups, g); i < group_begin(b->groups, g + 1); i++)
        for (size_t c = 0; c < TILE_PANEL; c += LINE)
            __builtin_prefetch(t->C + i * t->ldc + j + c, 1, 2);
}

KERNEL_INLINE void multiply_tile(const struct tile_output *out,
                                 const struct tile_input *in, size_t rows, size_t columns,
                                 const bool by_row, const bool from_pairs)
{
    _Alignas(64) float sums[TILE_ROWS * TILE_PANEL];
    const struct tile_output beside = {.to = sums, .ldto = TILE_PANEL};

    tile(columns == TILE_PANEL ? out : &beside, in, rows, by_row, from_pairs);
    if (columns < TILE_PANEL)
        store_part(out, sums, rows, columns);
}

/* One panel against all rows. pairs: the panel where it is not in b->right; next: the
 * memory of the panel after this one, `count` lines of it in all. */
KERNEL_INLINE void multiply_panel(const struct block *b, size_t j, const bf16_pair *pairs,
                                  struct ahead next, const bool by_row)
{
    const size_t columns = min_size(TILE_PANEL, b->columns - j);
    const size_t blocks = b->words / TILE_WORDS;
    struct tile_input in = {.right = b->right,
                            .pairs = pairs,
                            .widened = b->right,
                            .words = b->words,
                            .ahead = next};

    in.ahead.count = ceil_div(next.count, b->groups.count * blocks);
    for (size_t g = 0; g < b->groups.count; g++) {
        const size_t i = group_begin(b->groups, g), end = group_begin(b->groups, g + 1);
        const struct tile_output out = output_at(b->target, b->step, i, j);

        fetch_target(b, g, j);
        in.left = b->left + g * b->words * TILE_ROWS;
        if (WORD_ELEMS == 1 && g == 0 && pairs)
            multiply_tile(&out, &in, end - i, columns, by_row, true);
        else
            multiply_tile(&out, &in, end - i, columns, by_row, false);
        in.ahead.at += in.ahead.count * blocks * in.ahead.step;
    }
}

static size_t words_of(size_t depth)
{
    return round_up(depth, DEPTH_UNIT) / WORD_ELEMS;
}

static void product_block(const struct bf16_product *p, const struct target *t,
                          struct step step, size_t k0, size_t depth, float *work)
{
    const size_t words = words_of(depth), panel = round_up(p->depth, DEPTH_UNIT) / 2;
    const bf16_pair *from = p->B + p->column0 * panel + k0 / 2 * TILE_PANEL;
    struct block b = {
        t, step, groups_of(p->rows), words, p->columns, work + words * TILE_PANEL, work};
    struct ahead next = {.step = CACHE_LINE,
                         .count = words * WORD_ELEMS / 2 * TILE_PANEL * sizeof *from /
                                  CACHE_LINE};

    for (size_t g = 0; g < b.groups.count; g++) {
        size_t i = group_begin(b.groups, g), rows = group_begin(b.groups, g + 1) - i;

        left_by_row(b.left + g * words * TILE_ROWS, p->A + i * p->lda + k0, p->lda, rows,
                    depth);
    }
    for (size_t j = 0; j < p->columns; j += TILE_PANEL, from += TILE_PANEL * panel) {
        next.at = (const char *)(from + TILE_PANEL * panel);
#ifdef __AVX512BF16__
        b.right = (float *)(uintptr_t)from;
#endif
        multiply_panel(&b, j, from, next, true);
    }
}

/* Without depth there is nothing to sum: the result is bias and add alone. */
static void product_empty(const struct bf16_product *p, const struct target *t)
{
    const float zeros[TILE_PANEL] = {0};

    for (size_t i = 0; i < p->rows; i++)
        for (size_t j = 0; j < p->columns; j += TILE_PANEL) {
            struct tile_output out = output_at(t, (struct step){true, true}, i, j);

            store_part(&out, zeros, 1, min_size(TILE_PANEL, p->columns - j));
        }
}

static void product(const struct bf16_product *p, void *work)
{
    const size_t block = block_depth(p->depth);
    float *space = work;
    struct target t = {.C = p->C,
                       .ldc = p->ldc,
                       .C_bf16 = p->C_bf16,
                       .ld_bf16 = p->ldc,
                       .bias = p->bias,
                       .add = p->add,
                       .ldadd = p->ldadd};

    require(p->column0 % BF16_PANEL == 0 && !p->C != !p->C_bf16);
    if (p->rows == 0)
        return;
    if (p->C_bf16 && block < p->depth) { /* partial sums need a place of their own */
        t.C = space;
        t.ldc = p->columns;
        space += round_up(p->rows * p->columns, CACHE_LINE / sizeof *space);
    }
    if (p->depth == 0)
        product_empty(p, &t);
    for (size_t k = 0; k < p->depth; k += block)
        product_block(p, &t, (struct step){k == 0, k + block >= p->depth}, k,
                      min_size(block, p->depth - k), space);
}

static void weight_grad_block(const struct bf16_weight_grad *p, const struct target *t,
                              struct step step, size_t k0, size_t depth, float *work)
{
    const size_t words = words_of(depth);
    struct block b = {
        t, step, groups_of(p->out), words, p->in, work + words * TILE_PANEL, work};
    struct ahead next = {.step = p->ldx * sizeof *p->x, .count = depth};

    for (size_t g = 0; g < b.groups.count; g++) {
        size_t i = group_begin(b.groups, g), rows = group_begin(b.groups, g + 1) - i;

        left_by_column(b.left + g * words * TILE_ROWS, p->dy + k0 * p->lddy + i, p->lddy,
                       rows, depth);
    }
    for (size_t j = 0; j < p->in; j += TILE_PANEL) {
        const bf16 *x = p->x + k0 * p->ldx + j;

        next.at = (const char *)(x + TILE_PANEL);
        right_by_column(b.right, x, p->ldx, min_size(TILE_PANEL, p->in - j), depth);
        multiply_panel(&b, j, NULL, next, false);
    }
}

static void weight_grad(const struct bf16_weight_grad *p, void *work)
{
    const size_t block = block_depth(p->rows);
    const struct target t = {.C = p->dW,
                             .ldc = p->lddw,
                             .add = p->accumulate ? p->dW : NULL,
                             .ldadd = p->lddw};

    if (p->out == 0)
        return;
    for (size_t i = 0; p->rows == 0 && !p->accumulate && i < p->out; i++)
        memset(p->dW + i * p->lddw, 0, p->in * sizeof *p->dW);
    for (size_t k = 0; k < p->rows; k += block)
        weight_grad_block(p, &t, (struct step){k == 0, k + block >= p->rows}, k,
                          min_size(block, p->rows - k), work);
}

#define TEXT(word)    #word
#define TEXT_OF(word) TEXT(word)

const struct gemm_bf16 KERNEL(gemm_bf16) = {
    .name = TEXT_OF(KERNEL_ISA),
    .round = round_all,
    .widen = widen_all,
    .round_rows = round_rows,
    .pack = pack,
    .product = product,
    .weight_grad = weight_grad,
};
