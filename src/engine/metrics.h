/* metrics.h - what a run writes down of itself while it runs, on rank 0: one JSON object
 * a line, each in one write, so that readers of a live run see whole lines.
 *
 * RUN/metrics.jsonl, the numbers. Keys of a training line: step loss lr grad_norm tokens
 * step_s tokens_per_s mfu compute_s comm_busy_s comm_exposed_s idle_s comm_cpu_s; of an
 * evaluation line: step val_loss; of a checkpoint, when it is complete: step save_s
 * save_stall_s save_bytes. Floats have 9 significant digits. mfu is the share of
 * the workers' peak (single-precision multiply-adds, measured when the run starts) that
 * the model's operations make.
 *
 * Where a step's time goes, on rank 0: step_s = compute_s + comm_exposed_s + idle_s, and
 * comm_busy_s = exposed + hidden (see struct account).
 *
 * RUN/events.jsonl, what happened, with "event" in each line: "start" and "end" of a
 * process, and "ranks" with the account of every rank since the line
 * before. It is appended to by every process of the run and never cut: a line counts
 * until a later "start" goes back before its step.
 */
#ifndef WEFT_ENGINE_METRICS_H
#define WEFT_ENGINE_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct metrics;

/* Where the time of some steps went on a rank [s]. The first three make wall_s. */
struct account {
    double compute_s; /* inside task bodies: mean over workers */
    double exposed_s; /* all workers idle while messages were on their way */
    double idle_s;    /* the rest: a worker found no task that could run */
    double hidden_s;  /* messages on their way while a worker computed */
    double wall_s;
};
enum { ACCOUNT_NUMBERS = sizeof(struct account) / sizeof(double) };

struct metrics_step {
    uint64_t step; /* steps done after this one */
    double loss, lr, grad_norm;
    uint64_t tokens; /* trained on so far */
    double tokens_per_s;
    double mfu; /* model flops utilisation: 0.5 is half of the peak */
    struct account account;
    double comm_cpu_s;
};

/* What a process of the run is, for its "start" line. Texts borrowed during the call. */
struct metrics_start {
    uint64_t step, steps; /* to begin with, of the whole run */
    int ranks, workers;
    const char *from; /* what it goes on from, or NULL */
    const char *strategy, *kernels, *tasks, *library;
    double tokens_a_step, parameters, peak_flops;
};

struct metrics_options {
    const char *run;
    /* Lines of metrics.jsonl of later steps, left by a run that was resumed from an
     * earlier checkpoint, are dropped. */
    uint64_t first_step;
    bool tensorboard;       /* event files in <run>/tensorboard too */
    const char *prometheus; /* and this file, every few seconds; NULL: none */
};

/* Opens the files of the run for appending. Options' texts are borrowed until
 * metrics_close(). */
MUST_USE enum status metrics_open(const struct metrics_options *o, struct metrics **out);
void metrics_close(struct metrics *m); /* NULL allowed */

MUST_USE enum status metrics_step(struct metrics *m, const struct metrics_step *s);
/* A checkpoint of step `step`: seconds from its beginning to its name, seconds of them in
 * which training stood still, bytes written by all ranks. */
MUST_USE enum status metrics_save(struct metrics *m, uint64_t step, double seconds,
                                  double stall_s, uint64_t bytes);
MUST_USE enum status metrics_eval(struct metrics *m, uint64_t step, double val_loss);

MUST_USE enum status metrics_start(struct metrics *m, const struct metrics_start *s);
/* Accounts of all ranks over the `steps` steps up to `step`. */
MUST_USE enum status metrics_ranks(struct metrics *m, uint64_t step, uint64_t steps,
                                   const struct account *of_rank, size_t ranks);
/* why: "done", "stopped", "failed". */
MUST_USE enum status metrics_end(struct metrics *m, uint64_t step, const char *why);

#endif
