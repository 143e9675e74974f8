/* metrics.h - metrics.jsonl: one JSON object a line, appended and flushed, on rank 0.
 *
 * Keys of a training line: step loss lr grad_norm tokens step_s tokens_per_s mfu
 * comm_busy_s comm_exposed_s comm_cpu_s; of an evaluation line: step val_loss; of a
 * checkpoint, when it is complete: step save_s save_stall_s save_bytes. Floats
 * have 9 significant digits. mfu is the share of the workers' peak (single-precision
 * multiply-adds, measured when the run starts) that the model's operations make.
 */
#ifndef WEFT_ENGINE_METRICS_H
#define WEFT_ENGINE_METRICS_H

#include <stdint.h>

#include "base/status.h"

struct metrics;

struct metrics_step {
    uint64_t step; /* steps done after this one */
    double loss, lr, grad_norm;
    uint64_t tokens; /* trained on so far */
    double step_s, tokens_per_s;
    double mfu; /* model flops utilisation: 0.5 is half of the peak */
    double comm_busy_s, comm_exposed_s, comm_cpu_s;
};

/* Opens <run>/metrics.jsonl for appending; lines of steps after `first_step` (left by a
 * run that was resumed from an earlier checkpoint) are dropped. */
MUST_USE enum status metrics_open(const char *run, uint64_t first_step,
                                  struct metrics **out);
void metrics_close(struct metrics *m); /* NULL allowed */

MUST_USE enum status metrics_step(struct metrics *m, const struct metrics_step *s);
/* A checkpoint of step `step`: seconds from its beginning to its name, seconds of them in
 * which training stood still, bytes written by all ranks. */
MUST_USE enum status metrics_save(struct metrics *m, uint64_t step, double seconds,
                                  double stall_s, uint64_t bytes);
MUST_USE enum status metrics_eval(struct metrics *m, uint64_t step, double val_loss);

#endif
