/* vmath.h - exponential and logarithm of our own, so that results do not change with the
 * system's libm. Branch-free and inline: loops over them become vector code.
 */
#ifndef WEFT_KERNELS_VMATH_H
#define WEFT_KERNELS_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline __attribute__((always_inline)) uint32_t bits_of_float(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* exp(x) within 1.5 ulp for x in [-87.33, 88.37]; 0 below, infinity above, NaN for NaN.
 *
 * x = n ln 2 + r with |r| <= ln(2)/2. Adding 1.5 * 2^23 rounds x / ln 2 to the integer n
 * and leaves it in the low bits, from where it is shifted into an exponent. The
 * polynomial is the minimax fit of (exp(r) - 1 - r) / r^2, relative error 3e-9. */
static inline __attribute__((always_inline)) float vexpf(float x)
{
    const float lowest = -87.33f, highest = 88.37f, shift = 12582912.0f;
    float bounded = x < lowest ? lowest : x;
    float shifted, n, r, p, y;

    bounded = bounded > highest ? highest : bounded;
    shifted = bounded * 1.44269504f + shift;
    n = shifted - shift;
    /* ln 2 in two parts; the first has 9 bits, so its product with n is exact. */
    r = bounded - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = 1.38144672e-3f;
    p = p * r + 8.36878084e-3f;
    p = p * r + 4.16683927e-2f;
    p = p * r + 1.66665196e-1f;
    p = p * r + 4.99999940e-1f;
    y = 1.0f + (r + r * r * p);
    y *= float_of_bits((bits_of_float(shifted) << 23) + 0x3f800000u);
    y = x < lowest ? 0.0f : y;
    return x > highest ? INFINITY : y;
}

/* Natural logarithm of a positive normal number, correctly rounded in all but rare cases
 * (evaluated in double); NaN and infinity are returned as they are. */
static inline float vlogf(float x)
{
    uint32_t bits = bits_of_float(x);
    int exponent = (int)(bits >> 23) - 127;
    double m, s, z, series;

    if (!(x < INFINITY))
        return x;
    m = (double)float_of_bits((bits & 0x7fffffu) | 0x3f800000u);
    if (m > 1.41421356) {
        m *= 0.5;
        exponent++;
    }
    /* log m = 2 artanh s with |s| < 0.1716; the first term left out is below 4e-14. */
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    series = 1.0 / 15 + z * (1.0 / 17);
    series = 1.0 / 13 + z * series;
    series = 1.0 / 11 + z * series;
    series = 1.0 / 9 + z * series;
    series = 1.0 / 7 + z * series;
    series = 1.0 / 5 + z * series;
    series = 1.0 / 3 + z * series;
    return (float)(2.0 * s * (1.0 + z * series) + exponent * 0.69314718055994531);
}

#endif
