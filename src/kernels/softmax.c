/* SPDX-License-Identifier: MIT */
/* softmax.c - softmax statistics and gradient of a tile of logits. */
#include "kernels/isa.h"
#include "kernels/vmath.h"

static float max_row(const float *x, size_t cols)
{
    vec acc[LANE_VECS];
    float lanes[LANES];
    size_t c = 0;

    for (int v = 0; v < LANE_VECS; v++)
        acc[v] = vec_splat(-INFINITY);
    for (; c + LANES <= cols; c += LANES)
        for (int v = 0; v < LANE_VECS; v++)
            acc[v] = vec_max(acc[v], vec_load(x + c + v * VEC_ELEMS));
    lanes_store(lanes, acc);
    for (size_t l = 0; c < cols; c++, l++)
        lanes[l] = lanes[l] > x[c] ? lanes[l] : x[c];
    return lanes_max(lanes);
}

static float sum_exp_row(const float *x, size_t cols, float max)
{
    vec acc[LANE_VECS] = {{0}};
    float lanes[LANES], e[LANES];
    size_t c = 0;

    for (; c + LANES <= cols; c += LANES) {
        for (int l = 0; l < LANES; l++)
            e[l] = vexpf(x[c + (size_t)l] - max);
        for (int v = 0; v < LANE_VECS; v++)
            acc[v] += vec_load(e + v * VEC_ELEMS);
    }
    lanes_store(lanes, acc);
    for (size_t l = 0; c < cols; c++, l++)
        lanes[l] += vexpf(x[c] - max);
    return lanes_sum(lanes);
}

void KERNEL(softmax_stats)(float *max_out, float *sum_out, const float *logits, size_t ld,
                           size_t rows, size_t cols)
{
    for (size_t n = 0; n < rows; n++) {
        max_out[n] = max_row(logits + n * ld, cols);
        sum_out[n] = sum_exp_row(logits + n * ld, cols, max_out[n]);
    }
}

void KERNEL(softmax_grad)(float *logits, size_t ld, const float *lse,
                          const int32_t *target, size_t c0, size_t rows, size_t cols,
                          size_t cols_padded, float scale)
{
    for (size_t n = 0; n < rows; n++) {
        float *row = logits + n * ld, log_sum = lse[n], at_target = 0.0f;
        size_t column = (size_t)target[n] - c0; /* wraps when left of this tile */
        bool inside = target[n] >= 0 && column < cols;

        if (target[n] < 0) {
            memset(row, 0, cols_padded * sizeof *row);
            continue;
        }
        if (inside)
            at_target = (vexpf(row[column] - log_sum) - 1.0f) * scale;
        for (size_t c = 0; c < cols; c++)
            row[c] = vexpf(row[c] - log_sum) * scale;
        if (inside)
            row[column] = at_target;
        memset(row + cols, 0, (cols_padded - cols) * sizeof *row);
    }
}
