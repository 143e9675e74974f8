/* bench_check.h - is a result right? Told before it is timed: a fast wrong answer is no
 * figure.
 *
 * The measure is the largest difference divided by the largest value wanted; infinite
 * where anything is not a finite number.
 */
#ifndef WEFT_CMD_BENCH_CHECK_H
#define WEFT_CMD_BENCH_CHECK_H

#include <stddef.h>

#include "base/status.h"
#include "model/products.h"

double check_error(const float *got, const double *want, size_t n);

/* The product C = op(A) op(B) + beta before, in double, against `got` (both [m][ldc]).
 * Large products are judged by whole rows and whole columns spread over the result, about
 * `budget` multiplications' worth of them and at least two of each; small ones element by
 * element. *error on success.
 * Returns  ST_OK, ST_NOMEM */
MUST_USE enum status check_product(const struct model_product *p, const float *A,
                                   const float *B, const float *before, const float *got,
                                   double budget, double *error);

/* What sums of k products in single precision may differ by. */
double check_product_limit(size_t k);

#endif
