/* SPDX-License-Identifier: MIT */
/* elementwise.c - bias, GELU, AdamW and plain sums.
 *
 * Where output and input may be the same memory the work goes through a small local
 * block: the compiler then knows that nothing overlaps and needs no slow second version.
 */
#include "kernels/isa.h"
#include "kernels/vmath.h"

#include <math.h>

enum { BLOCK = 128 };

void KERNEL(bias_rows)(float *y, size_t ldy, const float *b, const float *res,
                       size_t ldres, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++) {
        float *out = y + n * ldy;
        size_t c = 0;

        if (!res) {
            memcpy(out, b, C * sizeof *out);
            continue;
        }
        for (; c + VEC_ELEMS <= C; c += VEC_ELEMS)
            vec_store(out + c, vec_load(b + c) + vec_load(res + n * ldres + c));
        for (; c < C; c++)
            out[c] = b[c] + res[n * ldres + c];
    }
}

void KERNEL(bias_grad)(float *restrict db, const float *restrict dy, size_t lddy,
                       size_t rows, size_t C, bool accumulate)
{
    size_t n = 0;

    if (!accumulate)
        memset(db, 0, C * sizeof *db);
    for (; n + 8 <= rows; n += 8) {
        const float *restrict row = dy + n * lddy;

        for (size_t c = 0; c < C; c++) {
            const float *d = row + c;
            float low = (d[0] + d[lddy]) + (d[2 * lddy] + d[3 * lddy]);
            float high = (d[4 * lddy] + d[5 * lddy]) + (d[6 * lddy] + d[7 * lddy]);

            db[c] += low + high;
        }
    }
    for (; n < rows; n++)
        for (size_t c = 0; c < C; c++)
            db[c] += dy[n * lddy + c];
}

void KERNEL(add_partials)(float *restrict out, const float *restrict partials,
                          size_t tiles, size_t C, bool accumulate)
{
    for (size_t c0 = 0; c0 < C; c0 += BLOCK) {
        size_t width = C - c0 < BLOCK ? C - c0 : BLOCK;
        float sum[BLOCK] = {0};

        for (size_t tile = 0; tile < tiles; tile++)
            for (size_t c = 0; c < width; c++)
                sum[c] += partials[tile * C + c0 + c];
        for (size_t c = 0; c < width; c++)
            out[c0 + c] = accumulate ? out[c0 + c] + sum[c] : sum[c];
    }
}

/* 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), without the cancellation of the left side.
 * Beyond |x| = 10 it is 0 or 1 to the last bit; the bound keeps exp in its range. */
struct gelu_gate {
    float gate;  /* 0.5 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3) */
    float slope; /* its derivative by x */
};

KERNEL_INLINE struct gelu_gate gelu_gate(float x)
{
    const float two_k = 1.5957691216f; /* 2 sqrt(2/pi) */
    float bounded = x < -10.0f ? -10.0f : x, square, e, gate;

    bounded = bounded > 10.0f ? 10.0f : bounded;
    square = bounded * bounded;
    e = vexpf(-two_k * bounded * (1.0f + 0.044715f * square));
    gate = 1.0f / (1.0f + e);
    return (struct gelu_gate){
        .gate = gate, .slope = e * gate * gate * two_k * (1.0f + 0.134145f * square)};
}

/* The compiler makes two of each of these: one is for whole blocks, whose copies are then
 * moves of vectors. */
KERNEL_INLINE void gelu_fwd_block(float *y, const float *x, const size_t n)
{
    float t[BLOCK] = {0};

    memcpy(t, x, n * sizeof *t);
    for (size_t l = 0; l < BLOCK; l++)
        t[l] = t[l] * gelu_gate(t[l]).gate;
    memcpy(y, t, n * sizeof *t);
}

/* y may be NULL. */
KERNEL_INLINE void gelu_bwd_block(float *dx, float *y, const float *dy, const float *x,
                                  const size_t n)
{
    float t[BLOCK] = {0}, d[BLOCK] = {0};

    memcpy(t, x, n * sizeof *t);
    memcpy(d, dy, n * sizeof *d);
    for (size_t l = 0; l < BLOCK; l++) {
        struct gelu_gate s = gelu_gate(t[l]);

        d[l] *= s.gate + t[l] * s.slope;
        t[l] *= s.gate;
    }
    memcpy(dx, d, n * sizeof *d);
    if (y)
        memcpy(y, t, n * sizeof *t);
}

void KERNEL(gelu_fwd)(float *y, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK)
        gelu_fwd_block(y + i, x + i, BLOCK);
    if (i < n)
        gelu_fwd_block(y + i, x + i, n - i);
}

void KERNEL(gelu_bwd)(float *dx, float *y, const float *dy, const float *x, size_t n)
{
    size_t i = 0;

    for (; i + BLOCK <= n; i += BLOCK)
        gelu_bwd_block(dx + i, y ? y + i : NULL, dy + i, x + i, BLOCK);
    if (i < n)
        gelu_bwd_block(dx + i, y ? y + i : NULL, dy + i, x + i, n - i);
}

void KERNEL(adamw)(float *restrict p, float *restrict m, float *restrict v,
                   const float *restrict g, size_t n, const struct adamw *a)
{
    const float beta1 = a->beta1, beta2 = a->beta2, rest1 = 1.0f - beta1;
    const float rest2 = 1.0f - beta2, scale1 = 1.0f / a->correction1;
    const float scale2 = 1.0f / a->correction2, eps = a->eps, lr = a->lr;
    const float decay = a->weight_decay, grad_scale = a->grad_scale;

    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * grad_scale;
        float first = beta1 * m[i] + rest1 * grad;
        float second = beta2 * v[i] + rest2 * (grad * grad);

        m[i] = first;
        v[i] = second;
        p[i] -= lr * (first * scale1 / (sqrtf(second * scale2) + eps) + decay * p[i]);
    }
}
