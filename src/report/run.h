/* run.h - reads back what a run wrote down of itself (engine/metrics.h): for reports, and
 * for those who watch it. A run may be going on: a last line that is not whole is left
 * out. */
#ifndef WEFT_REPORT_RUN_H
#define WEFT_REPORT_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The columns of metrics.jsonl, in the order of run_column_names. */
enum run_column {
    RUN_STEP,
    RUN_LOSS,
    RUN_LR,
    RUN_GRAD_NORM,
    RUN_TOKENS,
    RUN_STEP_S,
    RUN_TOKENS_PER_S,
    RUN_MFU,
    RUN_COMPUTE_S,
    RUN_COMM_BUSY_S,
    RUN_COMM_EXPOSED_S,
    RUN_IDLE_S,
    RUN_COLUMNS
};
extern const char *const run_column_names[RUN_COLUMNS];

/* The files of lines. */
enum run_file { RUN_NUMBERS, RUN_EVENTS, RUN_FILES };
extern const char *const run_file_names[RUN_FILES];

struct run_evaluation {
    double step, loss;
};

struct run {
    char *path; /* as given, without slashes at its end */
    size_t n;
    double *columns[RUN_COLUMNS]; /* [n]; NaN where a line lacks the number */
    size_t n_evaluations;
    struct run_evaluation *evaluations;
    json_t *events;  /* array: checkpoints, then what still counts of events.jsonl */
    json_t *options; /* object: config.ini, name to text */
    size_t damaged[RUN_FILES]; /* lines passed over */
};

/* Calls add(arg, line) for each whole line of a file of the run folder that is a JSON
 * object, until it fails; a missing file has none. *damaged: the other whole lines. */
MUST_USE enum status run_each_line(const char *folder, enum run_file file,
                                   enum status (*add)(void *arg, json_t *line), void *arg,
                                   size_t *damaged);

/* Returns  ST_FORMAT when there is no metrics.jsonl; the other files may be missing
 * Memory   run_release() frees; *out is zeroed on failure */
MUST_USE enum status run_read(const char *path, struct run *out);
void run_release(struct run *r);
/* "metrics.jsonl: 2 lines passed over: not JSON", of the files of which some were; false
 * when all was read. */
bool run_tell_damaged(const struct run *r, char *out, size_t out_bytes);

#endif
