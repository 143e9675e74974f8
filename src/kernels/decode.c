/* SPDX-License-Identifier: MIT */
/* decode.c - products and attention for one row, or a few, at a time.
 *
 * Where a token is computed by itself every weight is read from memory for it, and that
 * reading is all the time there is. Invariant: a row's result depends on that row alone,
 * bit for bit, whatever rows are computed beside it: text is the same in any batch, and a
 * token is the same whether it came with its prompt or by itself. */
#include "kernels/dispatch.h"
#include "kernels/isa.h"
#include "kernels/vmath.h"

#include "base/memory.h"

/* A dot product runs in 16 lanes. A block of X_ROWS x W_ROWS of them fills the registers:
 * 16 accumulators with AVX-512, 8 else. Several rows of weights at a time are several
 * streams for the prefetcher too. */
enum { DOT_LANES = 16, DOT_VECS = DOT_LANES / VEC_ELEMS };
#if VEC_ELEMS == 16
enum { X_ROWS = 4, W_ROWS = 4 };
#elif VEC_ELEMS == 8
enum { X_ROWS = 1, W_ROWS = 4 };
#else
enum { X_ROWS = 1, W_ROWS = 2 };
#endif

/* Sum of 16 lanes: l and l + 8, then l + 4, l + 2, l + 1, whatever the vector's width. */
KERNEL_INLINE float dot_sum(const vec acc[DOT_VECS])
{
#if VEC_ELEMS == 16
    vec v = acc[0];

    v += __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6,
                                 7);
    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10,
                                 11);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12,
                                 13);
#elif VEC_ELEMS == 8
    vec v = acc[0] + acc[1];

    v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
#else
    vec v = (acc[0] + acc[2]) + (acc[1] + acc[3]);

    v += __builtin_shufflevector(v, v, 2, 3, 0, 1);
#endif
    return v[0] + v[1];
}

KERNEL_INLINE void load_lanes(vec out[DOT_VECS], const float *p)
{
    for (int v = 0; v < DOT_VECS; v++)
        out[v] = vec_load(p + v * VEC_ELEMS);
}

/* The same of fewer elements than lanes, with zeros behind them. */
KERNEL_INLINE void load_tail(vec out[DOT_VECS], const float *p, size_t n)
{
    float padded[DOT_LANES] = {0};

    memcpy(padded, p, n * sizeof *p);
    load_lanes(out, padded);
}

KERNEL_INLINE void dot_block(float *y, size_t ldy, const float *x, size_t ldx,
                             const float *w, size_t k, const int xs, const int ws)
{
    vec acc[X_ROWS][W_ROWS][DOT_VECS] = {0};
    vec left[W_ROWS][DOT_VECS], right[DOT_VECS];
    size_t c = 0;

    for (; c + DOT_LANES <= k; c += DOT_LANES) {
        for (int j = 0; j < ws; j++)
            load_lanes(left[j], w + (size_t)j * k + c);
        for (int i = 0; i < xs; i++) {
            load_lanes(right, x + (size_t)i * ldx + c);
            for (int j = 0; j < ws; j++)
                for (int v = 0; v < DOT_VECS; v++)
                    acc[i][j][v] += left[j][v] * right[v];
        }
    }
    if (c < k) {
        for (int j = 0; j < ws; j++)
            load_tail(left[j], w + (size_t)j * k + c, k - c);
        for (int i = 0; i < xs; i++) {
            load_tail(right, x + (size_t)i * ldx + c, k - c);
            for (int j = 0; j < ws; j++)
                for (int v = 0; v < DOT_VECS; v++)
                    acc[i][j][v] += left[j][v] * right[v];
        }
    }
    for (int i = 0; i < xs; i++)
        for (int j = 0; j < ws; j++)
            y[(size_t)i * ldy + (size_t)j] = dot_sum(acc[i][j]);
}

/* All rows of x with the same few rows of w, which stay in the cache meanwhile. */
KERNEL_INLINE void dot_columns(float *y, size_t ldy, const float *x, size_t ldx,
                               size_t rows, const float *w, size_t k, const int ws)
{
    size_t n = 0;

    for (; n + X_ROWS <= rows; n += X_ROWS)
        dot_block(y + n * ldy, ldy, x + n * ldx, ldx, w, k, X_ROWS, ws);
    for (; n < rows; n++)
        dot_block(y + n * ldy, ldy, x + n * ldx, ldx, w, k, 1, ws);
}

void KERNEL(dot_rows)(float *y, size_t ldy, const float *x, size_t ldx, size_t rows,
                      const float *w, size_t n, size_t k)
{
    size_t j = 0;

    for (; j + W_ROWS <= n; j += W_ROWS)
        dot_columns(y + j, ldy, x, ldx, rows, w + j * k, k, W_ROWS);
    for (; j < n; j++)
        dot_columns(y + j, ldy, x, ldx, rows, w + j * k, k, 1);
}

/* ---- attention of one query ---- */

enum { TILE = ATTENTION_TILE, TILE_VECS = TILE / VEC_ELEMS };

/* Scores of the TILE keys of one tile, keys [D][TILE]. */
KERNEL_INLINE void score_keys(float *scores, const float *q, const float *keys, size_t D,
                              float scale)
{
    for (int half = 0; half < TILE_VECS; half += TILE_VECS / 2) {
        vec acc[TILE_VECS / 2] = {{0}};

        for (size_t d = 0; d < D; d++)
            for (int v = 0; v < TILE_VECS / 2; v++)
                acc[v] += q[d] * vec_load(keys + d * TILE + (half + v) * VEC_ELEMS);
        for (int v = 0; v < TILE_VECS / 2; v++)
            vec_store(scores + (half + v) * VEC_ELEMS, acc[v] * scale);
    }
}

/* out[0..cols) = scale * sum over t of weights[t] * values[t][0..cols), t ascending. */
KERNEL_INLINE void mix_values(float *out, size_t cols, const float *weights,
                              const float *values, size_t ld, size_t n, float scale,
                              const int vecs)
{
    vec acc[TILE_VECS] = {{0}};
    float mixed[TILE];

    for (size_t t = 0; t < n; t++)
        for (int v = 0; v < vecs; v++)
            acc[v] += weights[t] * vec_load(values + t * ld + v * VEC_ELEMS);
    for (int v = 0; v < vecs; v++)
        vec_store(mixed + v * VEC_ELEMS, acc[v] * scale);
    memcpy(out, mixed, cols * sizeof *out);
}

void KERNEL(attention_row)(float *out, const float *q, const float *keys,
                           const float *values, size_t n, size_t D, float *work)
{
    size_t width = round_up(D, ATTENTION_ALIGN);
    float max, sum;
    size_t d = 0;

    for (size_t t = 0; t < n; t += TILE)
        score_keys(work + t, q, keys + t * D, D, 1.0f / sqrtf((float)D));
    KERNEL(softmax_stats)(&max, &sum, work, n, 1, n);
    for (size_t t = 0; t < n; t++)
        work[t] = vexpf(work[t] - max);
    for (; d + TILE <= width; d += TILE)
        mix_values(out + d, min_size(TILE, D - d), work, values + d, width, n, 1.0f / sum,
                   TILE_VECS);
    for (; d < width; d += ATTENTION_ALIGN)
        mix_values(out + d, min_size(ATTENTION_ALIGN, D - d), work, values + d, width, n,
                   1.0f / sum, ATTENTION_ALIGN / VEC_ELEMS);
}
