/* generation.h - texts continued by a model, many side by side.
 *
 * Prompts are computed in passes of many rows, then a token at a time for all texts that
 * are under way: the weights are read once for all of them. A text that ends makes room
 * for the next. A text depends on its prompt, its stream and the options only: not on the
 * others, on how many there are at a time, or on the threads.
 *
 * Beyond the context, which is the T positions of the decoder's room. Positions are
 * learned, so a full cache cannot be moved along. When a text has T tokens in its
 * context, the older half is forgotten: the newest max(1, T/2) tokens are computed again
 * from position 0 on, and the text goes on. A prompt longer than T begins with its last T
 * tokens. Each forgetting costs one pass over T/2 tokens, many rows at a time.
 */
#ifndef WEFT_ENGINE_GENERATION_H
#define WEFT_ENGINE_GENERATION_H

#include "data/tokenizer.h"
#include "engine/decoder.h"
#include "engine/sample.h"
#include "engine/text_out.h"

struct generation_options {
    const struct tokenizer *tokenizer;
    struct sample_options sample;
    double repetition_penalty; /* over all tokens of the text so far; 1: none */
    size_t max_tokens;
    uint64_t seed;
    const char *const *stops; /* none empty; a text ends before the first of them */
    size_t n_stops;
};

enum generation_end { GENERATION_LENGTH, GENERATION_END_OF_TEXT, GENERATION_STOP };

/* One text. */
struct generation {
    struct token_list
        tokens;      /* in: the prompt, at least one token; out: and what follows */
    uint64_t stream; /* of random numbers */
    text_sink sink;  /* gets what follows the prompt, as it comes */
    void (*finished)(void *arg); /* after the last of it; NULL: not told */
    void *arg;                   /* of both */
    size_t new_tokens;           /* out, like the rest; without end-of-text */
    enum generation_end end;
    bool done; /* set when nothing more comes; a failure ends all that are not done */
};

struct generation_stats {
    double prompt_s, new_s;
    size_t prompt_tokens; /* computed, those after a forgetting included */
    size_t new_tokens;    /* of all texts, also one from each end of a prompt */
    size_t next_tokens;   /* of them in new_s */
};

/* Ids of a prompt; of none the beginning of a document: end-of-text, or a line break, or
 * where the vocabulary has neither its first character. *out is empty before.
 * Returns  ST_FORMAT naming a character that is not in the vocabulary; ST_USAGE when an
 *          id is not below V: the model was trained with another tokenizer */
MUST_USE enum status generation_prompt(const struct tokenizer *t, const char *text,
                                       size_t bytes, size_t V, struct token_list *out);

/* Continues n texts. From the creator of a task_run, with nothing else under way.
 * Returns  ST_NUMERIC when a model's logits are no numbers, ST_NOMEM */
MUST_USE enum status generation_run(struct decoder *d, const struct generation_options *o,
                                    struct generation *texts, size_t n,
                                    struct generation_stats *stats);

#endif
