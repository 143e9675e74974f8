/* bf16.h - bfloat16: the upper half of an fp32 number.
 *
 * Rounding is to nearest, ties to even; subnormal numbers are kept, overflow goes to
 * infinity, NaN stays NaN. The same bits on every instruction set.
 */
#ifndef WEFT_KERNELS_BF16_H
#define WEFT_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

typedef uint16_t bf16;

static inline bf16 bf16_round(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;

    /* Rounding must not carry a NaN into infinity. */
    return (bf16)((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

static inline float bf16_value(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
