/* SPDX-License-Identifier: MIT */
/* gemm_own.c - which build of our own matrix products runs, and gemm()'s operands as it
 * takes them. */
#include "kernels/gemm_own.h"

#include <stdlib.h>

enum isa gemm_own_isa(void)
{
    const char *name = getenv("WEFT_ISA");
    enum isa isa = name && *name ? isa_find(name) : isa_best();

    return isa < ISA_COUNT ? isa : isa_best();
}

static product_fn *const products[ISA_COUNT] = {
    [ISA_GENERIC] = product_generic,
#ifdef WEFT_KERNELS_X86
    [ISA_AVX2] = product_avx2,
    [ISA_AVX512] = product_avx512,
#endif
};

void gemm_own(enum isa isa, bool ta, bool tb, size_t m, size_t n, size_t k,
              const float *A, size_t lda, const float *B, size_t ldb, float beta,
              float *C, size_t ldc)
{
    const struct product p = {
        .m = m,
        .n = n,
        .k = k,
        .A = A,
        .B = B,
        .C = C,
        .ldc = ldc,
        .a_row = ta ? 1 : lda,
        .a_k = ta ? lda : 1,
        .b_k = tb ? 1 : ldb,
        .b_column = tb ? ldb : 1,
        .add = beta != 0.0f ? C : NULL,
        .ldadd = ldc,
    };

    products[isa](&p);
}

void gemm_own_linear(enum isa isa, const struct linear *l)
{
    const struct product p = {
        .m = l->rows,
        .n = l->out,
        .k = l->in,
        .A = l->x,
        .B = l->W,
        .C = l->y,
        .ldc = l->ldy,
        .a_row = l->ldx,
        .a_k = 1,
        .b_k = 1,
        .b_column = l->ldw,
        .bias = l->bias,
        .add = l->add,
        .ldadd = l->ldadd,
    };

    products[isa](&p);
}
