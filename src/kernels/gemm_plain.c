/* SPDX-License-Identifier: MIT */
/* gemm_plain.c - matrix products without a library, for builds that have none. */
#include "kernels/gemm_own.h"

static enum isa isa = ISA_GENERIC;

void gemm_init(void)
{
    isa = gemm_own_isa();
}

const char *gemm_library(void)
{
    return "plain C";
}

void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A, size_t lda,
          const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    gemm_own(isa, ta, tb, m, n, k, A, lda, B, ldb, beta, C, ldc);
}

void gemm_linear(const struct kernels *k, const struct linear *l)
{
    (void)k;
    gemm_own_linear(isa, l);
}
