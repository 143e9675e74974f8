/* gemm_plain.h - private to kernels: the plain matrix product of each instruction set. */
#ifndef WEFT_KERNELS_GEMM_PLAIN_H
#define WEFT_KERNELS_GEMM_PLAIN_H

#include "kernels/kernels.h"

/* gemm() with the transposes as steps: element (i, k) of op(A) is at
 * A[i * a_row + k * a_k], element (k, j) of op(B) at B[k * b_k + j * b_column]. */
struct product {
    size_t m, n, k;
    const float *A, *B;
    size_t a_row, a_k, b_k, b_column;
    float *C;
    size_t ldc;
    bool add;
};

typedef void product_fn(const struct product *p);

product_fn product_generic, product_avx2, product_avx512;

#endif
