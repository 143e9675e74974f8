/* SPDX-License-Identifier: MIT */
/* The arithmetic of an exchange on plain arrays: terms added in order, bfloat16, squares
 * in fixed lanes. Loops are over tiles that stay in the first-level cache and are left to
 * the compiler to vectorise, for each instruction set of WIDE; additions stay separate
 * for each element, so that vectors change no bits. */
#include <string.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

/* Clones are chosen before the run time of a sanitizer is ready: gcc and clang name these
 * in different ways. */
#ifndef __has_feature
#    define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                     \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#    define SANITIZED
#endif
#if defined(__x86_64__) && !defined(SANITIZED)
#    define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#    define WIDE
#endif

WIDE static void add(float *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

WIDE static void add_bf16(float *restrict dst, const uint16_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)src[i] << 16;
        float x;

        memcpy(&x, &bits, sizeof x);
        dst[i] += x;
    }
}

/* Not 0 + x: that would lose the sign of a zero. */
WIDE static void copy_bf16(float *restrict dst, const uint16_t *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)src[i] << 16;

        memcpy(&dst[i], &bits, sizeof bits);
    }
}

static void add_term(float *restrict dst, struct sum_term term, size_t n)
{
    if (term.bf16)
        add_bf16(dst, term.values, n);
    else
        add(dst, term.values, n);
}

static void copy_term(float *restrict dst, struct sum_term term, size_t n)
{
    if (term.bf16)
        copy_bf16(dst, term.values, n);
    else
        memcpy(dst, term.values, n * sizeof *dst);
}

void sum_terms(float *restrict dst, const struct sum_term *terms, size_t n_terms,
               size_t before, size_t elems)
{
    size_t next = 0;

    require(elems <= SUM_TILE);
    if (before == SUM_REPLACE) {
        copy_term(dst, terms[next++], elems);
    } else if (before >= 2) {
        float sum[SUM_TILE];

        copy_term(sum, terms[next++], elems);
        while (next < before)
            add_term(sum, terms[next++], elems);
        add(dst, sum, elems);
    }
    /* With one term before, a + b is the same bits as b + a. */
    while (next < n_terms)
        add_term(dst, terms[next++], elems);
}

WIDE static void pack(uint16_t *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &src[i], sizeof bits);
        uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

        /* Rounding must not carry a NaN into infinity. */
        dst[i] =
            (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
    }
}

void bf16_pack_in_place(float *x, size_t elems)
{
    uint16_t tile[SUM_TILE];

    /* The packed half ends before the floats that are still to be read. */
    for (size_t i = 0, n; i < elems; i += n) {
        n = min_size(SUM_TILE, elems - i);
        pack(tile, x + i, n);
        memcpy((char *)x + i * sizeof *tile, tile, n * sizeof *tile);
    }
}

void bf16_unpack_in_place(float *x, size_t elems)
{
    uint16_t tile[SUM_TILE];

    /* From the end, so that floats land behind what is still to be read. */
    for (size_t end = elems, n; end > 0; end -= n) {
        n = min_size(SUM_TILE, end);
        memcpy(tile, (char *)x + (end - n) * sizeof *tile, n * sizeof *tile);
        copy_term(x + end - n, (struct sum_term){tile, true}, n);
    }
}

enum { SQUARES_AHEAD = 1024 }; /* elements: memory alone is asked too late */

WIDE static void add_squares(double *restrict lane, const float *restrict x, size_t elems)
{
    double sum[SQUARE_LANES]; /* a copy of its own, that may stay in registers */

    memcpy(sum, lane, sizeof sum);
    for (size_t i = 0; i < elems; i += SQUARE_LANES) {
        __builtin_prefetch(x + i + SQUARES_AHEAD, 0, 2);
        for (size_t j = 0; j < SQUARE_LANES; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    }
    memcpy(lane, sum, sizeof sum);
}

void squares_add(struct squares *s, const float *x, size_t elems)
{
    add_squares(s->lane, x, elems);
}

double squares_total(const struct squares *s)
{
    double total = 0;

    for (size_t j = 0; j < SQUARE_LANES; j++)
        total += s->lane[j];
    return total;
}
