/* SPDX-License-Identifier: MIT */
/* test_elementwise.c - bias, GELU, AdamW and sums of every instruction set. */
#include "support.h"

#include <math.h>

static const size_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 1000};

static void gelu_matches_definition(void **state)
{
    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t n = lengths[i];
            float *x = new_uniform(n, n, 6), *dy = new_uniform(9, n, 1);
            float *y = new_poisoned(n), *again = new_poisoned(n);
            float *dx = new_poisoned(n);
            double *x_d = doubles_of(x, n), *dy_d = doubles_of(dy, n);
            double *y_d = new_doubles(n), *dx_d = new_doubles(n);

            ref_gelu_fwd_d(y_d, x_d, n);
            ref_gelu_bwd_d(dx_d, dy_d, x_d, n);
            k->gelu_fwd(y, x, n);
            check_close("gelu_fwd", y, y_d, n);
            k->gelu_bwd(dx, NULL, dy, x, n);
            check_close("gelu_bwd", dx, dx_d, n);
            k->gelu_bwd(dy, again, dy, x, n);
            assert_memory_equal(dy, dx, n * sizeof *dx);
            assert_memory_equal(again, y, n * sizeof *y);
            k->gelu_fwd(x, x, n);
            assert_memory_equal(x, y, n * sizeof *y);
            free(x), free(dy), free(y), free(again), free(dx);
            free(x_d), free(dy_d), free(y_d), free(dx_d);
        }
}

/* The tanh form; the exact one differs in the fourth digit. */
static void gelu_has_the_known_values(void **state)
{
    const float x[] = {-1.0f, 1.0f, 2.7f, 0.0f, 40.0f, -40.0f, 1e15f};
    const float want[] = {-0.158808f, 0.841192f, 2.691112f, 0.0f, 40.0f, 0.0f, 1e15f};
    const float slope[] = {-0.082964f, 1.082964f, 1.024668f, 0.5f, 1.0f, 0.0f, 1.0f};
    float ones[7] = {1, 1, 1, 1, 1, 1, 1}, y[7], dx[7], bad[2] = {NAN, -INFINITY};

    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++) {
        k->gelu_fwd(y, x, 7);
        k->gelu_bwd(dx, NULL, ones, x, 7);
        for (int i = 0; i < 7; i++) {
            assert_true(fabsf(y[i] - want[i]) <= 1e-6f);
            assert_true(fabsf(dx[i] - slope[i]) <= 2e-6f);
        }
        k->gelu_fwd(y, bad, 1);
        assert_true(isnan(y[0]));
    }
}

static void adamw_matches_definition(void **state)
{
    const struct adamw a = {.lr = 3e-3f,
                            .beta1 = 0.9f,
                            .beta2 = 0.95f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = 0.271f,
                            .correction2 = 0.142625f,
                            .grad_scale = 0.37f};

    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t n = lengths[i];
            float *p = new_uniform(1, n, 1), *m = new_uniform(2, n, 1e-2);
            float *v = new_uniform(3, n, 1e-3), *g = new_uniform(4, n, 1e-2);
            double *p_d = doubles_of(p, n), *m_d = doubles_of(m, n),
                   *g_d = doubles_of(g, n);
            double *v_d = new_doubles(n);

            for (size_t j = 0; j < n; j++)
                v_d[j] = (double)(v[j] = fabsf(v[j]));
            k->adamw(p, m, v, g, n, &a);
            ref_adamw_d(p_d, m_d, v_d, g_d, n, &a);
            check_close("adamw", p, p_d, n);
            check_close("adamw", m, m_d, n);
            check_close("adamw", v, v_d, n);
            free(p), free(m), free(v), free(g), free(p_d), free(m_d), free(g_d),
                free(v_d);
        }
}

/* Without a gradient only the decay is left: lr 1e-3 * decay 0.1 takes a ten-thousandth;
 * without decay nothing moves. */
static void adamw_decays_by_lr_times_decay(void **state)
{
    struct adamw a = {.lr = 1e-3f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-8f,
                      .weight_decay = 0.1f,
                      .correction1 = 0.1f,
                      .correction2 = 0.05f,
                      .grad_scale = 1};

    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++) {
        float p[33], m[33] = {0}, v[33] = {0}, g[33] = {0};

        for (int i = 0; i < 33; i++)
            p[i] = 2.0f;
        a.weight_decay = 0.1f;
        k->adamw(p, m, v, g, 33, &a);
        for (int i = 0; i < 33; i++)
            assert_true(fabsf(p[i] - 2.0f * 0.9999f) <= 2.4e-7f);
        a.weight_decay = 0;
        p[5] = 2.0f;
        k->adamw(p, m, v, g, 33, &a);
        assert_true(p[5] == 2.0f);
    }
}

static void bias_matches_definition(void **state)
{
    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t rows = 1; rows < 20; rows += 6) {
                size_t C = lengths[i], n = rows * C, ld = C + 3;
                float *b = new_uniform(1, C, 1), *res = new_uniform(2, n, 1);
                float *wide = new_uniform(3, rows * ld, 1), *y = new_poisoned(n);
                float *db = new_poisoned(C);
                double *b_d = doubles_of(b, C), *res_d = doubles_of(res, n);
                double *y_d = new_doubles(n), *db_d = new_doubles(C),
                       *in = new_doubles(n);

                ref_bias_rows_d(y_d, b_d, NULL, rows, C);
                k->bias_rows(y, C, b, NULL, 0, rows, C);
                check_close("bias_rows", y, y_d, n);
                ref_bias_rows_d(y_d, b_d, res_d, rows, C);
                k->bias_rows(y, C, b, res, C, rows, C);
                check_close("bias_rows", y, y_d, n);

                for (size_t r = 0; r < rows; r++)
                    for (size_t c = 0; c < C; c++)
                        in[r * C + c] = (double)wide[r * ld + c];
                ref_bias_grad_d(db_d, in, rows, C);
                k->bias_grad(db, wide, ld, rows, C, false);
                check_close("bias_grad", db, db_d, C);
                ref_bias_grad_d(db_d, in, rows, C);
                k->bias_grad(db, wide, ld, rows, C, true);
                check_close("bias_grad", db, db_d, C);
                free(b), free(res), free(wide), free(y), free(db);
                free(b_d), free(res_d), free(y_d), free(db_d), free(in);
            }
}

static void partial_sums_are_added_in_order(void **state)
{
    (void)state;
    for (const struct kernels *const *at = usable_kernels(), *k; (k = *at); at++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            size_t n = lengths[i];
            float *parts = new_uniform(n, 5 * n, 1), *out = new_poisoned(n);
            float *want = new_poisoned(n);

            for (size_t j = 0; j < n; j++)
                want[j] = parts[j] + parts[n + j] + parts[2 * n + j] + parts[3 * n + j] +
                          parts[4 * n + j];
            k->add_partials(out, parts, 5, n, false);
            assert_memory_equal(out, want, n * sizeof *out);
            for (size_t j = 0; j < n; j++) {
                assert_true(out[j] == want[j]);
                out[j] = 0.5f;
            }
            k->add_partials(out, parts, 5, n, true);
            for (size_t j = 0; j < n; j++)
                assert_true(out[j] == want[j] + 0.5f);
            free(parts), free(out), free(want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_matches_definition),
        cmocka_unit_test(gelu_has_the_known_values),
        cmocka_unit_test(adamw_matches_definition),
        cmocka_unit_test(adamw_decays_by_lr_times_decay),
        cmocka_unit_test(bias_matches_definition),
        cmocka_unit_test(partial_sums_are_added_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
