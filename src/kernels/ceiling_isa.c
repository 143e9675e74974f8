/* SPDX-License-Identifier: MIT */
/* ceiling_isa.c - loops at the limit of one instruction set.
 *
 * A chain of multiply-adds waits for its own last result. Two units of four to five
 * cycles' latency need ten chains to be busy; the rest is reserve, as far as there are
 * registers.
 */
#include "kernels/ceiling_loops.h"
#include "kernels/isa.h"

#if VEC_ELEMS == 16
enum { CHAINS = 24 };
#else
enum { CHAINS = 12 };
#endif
enum { STREAMS = 8 };

static float vec_sum(vec v)
{
    float elems[VEC_ELEMS], sum = 0;

    vec_store(elems, v);
    for (int i = 0; i < VEC_ELEMS; i++)
        sum += elems[i];
    return sum;
}

static double fma_loop(size_t rounds, float start, float *sum)
{
    const vec scale = vec_splat(0.75f), shift = vec_splat(0.25f);
    vec chain[CHAINS];

    /* Equal chains would be computed once. */
    for (int i = 0; i < CHAINS; i++)
        chain[i] = vec_splat(start + (float)i / 64);
    for (size_t r = 0; r < rounds; r++)
#pragma GCC unroll 24
        for (int i = 0; i < CHAINS; i++)
            chain[i] = chain[i] * scale + shift;
    *sum = 0;
    for (int i = 0; i < CHAINS; i++)
        *sum += vec_sum(chain[i]);
    return (double)(rounds * CHAINS * VEC_ELEMS * 2);
}

static float read_loop(const float *a, size_t n)
{
    vec acc[STREAMS] = {{0}};
    float sum = 0;
    size_t i = 0;

    for (; i + STREAMS * VEC_ELEMS <= n; i += STREAMS * VEC_ELEMS)
#pragma GCC unroll 8
        for (size_t s = 0; s < STREAMS; s++)
            acc[s] += vec_load(a + i + s * VEC_ELEMS);
    for (size_t s = 0; s < STREAMS; s++)
        sum += vec_sum(acc[s]);
    for (; i < n; i++)
        sum += a[i];
    return sum;
}

static void copy_loop(float *b, const float *a, size_t n)
{
    size_t i = 0;

    for (; i + VEC_ELEMS <= n; i += VEC_ELEMS)
        vec_store(b + i, vec_load(a + i));
    for (; i < n; i++)
        b[i] = a[i];
}

static void triad_loop(float *c, const float *a, const float *b, float scale, size_t n)
{
    size_t i = 0;

    for (; i + VEC_ELEMS <= n; i += VEC_ELEMS)
        vec_store(c + i, vec_load(a + i) + vec_load(b + i) * scale);
    for (; i < n; i++)
        c[i] = a[i] + b[i] * scale;
}

const struct ceiling_loops KERNEL(ceiling_loops) = {
    .fma = fma_loop, .read = read_loop, .copy = copy_loop, .triad = triad_loop};
