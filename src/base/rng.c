/* SPDX-License-Identifier: MIT */
#include "base/rng.h"

#include <math.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t rng_bits(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return mix(mix(mix(seed) ^ stream) ^ counter);
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(rng_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    /* 1 - u is in (0, 1], so the logarithm is finite. */
    double u = 1 - rng_uniform(seed, stream, 2 * counter);
    double v = rng_uniform(seed, stream, 2 * counter + 1);

    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i)
{
    enum { ROUNDS = 4 };
    unsigned half_bits = 1;

    while (half_bits < 32 && (UINT64_C(1) << (2 * half_bits)) < n)
        half_bits++;
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;

    do {
        uint64_t left = i >> half_bits;
        uint64_t right = i & mask;

        for (unsigned r = 0; r < ROUNDS; r++) {
            uint64_t next =
                left ^ (rng_bits(seed, stream + ((uint64_t)r << 56), right) & mask);

            left = right;
            right = next;
        }
        i = left << half_bits | right;
    } while (i >= n);
    return i;
}
