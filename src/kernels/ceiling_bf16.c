/* SPDX-License-Identifier: MIT */
/* ceiling_bf16.c - dot products of bf16 pairs, where the CPU has the instruction. */
#include "kernels/ceiling_loops.h"

#ifdef WEFT_KERNELS_X86

#    include <immintrin.h>

enum { CHAINS = 24, LANES = 16 };

__attribute__((target("avx512f,avx512bf16"))) static double loop(size_t rounds,
                                                                 float *sum)
{
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    __m512 chain[CHAINS];
    float lanes[LANES];

    /* Chains with a beginning that the compiler cannot see are not computed once. */
    for (int i = 0; i < CHAINS; i++) {
        chain[i] = _mm512_setzero_ps();
        __asm__ volatile("" : "+v"(chain[i]));
    }
    for (size_t r = 0; r < rounds; r++)
#    pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_dpbf16_ps(chain[i], ones, ones);
    *sum = 0;
    for (int i = 0; i < CHAINS; i++) {
        _mm512_storeu_ps(lanes, chain[i]);
        for (int l = 0; l < LANES; l++)
            *sum += lanes[l];
    }
    return (double)(rounds * CHAINS * LANES * 4);
}

double ceiling_bf16_loop(size_t rounds, float *sum)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bf16") ? loop(rounds, sum) : 0;
}

#else

double ceiling_bf16_loop(size_t rounds, float *sum)
{
    (void)rounds;
    (void)sum;
    return 0;
}

#endif
