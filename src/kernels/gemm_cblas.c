/* SPDX-License-Identifier: MIT */
/* gemm_cblas.c - matrix products by any library with the CBLAS interface.
 *
 * Their threads are turned off by the library's own call where it has one that we know
 * (OpenBLAS, BLIS); the reference CBLAS has no threads.
 */
#include "kernels/gemm_own.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

#include <cblas.h>

/* CBLAS counts in int, OpenBLAS in blasint; no dimension here comes near INT_MAX. */
static int dimension(size_t n)
{
    require(n <= INT_MAX);
    return (int)n;
}

void gemm_init(void)
{
    void *openblas = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
    void *blis = dlsym(RTLD_DEFAULT, "bli_thread_set_num_threads");
    void (*set_int)(int);
    void (*set_long)(long);

    if (openblas) {
        memcpy(&set_int, &openblas, sizeof openblas);
        set_int(1);
    }
    if (blis) {
        memcpy(&set_long, &blis, sizeof blis);
        set_long(1);
    }
}

const char *gemm_library(void)
{
    return "CBLAS";
}

void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A, size_t lda,
          const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    /* Some implementations multiply a C that should not be read, or leave it as it is
     * when there is nothing to add. */
    for (size_t i = 0; beta == 0.0f && i < m; i++)
        memset(C + i * ldc, 0, n * sizeof *C);
    if (m == 0 || n == 0 || k == 0)
        return;
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans,
                tb ? CblasTrans : CblasNoTrans, dimension(m), dimension(n), dimension(k),
                1.0f, A, dimension(lda), B, dimension(ldb), beta, C, dimension(ldc));
}

void gemm_linear(const struct kernels *k, const struct linear *l)
{
    gemm_linear_apart(k, l);
}
