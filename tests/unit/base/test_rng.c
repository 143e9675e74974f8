/* SPDX-License-Identifier: MIT */
/* Numbers as pure functions: known bits, even spread, permutations that are ones. */
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { DRAWS = 100000 };

/* First output of SplitMix64 with state 0, from its authors' reference program. */
static void mixer_is_splitmix(void **state)
{
    const uint64_t first = 0xe220a8397b1dcdafu;
    const uint64_t gamma = 0x9e3779b97f4a7c15u;

    (void)state;
    /* mix(0) = first; the two further rounds start from it. */
    uint64_t x = first;
    for (int i = 0; i < 2; i++) {
        x += gamma;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    assert_true(rng_bits(0, 0, 0) == x);
}

static void arguments_all_matter(void **state)
{
    uint64_t seen[3000];
    size_t n = 0;

    (void)state;
    for (uint64_t i = 0; i < 1000; i++) {
        seen[n++] = rng_bits(i, 0, 0);
        seen[n++] = rng_bits(0, i + 1, 0);
        seen[n++] = rng_bits(0, 0, i + 1);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
}

static void uniform_is_even(void **state)
{
    size_t bins[64] = {0};
    double chi = 0;

    (void)state;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double u = rng_uniform(7, 3, i);

        assert_true(u >= 0 && u < 1);
        bins[(size_t)(u * 64)]++;
    }
    for (size_t b = 0; b < 64; b++) {
        double expected = DRAWS / 64;
        double off = (double)bins[b] - expected;

        chi += off * off / expected;
    }
    /* 63 degrees of freedom: mean 63, deviation 11. */
    assert_true(chi > 20 && chi < 120);
}

static void normal_has_its_moments(void **state)
{
    double sums[4] = {0};
    double pairs = 0;
    double before = 0;
    const double n = DRAWS;

    (void)state;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double z = rng_normal(7, 4, i);

        assert_true(isfinite(z));
        sums[0] += z;
        sums[1] += z * z;
        sums[2] += z * z * z;
        sums[3] += z * z * z * z;
        pairs += z * before;
        before = z;
    }
    assert_true(fabs(sums[0] / n) < 5 / sqrt(n));
    assert_true(fabs(sums[1] / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(sums[2] / n) < 5 * sqrt(15 / n));
    assert_true(fabs(sums[3] / n - 3) < 5 * sqrt(96 / n));
    assert_true(fabs(pairs / n) < 5 / sqrt(n));
}

static void permutation_hits_all_once(void **state)
{
    const uint64_t sizes[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4096, 4097};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (uint64_t seed = 0; seed < 4; seed++) {
            char *hit = calloc(sizes[s], 1);

            assert_non_null(hit);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t to = rng_permute(seed, 1, sizes[s], i);

                assert_true(to < sizes[s]);
                assert_int_equal(hit[to], 0);
                hit[to] = 1;
            }
            free(hit);
        }
}

static void permutation_mixes(void **state)
{
    enum { N = 1000 };
    size_t fixed = 0;
    size_t neighbours = 0;
    size_t same = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t to = rng_permute(1, 1, N, i);

        fixed += to == i;
        neighbours += i > 0 && to == rng_permute(1, 1, N, i - 1) + 1;
        same += to == rng_permute(1, 2, N, i);
        same += to == rng_permute(2, 1, N, i);
    }
    /* About 1, 1 and 2 are to be expected. */
    assert_true(fixed < 10 && neighbours < 10 && same < 12);
}

static void permutation_of_huge_ranges(void **state)
{
    const uint64_t sizes[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) + 1,
                              UINT64_C(1) << 62, UINT64_MAX};

    (void)state;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t a = rng_permute(1, 1, sizes[s], 0);
        uint64_t b = rng_permute(1, 1, sizes[s], sizes[s] - 1);

        assert_true(a < sizes[s] && b < sizes[s] && a != b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mixer_is_splitmix),
        cmocka_unit_test(arguments_all_matter),
        cmocka_unit_test(uniform_is_even),
        cmocka_unit_test(normal_has_its_moments),
        cmocka_unit_test(permutation_hits_all_once),
        cmocka_unit_test(permutation_mixes),
        cmocka_unit_test(permutation_of_huge_ranges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
