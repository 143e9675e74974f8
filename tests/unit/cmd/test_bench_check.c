/* SPDX-License-Identifier: MIT */
/* The judge of benchmarks: right results pass, each kind of wrong one does not. */
#include "cmd/bench_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "kernels/ref/ref.h"

enum { LD = 40, MOST = LD * LD };
static const double everything = 1e9;

static void fill(float *x, uint64_t stream, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_uniform(1, stream, i) * 2 - 1);
}

static void errors_are_relative_to_the_largest(void **state)
{
    const double want[4] = {1, -4, 2, 0};
    float got[4] = {1, -4, 2, 0};

    (void)state;
    assert_true(check_error(got, want, 4) == 0);
    assert_true(check_error(got, want, 0) == 0);
    got[3] = 0.5f;
    assert_true(check_error(got, want, 4) == 0.125);
    got[0] = NAN;
    assert_true(isinf(check_error(got, want, 4)));
    got[0] = INFINITY;
    assert_true(isinf(check_error(got, want, 4)));
    got[0] = 1;
    assert_true(isinf(check_error(got, (double[]){1, -4, 2, (double)NAN}, 4)));
    /* A later number does not cover an earlier NaN. */
    assert_true(isinf(check_error((float[]){NAN, 3}, (double[]){1, 1}, 2)));
}

struct problem {
    struct model_product p;
    float A[MOST], B[MOST], before[MOST], C[MOST];
};

/* The right answer, rounded to float. */
static void solve(struct problem *q, bool ta, bool tb, float beta, size_t m, size_t n,
                  size_t k)
{
    static double A[MOST], B[MOST], C[MOST];

    q->p = (struct model_product){.ta = ta,
                                  .tb = tb,
                                  .m = m,
                                  .n = n,
                                  .k = k,
                                  .lda = (ta ? m : k) + 1,
                                  .ldb = (tb ? k : n) + 2,
                                  .ldc = n + 3,
                                  .beta = beta};
    fill(q->A, 1, MOST);
    fill(q->B, 2, MOST);
    fill(q->before, 3, MOST);
    memcpy(q->C, q->before, sizeof q->C);
    for (size_t i = 0; i < MOST; i++) {
        A[i] = (double)q->A[i];
        B[i] = (double)q->B[i];
        C[i] = (double)q->before[i];
    }
    ref_matmul_d(ta, tb, m, n, k, A, q->p.lda, B, q->p.ldb, (double)beta, C, q->p.ldc);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            q->C[i * q->p.ldc + j] = (float)C[i * q->p.ldc + j];
}

static double error_of(const struct problem *q, double budget)
{
    double error = -1;

    assert_int_equal(check_product(&q->p, q->A, q->B, q->before, q->C, budget, &error),
                     ST_OK);
    return error;
}

static bool passes(const struct problem *q, double budget)
{
    return error_of(q, budget) <= check_product_limit(q->p.k);
}

static const size_t sizes[][3] = {{1, 1, 1},   {1, 7, 5},    {9, 1, 2},
                                  {17, 23, 3}, {23, 17, 31}, {8, 30, 33}};

static void right_products_pass(void **state)
{
    static struct problem q;

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int bits = 0; bits < 8; bits++) {
            solve(&q, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f, sizes[i][0],
                  sizes[i][1], sizes[i][2]);
            assert_true(error_of(&q, everything) < 1e-7);
            assert_true(error_of(&q, 1) < 1e-7);
        }
}

/* Any one element, by the smallest product that can be missing. */
static void wrong_elements_fail(void **state)
{
    static struct problem q;

    (void)state;
    for (int bits = 0; bits < 8; bits++) {
        solve(&q, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f, 11, 13, 31);
        for (size_t i = 0; i < 11; i++)
            for (size_t j = 0; j < 13; j++) {
                float *c = &q.C[i * q.p.ldc + j], right = *c;

                *c += 0.01f;
                assert_false(passes(&q, everything));
                *c = NAN;
                assert_false(passes(&q, everything));
                *c = right;
            }
        assert_true(passes(&q, everything));
        /* What lies between the rows is not the product's. */
        q.C[13] = NAN;
        assert_true(passes(&q, everything));
    }
}

/* beta is part of it, and so are the operands' transposes. */
static void wrong_products_fail(void **state)
{
    static struct problem q;

    (void)state;
    for (int bits = 0; bits < 8; bits++) {
        solve(&q, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f, 16, 16, 16);
        q.p.beta = 1 - q.p.beta;
        assert_false(passes(&q, everything));
        assert_false(passes(&q, 1));
        q.p.beta = 1 - q.p.beta;
        q.p.ta = !q.p.ta;
        assert_false(passes(&q, 1));
        q.p.ta = !q.p.ta;
        q.p.tb = !q.p.tb;
        assert_false(passes(&q, 1));
    }
}

/* With little to spend, first and last row and column are still looked at; and with half
 * of what all would cost about every second row, so that no tile of three is passed over.
 */
static void samples_are_spread(void **state)
{
    enum { M = 24, N = 20, K = 30 };
    static struct problem q;
    static const size_t places[][2] = {{0, 7}, {M - 1, 7}, {9, 0}, {9, N - 1}};

    (void)state;
    for (int bits = 0; bits < 8; bits++) {
        solve(&q, bits & 1, bits & 2, bits & 4 ? 1.0f : 0.0f, M, N, K);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            float *c = &q.C[places[i][0] * q.p.ldc + places[i][1]], right = *c;

            *c += 0.01f;
            assert_false(passes(&q, 1));
            *c = right;
        }
        for (size_t i = 0; i + 3 <= M; i++) {
            for (size_t row = i; row < i + 3; row++)
                q.C[row * q.p.ldc + 3] += 0.01f;
            assert_false(passes(&q, M * N * K));
            for (size_t row = i; row < i + 3; row++)
                q.C[row * q.p.ldc + 3] -= 0.01f;
        }
    }
}

static void limits_grow_slowly(void **state)
{
    (void)state;
    assert_true(check_product_limit(0) > 0);
    assert_true(check_product_limit(50304) < 1.0 / (4 * sqrt(50304)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_relative_to_the_largest),
        cmocka_unit_test(right_products_pass),
        cmocka_unit_test(wrong_elements_fail),
        cmocka_unit_test(wrong_products_fail),
        cmocka_unit_test(samples_are_spread),
        cmocka_unit_test(limits_grow_slowly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
