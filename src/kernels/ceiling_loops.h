/* ceiling_loops.h - private to kernels: the loops under ceiling.h. */
#ifndef WEFT_KERNELS_CEILING_LOOPS_H
#define WEFT_KERNELS_CEILING_LOOPS_H

#include <stddef.h>

/* The loops of one instruction set. */
struct ceiling_loops {
    /* x = 0.75 x + 0.25 `rounds` times in many chains at once; chain i starts at
     * start + i / 64. *sum "=" the sum of all chains.
     * Returns  operations done */
    double (*fma)(size_t rounds, float start, float *sum);
    float (*read)(const float *a, size_t n); /* the sum, in any order */
    void (*copy)(float *b, const float *a, size_t n);
    /* c == b allowed */
    void (*triad)(float *c, const float *a, const float *b, float scale, size_t n);
};

extern const struct ceiling_loops ceiling_loops_generic;
#ifdef WEFT_KERNELS_X86
extern const struct ceiling_loops ceiling_loops_avx2;
extern const struct ceiling_loops ceiling_loops_avx512;
#endif

/* NULL for a name that this machine does not have; isa NULL: the best. */
const struct ceiling_loops *ceiling_loops_of(const char *isa);

/* Every chain adds 1 * 1 + 1 * 1 in each round, from 0. *sum "=" the sum of all lanes of
 * all chains.
 * Returns  operations done; 0, and nothing is written, without the instruction */
double ceiling_bf16_loop(size_t rounds, float *sum);

#endif
