/* kernels.h - single-threaded numeric kernels on plain pointers.
 *
 * Kernels are pure: no allocation, I/O, MPI, tasks or writable globals. They run on
 * whichever worker calls them; the engine cuts the work into tiles.
 *
 * struct kernels is a table filled once at start from what the CPU offers
 * (kernels_select). Every variant is the same C source compiled for one instruction set,
 * so all are checked against the definitions in src/kernels/ref (one source, built for
 * float and for double).
 *
 * Letters: B, T, C, H, V, Vp, N as in docs/ARCHITECTURE.md; D = C/H the head width.
 * All matrices are row-major. `ld` is the distance of two rows in elements. Every sum
 * over rows or elements is made in an order that depends on the shapes only.
 * "=" overwrites its output, "+=" adds to it.
 */
#ifndef WEFT_KERNELS_KERNELS_H
#define WEFT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Adam with decoupled weight decay (Loshchilov, Hutter, "Decoupled weight decay
 * regularization", 2019), bias-corrected:
 *   m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   p = p - lr * (m/c1 / (sqrt(v/c2) + eps) + wd * p),  g = grad * grad_scale,
 *   c1 = 1 - b1^t, c2 = 1 - b2^t */
struct adamw {
    float lr, beta1, beta2, eps, weight_decay;
    float correction1, correction2; /* c1, c2 */
    float grad_scale;               /* clipping factor */
};

struct kernels {
    const char *isa; /* "avx512", "avx2", "generic" */

    /* y[n] = b (+ res[n] when res is not NULL), n = 0..rows-1.
     * y, res [rows][C] packed with ldy, ldres; b [C] */
    void (*bias_rows)(float *y, size_t ldy, const float *b, const float *res,
                      size_t ldres, size_t rows, size_t C);

    /* db[c] (+)= sum over rows of dy[n][c], rows in ascending order within fixed groups.
     * dy [rows] with lddy; accumulate false: "=", true: "+=" */
    void (*bias_grad)(float *db, const float *dy, size_t lddy, size_t rows, size_t C,
                      bool accumulate);

    /* y = (x - mean) * rstd * g + b row by row; eps 1e-5, biased variance, two-pass.
     * x, y [rows][C] packed; mean, rstd [rows] "="; g, b [C]. y == x allowed. */
    void (*layernorm_fwd)(float *y, float *mean, float *rstd, const float *x,
                          const float *g, const float *b, size_t rows, size_t C);

    /* Same y again from saved mean and rstd (for backward's weight gradients). */
    void (*layernorm_redo)(float *y, const float *x, const float *mean, const float *rstd,
                           const float *g, const float *b, size_t rows, size_t C);

    /* dx[n] = (add ? add[n] : 0) + J^T dy[n]; dg[c] and db[c] "=" the sums over these
     * rows. dx == dy and dx == add allowed. dg, db [C]: this tile's partial sums. */
    void (*layernorm_bwd)(float *dx, float *dg, float *db, const float *dy,
                          const float *add, const float *x, const float *g,
                          const float *mean, const float *rstd, size_t rows, size_t C);

    /* out[c] (+)= sum over tiles of partials[tile][c] (ascending tiles). */
    void (*add_partials)(float *out, const float *partials, size_t tiles, size_t C,
                         bool accumulate);

    /* GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). n elements,
     * y == x allowed. tanh by an own polynomial/exponential: results do not depend on
     * libm. */
    void (*gelu_fwd)(float *y, const float *x, size_t n);
    /* dx = dy * gelu'(x); dx == dy allowed. y, when not NULL, "=" what gelu_fwd makes. */
    void (*gelu_bwd)(float *dx, float *y, const float *dy, const float *x, size_t n);

    /* Causal attention of one sequence and one head, blockwise with an online softmax
     * (Dao et al., "FlashAttention", 2022): no T x T buffer.
     * qkv: row t of this sequence at qkv + t*3C holds q | k | v, head h at column h*D of
     * each; out: row t at out + t*C, the head's columns h*D..h*D+D "=";
     * lse [T] "=" log of the sum of exponentials of the scaled scores.
     * scale = 1/sqrt(D). work: attention_work_elems(T, D) floats. */
    void (*attention_fwd)(float *out, float *lse, const float *qkv, size_t T, size_t C,
                          size_t H, size_t h, float *work);
    /* dqkv: the head's columns of q, k and v "=" for all T rows. dout like out. */
    void (*attention_bwd)(float *dqkv, const float *dout, const float *qkv,
                          const float *out, const float *lse, size_t T, size_t C,
                          size_t H, size_t h, float *work);

    /* x[n] = wte[token[n]] + wpe[position[n]]; rows x C. Tokens are in range (checked by
     * data); position[n] < maxT. */
    void (*embedding_fwd)(float *x, const float *wte, const float *wpe,
                          const int32_t *tokens, const int32_t *positions, size_t rows,
                          size_t C);
    /* dwte[v] += sum of dx[n] over n with tokens[n] == v, ascending n, for the vocabulary
     * rows v in [v0, v1) only. dwte is the base of the whole table. */
    void (*embedding_bwd_tokens)(float *dwte, const float *dx, const int32_t *tokens,
                                 size_t rows, size_t C, size_t v0, size_t v1);
    /* dwpe[t] (+)= sum over b of dx[b*T + t], for t in [t0, t1). */
    void (*embedding_bwd_positions)(float *dwpe, const float *dx, size_t B, size_t T,
                                    size_t C, size_t t0, size_t t1, bool accumulate);

    /* Softmax statistics of one tile of logits: for each row max_out "=" the maximum over
     * cols columns and sum_out "=" the sum of exp(x - max). cols >= 1. */
    void (*softmax_stats)(float *max_out, float *sum_out, const float *logits, size_t ld,
                          size_t rows, size_t cols);
    /* In place: logits[n][c] = (exp(logits[n][c] - lse[n]) - [c + c0 == target[n]]) *
     * scale for c < cols; columns cols..cols_padded-1 = 0 (padding rows of the
     * vocabulary). target[n] < 0 means the row has no target: the whole row is 0. */
    void (*softmax_grad)(float *logits, size_t ld, const float *lse,
                         const int32_t *target, size_t c0, size_t rows, size_t cols,
                         size_t cols_padded, float scale);

    /* One pass of AdamW over n elements. decay is in a->weight_decay (0 for vectors). */
    void (*adamw)(float *p, float *m, float *v, const float *g, size_t n,
                  const struct adamw *a);

    /* y[r][j] = x[r] . w[j] for r < rows, j < n: few rows, for which each row of weights
     * is read once. x [rows] with ldx, w [n][k] packed, y [rows] with ldy. The bits of
     * y[r][j] depend on x[r] and w[j] only, not on rows or n. */
    void (*dot_rows)(float *y, size_t ldy, const float *x, size_t ldx, size_t rows,
                     const float *w, size_t n, size_t k);

    /* Attention of one query [D] over the n >= 1 keys and values of one head that a cache
     * holds; out [D] "=". keys: tiles of CACHE_TILE positions, [D][CACHE_TILE] each;
     * values: [n][cache_width(D)]. What the last tile and a row's padding hold beyond n
     * and D is not looked at, NaN included. scale = 1/sqrt(D).
     * work: round_up(n, CACHE_TILE) floats. */
    void (*attention_row)(float *out, const float *q, const float *keys,
                          const float *values, size_t n, size_t D, float *work);
};

/* Layout of a cache of keys and values: positions a tile of keys, floats a row of values.
 */
enum { CACHE_TILE = 64 };
size_t cache_width(size_t D);

/* Elements of workspace for attention_fwd and attention_bwd. */
size_t attention_work_elems(size_t T, size_t D);

/* The best table for this CPU, or the one named ("generic", "avx2", "avx512"; the
 * environment variable WEFT_ISA names one too). NULL name = automatic.
 * Returns  ST_USAGE for an unknown or unsupported name, with those that are available */
MUST_USE enum status kernels_select(const char *name, const struct kernels **out);

/* ---- matrix products: one small interface over a library (docs/decisions/) ---- */

/* C = op(A) op(B) + beta C, with op = transpose where ta / tb is set.
 * Shapes   op(A) [m][k], op(B) [k][n], C [m][n]; ld in elements
 * Numbers  single-threaded whatever the caller's thread; same bits for the same call.
 *          beta is 0 or 1; with 0 C may hold anything, NaN included
 * Alias    C overlaps neither A nor B */
void gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A, size_t lda,
          const float *B, size_t ldb, float beta, float *C, size_t ldc);

/* y = x W^T + bias (+ add), a linear layer.
 * Shapes   x [rows][in] with ldx, W [out][in] with ldw, bias [out], y [rows][out] with
 * ldy, add [rows][out] with ldadd, or NULL Numbers  as gemm() Alias    y overlaps nothing
 * else */
struct linear {
    size_t rows, out, in;
    const float *x;
    size_t ldx;
    const float *W;
    size_t ldw;
    const float *bias, *add;
    size_t ldadd;
    float *y;
    size_t ldy;
};

void gemm_linear(const struct kernels *k, const struct linear *l);

/* "oneDNN 2.6.3", "oneDNN 2.6.3 and own", "CBLAS", "plain C" */
const char *gemm_library(void);

/* Sets the library to one thread; call once at start, before any worker. */
void gemm_init(void);

#endif
