/* SPDX-License-Identifier: MIT */
#include "model/decode.h"

#include <math.h>

static const float *param(const struct decode *d, enum tensor_kind kind, size_t l)
{
    return d->params + layout_slice(d->layout, kind, l)->offset;
}

static size_t keys_elems(const struct shape *s, size_t room)
{
    return round_up(room, CACHE_TILE) * (s->C / s->H);
}

static size_t values_elems(const struct shape *s, size_t room)
{
    return room * cache_width(s->C / s->H);
}

/* Places the buffers, or with an arena of NULL adds up what they take. */
static size_t place(struct decode *d, struct arena *arena)
{
    const struct shape *s = &d->shape;
    size_t heads = s->L * d->sequences * s->H;
    const struct {
        float **to;
        size_t elems;
    } buffers[] = {
        {&d->keys, heads * keys_elems(s, d->room)},
        {&d->values, heads * values_elems(s, d->room)},
        {&d->x, DECODE_ROWS * s->C},
        {&d->norm, DECODE_ROWS * s->C},
        {&d->moments, 2 * (size_t)DECODE_ROWS},
        {&d->qkv, DECODE_ROWS * 3 * s->C},
        {&d->att, DECODE_ROWS * s->C},
        {&d->fc, DECODE_ROWS * 4 * s->C},
        {&d->out, DECODE_ROWS * s->C},
        {&d->logits, DECODE_ROWS * s->V},
    };
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        if (arena)
            *buffers[i].to = arena_take(arena, buffers[i].elems * sizeof(float));
        bytes += round_up(buffers[i].elems * sizeof(float), CACHE_LINE);
    }
    return bytes;
}

size_t decode_bytes(const struct shape *s, size_t sequences, size_t room)
{
    struct decode d = {.shape = *s, .sequences = sequences, .room = room};

    return place(&d, NULL);
}

void decode_place(struct decode *d, struct arena *arena)
{
    require(d->room <= d->shape.T);
    (void)place(d, arena);
}

static float *keys_of(const struct decode *d, size_t l, size_t sequence, size_t h)
{
    return d->keys + ((l * d->sequences + sequence) * d->shape.H + h) *
                         keys_elems(&d->shape, d->room);
}

static float *values_of(const struct decode *d, size_t l, size_t sequence, size_t h)
{
    return d->values + ((l * d->sequences + sequence) * d->shape.H + h) *
                           values_elems(&d->shape, d->room);
}

void decode_embedding(const struct decode *d, const struct decode_row *rows, size_t r0,
                      size_t r1)
{
    size_t C = d->shape.C;

    for (size_t r = r0; r < r1; r++) {
        int32_t position = (int32_t)rows[r].position;

        d->kernels->embedding_fwd(d->x + r * C, param(d, WTE, 0), param(d, WPE, 0),
                                  &rows[r].token, &position, 1, C);
    }
}

void decode_norm(const struct decode *d, bool second, size_t l, size_t r0, size_t r1)
{
    size_t C = d->shape.C;

    d->kernels->layernorm_fwd(
        d->norm + r0 * C, d->moments + r0, d->moments + DECODE_ROWS + r0, d->x + r0 * C,
        param(d, second ? LN2W : LN1W, l), param(d, second ? LN2B : LN1B, l), r1 - r0, C);
}

/* Columns [c0, c1) of y [n][out] = x [n][in] W^T + b. */
static void linear(const struct decode *d, float *y, size_t out, const float *x,
                   size_t in, size_t n, enum tensor_kind kind, size_t l, size_t c0,
                   size_t c1)
{
    const float *b = param(d, kind + 1, l);

    d->kernels->dot_rows(y + c0, out, x, in, n, param(d, kind, l) + c0 * in, c1 - c0, in);
    for (size_t r = 0; r < n; r++)
        for (size_t c = c0; c < c1; c++)
            y[r * out + c] += b[c];
}

/* Puts key and value columns [c0, c1) of one row of qkv where attention_row finds them.
 */
static void remember(const struct decode *d, const struct decode_row *row,
                     const float *qkv, size_t l, size_t c0, size_t c1)
{
    size_t C = d->shape.C;
    size_t D = C / d->shape.H;
    size_t tile = row->position / CACHE_TILE;
    size_t column = row->position % CACHE_TILE;

    for (size_t c = c0 > C ? c0 : C; c < c1; c++) {
        bool is_key = c < 2 * C;
        size_t h = (c - (is_key ? C : 2 * C)) / D;
        size_t i = c % D;

        if (is_key)
            keys_of(d, l, row->sequence, h)[(tile * D + i) * CACHE_TILE + column] =
                qkv[c];
        else
            values_of(d, l, row->sequence, h)[row->position * cache_width(D) + i] =
                qkv[c];
    }
}

void decode_qkv(const struct decode *d, const struct decode_row *rows, size_t n, size_t l,
                size_t c0, size_t c1)
{
    size_t C = d->shape.C;

    linear(d, d->qkv, 3 * C, d->norm, C, n, QKVW, l, c0, c1);
    for (size_t r = 0; r < n; r++)
        remember(d, &rows[r], d->qkv + r * 3 * C, l, c0, c1);
}

void decode_attention(const struct decode *d, const struct decode_row *rows, size_t n,
                      size_t l, size_t i0, size_t i1, float *work)
{
    size_t C = d->shape.C;
    size_t D = C / d->shape.H;

    for (size_t i = i0; i < i1; i++) {
        size_t h = i / n;
        size_t r = i % n;

        d->kernels->attention_row(d->att + r * C + h * D, d->qkv + r * 3 * C + h * D,
                                  keys_of(d, l, rows[r].sequence, h),
                                  values_of(d, l, rows[r].sequence, h),
                                  rows[r].position + 1, D, work);
    }
}

static void add_to_stream(const struct decode *d, size_t n, size_t c0, size_t c1)
{
    size_t C = d->shape.C;

    for (size_t r = 0; r < n; r++)
        for (size_t c = c0; c < c1; c++)
            d->x[r * C + c] += d->out[r * C + c];
}

void decode_attproj(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1)
{
    size_t C = d->shape.C;

    linear(d, d->out, C, d->att, C, n, ATTPROJW, l, c0, c1);
    add_to_stream(d, n, c0, c1);
}

void decode_fc(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1)
{
    size_t F = 4 * d->shape.C;

    linear(d, d->fc, F, d->norm, d->shape.C, n, FCW, l, c0, c1);
    for (size_t r = 0; r < n; r++)
        d->kernels->gelu_fwd(d->fc + r * F + c0, d->fc + r * F + c0, c1 - c0);
}

void decode_fcproj(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1)
{
    linear(d, d->out, d->shape.C, d->fc, 4 * d->shape.C, n, FCPROJW, l, c0, c1);
    add_to_stream(d, n, c0, c1);
}

void decode_final_norm(const struct decode *d, const struct decode_row *rows, size_t all)
{
    size_t C = d->shape.C;
    size_t n = 0;

    for (size_t r = 0; r < all; r++)
        if (rows[r].output) {
            d->kernels->layernorm_fwd(d->norm + n * C, d->moments, d->moments + 1,
                                      d->x + r * C, param(d, LNFW, 0), param(d, LNFB, 0),
                                      1, C);
            n++;
        }
}

void decode_logits(const struct decode *d, size_t n, size_t v0, size_t v1)
{
    size_t C = d->shape.C;

    d->kernels->dot_rows(d->logits + v0, d->shape.V, d->norm, C, n,
                         param(d, WTE, 0) + v0 * C, v1 - v0, C);
}

double decode_loss(const struct decode *d, const float *logits, int32_t target)
{
    size_t V = d->shape.V;
    float max, sum;

    d->kernels->softmax_stats(&max, &sum, logits, V, 1, V);
    return (double)max - (double)logits[target] + log((double)sum);
}
