/* transpose.h - a square of as many rows as a vector has elements, transposed. */
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

#endif
