/* bench_update.h - shared by the files of `weft bench update` only. */
#ifndef WEFT_CMD_BENCH_UPDATE_H
#define WEFT_CMD_BENCH_UPDATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/progress.h"
#include "base/status.h"
#include "cmd/bench.h"
#include "comm/comm.h"
#include "engine/cost.h"
#include "engine/engine.h"

/* One way to do the update phase: what a row stands for. Zeroed before it is filled, so
 * that two of them compare as bytes. */
struct update_setup {
    enum strategy strategy;
    enum exchange_engine engine;
    enum layout_order layout;
    size_t block_bytes; /* 0: what suits the strategy */
    enum grid_schedule schedule;
    enum exchange_wire wire;
    int roots;
    int longest_nap_us; /* of the communication thread */
    bool one_block, one_root, overlap, split_embedding, host_memory;
};

/* Per step: what is kept of each. */
enum update_figure {
    UPDATE_STEP,    /* wall time, of the slowest rank */
    UPDATE_EXPOSED, /* means over ranks from here on */
    UPDATE_HIDDEN,
    UPDATE_IDLE,
    UPDATE_COMM_CPU, /* of the communication thread */
    UPDATE_FIGURES
};

struct update_row {
    struct update_setup setup;
    double *figures[UPDATE_FIGURES]; /* [steps in all] */
    size_t n;                        /* steps so far */
    /* what the plan says */
    size_t blocks;
    double block_bytes;
    int rounds;
    double update_share;       /* of the parameters, largest of all ranks */
    double predicted_bytes;    /* that a rank sends in a step, mean; direct engine */
    double busiest_link_bytes; /* in or out of one host (or rank) in a step */
    /* what was counted in the last step */
    double bytes, most_bytes, messages; /* sent by a rank: mean, largest, mean */
    double loss, norm;                  /* of the step that was checked */
};

/* The step without its exchange, for one layout: every rank alone, all at once. */
struct update_alone {
    enum layout_order layout;
    double *gradients_s,
        *step_s; /* [steps in all] forward and backward; and the update */
    size_t n;
};

struct update_bench {
    struct comm *comm;
    /* from the options */
    struct shape shape;
    const char *model;
    size_t batch, seq, accum, steps, warmup, rounds;
    int workers;
    double compute_s; /* simulated; 0: real */
    const struct kernels *kernels;
    const char *network; /* file of bench network, or NULL: unknown, and so are ... */
    double link_Bps;     /* 0 */
    struct cost_cluster cluster;
    const char *json; /* NULL: no file */
    int hosts;
    /* what is measured */
    struct update_row *rows;
    size_t n_rows;
    struct update_alone alone[2];
    size_t n_alone;
    struct progress progress;
    double visits;
};

/* ---- bench_update_run.c ---- */

/* Visits all setups in rounds. COLLECTIVE; agreed, told. ST_BUG when ranks do not hold
 * the same parameters, or a setup does not come to the first one's loss. */
MUST_USE enum status update_measure(struct update_bench *b);
void update_release(struct update_bench *b);
/* Engine options of a setup. */
struct engine_options update_engine_options(const struct update_bench *b,
                                            const struct update_setup *s);

/* ---- bench_update_report.c ---- */

/* A few words that tell a setup from all others, for logs and errors. */
const char *update_name(const struct update_setup *s, char *buf, size_t buf_bytes);
void update_print(struct update_bench *b);
json_t *update_json(struct update_bench *b);

#endif
