/* score.h - how well a model predicts given tokens.
 *
 * Losses are natural logarithms, added in double in the order of the tokens: the same
 * bits for any number of ranks and threads and however many are scored side by side
 * (model/decode.h).
 */
#ifndef WEFT_ENGINE_SCORE_H
#define WEFT_ENGINE_SCORE_H

#include "engine/decoder.h"

/* Tokens of one context, of which some are predicted. */
struct score {
    size_t sequence;       /* of the cache; no other score of the call has it */
    const int32_t *tokens; /* [n], n >= 2, n - 1 at most the decoder's room */
    size_t n;
    size_t first;  /* tokens[first .. n) are predicted, each from all before it; >= 1 */
    size_t cached; /* its sequence has the first so many tokens already; < first */
    double loss;   /* out: sum of -log p */
};

/* Leaves all tokens but the last in the cache. From the creator of a task_run. */
void score_all(struct decoder *d, struct score *scores, size_t n);

/* How a stream of tokens becomes contexts. Context k holds the tokens [k*stride, k*stride
 * + T] of the stream, cut at its end, and predicts those that no earlier one predicted:
 * all but its first token with stride T, where contexts do not overlap; the last `stride`
 * of them with a smaller one, so that each has at least T - stride tokens before it.
 * Every token but the first of the stream is predicted exactly once. */
struct score_windows {
    uint64_t tokens; /* of the stream */
    size_t T;
    size_t stride; /* 1 to T */
};

uint64_t score_windows_count(const struct score_windows *w);
/* Context k: tokens [*begin, *begin + *n) of the stream, predictions from *first on. */
void score_window(const struct score_windows *w, uint64_t k, uint64_t *begin, size_t *n,
                  size_t *first);

#endif
