/* shape.h - the numbers that make a GPT-2 model. */
#ifndef WEFT_MODEL_SHAPE_H
#define WEFT_MODEL_SHAPE_H

#include <stddef.h>

#include "base/status.h"

enum { VOCAB_PAD = 128 };

struct shape {
    size_t L;  /* layers */
    size_t H;  /* heads; divides C */
    size_t C;  /* channels */
    size_t T;  /* longest sequence */
    size_t V;  /* vocabulary */
    size_t Vp; /* V rounded up to a multiple of VOCAB_PAD: rows of wte */
};

/* Reads a --model SPEC: "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "dN" (depth N:
 * C = 64 N, H = N), or "L=6,H=6,C=384,T=256[,V=..]".
 * In       vocab: used where the spec names no V (0: GPT-2's 50257)
 * Returns  ST_USAGE naming what was found and what is needed */
MUST_USE enum status shape_parse(const char *spec, size_t vocab, struct shape *out);

/* Is `spec` a spec rather than a path? A known name, dN, or anything with '=' is. */
int shape_is_spec(const char *spec);

/* Checks a shape from a file or spec: all >= 1, H divides C, sizes that fit in memory
 * arithmetic. `where` starts the error text. */
MUST_USE enum status shape_check(const struct shape *s, const char *where);

/* Parameters without padding rows, as papers count them (124,439,808 for gpt2). */
size_t shape_parameters(const struct shape *s);

/* Floating-point operations of one training step (forward and backward) for `tokens`
 * tokens in sequences of T: 6 N tokens + 12 L C T tokens (attention counted in full). */
double shape_train_flops(const struct shape *s, size_t T, double tokens);

#endif
