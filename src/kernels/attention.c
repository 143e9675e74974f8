/* SPDX-License-Identifier: MIT */
/* attention.c - causal attention of one (sequence, head), blockwise with an online
 * softmax (Dao, Fu, Ermon, Rudra, Re, "FlashAttention", NeurIPS 2022).
 *
 * Scores are made TILE x TILE at a time. What a tile product reads is first packed into
 * the workspace: widths padded with zeros to PANEL_ALIGN, the operand read along the
 * columns contiguous, queries already scaled. So the products have no remainders and the
 * caller's long row distance is walked once. On the diagonal tiles each block of rows
 * does only the part that the causal mask leaves.
 */
#include "kernels/dispatch.h"
#include "kernels/isa.h"
#include "kernels/panel.h"
#include "kernels/transpose.h"
#include "kernels/vmath.h"

#include "base/memory.h"

enum { TILE = ATTENTION_TILE, TILE_ELEMS = TILE * TILE, ROWS_AHEAD = 16 };

_Static_assert((int)PANEL_ALIGN == (int)ATTENTION_ALIGN, "workspace and panels agree");

/* One head of a [T][ld] matrix. */
struct head {
    const float *base;
    size_t ld;
    size_t D;
};

/* Where a pair of tiles stands: rows of queries, columns of keys, equal on a diagonal. */
struct tile_pair {
    size_t rows, columns;
    bool diagonal;
};

static float *take(float **work, size_t elems)
{
    float *piece = *work;

    *work += round_up(elems, PANEL_ALIGN);
    return piece;
}

static float *align_work(float *work)
{
    return (float *)(void *)(uintptr_t)round_up((size_t)(uintptr_t)work, CACHE_LINE);
}

/* Rows of one head lie far apart, beyond what the CPU fetches by itself. */
KERNEL_INLINE void fetch_row(struct head from, size_t t)
{
    for (size_t d = 0; d < from.D; d += CACHE_LINE / sizeof(float))
        __builtin_prefetch(from.base + t * from.ld + d);
}

/* out[r][0..width) = scale * rows t0..t0+rows of the head, zeros up to width and, below
 * them, up to a multiple of PANEL_ROWS. */
static void pack_rows(float *restrict out, size_t width, struct head from, size_t t0,
                      size_t rows, float scale)
{
    for (size_t r = 0; r < rows; r++) {
        const float *restrict row = from.base + (t0 + r) * from.ld;

        fetch_row(from, t0 + r + ROWS_AHEAD);
        for (size_t d = 0; d < from.D; d++)
            out[r * width + d] = row[d] * scale;
        for (size_t d = from.D; d < width; d++)
            out[r * width + d] = 0.0f;
    }
    memset(out + rows * width, 0,
           (round_up(rows, PANEL_ROWS) - rows) * width * sizeof *out);
}

/* out[d][0..TILE) = column d of rows t0..t0+rows of the head, then zeros. */
static void pack_transposed(float *restrict out, struct head from, size_t t0, size_t rows)
{
    if (rows < TILE)
        memset(out, 0, from.D * TILE * sizeof *out);
    for (size_t r = 0; r < rows; r += VEC_ELEMS) {
        for (size_t i = 0; i < VEC_ELEMS; i++)
            fetch_row(from, t0 + r + i + VEC_ELEMS);
        transpose(out + r, TILE, from.base + (t0 + r) * from.ld, from.ld,
                  min_size(VEC_ELEMS, rows - r), from.D);
    }
}

static void unpack_rows(float *restrict out, size_t ld, const float *restrict from,
                        size_t width, size_t D, size_t rows, float scale)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t d = 0; d < D; d++)
            out[r * ld + d] = from[r * width + d] * scale;
}

/* scores[r][c] = left row r times right column c; above the diagonal not all of them. */
static void score_tile(float *scores, const float *left, size_t width, const float *right,
                       size_t D, struct tile_pair at)
{
    for (size_t r = 0; r < at.rows; r += PANEL_ROWS) {
        size_t reach = at.diagonal ? min_size(r + PANEL_ROWS, at.columns) : at.columns;

        panel(scores + r * TILE, TILE, left + r * width, width, 1, right, TILE,
              round_up(reach, PANEL_ALIGN), D, false);
    }
}

/* out[r] (+)= sum over keys c of weights[r][c] * values[c]; no weight above the diagonal
 * counts. */
static void weight_keys(float *out, const float *weights, const float *values,
                        size_t width, struct tile_pair at, bool add)
{
    for (size_t r = 0; r < at.rows; r += PANEL_ROWS) {
        size_t reach = at.diagonal ? min_size(r + PANEL_ROWS, at.columns) : at.columns;

        panel(out + r * width, width, weights + r * TILE, TILE, 1, values, width, width,
              reach, add);
    }
}

/* out[c] (+)= sum over queries r of weights[r][c] * values[r]. */
static void weight_queries(float *out, const float *weights, const float *values,
                           size_t width, struct tile_pair at, bool add)
{
    for (size_t c = 0; c < at.columns; c += PANEL_ROWS) {
        size_t first = at.diagonal ? c : 0;

        panel(out + c * width, width, weights + first * TILE + c, 1, TILE,
              values + first * width, width, width, at.rows - first, add);
    }
}

enum { ROW_VECS = TILE / VEC_ELEMS };

/* Elements reach.. of the vector that begins at element c become `value`. */
KERNEL_INLINE vec masked(vec x, size_t c, size_t reach, float value)
{
    static const int32_t places[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                       8, 9, 10, 11, 12, 13, 14, 15};
    vec_bits place, keep;

    memcpy(&place, places, sizeof place);
    keep = place < (int32_t)reach - (int32_t)c;
    return (vec)((keep & (vec_bits)x) | (~keep & (vec_bits)vec_splat(value)));
}

static void mask_row(float *row, size_t reach, float value)
{
    for (size_t v = 0; v < ROW_VECS; v++) {
        float *at = row + v * VEC_ELEMS;

        vec_store(at, masked(vec_load(at), v * VEC_ELEMS, reach, value));
    }
}

static float max_score(const float *row)
{
    vec acc[LANE_VECS];
    float lanes[LANES];

    for (int v = 0; v < LANE_VECS; v++)
        acc[v] =
            vec_max(vec_load(row + v * VEC_ELEMS), vec_load(row + LANES + v * VEC_ELEMS));
    lanes_store(lanes, acc);
    return lanes_max(lanes);
}

static float exp_row(float *row, float max)
{
    vec acc[LANE_VECS];
    float lanes[LANES];

    for (int c = 0; c < TILE; c++)
        row[c] = vexpf(row[c] - max);
    for (int v = 0; v < LANE_VECS; v++)
        acc[v] = vec_load(row + v * VEC_ELEMS) + vec_load(row + LANES + v * VEC_ELEMS);
    lanes_store(lanes, acc);
    return lanes_sum(lanes);
}

/* Turns a tile of scores into weights relative to the largest score so far; what was
 * summed under a smaller maximum is scaled down. */
static void online_softmax(float *scores, float *out, size_t width, float *max,
                           float *sum, struct tile_pair at)
{
    float largest[TILE];

    for (size_t r = 0; r < at.rows; r++) {
        if (at.diagonal)
            mask_row(scores + r * TILE, r + 1, -INFINITY);
        largest[r] = max_score(scores + r * TILE);
    }
    for (size_t r = 0; r < at.rows; r++) {
        if (largest[r] > max[r]) {
            float shrink = vexpf(max[r] - largest[r]);

            sum[r] *= shrink;
            max[r] = largest[r];
            for (size_t d = 0; d < width; d++)
                out[r * width + d] *= shrink;
        }
        sum[r] += exp_row(scores + r * TILE, max[r]);
    }
}

void KERNEL(attention_fwd)(float *out, float *lse, const float *qkv, size_t T, size_t C,
                           size_t H, size_t h, float *work)
{
    size_t D = C / H, width = round_up(D, PANEL_ALIGN), tiles = ceil_div(T, TILE);
    struct head q = {qkv + h * D, 3 * C, D}, k = {q.base + C, 3 * C, D};
    struct head v = {k.base + C, 3 * C, D};
    float *next = align_work(work);
    float *keys = take(&next, tiles * D * TILE),
          *values = take(&next, tiles * TILE * width);
    float *queries = take(&next, TILE * width), *sums = take(&next, TILE * width);
    float *scores = take(&next, TILE_ELEMS);
    float max[TILE], sum[TILE];

    for (size_t t = 0; t < T; t += TILE) {
        pack_transposed(keys + t * D, k, t, min_size(TILE, T - t));
        pack_rows(values + t * width, width, v, t, min_size(TILE, T - t), 1.0f);
    }
    for (size_t i = 0; i < T; i += TILE) {
        size_t rows = min_size(TILE, T - i);

        pack_rows(queries, width, q, i, rows, 1.0f / sqrtf((float)D));
        memset(sums, 0, round_up(rows, PANEL_ROWS) * width * sizeof *sums);
        for (size_t r = 0; r < rows; r++) {
            max[r] = -INFINITY;
            sum[r] = 0.0f;
        }
        for (size_t j = 0; j <= i; j += TILE) {
            struct tile_pair at = {rows, min_size(TILE, T - j), i == j};

            score_tile(scores, queries, width, keys + j * D, D, at);
            online_softmax(scores, sums, width, max, sum, at);
            weight_keys(sums, scores, values + j * width, width, at, true);
        }
        for (size_t r = 0; r < rows; r++) {
            lse[i + r] = max[r] + vlogf(sum[r]);
            unpack_rows(out + (i + r) * C + h * D, C, sums + r * width, width, D, 1,
                        1.0f / sum[r]);
        }
    }
}

/* scores become probabilities; slopes, d loss / d probability, become d loss / d score.
 */
static void softmax_slopes(float *scores, float *slopes, const float *lse,
                           const float *delta, struct tile_pair at)
{
    for (size_t r = 0; r < at.rows; r++) {
        float *restrict p = scores + r * TILE, *restrict s = slopes + r * TILE;
        float log_sum = lse[r], mean = delta[r];

        if (at.diagonal) {
            mask_row(p, r + 1, -INFINITY);
            mask_row(s, r + 1, 0.0f);
        }
        for (int c = 0; c < TILE; c++) {
            p[c] = vexpf(p[c] - log_sum);
            s[c] = p[c] * (s[c] - mean);
        }
    }
}

/* delta[t] = sum over d of dout[t][d] * out[t][d], in LANES lanes. */
static void row_products(float *delta, const float *dout, size_t width, struct head out,
                         size_t T)
{
    for (size_t t = 0; t < T; t++, dout += width) {
        const float *row = out.base + t * out.ld;
        vec acc[LANE_VECS] = {{0}};
        float lanes[LANES];
        size_t d = 0;

        fetch_row(out, t + ROWS_AHEAD);
        for (; d + LANES <= out.D; d += LANES)
            for (size_t v = 0; v < LANE_VECS; v++)
                acc[v] += vec_load(dout + d + v * VEC_ELEMS) *
                          vec_load(row + d + v * VEC_ELEMS);
        lanes_store(lanes, acc);
        for (size_t l = 0; d < out.D; d++, l++)
            lanes[l] += dout[d] * row[d];
        delta[t] = lanes_sum(lanes);
    }
}

void KERNEL(attention_bwd)(float *dqkv, const float *dout, const float *qkv,
                           const float *out, const float *lse, size_t T, size_t C,
                           size_t H, size_t h, float *work)
{
    size_t D = C / H, width = round_up(D, PANEL_ALIGN), padded = round_up(T, TILE);
    struct head q = {qkv + h * D, 3 * C, D}, k = {q.base + C, 3 * C, D};
    struct head v = {k.base + C, 3 * C, D}, dy = {dout + h * D, C, D};
    float scale = 1.0f / sqrtf((float)D), *dq = dqkv + h * D, *dk = dq + C, *dv = dk + C;
    float *next = align_work(work);
    float *queries = take(&next, padded * width), *grads = take(&next, padded * width);
    float *sum_q = take(&next, padded * width), *delta = take(&next, padded);
    float *keys_t = take(&next, D * TILE), *values_t = take(&next, D * TILE);
    float *keys = take(&next, TILE * width);
    float *sum_k = take(&next, TILE * width), *sum_v = take(&next, TILE * width);
    float *scores = take(&next, TILE_ELEMS), *slopes = take(&next, TILE_ELEMS);

    pack_rows(queries, width, q, 0, T, scale);
    pack_rows(grads, width, dy, 0, T, 1.0f);
    row_products(delta, grads, width, (struct head){out + h * D, C, D}, T);
    for (size_t j = 0; j < T; j += TILE) {
        size_t columns = min_size(TILE, T - j);

        pack_transposed(keys_t, k, j, columns);
        pack_transposed(values_t, v, j, columns);
        pack_rows(keys, width, k, j, columns, 1.0f);
        for (size_t i = j; i < T; i += TILE) {
            struct tile_pair at = {min_size(TILE, T - i), columns, i == j};

            score_tile(scores, queries + i * width, width, keys_t, D, at);
            score_tile(slopes, grads + i * width, width, values_t, D, at);
            softmax_slopes(scores, slopes, lse + i, delta + i, at);
            weight_queries(sum_v, scores, grads + i * width, width, at, i != j);
            weight_queries(sum_k, slopes, queries + i * width, width, at, i != j);
            weight_keys(sum_q + i * width, slopes, keys, width, at, j != 0);
        }
        unpack_rows(dk + j * 3 * C, 3 * C, sum_k, width, D, columns, 1.0f);
        unpack_rows(dv + j * 3 * C, 3 * C, sum_v, width, D, columns, 1.0f);
    }
    unpack_rows(dq, 3 * C, sum_q, width, D, T, scale);
}
