/* panel.h - the register tile under attention.
 *
 * out[i][c] (+)= sum over k of a[i * row_step + k * k_step] * b[k * ldb + c] for
 * PANEL_ROWS rows i and n columns c, n a multiple of PANEL_ALIGN. a and b are packed or
 * padded by the caller so that there is no remainder; k ascends in one accumulator each.
 */
#ifndef WEFT_KERNELS_PANEL_H
#define WEFT_KERNELS_PANEL_H

#include "kernels/isa.h"

/* Rows times two vectors of accumulators: 16 of 32 registers with AVX-512, 8 of 16 else;
 * two fused multiply-adds a cycle of four cycles' latency need eight. */
#if VEC_ELEMS == 16
enum { PANEL_ROWS = 8 };
#else
enum { PANEL_ROWS = 4 };
#endif
enum { PANEL_ALIGN = 16 };

KERNEL_INLINE void panel_columns(float *out, size_t ldo, const float *a, size_t row_step,
                                 size_t k_step, const float *b, size_t ldb, size_t k,
                                 bool add, const int vecs)
{
    vec acc[PANEL_ROWS][2];

    for (size_t i = 0; i < PANEL_ROWS; i++)
        for (int v = 0; v < vecs; v++)
            acc[i][v] = add ? vec_load(out + i * ldo + v * VEC_ELEMS) : (vec){0};
    for (size_t kk = 0; kk < k; kk++) {
        vec right[2];

        for (int v = 0; v < vecs; v++)
            right[v] = vec_load(b + kk * ldb + v * VEC_ELEMS);
        for (size_t i = 0; i < PANEL_ROWS; i++) {
            vec left = vec_splat(a[i * row_step + kk * k_step]);

            for (int v = 0; v < vecs; v++)
                acc[i][v] += left * right[v];
        }
    }
    for (size_t i = 0; i < PANEL_ROWS; i++)
        for (int v = 0; v < vecs; v++)
            vec_store(out + i * ldo + v * VEC_ELEMS, acc[i][v]);
}

/* Inline, so that the step that is 1 costs no arithmetic. */
KERNEL_INLINE void panel(float *out, size_t ldo, const float *a, size_t row_step,
                         size_t k_step, const float *b, size_t ldb, size_t n, size_t k,
                         bool add)
{
    size_t c = 0;

    for (; c + 2 * VEC_ELEMS <= n; c += 2 * VEC_ELEMS)
        panel_columns(out + c, ldo, a, row_step, k_step, b + c, ldb, k, add, 2);
    if (c < n)
        panel_columns(out + c, ldo, a, row_step, k_step, b + c, ldb, k, add, 1);
}

#endif
