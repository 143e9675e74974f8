/* gemm_own.h - private to kernels: matrix products of our own, for builds without a
 * library and where they are faster than the library (docs/decisions/012). */
#ifndef WEFT_KERNELS_GEMM_OWN_H
#define WEFT_KERNELS_GEMM_OWN_H

#include "kernels/dispatch.h"
#include "kernels/kernels.h"

/* gemm() with the transposes as steps: element (i, k) of op(A) is at
 * A[i * a_row + k * a_k], element (k, j) of op(B) at B[k * b_k + j * b_column]. One of
 * the two steps of each matrix is 1. */
struct product {
    size_t m, n, k;
    const float *A, *B;
    size_t a_row, a_k, b_k, b_column;
    float *C;
    size_t ldc;
    const float *bias, *add; /* [n], [m][n], or NULL */
    size_t ldadd;
};

typedef void product_fn(const struct product *p);

product_fn product_generic, product_avx2, product_avx512;

/* The instruction set that kernels_select(NULL) takes; where WEFT_ISA names none that
 * could be used, which is reported there, the best. */
enum isa gemm_own_isa(void);

/* gemm() by the products of one instruction set. */
void gemm_own(enum isa isa, bool ta, bool tb, size_t m, size_t n, size_t k,
              const float *A, size_t lda, const float *B, size_t ldb, float beta,
              float *C, size_t ldc);

void gemm_own_linear(enum isa isa, const struct linear *l);

/* gemm_linear() for a library that only multiplies. */
void gemm_linear_apart(const struct kernels *k, const struct linear *l);

#endif
