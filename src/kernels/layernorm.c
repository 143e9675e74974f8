/* SPDX-License-Identifier: MIT */
/* layernorm.c - layer normalisation of rows, forward and backward.
 *
 * The mean is taken twice: the second pass sums the deviations from the first mean, so
 * that a row of equal values has variance 0 exactly, for any width.
 */
#include "kernels/isa.h"

#include <math.h>

static const float epsilon = 1e-5f;

static float sum_row(const float *x, size_t C)
{
    vec acc[LANE_VECS] = {{0}};
    float lanes[LANES];
    size_t c = 0;

    for (; c + LANES <= C; c += LANES)
        for (int v = 0; v < LANE_VECS; v++)
            acc[v] += vec_load(x + c + v * VEC_ELEMS);
    lanes_store(lanes, acc);
    for (size_t l = 0; c < C; c++, l++)
        lanes[l] += x[c];
    return lanes_sum(lanes);
}

/* Sums of the deviations from `centre` and of their squares. */
static void sum_deviations(const float *x, size_t C, float centre, float *sum,
                           float *squares)
{
    vec acc[LANE_VECS] = {{0}}, acc2[LANE_VECS] = {{0}};
    float lanes[LANES], lanes2[LANES];
    size_t c = 0;

    for (; c + LANES <= C; c += LANES)
        for (int v = 0; v < LANE_VECS; v++) {
            vec d = vec_load(x + c + v * VEC_ELEMS) - centre;

            acc[v] += d;
            acc2[v] += d * d;
        }
    lanes_store(lanes, acc);
    lanes_store(lanes2, acc2);
    for (size_t l = 0; c < C; c++, l++) {
        float d = x[c] - centre;

        lanes[l] += d;
        lanes2[l] += d * d;
    }
    *sum = lanes_sum(lanes);
    *squares = lanes_sum(lanes2);
}

static void normalise_row(float *y, const float *x, float mean, float rstd,
                          const float *g, const float *b, size_t C)
{
    size_t c = 0;

    for (; c + VEC_ELEMS <= C; c += VEC_ELEMS) {
        vec xhat = (vec_load(x + c) - mean) * rstd;

        vec_store(y + c, xhat * vec_load(g + c) + vec_load(b + c));
    }
    for (; c < C; c++)
        y[c] = (x[c] - mean) * rstd * g[c] + b[c];
}

void KERNEL(layernorm_fwd)(float *y, float *mean, float *rstd, const float *x,
                           const float *g, const float *b, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++) {
        float centre = sum_row(x + n * C, C) / (float)C;
        float sum, squares, shift;

        sum_deviations(x + n * C, C, centre, &sum, &squares);
        shift = sum / (float)C;
        mean[n] = centre + shift;
        rstd[n] = 1.0f / sqrtf(squares / (float)C - shift * shift + epsilon);
        normalise_row(y + n * C, x + n * C, mean[n], rstd[n], g, b, C);
    }
}

void KERNEL(layernorm_redo)(float *y, const float *x, const float *mean,
                            const float *rstd, const float *g, const float *b,
                            size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++)
        normalise_row(y + n * C, x + n * C, mean[n], rstd[n], g, b, C);
}

/* Adds one row to dg and db, and sums w = dy * g and w * xhat over the row. */
static void sum_row_gradients(float *dg, float *db, const float *dy, const float *x,
                              const float *g, float mean, float rstd, size_t C,
                              float *sum_w, float *sum_wx)
{
    vec acc[LANE_VECS] = {{0}}, acc_x[LANE_VECS] = {{0}};
    float lanes[LANES], lanes_x[LANES];
    size_t c = 0;

    for (; c + LANES <= C; c += LANES)
        for (int v = 0; v < LANE_VECS; v++) {
            size_t at = c + (size_t)v * VEC_ELEMS;
            vec xhat = (vec_load(x + at) - mean) * rstd, d = vec_load(dy + at);
            vec w = d * vec_load(g + at);

            vec_store(db + at, vec_load(db + at) + d);
            vec_store(dg + at, vec_load(dg + at) + d * xhat);
            acc[v] += w;
            acc_x[v] += w * xhat;
        }
    lanes_store(lanes, acc);
    lanes_store(lanes_x, acc_x);
    for (size_t l = 0; c < C; c++, l++) {
        float xhat = (x[c] - mean) * rstd, w = dy[c] * g[c];

        db[c] += dy[c];
        dg[c] += dy[c] * xhat;
        lanes[l] += w;
        lanes_x[l] += w * xhat;
    }
    *sum_w = lanes_sum(lanes);
    *sum_wx = lanes_sum(lanes_x);
}

static void input_gradient_row(float *dx, const float *dy, const float *add,
                               const float *x, const float *g, float mean, float rstd,
                               float mean_w, float mean_wx, size_t C)
{
    size_t c = 0;

    for (; c + VEC_ELEMS <= C; c += VEC_ELEMS) {
        vec xhat = (vec_load(x + c) - mean) * rstd;
        vec w = vec_load(dy + c) * vec_load(g + c);
        vec d = (w - mean_w - xhat * mean_wx) * rstd;

        vec_store(dx + c, add ? vec_load(add + c) + d : d);
    }
    for (; c < C; c++) {
        float xhat = (x[c] - mean) * rstd;
        float d = (dy[c] * g[c] - mean_w - xhat * mean_wx) * rstd;

        dx[c] = add ? add[c] + d : d;
    }
}

void KERNEL(layernorm_bwd)(float *dx, float *dg, float *db, const float *dy,
                           const float *add, const float *x, const float *g,
                           const float *mean, const float *rstd, size_t rows, size_t C)
{
    memset(dg, 0, C * sizeof *dg);
    memset(db, 0, C * sizeof *db);
    for (size_t n = 0; n < rows; n++) {
        size_t at = n * C;
        float sum_w, sum_wx;

        sum_row_gradients(dg, db, dy + at, x + at, g, mean[n], rstd[n], C, &sum_w,
                          &sum_wx);
        input_gradient_row(dx + at, dy + at, add ? add + at : NULL, x + at, g, mean[n],
                           rstd[n], sum_w / (float)C, sum_wx / (float)C, C);
    }
}
