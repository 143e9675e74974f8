/* sample.h - choosing the next token from logits. */
#ifndef WEFT_ENGINE_SAMPLE_H
#define WEFT_ENGINE_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct sample_options {
    double temperature; /* 0: the most likely token */
    size_t top_k;       /* keep the k most likely; 0: all */
    double top_p;       /* then the fewest whose probabilities reach p (nucleus: Holtzman
                           et al., 2020); 1: all */
};

/* Scratch for V logits, owned by the caller: sample_work_bytes(V) bytes, aligned for
 * size_t. */
size_t sample_work_bytes(size_t V);

/* Makes the tokens in ids less likely, each once however often it is there: logits above
 * 0 are divided by the penalty, the others multiplied (Keskar et al., "CTRL", 2019). To
 * be done before sample_token. penalty > 0; 1 changes nothing. ids of V and more are
 * passed over. Pure. */
void sample_penalize(float *logits, size_t V, const uint32_t *ids, size_t n,
                     double penalty, void *work);

/* Token drawn with the uniform number u in [0, 1). Ties go to the lower id. Pure.
 * Returns  ST_NUMERIC when no logit is finite */
MUST_USE enum status sample_token(const struct sample_options *o, const float *logits,
                                  size_t V, double u, void *work, int32_t *token);

#endif
