/* gemm_bf16_isa.h - private to kernels: the bf16 products of each instruction set. */
#ifndef WEFT_KERNELS_GEMM_BF16_ISA_H
#define WEFT_KERNELS_GEMM_BF16_ISA_H

#include "kernels/gemm_bf16.h"

extern const struct gemm_bf16 gemm_bf16_generic;
#ifdef WEFT_KERNELS_X86
extern const struct gemm_bf16 gemm_bf16_avx2, gemm_bf16_avx512, gemm_bf16_avx512_bf16;
#endif

/* Words of depth that are multiplied in one go, so that the packed left side stays in the
 * second-level cache with 256 rows; most rows of a register tile. The work space depends
 * on both. */
enum { BF16_DEPTH_WORDS = 768, BF16_MAX_TILE_ROWS = 14 };

#endif
