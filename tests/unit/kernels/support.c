/* SPDX-License-Identifier: MIT */
/* support.c - see support.h. */
#include "support.h"

#include <math.h>

#include "base/rng.h"

const struct kernels *const *usable_kernels(void)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};
    static const struct kernels *found[4];
    size_t n = 0;

    for (size_t i = 0; i < 3; i++) {
        const struct kernels *k;

        if (kernels_select(names[i], &k) == ST_OK)
            found[n++] = k;
    }
    found[n] = NULL;
    return found;
}

float *new_uniform(uint64_t stream, size_t n, double size)
{
    float *x = malloc((n > 0 ? n : 1) * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((rng_uniform(1, stream, i) * 2 - 1) * size);
    return x;
}

float *new_poisoned(size_t n)
{
    float *x = malloc((n > 0 ? n : 1) * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
    return x;
}

double *new_doubles(size_t n)
{
    double *x = calloc(n + 1, sizeof *x);

    assert_non_null(x);
    return x;
}

double *doubles_of(const float *x, size_t n)
{
    double *d = new_doubles(n);

    for (size_t i = 0; i < n; i++)
        d[i] = (double)x[i];
    return d;
}

int32_t *new_integers(uint64_t stream, size_t n, int32_t below)
{
    int32_t *x = malloc((n > 0 ? n : 1) * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)(rng_bits(2, stream, i) % (uint64_t)below);
    return x;
}

double tolerance(const char *name)
{
    FILE *file = fopen(TOLERANCES_CSV, "r");
    char line[512], row[64], metric[32];
    double limit = -1, value;

    assert_non_null(file);
    while (limit < 0 && fgets(line, sizeof line, file))
        if (sscanf(line, "%63[^,],%31[^,],%lf", row, metric, &value) == 3 &&
            strcmp(row, name) == 0 && strcmp(metric, "rel_max") == 0)
            limit = value;
    fclose(file);
    if (limit < 0)
        fail_msg("no row %s,rel_max in %s", name, TOLERANCES_CSV);
    return limit;
}

static void judge(const char *name, double error, size_t at, double got, double want)
{
    if (getenv("WEFT_TEST_MEASURE"))
        printf("measured %s %.3g\n", name, error);
    if (!(error <= tolerance(name)))
        fail_msg("%s: element %zu is %.9g, needs %.9g; error %.3g, limit %.3g", name, at,
                 got, want, error, tolerance(name));
}

void check_close(const char *name, const float *got, const double *want, size_t n)
{
    check_close_to_scale(name, got, want, n, 0);
}

void check_close_to_scale(const char *name, const float *got, const double *want,
                          size_t n, double scale)
{
    double largest = scale, worst = 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - want[i]);

        largest = fmax(largest, fabs(want[i]));
        if (!(difference <= worst)) {
            worst = difference;
            at = i;
        }
        if (!isfinite(difference))
            fail_msg("%s: element %zu is %g, needs %g", name, i, (double)got[i], want[i]);
    }
    if (n > 0)
        judge(name, worst / (largest > 0 ? largest : 1), at, (double)got[at], want[at]);
}

void check_gradient(const char *name, double (*loss)(void *arg), void *arg, double *x,
                    const double *grad, size_t n)
{
    const double step = 1e-5;
    double largest = 0, worst = 0, slope_at = 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        double before = x[i], up, down, slope;

        x[i] = before + step;
        up = loss(arg);
        x[i] = before - step;
        down = loss(arg);
        x[i] = before;
        slope = (up - down) / (2 * step);
        largest = fmax(largest, fabs(slope));
        assert_true(isfinite(grad[i]));
        if (fabs(slope - grad[i]) > worst) {
            worst = fabs(slope - grad[i]);
            at = i;
            slope_at = slope;
        }
    }
    assert_true(largest > 0);
    judge(name, worst / largest, at, grad[at], slope_at);
}
