/* SPDX-License-Identifier: MIT */
/* test_ceiling.c - the loops that speeds are held against do the work they are credited
 * with, and their rates are those of a machine. */
#include "support.h"

#include <math.h>

#include "base/clock.h"
#include "kernels/ceiling.h"
#include "kernels/ceiling_loops.h"

static const char *const names[] = {"generic", "avx2", "avx512"};
enum { NAMES = sizeof names / sizeof *names };

/* After n rounds a chain that started at s is at 1 + (s - 1) 0.75^n. */
static void fma_does_its_rounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        const struct ceiling_loops *l = ceiling_loops_of(names[i]);

        for (size_t rounds = 0; l && rounds < 6; rounds++) {
            float sum;
            double operations = l->fma(rounds, 3.0f, &sum);
            double one_round = l->fma(1, 3.0f, &sum), expected = 0;
            size_t elems = (size_t)one_round / 2;

            assert_true(operations == (double)rounds * one_round);
            (void)l->fma(rounds, 3.0f, &sum);
            /* Chains are as long as the vectors: 4, 8 or 16 elements. */
            size_t width = i == 0 ? elems / 12 : i == 1 ? 8 : 16;

            assert_int_equal(elems % width, 0);
            for (size_t chain = 0; chain < elems / width; chain++)
                expected += (double)width *
                            (1 + (2 + (double)chain / 64) * pow(0.75, (double)rounds));
            assert_true(fabs((double)sum - expected) < 1e-5 * expected);
        }
    }
}

static void bf16_does_its_rounds(void **state)
{
    float sum = -1;
    double operations = ceiling_bf16_loop(100, &sum);

    (void)state;
    if (operations == 0) {
        assert_true(sum == -1);
        assert_true(ceiling_bf16(0.001) == 0);
        printf("no bf16 dot product on this CPU\n");
        return;
    }
    assert_true((double)sum == operations / 2); /* half of them are additions of 1 */
    assert_true(ceiling_bf16(0.002) > 1e8);
}

static void streams_do_what_they_say(void **state)
{
    static const size_t lengths[] = {1, 15, 16, 17, 127, 128, 129, 1000};

    (void)state;
    for (size_t i = 0; i < NAMES; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            const struct ceiling_loops *l = ceiling_loops_of(names[i]);
            size_t n = lengths[j];
            float *a = new_uniform(1, n, 1), *b = new_poisoned(n + 1);
            float *c = new_poisoned(n + 1);
            double sum = 0;

            for (size_t e = 0; e < n; e++)
                sum += (double)a[e];
            if (l) {
                assert_true(fabs((double)l->read(a, n) - sum) < 1e-4);
                l->copy(b, a, n);
                assert_memory_equal(a, b, n * sizeof *a);
                l->triad(c, a, b, 0.5f, n);
                for (size_t e = 0; e < n; e++)
                    assert_true(fabsf(c[e] - 1.5f * a[e]) <= 1e-6f);
                assert_true(isnan(b[n]) && isnan(c[n]));
                l->triad(b, c, b, 0.5f, n);
                for (size_t e = 0; e < n; e++)
                    assert_true(fabsf(b[e] - 2 * a[e]) <= 1e-6f);
            }
            free(a), free(b), free(c);
        }
}

/* Slower than any machine in use, faster than any to come. */
static void assert_plausible(double rate)
{
    if (!(rate > 1e7 && rate < 1e13))
        fail_msg("a rate of %g", rate);
}

static void rates_are_plausible(void **state)
{
    enum { N = 5000 };
    float *a = new_uniform(1, N, 1), *b = new_uniform(2, N, 1), *c = new_uniform(3, N, 1);

    (void)state;
    for (size_t i = 0; i < NAMES; i++) {
        if (!ceiling_loops_of(names[i]))
            continue;
        double start_s = clock_s();

        assert_plausible(ceiling_fma(names[i], 0.003));
        assert_true(clock_s() - start_s >= 0.003);
        for (enum ceiling_pattern p = CEILING_READ; p <= CEILING_UPDATE; p++)
            assert_plausible(ceiling_bandwidth(names[i], p, a, b, c, N, 0.002));
    }
    /* One run of the loop at least, however little time there is. */
    assert_plausible(ceiling_fma(NULL, 0));
    assert_plausible(ceiling_bandwidth(NULL, CEILING_READ, a, NULL, NULL, 1, 0.001));
    assert_null(ceiling_loops_of("mmx"));
    free(a), free(b), free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fma_does_its_rounds),
        cmocka_unit_test(bf16_does_its_rounds),
        cmocka_unit_test(streams_do_what_they_say),
        cmocka_unit_test(rates_are_plausible),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
