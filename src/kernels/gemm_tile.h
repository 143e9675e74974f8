/* gemm_tile.h - the register tile under the bf16 products.
 *
 * The product of a left block, TILE_ROWS rows or fewer, and a right panel of TILE_PANEL
 * columns. Both are packed in words of four bytes: a float, or, where the CPU multiplies
 * pairs (AVX512_BF16), two bf16 numbers of neighbouring k.
 *
 * right: word w of column c is right[w * TILE_PANEL + c].
 * left:  in blocks of TILE_WORDS words of all rows. Word w of row i of a block is
 *        block[i * TILE_WORDS + w] (by row: packing copies runs of a row-major matrix),
 *        or block[w * TILE_ROWS + i] (by column: the same for a transposed one).
 *
 * Each element is summed in one accumulator, k ascending.
 */
#ifndef WEFT_KERNELS_GEMM_TILE_H
#define WEFT_KERNELS_GEMM_TILE_H

#include "kernels/bf16.h"
#include "kernels/isa.h"

/* Two vectors of columns times as many rows as leave registers for two vectors of the
 * right side and one of the left: 14 with 32 registers, 6 with 16. */
#if VEC_ELEMS == 16
enum { TILE_ROWS = 14 };
#else
enum { TILE_ROWS = 6 };
#endif
enum {
    TILE_PANEL = 32,
    TILE_WORDS = 16,
    TILE_VECS = 2,
    TILE_BLOCK = TILE_ROWS * TILE_WORDS
};

/* Memory that the next tiles will read, fetched while this one is computed: `count` cache
 * lines a block of words, `step` bytes apart. */
struct ahead {
    const char *at;
    size_t step, count;
};

struct tile_input {
    const float *left;
    const float *right;    /* words, or NULL: they come from pairs */
    const uint32_t *pairs; /* two bf16 of neighbouring k: two words each, which are */
    float *widened;        /* stored here for the tiles that follow */
    size_t words;          /* a multiple of TILE_WORDS */
    struct ahead ahead;
};

/* Sums (+ bias) (+ add), stored as floats, or as bf16 where to_bf16 is not NULL. */
struct tile_output {
    const float *bias; /* [TILE_PANEL], or NULL */
    const float *add;  /* rows of TILE_PANEL elements, or NULL; may be `to` */
    float *to;
    bf16 *to_bf16;
    size_t ldadd, ldto;
};

#ifdef __AVX512BF16__
#    include <immintrin.h>

enum { WORD_ELEMS = 2 };

KERNEL_INLINE vec word_splat(const float *word)
{
    int32_t pair;

    memcpy(&pair, word, sizeof pair);
    return (vec)_mm512_set1_epi32(pair);
}

KERNEL_INLINE vec multiply_add(vec sum, vec left, vec right)
{
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)left, (__m512bh)right);
}
#else
enum { WORD_ELEMS = 1 };

KERNEL_INLINE vec word_splat(const float *word)
{
    return vec_splat(*word);
}

KERNEL_INLINE vec multiply_add(vec sum, vec left, vec right)
{
    return sum + left * right;
}
#endif

KERNEL_INLINE void fetch(struct ahead *ahead)
{
    for (size_t n = ahead->count; n > 0; n--) {
        __builtin_prefetch(ahead->at, 0, 2);
        ahead->at += ahead->step;
    }
}

/* One word of all rows. */
KERNEL_INLINE void tile_word(vec acc[TILE_ROWS][TILE_VECS], const float *left,
                             const vec column[TILE_VECS], const size_t rows,
                             const size_t row_step)
{
    UNROLLED(size_t i = 0; i < rows; i++)
    {
        vec row = word_splat(left + i * row_step);

        UNROLLED(size_t v = 0; v < TILE_VECS; v++)
        acc[i][v] = multiply_add(acc[i][v], row, column[v]);
    }
}

typedef uint32_t vec_unsigned __attribute__((vector_size(VEC_ELEMS * 4)));
typedef bf16 vec_bf16 __attribute__((vector_size(VEC_ELEMS * 2)));

/* bf16_round() of each element. */
KERNEL_INLINE void vec_store_bf16(bf16 *to, vec v)
{
    const vec_unsigned bits = (vec_unsigned)v, high = bits >> 16;
    const vec_unsigned nan = (vec_unsigned)((bits & 0x7fffffff) > 0x7f800000);
    const vec_unsigned rounded = (bits + 0x7fff + (high & 1)) >> 16;
    const vec_bf16 half =
        __builtin_convertvector((nan & (high | 0x40)) | (~nan & rounded), vec_bf16);

    memcpy(to, &half, sizeof half);
}

KERNEL_INLINE void tile_store(const struct tile_output *out, size_t c,
                              vec acc[TILE_ROWS][TILE_VECS], const size_t rows)
{
    if (out->bias)
        UNROLLED(size_t v = 0; v < TILE_VECS; v++)
        {
            const vec bias = vec_load(out->bias + c + v * VEC_ELEMS);

            UNROLLED(size_t i = 0; i < rows; i++)
            acc[i][v] += bias;
        }
    if (out->add)
        UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < TILE_VECS; v++)
    acc[i][v] += vec_load(out->add + i * out->ldadd + c + v * VEC_ELEMS);
    if (out->to_bf16)
        UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < TILE_VECS; v++)
    vec_store_bf16(out->to_bf16 + i * out->ldto + c + v * VEC_ELEMS, acc[i][v]);
    else UNROLLED(size_t i = 0; i < rows; i++) UNROLLED(size_t v = 0; v < TILE_VECS; v++)
        vec_store(out->to + i * out->ldto + c + v * VEC_ELEMS, acc[i][v]);
}

/* TILE_VECS vectors of columns, at column c of the panel. */
KERNEL_INLINE void tile_columns(const struct tile_output *out,
                                const struct tile_input *in, size_t c, const size_t rows,
                                const bool by_row, const bool from_pairs)
{
    const size_t row_step = by_row ? TILE_WORDS : 1, word_step = by_row ? 1 : TILE_ROWS;
    const float *left = in->left, *right = in->right + c;
    const char *pairs = from_pairs ? (const char *)(in->pairs + c) : NULL;
    float *widened = from_pairs ? in->widened + c : NULL;
    struct ahead ahead = in->ahead;
    vec acc[TILE_ROWS][TILE_VECS], column[TILE_VECS], odd[TILE_VECS];

    UNROLLED(size_t i = 0; i < rows; i++)
    UNROLLED(size_t v = 0; v < TILE_VECS; v++)
    acc[i][v] = (vec){0};
    for (size_t block = in->words / TILE_WORDS; block > 0; block--) {
        fetch(&ahead);
        for (size_t w = 0; w < TILE_WORDS; w += from_pairs ? 2 : 1) {
            if (from_pairs) {
                UNROLLED(size_t v = 0; v < TILE_VECS; v++)
                {
                    const vec_bits pair = (vec_bits)vec_load(
                        (const float *)(const void *)pairs + v * VEC_ELEMS);

                    column[v] = (vec)(pair << 16);
                    odd[v] = (vec)(pair & -0x10000);
                    vec_store(widened + v * VEC_ELEMS, column[v]);
                    vec_store(widened + TILE_PANEL + v * VEC_ELEMS, odd[v]);
                }
                tile_word(acc, left + w * word_step, column, rows, row_step);
                tile_word(acc, left + (w + 1) * word_step, odd, rows, row_step);
                pairs += TILE_PANEL * sizeof *in->pairs;
                widened += 2 * TILE_PANEL;
            } else {
                UNROLLED(size_t v = 0; v < TILE_VECS; v++)
                column[v] = vec_load(right + v * VEC_ELEMS);
                tile_word(acc, left + w * word_step, column, rows, row_step);
                right += TILE_PANEL;
            }
        }
        left += TILE_BLOCK;
    }
    tile_store(out, c, acc, rows);
}

KERNEL_INLINE void tile_rows(const struct tile_output *out, const struct tile_input *in,
                             const size_t rows, const bool by_row, const bool from_pairs)
{
    for (size_t c = 0; c < TILE_PANEL; c += TILE_VECS * VEC_ELEMS)
        tile_columns(out, in, c, rows, by_row, from_pairs);
}

/* The compiler needs the number of rows to keep the sums in registers. */
KERNEL_INLINE void tile(const struct tile_output *out, const struct tile_input *in,
                        size_t rows, const bool by_row, const bool from_pairs)
{
    switch (rows) {
#define TILE_CASE(n)                                                                     \
case n:                                                                                  \
    tile_rows(out, in, n, by_row, from_pairs);                                           \
    break;
        TILE_CASE(1)
        TILE_CASE(2)
        TILE_CASE(3)
        TILE_CASE(4)
        TILE_CASE(5)
        TILE_CASE(6)
#if VEC_ELEMS == 16
        TILE_CASE(7)
        TILE_CASE(8)
        TILE_CASE(9)
        TILE_CASE(10)
        TILE_CASE(11)
        TILE_CASE(12)
        TILE_CASE(13)
        TILE_CASE(14)
#endif
#undef TILE_CASE
    }
}

#endif
