/* SPDX-License-Identifier: MIT */
/* Which token comes of which logits and which number. */
#include "engine/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"

enum { N = 5 };

static int32_t draw(struct sample_options o, const float *logits, size_t V, double u)
{
    void *work = malloc(sample_work_bytes(V));
    int32_t token = -1;

    assert_non_null(work);
    assert_int_equal(sample_token(&o, logits, V, u, work, &token), ST_OK);
    free(work);
    assert_in_range(token, 0, V - 1);
    return token;
}

/* Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625 in the order of `ids`. */
static void known_logits(const size_t *ids, float *logits)
{
    const double p[N] = {0.5, 0.25, 0.125, 0.0625, 0.0625};

    for (size_t i = 0; i < N; i++)
        logits[ids[i]] = (float)(log(p[i]) + 3);
}

static void temperature_zero_takes_the_likeliest(void **state)
{
    const float logits[] = {1, 7, 7, -INFINITY, NAN};

    (void)state;
    for (double u = 0; u < 1; u += 0.24)
        assert_int_equal(draw((struct sample_options){0, 0, 1}, logits, N, u), 1);
}

static void shares_are_probabilities(void **state)
{
    const size_t ids[N] = {3, 0, 4, 1, 2};
    const size_t draws = 20000;
    const double part = 1 / (double)draws;
    float logits[N];
    double share[N] = {0};
    double hot[N] = {0};

    (void)state;
    known_logits(ids, logits);
    for (size_t i = 0; i < draws; i++) {
        double u = rng_uniform(1, 2, i);

        share[draw((struct sample_options){1, 0, 1}, logits, N, u)] += part;
        hot[draw((struct sample_options){2, 0, 1}, logits, N, u)] += part;
    }
    assert_true(fabs(share[3] - 0.5) < 0.015);
    assert_true(fabs(share[0] - 0.25) < 0.015);
    assert_true(fabs(share[4] - 0.125) < 0.015);
    assert_true(fabs(share[1] - 0.0625) < 0.01);
    /* Temperature 2: square roots of the probabilities, 0.7071 of 2.0607 in all. */
    assert_true(fabs(hot[3] - 0.7071 / 2.0607) < 0.015);
    assert_true(fabs(hot[2] - 0.25 / 2.0607) < 0.015);
}

static void top_k_keeps_k(void **state)
{
    const size_t ids[N] = {3, 0, 4, 1, 2};
    float logits[N];

    (void)state;
    known_logits(ids, logits);
    for (double u = 0; u < 1; u += 0.01) {
        struct sample_options o = {1, 2, 1};
        int32_t token = draw(o, logits, N, u);

        /* 0.5 and 0.25: two thirds and one third. */
        assert_int_equal(token, u < 2.0 / 3 ? 3 : 0);
        o.top_k = 1;
        assert_int_equal(draw(o, logits, N, u), 3);
        o.top_k = 4; /* of the two rarest the lower id stays */
        assert_int_not_equal(draw(o, logits, N, u), 2);
        o.top_k = 99;
        assert_int_equal(draw(o, logits, N, u),
                         draw((struct sample_options){1, 0, 1}, logits, N, u));
    }
}

static void top_p_keeps_the_nucleus(void **state)
{
    const size_t ids[N] = {3, 0, 4, 1, 2};
    float logits[N];

    (void)state;
    known_logits(ids, logits);
    for (double u = 0; u < 1; u += 0.01) {
        assert_int_equal(draw((struct sample_options){1, 0, 0.45}, logits, N, u), 3);
        assert_int_equal(draw((struct sample_options){1, 0, 0}, logits, N, u), 3);
        assert_int_equal(draw((struct sample_options){1, 0, 0.7}, logits, N, u),
                         u < 2.0 / 3 ? 3 : 0);
        /* Of the 3 likeliest, then of these the share 0.8: 0.5 + 0.25 of 0.875. */
        assert_int_equal(draw((struct sample_options){1, 3, 0.8}, logits, N, u),
                         u < 2.0 / 3 ? 3 : 0);
    }
}

static void ends_of_u(void **state)
{
    enum { V = 1009 };
    float logits[V];

    (void)state;
    for (size_t i = 0; i < V; i++)
        logits[i] = (float)rng_normal(4, 5, i);
    assert_int_equal(draw((struct sample_options){1, 0, 1}, logits, V, 0), 0);
    assert_int_equal(draw((struct sample_options){1, 0, 1}, logits, V, 1 - 0x1p-53),
                     V - 1);
}

static void huge_and_missing_logits(void **state)
{
    const float logits[] = {NAN, 1e30f, INFINITY, 1e30f, -1e30f};
    const float none[] = {NAN, -INFINITY, INFINITY};
    _Alignas(16) char work[256];
    int32_t token = 77;

    (void)state;
    assert_true(sample_work_bytes(3) <= sizeof work);
    for (double u = 0; u < 1; u += 0.1)
        assert_int_equal(draw((struct sample_options){1, 0, 1}, logits, N, u),
                         u < 0.5 ? 1 : 3);
    assert_int_equal(
        sample_token(&(struct sample_options){1, 0, 1}, none, 3, 0.5, work, &token),
        ST_NUMERIC);
    assert_true(strstr(fail_text(), "none of 3"));
    assert_int_equal(token, 77);
}

/* The same token as of all probabilities sorted, with many ties among them. */
static int by_weight(const void *a, const void *b)
{
    const double *x = a;
    const double *y = b;

    if (x[0] > y[0] || x[0] < y[0])
        return x[0] > y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static int32_t draw_sorted(struct sample_options o, const float *logits, size_t V,
                           double u)
{
    double(*c)[2] = malloc(V * sizeof *c);
    double total = 0;
    double kept = 0;
    double sum = 0;
    size_t n = o.top_k && o.top_k < V ? o.top_k : V;
    size_t k = 0;
    int32_t token = -1;

    assert_non_null(c);
    for (size_t i = 0; i < V; i++) {
        c[i][0] = exp((double)logits[i] / o.temperature);
        c[i][1] = (double)i;
    }
    qsort(c, V, sizeof *c, by_weight);
    for (size_t i = 0; i < n; i++)
        total += c[i][0];
    while (k < n && (k == 0 || kept < o.top_p * total))
        kept += c[k++][0];
    for (size_t i = 0; i < k && token < 0; i++) {
        sum += c[i][0];
        if (sum > u * kept)
            token = (int32_t)c[i][1];
    }
    free(c);
    return token;
}

static void selection_is_sorting(void **state)
{
    enum { V = 3001 };
    const struct sample_options options[] = {{1, 1, 1},      {1, 40, 1},
                                             {0.7, 0, 0.9},  {1, 0, 0.99},
                                             {2, 500, 0.95}, {1, 2999, 0.5}};
    float logits[V];

    (void)state;
    for (uint64_t round = 0; round < 12; round++) {
        for (size_t i = 0; i < V; i++)
            logits[i] = (float)rng_normal(round, 1, i) * 2;
        for (size_t i = 0; round % 2 && i < V; i++) /* ties */
            logits[i] = floorf(logits[i]);
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            double u = rng_uniform(9, round, i);

            assert_int_equal(draw(options[i], logits, V, u),
                             draw_sorted(options[i], logits, V, u));
        }
    }
}

static void penalty_is_taken_once(void **state)
{
    float logits[N] = {2, -2, 0, 5, -1};
    const uint32_t ids[] = {0, 1, 0, 0, 1, 77, 4};
    char work[N];

    (void)state;
    sample_penalize(logits, N, ids, 7, 2, work);
    assert_true(logits[0] == 1 && logits[1] == -4 && logits[4] == -2);
    assert_true(logits[2] == 0 && logits[3] == 5);
    sample_penalize(logits, N, ids, 7, 1, work);
    assert_true(logits[0] == 1 && logits[1] == -4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_takes_the_likeliest),
        cmocka_unit_test(shares_are_probabilities),
        cmocka_unit_test(top_k_keeps_k),
        cmocka_unit_test(top_p_keeps_the_nucleus),
        cmocka_unit_test(ends_of_u),
        cmocka_unit_test(huge_and_missing_logits),
        cmocka_unit_test(selection_is_sorting),
        cmocka_unit_test(penalty_is_taken_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
