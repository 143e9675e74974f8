/* isa.h - what every kernel source needs to be compiled once for each instruction set.
 *
 * The sources of this folder that include this header are built with KERNEL_ISA set to
 * generic, avx2 or avx512 and the matching compiler flags; KERNEL(name) gives each build
 * its own symbol. Vectors are the compilers' portable vector types of the native width.
 * Sums run in LANES lanes whatever the width, so that their order depends on the shapes
 * only.
 */
#ifndef WEFT_KERNELS_ISA_H
#define WEFT_KERNELS_ISA_H

#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#define KERNEL_JOIN(name, isa)   name##_##isa
#define KERNEL_EXPAND(name, isa) KERNEL_JOIN(name, isa)
#define KERNEL(name)             KERNEL_EXPAND(name, KERNEL_ISA)

/* Declares this build's version of one entry of the table, with the entry's own type. */
#define DECLARE_KERNEL(name) __typeof__(*((struct kernels *)0)->name) KERNEL(name)

DECLARE_KERNEL(bias_rows);
DECLARE_KERNEL(bias_grad);
DECLARE_KERNEL(layernorm_fwd);
DECLARE_KERNEL(layernorm_redo);
DECLARE_KERNEL(layernorm_bwd);
DECLARE_KERNEL(add_partials);
DECLARE_KERNEL(gelu_fwd);
DECLARE_KERNEL(gelu_bwd);
DECLARE_KERNEL(attention_fwd);
DECLARE_KERNEL(attention_bwd);
DECLARE_KERNEL(embedding_fwd);
DECLARE_KERNEL(embedding_bwd_tokens);
DECLARE_KERNEL(embedding_bwd_positions);
DECLARE_KERNEL(softmax_stats);
DECLARE_KERNEL(softmax_grad);
DECLARE_KERNEL(adamw);
DECLARE_KERNEL(dot_rows);
DECLARE_KERNEL(attention_row);

#if defined(__AVX512F__)
#    define VEC_ELEMS 16
#elif defined(__AVX__)
#    define VEC_ELEMS 8
#else
#    define VEC_ELEMS 4
#endif

enum { LANES = 32, LANE_VECS = LANES / VEC_ELEMS };

typedef float vec __attribute__((vector_size(VEC_ELEMS * 4)));
typedef int32_t vec_bits __attribute__((vector_size(VEC_ELEMS * 4)));
typedef float vec_memory
    __attribute__((vector_size(VEC_ELEMS * 4), aligned(4), may_alias));

#define KERNEL_INLINE static inline __attribute__((always_inline))

/* Sums of a register tile stay in registers only where every loop over them is unrolled.
 */
#define UNROLLED                                                                         \
    _Pragma("GCC unroll 16") for

KERNEL_INLINE vec vec_load(const float *p)
{
    return *(const vec_memory *)p;
}

KERNEL_INLINE void vec_store(float *p, vec v)
{
    *(vec_memory *)p = v;
}

KERNEL_INLINE vec vec_splat(float x)
{
    return x - (vec){0};
}

/* The larger of each pair; b where they cannot be compared. */
KERNEL_INLINE vec vec_max(vec a, vec b)
{
    vec_bits larger = a > b;

    return (vec)((larger & (vec_bits)a) | (~larger & (vec_bits)b));
}

KERNEL_INLINE void lanes_store(float lanes[LANES], const vec acc[LANE_VECS])
{
    for (int v = 0; v < LANE_VECS; v++)
        vec_store(lanes + v * VEC_ELEMS, acc[v]);
}

/* Sum, or largest, of the lanes as a tree. */
KERNEL_INLINE float lanes_sum(float lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

KERNEL_INLINE float lanes_max(float lanes[LANES])
{
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lanes[l] = lanes[l] > lanes[l + width] ? lanes[l] : lanes[l + width];
    return lanes[0];
}

#endif
