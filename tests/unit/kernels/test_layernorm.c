/* SPDX-License-Identifier: MIT */
/* test_layernorm.c - layer normalisation of every instruction set against its
 * definition. */
#include "support.h"

#include <math.h>

static const size_t widths[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 65, 127, 768};

static void check_shape(const struct kernels *k, size_t rows, size_t C, bool in_place)
{
    size_t n = rows * C;
    float *x = new_uniform(C, n, 3), *g = new_uniform(2, C, 1), *b = new_uniform(3, C, 1);
    float *dy = new_uniform(4, n, 1), *add = new_uniform(5, n, 1);
    float *y = new_poisoned(n), *again = new_poisoned(n), *dx = new_poisoned(n);
    float *mean = new_poisoned(rows), *rstd = new_poisoned(rows);
    float *dg = new_poisoned(C), *db = new_poisoned(C);
    double *x_d = doubles_of(x, n), *g_d = doubles_of(g, C), *b_d = doubles_of(b, C);
    double *dy_d = doubles_of(dy, n), *y_d = new_doubles(n), *dx_d = new_doubles(n);
    double *mean_d = new_doubles(rows), *rstd_d = new_doubles(rows);
    double *dg_d = new_doubles(C), *db_d = new_doubles(C), terms = 0;

    ref_layernorm_fwd_d(y_d, mean_d, rstd_d, x_d, g_d, b_d, rows, C);
    ref_layernorm_bwd_d(dx_d, dg_d, db_d, dy_d, x_d, g_d, rows, C);
    for (size_t i = 0; i < n && in_place; i++)
        dx_d[i] += (double)add[i];
    /* dx is a difference of terms of this size; with one or two columns all of them
     * cancel. */
    for (size_t i = 0; i < n; i++)
        terms = fmax(terms, fabs(dy_d[i] * g_d[i % C] * rstd_d[i / C]));

    k->layernorm_fwd(y, mean, rstd, x, g, b, rows, C);
    check_close("layernorm_fwd", y, y_d, n);
    check_close("layernorm_mean", mean, mean_d, rows);
    check_close("layernorm_rstd", rstd, rstd_d, rows);
    k->layernorm_redo(again, x, mean, rstd, g, b, rows, C);
    assert_memory_equal(again, y, n * sizeof *y);
    if (in_place) { /* dx on dy, the sum with what is added; then dx on what is added */
        memcpy(dx, dy, n * sizeof *dx);
        k->layernorm_bwd(dx, dg, db, dx, add, x, g, mean, rstd, rows, C);
        check_close_to_scale("layernorm_bwd", dx, dx_d, n, terms);
        memcpy(dx, add, n * sizeof *dx);
        k->layernorm_bwd(dx, dg, db, dy, dx, x, g, mean, rstd, rows, C);
        memcpy(again, x, n * sizeof *x);
        k->layernorm_fwd(again, mean, rstd, again, g, b, rows, C);
        assert_memory_equal(again, y, n * sizeof *y);
    } else {
        k->layernorm_bwd(dx, dg, db, dy, NULL, x, g, mean, rstd, rows, C);
    }
    check_close_to_scale("layernorm_bwd", dx, dx_d, n, terms);
    check_close("layernorm_bwd_weights", dg, dg_d, C);
    check_close("layernorm_bwd_weights", db, db_d, C);
    free(x), free(g), free(b), free(dy), free(add), free(y), free(again), free(dx);
    free(mean), free(rstd), free(dg), free(db), free(x_d), free(g_d), free(b_d),
        free(dy_d);
    free(y_d), free(dx_d), free(mean_d), free(rstd_d), free(dg_d), free(db_d);
}

static void matches_definition(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            check_shape(*k, 1, widths[i], false);
            check_shape(*k, 7, widths[i], false);
            check_shape(*k, 7, widths[i], true);
        }
}

/* A row of equal values has no variance: epsilon alone decides, and y is the bias. */
static void equal_values_give_the_bias(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
            size_t C = widths[i];
            float *x = new_uniform(1, C, 0), *g = new_uniform(1, C, 0);
            float *b = new_uniform(6, C, 1), *y = new_poisoned(C), *dx = new_poisoned(C);
            float *dy = new_uniform(7, C, 1), *dg = new_poisoned(C),
                  *db = new_poisoned(C);
            float mean, rstd;

            for (size_t c = 0; c < C; c++) {
                x[c] = 0.7310585f;
                g[c] = 1;
            }
            (*k)->layernorm_fwd(y, &mean, &rstd, x, g, b, 1, C);
            assert_memory_equal(y, b, C * sizeof *y);
            assert_true(fabsf(rstd - 316.2278f) < 1e-3f);
            (*k)->layernorm_bwd(dx, dg, db, dy, NULL, x, g, &mean, &rstd, 1, C);
            for (size_t c = 0; c < C; c++)
                assert_true(isfinite(dx[c]) && isfinite(dg[c]) && isfinite(db[c]));
            free(x), free(g), free(b), free(y), free(dx), free(dy), free(dg), free(db);
        }
}

/* Variance 1e-5 and epsilon 1e-5 together: 1 / sqrt(2e-5). */
static void epsilon_is_added_to_the_variance(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++) {
        float x[64], g[64], b[64], y[64], mean, rstd;

        for (size_t c = 0; c < 64; c++) {
            x[c] = c % 2 ? 0.0031622777f : -0.0031622777f;
            g[c] = 1;
            b[c] = 0.25f;
        }
        (*k)->layernorm_fwd(y, &mean, &rstd, x, g, b, 1, 64);
        assert_true(fabsf(rstd - 223.607f) < 1e-2f);
        assert_true(fabsf(y[1] - (0.25f + 0.70710678f)) < 1e-5f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_definition),
        cmocka_unit_test(equal_values_give_the_bias),
        cmocka_unit_test(epsilon_is_added_to_the_variance),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
