/* dtype.h - how numbers are stored in weight files: fp32, fp16, bf16.
 *
 * Conversions round to nearest, ties to even, keep subnormal numbers, infinities and NaN,
 * and give the same bits on every machine. fp16 and bf16 to float and back is the
 * identity. All data is little-endian, as in the files.
 */
#ifndef WEFT_CHECKPOINT_DTYPE_H
#define WEFT_CHECKPOINT_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DTYPE_FP32, DTYPE_BF16, DTYPE_FP16, DTYPES };
#define DTYPE_WORDS "fp32|bf16|fp16" /* in the order of the enum */

size_t dtype_bytes(enum dtype t);
const char *dtype_name(enum dtype t); /* "fp32" */

/* n stored numbers (any alignment) as floats. */
void dtype_load(enum dtype t, const void *from, size_t n, float *to);
/* n floats as stored numbers (any alignment).
 * Returns  n, or the index of the first finite number that is too large for the type and
 *          has become an infinity; all n are written in any case */
size_t dtype_store(enum dtype t, const float *from, size_t n, void *to);

#endif
