/* decoder.h - a model that computes a few rows at a time, in tasks, and remembers.
 *
 * What model/decode.h does by spans is one small task graph here. Created outside, used
 * by the creator of a task_run() (task.h) between two windows in which nothing else runs.
 * The same bits for any number of workers, sequences and rows a pass.
 */
#ifndef WEFT_ENGINE_DECODER_H
#define WEFT_ENGINE_DECODER_H

#include "model/decode.h"

struct decoder_options {
    const struct layout *layout; /* its shape is the model's; outlives the decoder */
    const float *params;         /* in that layout; may change between passes */
    const struct kernels *kernels;
    size_t sequences; /* that the cache holds side by side; >= 1 */
    size_t room;      /* positions a sequence; 1 to T */
    int workers;      /* of the task_run */
};

struct decoder;

/* Memory that decoder_new takes [bytes]. */
size_t decoder_bytes(const struct shape *s, size_t sequences, size_t room, int workers);
MUST_USE enum status decoder_new(const struct decoder_options *o, struct decoder **out);
void decoder_free(struct decoder *d); /* NULL allowed */

const struct shape *decoder_shape(const struct decoder *d);
size_t decoder_sequences(const struct decoder *d);
size_t decoder_room(const struct decoder *d);
double decoder_loss(const struct decoder *d, const float *logits, int32_t target);

/* What is done with the logits [V] of the i-th row that has `output`: a task each, at the
 * same time. The logits may be written to. */
typedef void (*decoder_use)(void *arg, size_t i, float *logits);

/* Computes n <= DECODE_ROWS rows, the rows of a sequence in ascending positions, and
 * returns when all are used. Rows at positions the cache holds already replace them. */
void decoder_pass(struct decoder *d, const struct decode_row *rows, size_t n,
                  decoder_use use, void *arg);

#endif
