/* gemm_bf16.h - products of bfloat16 matrices with sums in fp32.
 *
 * For the three products of a linear layer with weights W [out][in]:
 *   forward          y  = x W^T (+ b + residual)   product() with W packed `forward`
 *   input gradient   dx = dy W                     product() with W packed `backward`
 *   weight gradient  dW (+)= dy^T x                weight_grad(), nothing packed before
 * W is rounded and packed once after each update, in tasks; activations and their
 * gradients are plain row-major bf16 matrices.
 *
 * struct gemm_bf16 is a table like struct kernels: single-threaded, no allocation, no
 * state; what a call needs besides its operands is in the caller's `work`. Tables differ
 * in how a sum is rounded, never in what is summed: products of two bf16 numbers are
 * exact in fp32. Within a table the same call gives the same bits, and the bits of a row
 * of C do not depend on how many rows or columns the call has.
 */
#ifndef WEFT_KERNELS_GEMM_BF16_H
#define WEFT_KERNELS_GEMM_BF16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/bf16.h"

/* Columns of a packed matrix come in panels: a range of them that is multiplied or packed
 * on its own starts at a multiple of this. */
enum { BF16_PANEL = 32 };

/* One packed matrix: two numbers of neighbouring k in a word, the even k in the lower
 * half. What lies where is the business of this module. */
typedef uint32_t bf16_pair;

/* bf16_pairs of W [out][in] packed for one of its uses (both take the same). */
size_t gemm_bf16_packed_pairs(size_t out, size_t in);

/* C = A B (+ bias) (+ add).
 * Shapes   A [rows][depth] with lda; B packed, [depth][all], of which columns column0 ..
 *          column0 + columns - 1 are used; column0 a multiple of BF16_PANEL;
 *          bias [columns] or NULL; add [rows][columns] with ldadd or NULL
 * Writes   C (fp32) or C_bf16, whichever is not NULL, [rows][columns] with ldc, "="
 * Alias    add may be C itself (then the product is added to C); nothing else overlaps */
struct bf16_product {
    size_t rows, columns, depth;
    const bf16 *A;
    size_t lda;
    const bf16_pair *B;
    size_t column0;
    const float *bias;
    const float *add;
    size_t ldadd;
    float *C;
    bf16 *C_bf16;
    size_t ldc;
};

/* dW (+)= dy^T x.
 * Shapes   dy [rows][out] with lddy, x [rows][in] with ldx, dW [out][in] with lddw
 * Writes   dW "=", or "+=" where accumulate is set */
struct bf16_weight_grad {
    size_t rows, out, in;
    const bf16 *dy;
    size_t lddy;
    const bf16 *x;
    size_t ldx;
    float *dW;
    size_t lddw;
    bool accumulate;
};

struct gemm_bf16 {
    const char *name; /* "generic", "avx2", "avx512", "avx512_bf16" */

    /* y[i] = x[i] rounded; y[i] = x[i] widened. */
    void (*round)(bf16 *y, const float *x, size_t n);
    void (*widen)(float *y, const bf16 *x, size_t n);

    /* Rounds x [rows][ld] where it is: the first `columns` numbers of each row become
     * bf16 side by side at the start of the row. Seen as bf16, x then has the leading
     * dimension 2 ld. */
    void (*round_rows)(float *x, size_t ld, size_t rows, size_t columns);

    /* Rounds rows row0 .. row1 - 1 of W [out][in] and puts them where they belong in the
     * two packed matrices; NULL for one that is not needed. row0 is a multiple of
     * BF16_PANEL, row1 too or `out`. Ranges may be packed at the same time. */
    void (*pack)(bf16_pair *forward, bf16_pair *backward, const float *W, size_t out,
                 size_t in, size_t row0, size_t row1);

    /* work: gemm_bf16_work_bytes of these sizes, 64-byte-aligned, overwritten. */
    void (*product)(const struct bf16_product *p, void *work);
    void (*weight_grad)(const struct bf16_weight_grad *p, void *work);
};

/* Bytes of work for a product of these sizes, or for a weight gradient with
 * (out, in, rows). Grows with each argument, so the largest of each is enough for all;
 * bf16_output: C_bf16 is used. */
size_t gemm_bf16_work_bytes(size_t rows, size_t columns, size_t depth, bool bf16_output);

/* The fastest table for this CPU, or the one named; the environment variable WEFT_ISA
 * names one too. NULL name = automatic.
 * Returns  ST_USAGE for an unknown or unsupported name, with those that are available */
MUST_USE enum status gemm_bf16_select(const char *name, const struct gemm_bf16 **out);

#endif
