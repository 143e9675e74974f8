/* SPDX-License-Identifier: MIT */
/* The root's arithmetic, bit for bit against plain loops in rank order. */
#include "base/rng.h"
#include "comm/exchange_private.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = SUM_TILE, RANKS = 7 };

static float value(size_t rank, size_t i)
{
    return (float)rng_normal(3, rank, i);
}

static void sums_are_in_rank_order(void **state)
{
    static const size_t lengths[] = {1, 3, 15, 16, 17, 1023, MOST};
    static float sources[(RANKS - 1) * (MOST + 5)];
    static float dst[MOST + 1];

    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
        for (size_t ranks = 2; ranks <= RANKS; ranks++)
            for (size_t own = 0; own < ranks; own++) {
                size_t n = lengths[l];
                size_t stride = n + 5;

                for (size_t r = 0; r < ranks; r++)
                    for (size_t i = 0; i < n; i++) {
                        float *to = r == own ? dst : sources + (r - (r > own)) * stride;

                        to[i] = value(r, i);
                    }
                dst[n] = -7;
                sum_add_ranks(dst, sources, stride, ranks - 1, own, n);
                for (size_t i = 0; i < n; i++) {
                    float sum = value(0, i);

                    for (size_t r = 1; r < ranks; r++)
                        sum += value(r, i);
                    assert_memory_equal(&dst[i], &sum, sizeof sum);
                }
                assert_true(dst[n] == -7);
            }
}

static void a_result_replaces_the_gradient(void **state)
{
    float dst[3] = {1, 2, 3};
    const float result[3] = {4, 5, 6};

    (void)state;
    sum_add_ranks(dst, result, 3, 1, SUM_REPLACE, 3);
    assert_memory_equal(dst, result, sizeof dst);
}

static void squares_do_not_depend_on_the_cut(void **state)
{
    static float x[16 * 61];
    enum { N = 16 * 61 };
    struct squares whole = {{0}};
    double exact = 0;

    (void)state;
    for (size_t i = 0; i < N; i++) {
        x[i] = value(9, i);
        exact += (double)x[i] * (double)x[i];
    }
    squares_add(&whole, x, N);
    for (size_t cut = 0; cut <= N; cut += 16) {
        struct squares parts = {{0}};

        squares_add(&parts, x, cut);
        squares_add(&parts, x + cut, N - cut);
        assert_memory_equal(&parts, &whole, sizeof whole);
    }
    double total = squares_total(&whole);

    assert_true(total > exact * (1 - 1e-14) && total < exact * (1 + 1e-14));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_in_rank_order),
        cmocka_unit_test(a_result_replaces_the_gradient),
        cmocka_unit_test(squares_do_not_depend_on_the_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
