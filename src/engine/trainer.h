/* trainer.h - a training run: data, steps, evaluation, checkpoints, what is shown. */
#ifndef WEFT_ENGINE_TRAINER_H
#define WEFT_ENGINE_TRAINER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/options.h"
#include "base/status.h"
#include "comm/comm.h"
#include "model/shape.h"

struct train_options {
    const char *data, *val, *model, *out, *resume;
    size_t batch, seq, accum, total_batch_tokens;
    size_t steps;
    double epochs;
    double lr, min_lr;
    size_t warmup;
    int schedule;
    double weight_decay, beta1, beta2, eps, clip;
    size_t seed;
    int order; /* 0 shuffled, 1 sequential */
    size_t threads;
    int strategy; /* 0: what suits the ranks, else enum strategy */
    int engine, layout, overlap;
    int rounds, wire, host_memory, split_embedding;
    size_t roots;
    const char *block_bytes; /* a size, "auto" or "one" */
    const char *network;     /* what `weft bench network` wrote, or NULL */
    size_t eval_every, eval_batches;
    size_t sample_every;
    const char *sample_prompt; /* NULL: the beginning of a document */
    size_t save_every, keep;
    int save;                /* 0 in the background, 1 blocking */
    const char *time_limit;  /* "23h50m", or NULL */
    const char *stall_limit; /* the same, "0": the ranks are not watched */
    size_t check_sync;       /* steps between comparisons of the weights; 0: never */
    size_t log_every;
    bool dry_run, quiet, trace_data, trace;
    size_t trace_steps;
    bool tensorboard;
    const char *prometheus; /* file, or NULL */
    const char *isa;
    int dtype;     /* of the factors of matrix products: 0 fp32, 1 bf16 */
    int recompute; /* enum recompute */
    /* The table the options were read with: saved as config.ini and in checkpoints. */
    const struct option_row *table;
};

/* Runs to the end of training. Everything that can be checked is checked before step 1.
 * Call     COLLECTIVE, SAME options (checked)
 * Out      *o: what was left to a rule has its value
 * Returns  status agreed by all ranks, already told to the user by one of them;
 *          ST_STOPPED after a checkpoint on request (signal or time limit) */
MUST_USE enum status train_run(struct comm *c, struct train_options *o);

/* Memory on rank 0 for the texts of sample_every [bytes]: pure. */
size_t train_sample_bytes(const struct shape *s, size_t seq, int workers);

#endif
