/* SPDX-License-Identifier: MIT */
/* test_softmax.c - softmax statistics and gradient of tiles, and the exponential and
 * logarithm under them. */
#include "support.h"

#include <math.h>

#include "kernels/vmath.h"

static const size_t widths[] = {1, 2, 15, 16, 17, 31, 32, 33, 63, 97, 129, 1000};

/* The statistics of two tiles of one row of logits, joined as the engine joins them. */
static void check_tiles(const struct kernels *k, size_t rows, size_t cols)
{
    size_t ld = cols + 5, left = cols > 2 ? cols / 3 : cols, padded = cols + 3;
    float *logits = new_uniform(cols, rows * ld, 20), *max = new_poisoned(2 * rows);
    float *sum = new_poisoned(2 * rows), *lse = new_poisoned(rows);
    float *got = new_poisoned(rows * cols);
    int32_t *target = new_integers(3, rows, (int32_t)cols);
    double *in = new_doubles(rows * cols), *lse_d = new_doubles(rows);
    double *loss_d = new_doubles(rows), *grad_d = new_doubles(rows * cols);

    target[rows / 2] = -1;
    for (size_t n = 0; n < rows; n++)
        for (size_t c = 0; c < cols; c++)
            in[n * cols + c] = (double)logits[n * ld + c];
    ref_cross_entropy_fwd_d(loss_d, lse_d, in, target, rows, cols);
    ref_cross_entropy_bwd_d(grad_d, in, target, rows, cols, 0.125);

    k->softmax_stats(max, sum, logits, ld, rows, left);
    for (size_t n = 0; n < rows; n++)
        lse[n] = (float)((double)max[n] + log((double)sum[n]));
    if (left < cols) {
        k->softmax_stats(max + rows, sum + rows, logits + left, ld, rows, cols - left);
        for (size_t n = 0; n < rows; n++) {
            double top = fmax((double)max[n], (double)max[rows + n]);

            lse[n] = (float)(top + log((double)sum[n] * exp((double)max[n] - top) +
                                       (double)sum[rows + n] *
                                           exp((double)max[rows + n] - top)));
        }
    }
    check_close("softmax_stats", lse, lse_d, rows);

    k->softmax_grad(logits, ld, lse, target, 0, rows, left, left, 0.125f);
    if (left < cols)
        k->softmax_grad(logits + left, ld, lse, target, left, rows, cols - left,
                        padded - left, 0.125f);
    for (size_t n = 0; n < rows; n++) {
        memcpy(got + n * cols, logits + n * ld, cols * sizeof *got);
        for (size_t c = cols; c < padded && left < cols; c++)
            assert_true(logits[n * ld + c] == 0.0f);
    }
    check_close("softmax_grad", got, grad_d, rows * cols);
    for (size_t c = 0; c < cols; c++)
        assert_true(got[rows / 2 * cols + c] == 0.0f);
    free(logits), free(max), free(sum), free(lse), free(got), free(target);
    free(in), free(lse_d), free(loss_d), free(grad_d);
}

static void matches_definition(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (size_t rows = 1; rows < 12; rows += 5)
                check_tiles(*k, rows, widths[i]);
}

/* A logit that is no number must show in the statistics, wherever it stands. */
static void nan_is_not_lost(void **state)
{
    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t at = 0; at < 70; at++) {
            float *x = new_uniform(1, 70, 1), max, sum;

            x[at] = NAN;
            (*k)->softmax_stats(&max, &sum, x, 70, 1, 70);
            assert_true(isnan(sum) || isnan(max));
            x[at] = INFINITY;
            (*k)->softmax_stats(&max, &sum, x, 70, 1, 70);
            assert_true(!isfinite(sum) || !isfinite(max));
            free(x);
        }
}

static void exponential_is_accurate(void **state)
{
    double worst = 0;

    (void)state;
    for (float x = -87.3f; x < 88.3f; x += 0.00137f) {
        float y = vexpf(x);
        double ulp = (double)(nextafterf(y, INFINITY) - y);

        worst = fmax(worst, fabs((double)y - exp((double)x)) / ulp);
    }
    if (getenv("WEFT_TEST_MEASURE"))
        printf("measured vexpf %.3g ulp\n", worst);
    assert_true(worst <= 1.5);
    assert_true(vexpf(0.0f) == 1.0f && vexpf(-0.0f) == 1.0f);
    assert_true(vexpf(-INFINITY) == 0.0f && vexpf(-1000.0f) == 0.0f);
    assert_true(isinf(vexpf(INFINITY)) && isinf(vexpf(89.0f)) && isnan(vexpf(NAN)));
}

static void logarithm_is_accurate(void **state)
{
    (void)state;
    for (float x = 1.2e-38f; x < 3e38f; x *= 1.00113f) {
        double want = log((double)x);

        assert_true(fabs((double)vlogf(x) - want) <= 6e-8 * fabs(want) + 1e-12);
    }
    assert_true(vlogf(1.0f) == 0.0f);
    assert_true(isinf(vlogf(INFINITY)) && isnan(vlogf(NAN)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_definition),
        cmocka_unit_test(nan_is_not_lost),
        cmocka_unit_test(exponential_is_accurate),
        cmocka_unit_test(logarithm_is_accurate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
