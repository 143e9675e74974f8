/* transpose.h - rows that become columns, by squares of as many rows as a vector has
 * elements. */
#ifndef WEFT_KERNELS_TRANSPOSE_H
#define WEFT_KERNELS_TRANSPOSE_H

#include "kernels/isa.h"

#if VEC_ELEMS == 16
#    include <immintrin.h>

/* to[k][c] = from[c][k], 16 x 16: four times, quarters of four rows each are loaded into
 * the quarters of four vectors, which are then transposed where they are. */
static inline void transpose_square(float *restrict to, size_t ldto,
                                    const float *restrict from, size_t ld)
{
    for (size_t k = 0; k < 16; k += 4, to += 4 * ldto) {
        __m512 quarter[4];

        for (size_t r = 0; r < 4; r++) {
            const float *row = from + r * ld + k;
            __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(row));

            v = _mm512_insertf32x4(v, _mm_loadu_ps(row + 4 * ld), 1);
            v = _mm512_insertf32x4(v, _mm_loadu_ps(row + 8 * ld), 2);
            quarter[r] = _mm512_insertf32x4(v, _mm_loadu_ps(row + 12 * ld), 3);
        }
        const __m512d low01 =
                          _mm512_castps_pd(_mm512_unpacklo_ps(quarter[0], quarter[1])),
                      low23 =
                          _mm512_castps_pd(_mm512_unpacklo_ps(quarter[2], quarter[3])),
                      high01 =
                          _mm512_castps_pd(_mm512_unpackhi_ps(quarter[0], quarter[1])),
                      high23 =
                          _mm512_castps_pd(_mm512_unpackhi_ps(quarter[2], quarter[3]));

        _mm512_storeu_pd(to, _mm512_unpacklo_pd(low01, low23));
        _mm512_storeu_pd(to + ldto, _mm512_unpackhi_pd(low01, low23));
        _mm512_storeu_pd(to + 2 * ldto, _mm512_unpacklo_pd(high01, high23));
        _mm512_storeu_pd(to + 3 * ldto, _mm512_unpackhi_pd(high01, high23));
    }
}
#else
static inline void transpose_square(float *restrict to, size_t ldto,
                                    const float *restrict from, size_t ld)
{
    for (size_t c = 0; c < VEC_ELEMS; c++)
        for (size_t k = 0; k < VEC_ELEMS; k++)
            to[k * ldto + c] = from[c * ld + k];
}
#endif

/* to[k][c] = from[c][k] for c < rows, k < columns. */
static inline void transpose(float *restrict to, size_t ldto, const float *restrict from,
                             size_t ld, size_t rows, size_t columns)
{
    const size_t squares = columns / VEC_ELEMS * VEC_ELEMS;

    for (size_t c = 0; c < rows; c += VEC_ELEMS, from += VEC_ELEMS * ld) {
        const bool whole = rows - c >= VEC_ELEMS;
        const size_t width = whole ? VEC_ELEMS : rows - c;

        for (size_t k = 0; whole && k < squares; k += VEC_ELEMS)
            transpose_square(to + k * ldto + c, ldto, from + k, ld);
        for (size_t k = whole ? squares : 0; k < columns; k++)
            for (size_t i = 0; i < width; i++)
                to[k * ldto + c + i] = from[i * ld + k];
    }
}

#endif
