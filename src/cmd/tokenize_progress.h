/* tokenize_progress.h - how far a tokenization has come, on disk beside its unfinished
 * shards, so that the same command goes on after it was killed. */
#ifndef WEFT_CMD_TOKENIZE_PROGRESS_H
#define WEFT_CMD_TOKENIZE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cmd/corpus.h"
#include "data/shards.h"
#include "data/tokenizer.h"

struct tokenize_progress {
    uint64_t parts; /* of the corpus, in the shards so far */
    uint64_t tokens[SPLITS];
    struct shard_writer_place places[SPLITS];
};

/* A number that differs when the shards would: tokenizer, options (as a text), files with
 * their sizes and times of change. */
MUST_USE enum status tokenize_fingerprint(const struct tokenizer *t, const char *options,
                                          const struct corpus *c, uint64_t *out);

/* Writes it, atomically. The shards it tells of must be durable. */
MUST_USE enum status tokenize_progress_save(const char *path, uint64_t fingerprint,
                                            const struct tokenize_progress *p);
/* *found false when there is none, it cannot be read, or it is of other work. */
void tokenize_progress_load(const char *path, uint64_t fingerprint,
                            struct tokenize_progress *p, bool *found);

#endif
