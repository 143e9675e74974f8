/* SPDX-License-Identifier: MIT */
#include "checkpoint/dtype.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "kernels/bf16.h"

size_t dtype_bytes(enum dtype t)
{
    return t == DTYPE_FP32 ? 4 : 2;
}

const char *dtype_name(enum dtype t)
{
    static const char *const names[DTYPES] = {"fp32", "bf16", "fp16"};

    require(t < DTYPES);
    return names[t];
}

static float from_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 1 sign, 5 exponent (bias 15), 10 mantissa bits. */
static float fp16_value(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exponent = h >> 10 & 31, mantissa = h & 0x3ff;

    if (exponent == 31) /* infinity, or NaN with its payload */
        return from_bits(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { /* exact: a float has room for every subnormal number of fp16 */
        float x = (float)mantissa * 0x1p-24F;

        return sign ? -x : x;
    }
    return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static uint16_t fp16_round(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t size = bits & 0x7fffffff;

    if (size > 0x7f800000) /* NaN stays one, whatever its payload loses */
        return (uint16_t)(sign | 0x7c00 | (size >> 13 & 0x3ff) |
                          ((size >> 13 & 0x3ff) ? 0 : 0x200));
    if (size >= 0x477ff000) /* 65520 and more */
        return sign | 0x7c00;
    if (size <
        0x38800000) { /* below 2^-14: the float adder rounds to a multiple of 2^-24 */
        float rounded = fabsf(x) + 0.5F;
        uint32_t r;

        memcpy(&r, &rounded, sizeof r);
        return (uint16_t)(sign | (r - 0x3f000000));
    }
    size += 0xfff + (size >> 13 & 1); /* ties to even; may carry into the exponent */
    return (uint16_t)(sign | ((size >> 13) - (112 << 10)));
}

void dtype_load(enum dtype t, const void *from, size_t n, float *to)
{
    const char *p = from;

    if (t == DTYPE_FP32) {
        memcpy(to, from, n * sizeof *to);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half;

        memcpy(&half, p + 2 * i, sizeof half);
        to[i] = t == DTYPE_BF16 ? bf16_value(half) : fp16_value(half);
    }
}

size_t dtype_store(enum dtype t, const float *from, size_t n, void *to)
{
    char *p = to;
    size_t lost = n;

    if (t == DTYPE_FP32) {
        memcpy(to, from, n * sizeof *from);
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t half = t == DTYPE_BF16 ? bf16_round(from[i]) : fp16_round(from[i]);
        uint16_t infinity = t == DTYPE_BF16 ? 0x7f80 : 0x7c00;

        if ((half & 0x7fff) == infinity && lost == n && isfinite(from[i]))
            lost = i;
        memcpy(p + 2 * i, &half, sizeof half);
    }
    return lost;
}
