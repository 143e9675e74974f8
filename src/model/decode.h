/* decode.h - forward of a GPT-2 for a few rows at a time, over a cache of keys and
 * values.
 *
 * A row is one token at one position of one sequence. What earlier rows of a sequence
 * left in the cache is not computed again: a token costs one pass over the weights,
 * however many tokens are before it.
 *
 * Every function works on a span of rows or columns, so that the engine makes tasks of
 * them; those of one kind may run at the same time, the kinds follow each other in the
 * order in which they stand here. Invariant: the results of a row depend on its token,
 * its position and what its sequence has in the cache, bit for bit - not on the other
 * rows of the pass, on spans or threads.
 */
#ifndef WEFT_MODEL_DECODE_H
#define WEFT_MODEL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory.h"
#include "kernels/kernels.h"
#include "model/tensors.h"

/* Most rows of one pass: what a product reads again and again stays in a core's cache. */
enum { DECODE_ROWS = 64 };

struct decode_row {
    size_t sequence; /* below `sequences` */
    size_t position; /* below `room`; keys and values of all before it are in the cache or
                        earlier in this pass */
    int32_t token;
    bool output; /* its logits are wanted */
};

struct decode {
    struct shape shape;
    const struct kernels *kernels;
    const struct layout *layout;
    const float *params;
    size_t sequences;
    size_t room; /* positions a sequence has in the cache; at most the model's T */

    float *keys, *values; /* [L][sequences][H] of tiles and rows as attention_row wants */
    float *x;             /* [DECODE_ROWS][C] residual stream */
    float *norm;          /* [DECODE_ROWS][C] output of a layer-norm */
    float *moments;       /* [DECODE_ROWS] that layer-norm writes and nobody reads */
    float *qkv;           /* [DECODE_ROWS][3C] */
    float *att;           /* [DECODE_ROWS][C] */
    float *fc;            /* [DECODE_ROWS][4C] */
    float *out;           /* [DECODE_ROWS][C] of a product, before it is added to x */
    float *logits; /* [DECODE_ROWS][V], of the rows with output, one after another */
};

/* Bytes that decode_place takes. */
size_t decode_bytes(const struct shape *s, size_t sequences, size_t room);
/* Takes all buffers from the arena; shape, sequences and room are set before. */
void decode_place(struct decode *d, struct arena *arena);

/* Rows [r0, r1): x = wte[token] + wpe[position]. */
void decode_embedding(const struct decode *d, const struct decode_row *rows, size_t r0,
                      size_t r1);
/* ---- for each layer l; n rows in all ---- */
void decode_norm(const struct decode *d, bool second, size_t l, size_t r0, size_t r1);
/* Columns [c0, c1) of 3C; keys and values among them go to the cache. */
void decode_qkv(const struct decode *d, const struct decode_row *rows, size_t n, size_t l,
                size_t c0, size_t c1);
/* Items [i0, i1) of n x H, item h * n + r. work: round_up(room, CACHE_TILE) floats. */
void decode_attention(const struct decode *d, const struct decode_row *rows, size_t n,
                      size_t l, size_t i0, size_t i1, float *work);
/* Columns [c0, c1) of C: x += attproj(att). */
void decode_attproj(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1);
/* After the second norm. Columns [c0, c1) of 4C: fc = gelu(...). */
void decode_fc(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1);
/* Columns [c0, c1) of C: x += fcproj(fc). */
void decode_fcproj(const struct decode *d, size_t n, size_t l, size_t c0, size_t c1);
/* ---- the rows with output: n of them ---- */
/* norm[i] = final layer-norm of the i-th of them. */
void decode_final_norm(const struct decode *d, const struct decode_row *rows, size_t all);
/* Columns [v0, v1) of V. */
void decode_logits(const struct decode *d, size_t n, size_t v0, size_t v1);

/* -log of the probability that logits [V] give the target. */
double decode_loss(const struct decode *d, const float *logits, int32_t target);

#endif
