/* SPDX-License-Identifier: MIT */
/* The arithmetic of an exchange, bit for bit against plain loops. */
#include "base/rng.h"
#include "comm/exchange_private.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TERMS = 6 };

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static float value(size_t number, size_t i)
{
    return (float)rng_normal(3, number, i);
}

/* ---- bfloat16 ---- */

/* What a bfloat16 is worth when the numbers have no end: infinity counts as 2^128. */
static double worth(uint16_t half)
{
    double x = (double)float_of((uint32_t)half << 16);

    return isinf(x) ? copysign(ldexp(1, 128), x) : x;
}

/* The nearest bfloat16, of two equally near ones the even one; by distances in double. */
static uint16_t nearest(float x)
{
    uint16_t toward_zero = (uint16_t)(bits_of(x) >> 16);
    uint16_t away = (uint16_t)(toward_zero + 1);

    if (isinf(x))
        return toward_zero;
    double below = fabs((double)x - worth(toward_zero));
    double above = fabs(worth(away) - (double)x);

    if (below < above || (below <= above && toward_zero % 2 == 0))
        return toward_zero;
    return away;
}

/* Every upper half, NaN, infinity and denormals among them, with lower halves around the
 * points where rounding changes. */
static void bf16_is_the_nearest(void **state)
{
    static const uint32_t lower[] = {0,      1,      0x5a5a, 0x7fff,
                                     0x8000, 0x8001, 0xc001, 0xffff};
    enum { N = sizeof lower / sizeof lower[0] };

    (void)state;
    for (uint32_t upper = 0; upper < 1 << 16; upper++) {
        float x[N];
        uint16_t packed[N];

        for (size_t i = 0; i < N; i++)
            x[i] = float_of(upper << 16 | lower[i]);
        bf16_pack_in_place(x, N);
        memcpy(packed, x, sizeof packed);
        for (size_t i = 0; i < N; i++) {
            float in = float_of(upper << 16 | lower[i]);
            float out = float_of((uint32_t)packed[i] << 16);

            if (isnan(in)) {
                assert_true(isnan(out));
                assert_int_equal(signbit(in) != 0, signbit(out) != 0);
            } else {
                assert_int_equal(packed[i], nearest(in));
            }
        }
    }
}

static const size_t lengths[] = {0,  1,  2,    15,   16,   17,   31,
                                 32, 33, 1023, 4095, 4096, 4097, 3 * 4096 + 5};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], LONGEST = 3 * 4096 + 5 };

/* One number of every kind in turn; what a length shorter than a tile would get wrong is
 * the order in which halves and floats overlap. */
static float kind(size_t i)
{
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0x80000000,
                                    0x00000001, 0x007fffff, 0x7f7fffff};

    return i % 11 < 7 ? float_of(bits[i % 11]) : value(1, i);
}

static void bf16_goes_and_comes_back_in_place(void **state)
{
    static float x[LONGEST + 2], whole[LONGEST + 2];
    static uint16_t one_by_one[LONGEST];

    (void)state;
    for (size_t l = 0; l < LENGTHS; l++) {
        size_t n = lengths[l];

        for (size_t i = 0; i < n + 2; i++)
            x[i] = whole[i] = kind(i);
        for (size_t i = 0; i < n; i++) {
            float single = x[i];

            bf16_pack_in_place(&single, 1);
            memcpy(&one_by_one[i], &single, sizeof one_by_one[i]);
        }
        bf16_pack_in_place(x, n);
        assert_memory_equal(x, one_by_one, n * sizeof *one_by_one);
        bf16_unpack_in_place(x, n);
        for (size_t i = 0; i < n; i++)
            if (isnan(whole[i]))
                assert_true(isnan(x[i]));
            else
                assert_int_equal(bits_of(x[i]), (uint32_t)one_by_one[i] << 16);
        assert_memory_equal(x + n, whole + n, 2 * sizeof *x);
    }
}

/* What has been rounded once is not changed by rounding again. */
static void rounded_numbers_stay(void **state)
{
    static float x[LONGEST], once[LONGEST];

    (void)state;
    for (size_t i = 0; i < LONGEST; i++)
        x[i] = kind(i);
    bf16_pack_in_place(x, LONGEST);
    bf16_unpack_in_place(x, LONGEST);
    memcpy(once, x, sizeof x);
    bf16_pack_in_place(x, LONGEST);
    bf16_unpack_in_place(x, LONGEST);
    assert_memory_equal(x, once, sizeof x);
}

/* ---- sums ---- */

static float sources[TERMS][SUM_TILE];
static uint16_t halves[TERMS][SUM_TILE];

static void fill_sources(void)
{
    for (size_t k = 0; k < TERMS; k++)
        for (size_t i = 0; i < SUM_TILE; i++) {
            sources[k][i] = value(k, i);
            halves[k][i] = nearest(value(k, i));
        }
}

/* Term k of n; in a mixed list every other one is bfloat16. */
static struct sum_term term(size_t k, bool mixed)
{
    return mixed && k % 2 == 0 ? (struct sum_term){halves[k], true}
                               : (struct sum_term){sources[k], false};
}

static float at(struct sum_term t, size_t i)
{
    return t.bf16 ? float_of((uint32_t)((const uint16_t *)t.values)[i] << 16)
                  : ((const float *)t.values)[i];
}

/* dst stands behind `before` terms. */
static float sum_in_order(const struct sum_term *terms, size_t n, size_t before,
                          float dst, size_t i)
{
    float sum = before == 0 ? dst : at(terms[0], i);

    for (size_t place = 1; place <= n; place++)
        sum += place == before ? dst : at(terms[place < before ? place : place - 1], i);
    return sum;
}

static void check_sum(size_t length, size_t n, size_t before, bool mixed)
{
    static float dst[SUM_TILE + 1], start[SUM_TILE + 1];
    struct sum_term terms[TERMS];

    for (size_t k = 0; k < n; k++)
        terms[k] = term(k, mixed);
    for (size_t i = 0; i < SUM_TILE + 1; i++)
        dst[i] = start[i] = value(9, i);
    sum_terms(dst, terms, n, before, length);
    for (size_t i = 0; i < length; i++)
        assert_int_equal(bits_of(dst[i]),
                         bits_of(sum_in_order(terms, n, before, start[i], i)));
    assert_memory_equal(dst + length, start + length,
                        (SUM_TILE + 1 - length) * sizeof *dst);
}

static void terms_are_added_in_their_order(void **state)
{
    (void)state;
    fill_sources();
    for (size_t l = 0; l < LENGTHS; l++)
        for (size_t n = 0; n <= TERMS && lengths[l] <= SUM_TILE; n++)
            for (size_t before = 0; before <= n; before++)
                for (int mixed = 0; mixed < 2; mixed++)
                    check_sum(lengths[l], n, before, mixed != 0);
}

static void a_result_replaces_the_gradient(void **state)
{
    float dst[4] = {1, NAN, 3, -7};
    const float result[4] = {4, 5, 6, -7};
    const uint16_t half[3] = {0x4080, 0x40a0, 0x40c0};

    (void)state;
    sum_terms(dst, &(struct sum_term){result, false}, 1, SUM_REPLACE, 3);
    assert_memory_equal(dst, result, sizeof dst);
    dst[1] = NAN;
    sum_terms(dst, &(struct sum_term){half, true}, 1, SUM_REPLACE, 3);
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
        cmocka_unit_test(bf16_is_the_nearest),
        cmocka_unit_test(bf16_goes_and_comes_back_in_place),
        cmocka_unit_test(rounded_numbers_stay),
        cmocka_unit_test(terms_are_added_in_their_order),
        cmocka_unit_test(a_result_replaces_the_gradient),
        cmocka_unit_test(squares_do_not_depend_on_the_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
