/* SPDX-License-Identifier: MIT */
/* test_gemm.c - the matrix product of the library in use: shapes, transposes, memory that
 * must not be read or written, and calls from several threads. */
#include "support.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>

struct shape {
    size_t m, n, k;
};

static const struct shape shapes[] = {
    {1, 1, 1},     {1, 1, 0},      {3, 5, 0},     {1, 7, 3},      {7, 1, 5},
    {2, 3, 1},     {1, 1, 129},    {17, 31, 13},  {64, 64, 64},   {65, 63, 127},
    {5, 300, 2},   {129, 2, 257},  {1, 513, 9},   {200, 1, 40},   {48, 97, 300},
    {9, 257, 515}, {131, 129, 65}, {21, 50, 800}, {300, 49, 401},
};

static void check_product(struct shape s, bool ta, bool tb, float beta, size_t extra)
{
    size_t lda = (ta ? s.m : s.k) + extra, ldb = (tb ? s.k : s.n) + extra,
           ldc = s.n + extra;
    size_t a_elems = (ta ? s.k : s.m) * lda, b_elems = (tb ? s.n : s.k) * ldb;
    float *A = new_uniform(1, a_elems, 1), *B = new_uniform(2, b_elems, 1);
    float *C = beta == 0.0f ? new_poisoned(s.m * ldc) : new_uniform(3, s.m * ldc, 1);
    float *got = new_poisoned(s.m * s.n);
    double *A_d = doubles_of(A, a_elems), *B_d = doubles_of(B, b_elems);
    double *C_d = doubles_of(C, s.m * ldc), *want = new_doubles(s.m * s.n);

    /* What lies between the rows belongs to others. */
    for (size_t i = 0; i < s.m; i++)
        for (size_t j = s.n; j < ldc; j++)
            C[i * ldc + j] = 12345.0f;
    ref_matmul_d(ta, tb, s.m, s.n, s.k, A_d, lda, B_d, ldb, (double)beta, C_d, ldc);
    gemm(ta, tb, s.m, s.n, s.k, A, lda, B, ldb, beta, C, ldc);
    for (size_t i = 0; i < s.m; i++) {
        memcpy(got + i * s.n, C + i * ldc, s.n * sizeof *got);
        memcpy(want + i * s.n, C_d + i * ldc, s.n * sizeof *want);
        for (size_t j = s.n; j < ldc; j++)
            assert_true(C[i * ldc + j] == 12345.0f);
    }
    check_close("gemm", got, want, s.m * s.n);
    free(A), free(B), free(C), free(got), free(A_d), free(B_d), free(C_d), free(want);
}

static void matches_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 16; bits++)
            check_product(shapes[i], bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f,
                          bits & 8 ? 3 : 0);
}

/* y holds NaN before; what lies between its rows and after its columns is not touched. */
static void check_linear(struct shape s, bool residual, size_t extra)
{
    const size_t ldx = s.k + extra, ldy = s.n + 2 * extra, ldadd = s.n + 3 * extra;
    float *x = new_uniform(1, s.m * ldx, 1), *W = new_uniform(2, s.n * ldx, 1);
    float *bias = new_uniform(3, s.n, 1), *add = new_uniform(4, s.m * ldadd, 1);
    float *y = new_poisoned(s.m * ldy), *got = new_poisoned(s.m * s.n);
    double *x_d = doubles_of(x, s.m * ldx), *W_d = doubles_of(W, s.n * ldx);
    double *want = new_doubles(s.m * s.n);
    const struct linear l = {s.m,   s.n, s.k, x, ldx, W, ldx, bias, residual ? add : NULL,
                             ldadd, y,   ldy};
    const struct kernels *k = usable_kernels()[0];

    for (size_t i = 0; i < s.m; i++)
        for (size_t j = 0; j < s.n; j++)
            want[i * s.n + j] =
                (double)bias[j] + (residual ? (double)add[i * ldadd + j] : 0);
    ref_matmul_d(false, true, s.m, s.n, s.k, x_d, ldx, W_d, ldx, 1, want, s.n);
    gemm_linear(k, &l);
    for (size_t i = 0; i < s.m; i++) {
        memcpy(got + i * s.n, y + i * ldy, s.n * sizeof *got);
        for (size_t j = s.n; j < ldy; j++)
            assert_true(isnan(y[i * ldy + j]));
    }
    check_close("gemm", got, want, s.m * s.n);
    free(x), free(W), free(bias), free(add), free(y), free(got), free(x_d), free(W_d);
    free(want);
}

static void linear_adds_bias_and_residual(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int bits = 0; bits < 4; bits++)
            check_linear(shapes[i], bits & 1, bits & 2 ? 3 : 0);
}

enum { M = 128, N = 515, K = 131, REPEATS = 40 };

struct caller {
    pthread_t thread;
    const float *A, *B, *want;
    int wrong, most_threads;
};

static int threads_at_start;

static int threads_of_process(void)
{
    DIR *dir = opendir("/proc/self/task");
    int count = 0;

    if (!dir)
        return -1;
    for (struct dirent *e; (e = readdir(dir));)
        count += e->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void *multiply_often(void *arg)
{
    struct caller *caller = arg;
    float *C = new_poisoned(M * N);

    for (int i = 0; i < REPEATS; i++) {
        for (size_t j = 0; j < M * N; j++)
            C[j] = NAN;
        gemm(i % 2, true, M, N, K, caller->A, i % 2 ? M : K, caller->B, K, 0, C, N);
        if (threads_of_process() > caller->most_threads)
            caller->most_threads = threads_of_process();
        caller->wrong +=
            memcmp(C, caller->want + (i % 2) * M * N, M * N * sizeof *C) != 0;
    }
    free(C);
    return NULL;
}

/* Two callers at once get the bits that one caller gets, and the library starts no thread
 * of its own, neither for the main thread nor for another. */
static void callers_do_not_disturb_each_other(void **state)
{
    float *A = new_uniform(1, M * K, 1), *B = new_uniform(2, N * K, 1);
    float *want = new_poisoned(2 * M * N), *again = new_poisoned(M * N);
    struct caller callers[2];

    (void)state;
    gemm(false, true, M, N, K, A, K, B, K, 0, want, N);
    gemm(true, true, M, N, K, A, M, B, K, 0, want + M * N, N);
    gemm(false, true, M, N, K, A, K, B, K, 0, again, N);
    assert_memory_equal(want, again, M * N * sizeof *again);
    assert_int_equal(threads_of_process(), threads_at_start);
    for (int i = 0; i < 2; i++) {
        callers[i] = (struct caller){.A = A, .B = B, .want = want};
        assert_int_equal(
            pthread_create(&callers[i].thread, NULL, multiply_often, &callers[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_int_equal(callers[i].wrong, 0);
        assert_in_range(callers[i].most_threads, 1, threads_at_start + 2);
    }
    free(A), free(B), free(want), free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_definition),
        cmocka_unit_test(linear_adds_bias_and_residual),
        cmocka_unit_test(callers_do_not_disturb_each_other),
    };

    gemm_init();
    threads_at_start = threads_of_process();
    printf("matrix products: %s\n", gemm_library());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
