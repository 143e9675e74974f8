/* SPDX-License-Identifier: MIT */
#include "cmd/bench_kernel_cases.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "cmd/bench_check.h"
#include "kernels/ref/ref.h"

/* ---- helpers of judges ---- */

static double *doubles(struct arena *scratch, size_t n)
{
    double *d = arena_take(scratch, n * sizeof *d);

    memset(d, 0, n * sizeof *d);
    return d;
}

static double *widened(struct arena *scratch, const float *x, size_t n)
{
    double *d = doubles(scratch, n);

    for (size_t i = 0; i < n; i++)
        d[i] = (double)x[i];
    return d;
}

static int32_t *integers(float *a)
{
    return (int32_t *)(void *)a;
}

static size_t list(struct case_array *out, const struct case_array *arrays, size_t n)
{
    memcpy(out, arrays, n * sizeof *out);
    return n;
}

#define LIST(out, ...)                                                                   \
    list(out, (const struct case_array[]){__VA_ARGS__},                                  \
         sizeof((const struct case_array[]){__VA_ARGS__}) / sizeof(struct case_array))

/* ---- rows with a bias ---- */

static size_t bias_rows_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, s->C, 0}, {ARRAY_IN, 0, s->C});
}

static void bias_rows_run(const struct kernels *k, const struct case_tile *t)
{
    size_t C = t->sizes->C;

    k->bias_rows(t->a[0], C, t->a[1], t->a[2], C, t->rows, C);
}

static double bias_rows_judge(const struct case_tile *before,
                              const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C, n = before->rows * C;
    double *y = doubles(scratch, n);

    ref_bias_rows_d(y, widened(scratch, before->a[1], C),
                    widened(scratch, before->a[2], n), before->rows, C);
    return check_error(after->a[0], y, n);
}

static size_t bias_grad_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, s->C, 0}, {ARRAY_IN, 0, s->C});
}

static void bias_grad_run(const struct kernels *k, const struct case_tile *t)
{
    k->bias_grad(t->a[0], t->a[1], t->sizes->C, t->rows, t->sizes->C, false);
}

static void add_partials_run(const struct kernels *k, const struct case_tile *t)
{
    k->add_partials(t->a[0], t->a[1], t->rows, t->sizes->C, false);
}

/* Column sums; of add_partials as well. */
static double column_sums_judge(const struct case_tile *before,
                                const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C;
    double *db = doubles(scratch, C);

    ref_bias_grad_d(db, widened(scratch, before->a[1], before->rows * C), before->rows,
                    C);
    return check_error(after->a[0], db, C);
}

/* ---- layer-norm ---- */

static size_t layernorm_fwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_OUT, 0, 1}, {ARRAY_OUT, 0, 1},
                {ARRAY_IN, 0, s->C}, {ARRAY_IN, s->C, 0}, {ARRAY_IN, s->C, 0});
}

static void layernorm_fwd_run(const struct kernels *k, const struct case_tile *t)
{
    k->layernorm_fwd(t->a[0], t->a[1], t->a[2], t->a[3], t->a[4], t->a[5], t->rows,
                     t->sizes->C);
}

static double layernorm_fwd_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C, rows = before->rows;
    double *y = doubles(scratch, rows * C), *mean = doubles(scratch, rows);
    double *rstd = doubles(scratch, rows);

    ref_layernorm_fwd_d(y, mean, rstd, widened(scratch, before->a[3], rows * C),
                        widened(scratch, before->a[4], C),
                        widened(scratch, before->a[5], C), rows, C);
    return fmax(
        check_error(after->a[0], y, rows * C),
        fmax(check_error(after->a[1], mean, rows), check_error(after->a[2], rstd, rows)));
}

static size_t layernorm_redo_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, 1},
                {ARRAY_IN_POSITIVE, 0, 1}, {ARRAY_IN, s->C, 0}, {ARRAY_IN, s->C, 0});
}

static void layernorm_redo_prepare(const struct kernels *k, const struct case_tile *t)
{
    k->layernorm_fwd(t->a[0], t->a[2], t->a[3], t->a[1], t->a[4], t->a[5], t->rows,
                     t->sizes->C);
    memset(t->a[0], 0, t->rows * t->sizes->C * sizeof(float));
}

static void layernorm_redo_run(const struct kernels *k, const struct case_tile *t)
{
    k->layernorm_redo(t->a[0], t->a[1], t->a[2], t->a[3], t->a[4], t->a[5], t->rows,
                      t->sizes->C);
}

static double layernorm_redo_judge(const struct case_tile *before,
                                   const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C, rows = before->rows;
    double *y = doubles(scratch, rows * C), *mean = doubles(scratch, rows);
    double *rstd = doubles(scratch, rows);

    ref_layernorm_fwd_d(y, mean, rstd, widened(scratch, before->a[1], rows * C),
                        widened(scratch, before->a[4], C),
                        widened(scratch, before->a[5], C), rows, C);
    return check_error(after->a[0], y, rows * C);
}

static size_t layernorm_bwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_OUT, s->C, 0}, {ARRAY_OUT, s->C, 0},
                {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, s->C},
                {ARRAY_IN, s->C, 0}, {ARRAY_IN, 0, 1}, {ARRAY_IN_POSITIVE, 0, 1});
}

static void layernorm_bwd_prepare(const struct kernels *k, const struct case_tile *t)
{
    size_t C = t->sizes->C;

    /* g stands in for the bias: only mean and rstd are wanted. */
    k->layernorm_fwd(t->a[0], t->a[7], t->a[8], t->a[5], t->a[6], t->a[6], t->rows, C);
    memset(t->a[0], 0, t->rows * C * sizeof(float));
}

static void layernorm_bwd_run(const struct kernels *k, const struct case_tile *t)
{
    k->layernorm_bwd(t->a[0], t->a[1], t->a[2], t->a[3], t->a[4], t->a[5], t->a[6],
                     t->a[7], t->a[8], t->rows, t->sizes->C);
}

static double layernorm_bwd_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C, rows = before->rows;
    double *dx = doubles(scratch, rows * C), *dg = doubles(scratch, C);
    double *db = doubles(scratch, C);

    ref_layernorm_bwd_d(dx, dg, db, widened(scratch, before->a[3], rows * C),
                        widened(scratch, before->a[5], rows * C),
                        widened(scratch, before->a[6], C), rows, C);
    for (size_t i = 0; i < rows * C; i++)
        dx[i] += (double)before->a[4][i];
    return fmax(check_error(after->a[0], dx, rows * C),
                fmax(check_error(after->a[1], dg, C), check_error(after->a[2], db, C)));
}

/* ---- gelu ---- */

static size_t gelu_fwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, 0, s->C});
}

static void gelu_fwd_run(const struct kernels *k, const struct case_tile *t)
{
    k->gelu_fwd(t->a[0], t->a[1], t->rows * t->sizes->C);
}

static double gelu_fwd_judge(const struct case_tile *before,
                             const struct case_tile *after, struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *y = doubles(scratch, n);

    ref_gelu_fwd_d(y, widened(scratch, before->a[1], n), n);
    return check_error(after->a[0], y, n);
}

static size_t gelu_bwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, s->C});
}

static void gelu_bwd_run(const struct kernels *k, const struct case_tile *t)
{
    k->gelu_bwd(t->a[0], NULL, t->a[1], t->a[2], t->rows * t->sizes->C);
}

static double gelu_bwd_judge(const struct case_tile *before,
                             const struct case_tile *after, struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *dx = doubles(scratch, n);

    ref_gelu_bwd_d(dx, widened(scratch, before->a[1], n),
                   widened(scratch, before->a[2], n), n);
    return check_error(after->a[0], dx, n);
}

/* ---- attention ---- */

static size_t attention_fwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_OUT, 0, s->H}, {ARRAY_IN, 0, 3 * s->C},
                {ARRAY_WORK, attention_work_elems(s->T, s->C / s->H), 0});
}

static void attention_fwd_run(const struct kernels *k, const struct case_tile *t)
{
    const struct case_sizes *s = t->sizes;

    for (size_t h = 0; h < s->H; h++)
        k->attention_fwd(t->a[0], t->a[1] + h * t->rows, t->a[2], t->rows, s->C, s->H, h,
                         t->a[3]);
}

/* The last head's columns of [T][parts * C], as [T][parts * D]. */
static double *last_head(struct arena *scratch, const struct case_tile *t, const float *x,
                         size_t parts)
{
    size_t C = t->sizes->C, H = t->sizes->H, D = C / H;
    double *out = doubles(scratch, t->rows * parts * D);

    for (size_t i = 0; i < t->rows; i++)
        for (size_t p = 0; p < parts; p++)
            for (size_t d = 0; d < D; d++)
                out[(i * parts + p) * D + d] =
                    (double)x[(i * parts + p) * C + (H - 1) * D + d];
    return out;
}

/* check_error() of two arrays in double. */
static double difference(const double *got, const double *want, size_t n)
{
    double worst = 0, largest = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]);

        worst = d <= worst ? worst : d;
        largest = fmax(largest, fabs(want[i]));
        if (!isfinite(d))
            return (double)INFINITY;
    }
    return largest > 0 ? worst / largest : worst;
}

/* The last head stands for all: the definition takes its time, and a head alone is the
 * same problem with H = 1. */
static double attention_fwd_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t T = before->rows, H = before->sizes->H, D = before->sizes->C / H;
    double *out = doubles(scratch, T * D), *lse = doubles(scratch, T);
    double *p = doubles(scratch, T * T);

    ref_attention_fwd_d(out, lse, p, last_head(scratch, before, before->a[2], 3), T, D,
                        1);
    return fmax(difference(last_head(scratch, after, after->a[0], 1), out, T * D),
                check_error(after->a[1] + (H - 1) * T, lse, T));
}

static size_t attention_bwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, 3 * s->C}, {ARRAY_IN, 0, s->C},
                {ARRAY_IN, 0, 3 * s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, s->H},
                {ARRAY_WORK, attention_work_elems(s->T, s->C / s->H), 0});
}

static void attention_bwd_prepare(const struct kernels *k, const struct case_tile *t)
{
    const struct case_sizes *s = t->sizes;

    for (size_t h = 0; h < s->H; h++)
        k->attention_fwd(t->a[3], t->a[4] + h * t->rows, t->a[2], t->rows, s->C, s->H, h,
                         t->a[5]);
}

static void attention_bwd_run(const struct kernels *k, const struct case_tile *t)
{
    const struct case_sizes *s = t->sizes;

    for (size_t h = 0; h < s->H; h++)
        k->attention_bwd(t->a[0], t->a[1], t->a[2], t->a[3], t->a[4] + h * t->rows,
                         t->rows, s->C, s->H, h, t->a[5]);
}

static double attention_bwd_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t T = before->rows, D = before->sizes->C / before->sizes->H;
    double *out = doubles(scratch, T * D), *lse = doubles(scratch, T);
    double *p = doubles(scratch, T * T), *dp = doubles(scratch, T);
    double *dqkv = doubles(scratch, 3 * T * D);
    double *qkv = last_head(scratch, before, before->a[2], 3);

    ref_attention_fwd_d(out, lse, p, qkv, T, D, 1);
    ref_attention_bwd_d(dqkv, last_head(scratch, before, before->a[1], 1), qkv, p, dp, T,
                        D, 1);
    return difference(last_head(scratch, after, after->a[0], 3), dqkv, 3 * T * D);
}

/* ---- embedding ---- */

static size_t embedding_fwd_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN, 0, s->C},
                {ARRAY_IN_INDEX, 0, 1}, {ARRAY_IN_INDEX, 0, 1});
}

static void embedding_fwd_run(const struct kernels *k, const struct case_tile *t)
{
    k->embedding_fwd(t->a[0], t->a[1], t->a[2], integers(t->a[3]), integers(t->a[4]),
                     t->rows, t->sizes->C);
}

static double embedding_fwd_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *x = doubles(scratch, n);

    ref_embedding_fwd_d(x, widened(scratch, before->a[1], n),
                        widened(scratch, before->a[2], n), integers(before->a[3]),
                        integers(before->a[4]), before->rows, before->sizes->C);
    return check_error(after->a[0], x, n);
}

static size_t embedding_tokens_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_INOUT, 0, s->C}, {ARRAY_IN, 0, s->C}, {ARRAY_IN_INDEX, 0, 1});
}

static void embedding_tokens_run(const struct kernels *k, const struct case_tile *t)
{
    k->embedding_bwd_tokens(t->a[0], t->a[1], integers(t->a[2]), t->rows, t->sizes->C, 0,
                            t->rows);
}

static double embedding_tokens_judge(const struct case_tile *before,
                                     const struct case_tile *after, struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *dwte = widened(scratch, before->a[0], n), *dwpe = doubles(scratch, n);

    /* Where the positions are the tokens, both tables are the same sum. */
    ref_embedding_bwd_d(dwte, dwpe, widened(scratch, before->a[1], n),
                        integers(before->a[2]), integers(before->a[2]), before->rows,
                        before->sizes->C);
    return check_error(after->a[0], dwte, n);
}

enum { SEQUENCES = 8 };

static size_t embedding_positions_arrays(const struct case_sizes *s,
                                         struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, s->C}, {ARRAY_IN, 0, SEQUENCES * s->C});
}

static void embedding_positions_run(const struct kernels *k, const struct case_tile *t)
{
    k->embedding_bwd_positions(t->a[0], t->a[1], SEQUENCES, t->rows, t->sizes->C, 0,
                               t->rows, false);
}

static double embedding_positions_judge(const struct case_tile *before,
                                        const struct case_tile *after,
                                        struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *dwpe = doubles(scratch, n), *dwte = doubles(scratch, n);
    int32_t *positions =
        arena_take(scratch, SEQUENCES * before->rows * sizeof *positions);

    for (size_t i = 0; i < SEQUENCES * before->rows; i++)
        positions[i] = (int32_t)(i % before->rows);
    ref_embedding_bwd_d(dwte, dwpe, widened(scratch, before->a[1], SEQUENCES * n),
                        positions, positions, SEQUENCES * before->rows, before->sizes->C);
    return check_error(after->a[0], dwpe, n);
}

/* ---- softmax and loss ---- */

static size_t softmax_stats_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, 1}, {ARRAY_OUT, 0, 1}, {ARRAY_IN, 0, s->cols});
}

static void softmax_stats_run(const struct kernels *k, const struct case_tile *t)
{
    size_t cols = t->sizes->cols;

    k->softmax_stats(t->a[0], t->a[1], t->a[2], cols, t->rows, cols);
}

/* Statistics are right when they make the right log-sum-exp. */
static double softmax_stats_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t cols = before->sizes->cols, rows = before->rows;
    double *loss = doubles(scratch, rows), *lse = doubles(scratch, rows);
    double *got = doubles(scratch, rows);
    int32_t *target = arena_take(scratch, rows * sizeof *target);

    memset(target, 0, rows * sizeof *target);
    ref_cross_entropy_fwd_d(loss, lse, widened(scratch, before->a[2], rows * cols),
                            target, rows, cols);
    for (size_t n = 0; n < rows; n++)
        got[n] = (double)after->a[0][n] + log((double)after->a[1][n]);
    return difference(got, lse, rows);
}

static size_t softmax_grad_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_INOUT, 0, s->cols}, {ARRAY_IN, 0, 1}, {ARRAY_IN_INDEX, 0, 1});
}

/* The log-sum-exp of the logits; targets within their width. */
static void softmax_grad_prepare(const struct kernels *k, const struct case_tile *t)
{
    size_t cols = t->sizes->cols;

    (void)k;
    for (size_t n = 0; n < t->rows; n++) {
        double sum = 0;

        for (size_t c = 0; c < cols; c++)
            sum += exp((double)t->a[0][n * cols + c]);
        t->a[1][n] = (float)log(sum);
        integers(t->a[2])[n] %= (int32_t)cols;
    }
}

static const float gradient_scale = 0.125f;

static void softmax_grad_run(const struct kernels *k, const struct case_tile *t)
{
    size_t cols = t->sizes->cols;

    k->softmax_grad(t->a[0], cols, t->a[1], integers(t->a[2]), 0, t->rows, cols, cols,
                    gradient_scale);
}

static double softmax_grad_judge(const struct case_tile *before,
                                 const struct case_tile *after, struct arena *scratch)
{
    size_t cols = before->sizes->cols, n = before->rows * cols;
    double *grad = doubles(scratch, n);

    ref_cross_entropy_bwd_d(grad, widened(scratch, before->a[0], n),
                            integers(before->a[2]), before->rows, cols,
                            (double)gradient_scale);
    return check_error(after->a[0], grad, n);
}

/* ---- update ---- */

static size_t adamw_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_INOUT, 0, s->C}, {ARRAY_INOUT, 0, s->C},
                {ARRAY_INOUT_POSITIVE, 0, s->C}, {ARRAY_IN, 0, s->C});
}

static const struct adamw adamw_options = {.lr = 1e-2f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.95f,
                                           .eps = 1e-8f,
                                           .weight_decay = 0.1f,
                                           .correction1 = 0.9f,
                                           .correction2 = 0.5f,
                                           .grad_scale = 0.75f};

static void adamw_run(const struct kernels *k, const struct case_tile *t)
{
    k->adamw(t->a[0], t->a[1], t->a[2], t->a[3], t->rows * t->sizes->C, &adamw_options);
}

static double adamw_judge(const struct case_tile *before, const struct case_tile *after,
                          struct arena *scratch)
{
    size_t n = before->rows * before->sizes->C;
    double *p = widened(scratch, before->a[0], n), *m = widened(scratch, before->a[1], n);
    double *v = widened(scratch, before->a[2], n);

    ref_adamw_d(p, m, v, widened(scratch, before->a[3], n), n, &adamw_options);
    return fmax(check_error(after->a[0], p, n),
                fmax(check_error(after->a[1], m, n), check_error(after->a[2], v, n)));
}

/* ---- single rows ---- */

/* One row against as many rows of weights as the tile has. */
static size_t dot_rows_arrays(const struct case_sizes *s, struct case_array *out)
{
    return LIST(out, {ARRAY_OUT, 0, 1}, {ARRAY_IN, s->C, 0}, {ARRAY_IN, 0, s->C});
}

static void dot_rows_run(const struct kernels *k, const struct case_tile *t)
{
    size_t C = t->sizes->C;

    k->dot_rows(t->a[0], t->rows, t->a[1], C, 1, t->a[2], t->rows, C);
}

static double dot_rows_judge(const struct case_tile *before,
                             const struct case_tile *after, struct arena *scratch)
{
    size_t C = before->sizes->C, rows = before->rows;
    double *y = doubles(scratch, rows);

    ref_matmul_d(false, true, 1, rows, C, widened(scratch, before->a[1], C), C,
                 widened(scratch, before->a[2], rows * C), C, 0, y, rows);
    return check_error(after->a[0], y, rows);
}

/* One query of one head against the keys and values of T positions. */
static size_t attention_row_arrays(const struct case_sizes *s, struct case_array *out)
{
    size_t D = s->C / s->H, room = round_up(s->T, CACHE_TILE);

    return LIST(out, {ARRAY_OUT, D, 0}, {ARRAY_IN, D, 0}, {ARRAY_IN, room * D, 0},
                {ARRAY_IN, 0, cache_width(D)}, {ARRAY_WORK, room, 0});
}

static void attention_row_run(const struct kernels *k, const struct case_tile *t)
{
    k->attention_row(t->a[0], t->a[1], t->a[2], t->a[3], t->rows,
                     t->sizes->C / t->sizes->H, t->a[4]);
}

/* The last row of a sequence whose other queries are 0. */
static double attention_row_judge(const struct case_tile *before,
                                  const struct case_tile *after, struct arena *scratch)
{
    size_t T = before->rows, D = before->sizes->C / before->sizes->H;
    double *qkv = doubles(scratch, 3 * T * D), *out = doubles(scratch, T * D);
    double *lse = doubles(scratch, T), *p = doubles(scratch, T * T);

    for (size_t t = 0; t < T; t++)
        for (size_t d = 0; d < D; d++) {
            double *row = qkv + t * 3 * D + d;

            row[0] = t + 1 < T ? 0 : (double)before->a[1][d];
            row[D] =
                (double)
                    before->a[2][(t / CACHE_TILE * D + d) * CACHE_TILE + t % CACHE_TILE];
            row[2 * D] = (double)before->a[3][t * cache_width(D) + d];
        }
    ref_attention_fwd_d(out, lse, p, qkv, T, D, 1);
    return check_error(after->a[0], out + (T - 1) * D, D);
}

/* ---- the table ---- */

const struct kernel_case kernel_cases[] = {
    {"bias_rows", CASE_COPY, bias_rows_arrays, false, NULL, bias_rows_run,
     bias_rows_judge},
    {"bias_grad", CASE_READ, bias_grad_arrays, false, NULL, bias_grad_run,
     column_sums_judge},
    {"layernorm_fwd", CASE_COPY, layernorm_fwd_arrays, false, NULL, layernorm_fwd_run,
     layernorm_fwd_judge},
    {"layernorm_redo", CASE_COPY, layernorm_redo_arrays, false, layernorm_redo_prepare,
     layernorm_redo_run, layernorm_redo_judge},
    {"layernorm_bwd", CASE_TRIAD, layernorm_bwd_arrays, false, layernorm_bwd_prepare,
     layernorm_bwd_run, layernorm_bwd_judge},
    {"add_partials", CASE_READ, bias_grad_arrays, false, NULL, add_partials_run,
     column_sums_judge},
    {"gelu_fwd", CASE_COPY, gelu_fwd_arrays, false, NULL, gelu_fwd_run, gelu_fwd_judge},
    {"gelu_bwd", CASE_TRIAD, gelu_bwd_arrays, false, NULL, gelu_bwd_run, gelu_bwd_judge},
    {"attention_fwd", CASE_FMA, attention_fwd_arrays, true, NULL, attention_fwd_run,
     attention_fwd_judge},
    {"attention_bwd", CASE_FMA, attention_bwd_arrays, true, attention_bwd_prepare,
     attention_bwd_run, attention_bwd_judge},
    {"embedding_fwd", CASE_TRIAD, embedding_fwd_arrays, false, NULL, embedding_fwd_run,
     embedding_fwd_judge},
    {"embedding_bwd_tokens", CASE_UPDATE, embedding_tokens_arrays, false, NULL,
     embedding_tokens_run, embedding_tokens_judge},
    {"embedding_bwd_positions", CASE_READ, embedding_positions_arrays, false, NULL,
     embedding_positions_run, embedding_positions_judge},
    {"softmax_stats", CASE_READ, softmax_stats_arrays, false, NULL, softmax_stats_run,
     softmax_stats_judge},
    {"softmax_grad", CASE_UPDATE, softmax_grad_arrays, false, softmax_grad_prepare,
     softmax_grad_run, softmax_grad_judge},
    {"adamw", CASE_UPDATE, adamw_arrays, false, NULL, adamw_run, adamw_judge},
    {"dot_rows", CASE_READ, dot_rows_arrays, false, NULL, dot_rows_run, dot_rows_judge},
    {"attention_row", CASE_READ, attention_row_arrays, true, NULL, attention_row_run,
     attention_row_judge},
};
const size_t n_kernel_cases = sizeof kernel_cases / sizeof *kernel_cases;

/* ---- tiles ---- */

/* Every array starts on a cache line. */
static size_t elems_of(const struct case_array *a, size_t rows)
{
    return round_up(a->fixed + a->per_row * rows, CACHE_LINE / sizeof(float));
}

size_t case_place(const struct kernel_case *c, const struct case_sizes *s, size_t rows,
                  float *base, struct case_tile *out)
{
    struct case_array arrays[CASE_ARRAYS];
    size_t n = c->arrays(s, arrays), used = 0;

    *out = (struct case_tile){.sizes = s, .rows = rows};
    for (size_t i = 0; i < n; i++) {
        out->a[i] = base ? base + used : NULL;
        used += elems_of(&arrays[i], rows);
    }
    return used;
}

size_t case_rows(const struct kernel_case *c, const struct case_sizes *s, size_t bytes)
{
    struct case_array arrays[CASE_ARRAYS];
    size_t n = c->arrays(s, arrays), fixed = 0, per_row = 0;

    if (c->sequence)
        return s->T;
    for (size_t i = 0; i < n; i++) {
        fixed += arrays[i].fixed;
        per_row += arrays[i].per_row;
    }
    size_t room = bytes / sizeof(float);

    return room > fixed + per_row ? (room - fixed) / per_row : 1;
}

void case_fill(const struct kernel_case *c, const struct case_tile *t)
{
    struct case_array arrays[CASE_ARRAYS];
    size_t n = c->arrays(t->sizes, arrays);

    for (size_t i = 0; i < n; i++)
        for (size_t e = 0; e < arrays[i].fixed + arrays[i].per_row * t->rows; e++) {
            double x = rng_uniform(1, i, e);

            if (arrays[i].kind == ARRAY_IN_INDEX)
                integers(t->a[i])[e] = (int32_t)(x * (double)t->rows);
            else if (arrays[i].kind == ARRAY_IN_POSITIVE ||
                     arrays[i].kind == ARRAY_INOUT_POSITIVE)
                t->a[i][e] = (float)(x + 0.01);
            else if (arrays[i].kind == ARRAY_OUT || arrays[i].kind == ARRAY_WORK)
                t->a[i][e] = NAN; /* to be written before it is read */
            else
                t->a[i][e] = (float)(2 * x - 1);
        }
}

double case_work(const struct kernel_case *c, const struct case_sizes *s, size_t rows)
{
    struct case_array arrays[CASE_ARRAYS];
    size_t n = c->arrays(s, arrays), elems = 0;
    /* One product of the half of T x T scores that is not masked, all heads. */
    double product = (double)(rows * (rows + 1) * s->C);

    if (c->ceiling == CASE_FMA)
        return (c->prepare ? 5 : 2) * product; /* backward makes the scores again */
    for (size_t i = 0; i < n; i++) {
        size_t some = arrays[i].fixed + arrays[i].per_row * rows;

        if (arrays[i].kind == ARRAY_INOUT || arrays[i].kind == ARRAY_INOUT_POSITIVE)
            elems += 2 * some;
        else if (arrays[i].kind != ARRAY_WORK)
            elems += some;
    }
    return (double)(elems * sizeof(float));
}

/* All arrays in double, twice, and a T x T matrix. */
size_t case_scratch_bytes(const struct kernel_case *c, const struct case_sizes *s,
                          size_t rows)
{
    struct case_tile t;
    size_t floats = case_place(c, s, rows, NULL, &t);
    size_t scores = c->sequence ? rows * rows : 0;

    return (2 * floats + scores) * sizeof(double) + 64 * CACHE_LINE;
}
