/* SPDX-License-Identifier: MIT */
/* gemm_onednn.c - matrix products by oneDNN's row-major dnnl_sgemm, and by our own where
 * it would have to transpose an operand and the CPU has AVX-512 (docs/decisions/012).
 *
 * Inside a parallel region oneDNN uses one thread by itself. Elsewhere it asks the OpenMP
 * runtime for the calling thread's number of threads, so that number is set to one
 * around the call. Which runtime that is depends on the program (oneDNN comes with
 * libgomp; a program linked to libomp makes both use libomp), so its two functions are
 * looked up where oneDNN finds them, in the program's global scope.
 */
#include "kernels/gemm_own.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <dnnl.h>

static int (*runtime_threads)(void);
static void (*runtime_set_threads)(int);
static enum isa own = ISA_GENERIC;

void gemm_init(void)
{
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");

    own = gemm_own_isa();
    if (!get || !set) /* a oneDNN without OpenMP */
        return;
    memcpy(&runtime_set_threads, &set, sizeof set);
    memcpy(&runtime_threads, &get, sizeof get);
}

const char *gemm_library(void)
{
    static char name[48];
    const dnnl_version_t *v = dnnl_version();

    snprintf(name, sizeof name, "oneDNN %d.%d.%d%s", v->major, v->minor, v->patch,
             own == ISA_AVX512 ? " and own" : "");
    return name;
}

/* No products to add: C is beta C. */
static void scale_only(size_t m, size_t n, float beta, float *C, size_t ldc)
{
    for (size_t i = 0; beta == 0.0f && i < m; i++)
        memset(C + i * ldc, 0, n * sizeof *C);
}

void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A, size_t lda,
          const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    dnnl_status_t status;
    int threads = 1;

    if (own == ISA_AVX512 && (ta || tb)) {
        gemm_own(own, ta, tb, m, n, k, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    if (m == 0 || n == 0 || k == 0) {
        scale_only(m, n, beta, C, ldc);
        return;
    }
    if (runtime_threads)
        threads = runtime_threads();
    if (threads != 1)
        runtime_set_threads(1);
    status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n,
                        (dnnl_dim_t)k, 1.0f, A, (dnnl_dim_t)lda, B, (dnnl_dim_t)ldb, beta,
                        C, (dnnl_dim_t)ldc);
    if (threads != 1)
        runtime_set_threads(threads);
    if (status != dnnl_success)
        bug("oneDNN refused a matrix product (status %d): %s%s m %zu n %zu k %zu lda %zu "
            "ldb %zu ldc %zu",
            (int)status, ta ? "T" : "N", tb ? "T" : "N", m, n, k, lda, ldb, ldc);
}

void gemm_linear(const struct kernels *k, const struct linear *l)
{
    if (own == ISA_AVX512)
        gemm_own_linear(own, l);
    else
        gemm_linear_apart(k, l);
}
