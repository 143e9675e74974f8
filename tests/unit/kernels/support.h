/* support.h - inputs, reference copies and comparisons for the tests of kernels.
 *
 * The measure everywhere is `rel_max`: the largest difference divided by the largest
 * reference value; anything that is not finite fails. Limits come from
 * tests/golden/tolerances.csv. WEFT_TEST_MEASURE=1 prints what was measured.
 */
#ifndef WEFT_TESTS_KERNELS_SUPPORT_H
#define WEFT_TESTS_KERNELS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/ref/ref.h"

/* After base/status.h, whose fail() it hides by a macro. */
#include <cmocka.h>

/* The tables this CPU can run; ends with NULL. */
const struct kernels *const *usable_kernels(void);

/* n floats, freed by the caller: uniform in [-size, size), or all NaN. */
float *new_uniform(uint64_t stream, size_t n, double size);
float *new_poisoned(size_t n);
double *new_doubles(size_t n);
double *doubles_of(const float *x, size_t n);
int32_t *new_integers(uint64_t stream, size_t n, int32_t below);

/* Limit of the row `name` with metric rel_max; a missing row fails the test. */
double tolerance(const char *name);

/* Fails with index, both values and the measure when got is too far from want. */
void check_close(const char *name, const float *got, const double *want, size_t n);

/* The same, relative to `scale` where that is larger: for results that are small
 * differences of terms of that size. */
void check_close_to_scale(const char *name, const float *got, const double *want,
                          size_t n, double scale);

/* Central differences: for each of the n inputs x, the derivative of loss(arg), in
 * double, against `grad`, relative to the largest of them. */
void check_gradient(const char *name, double (*loss)(void *arg), void *arg, double *x,
                    const double *grad, size_t n);

#endif
