/* engine.h - training steps as one graph of tasks and messages.
 *
 * A *window* is what lies between two points at which every task has finished. Window k
 * holds the update and the broadcasts of step k-1, and forward, backward, reductions and
 * agreement of step k: so the return of the parameters is covered by forward and the
 * reductions by backward. It ends when the ranks have agreed on loss, norm and failures;
 * no weight has been touched by then, so that a bad step can be dropped by all of them.
 *
 * An engine's inner functions are called from within engine_run only, which makes the
 * team of workers. COLLECTIVE functions are called by all ranks in the same order.
 */
#ifndef WEFT_ENGINE_ENGINE_H
#define WEFT_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"
#include "comm/plan.h"
#include "kernels/gemm_bf16.h"
#include "kernels/kernels.h"
#include "model/recompute.h"
#include "model/tensors.h"
#include "optim/schedule.h"

struct engine_options {
    struct shape shape;
    size_t batch; /* B: sequences a rank and micro-batch */
    size_t seq;   /* T */
    size_t accum; /* micro-batches a step, >= 1 */
    int workers;
    bool train; /* false: forward only, no gradients, no optimizer, no exchange */
    enum recompute recompute; /* what backward computes again to save memory */
    enum layout_order layout;
    enum strategy strategy;      /* 0: what suits the ranks */
    enum grid_schedule schedule; /* direct engine */
    size_t block_bytes;          /* 0: what suits the strategy */
    bool one_block;              /* the whole vector as one block (for comparison) */
    int roots;                   /* reduce-broadcast: roots of a block; 0 = 1 */
    bool one_root;               /* reduce-broadcast: always the same (for comparison) */
    enum exchange_engine exchange;
    enum exchange_wire wire; /* direct engine */
    bool host_memory;        /* ranks of a host share memory where they can */
    bool split_embedding;    /* wte's gradient travels in two parts (several ranks) */
    bool overlap; /* false: compute and communication take turns (for comparison) */
    struct adamw_options adamw;
    double clip; /* global norm; 0 = off */
    const struct kernels *kernels;
    const struct gemm_bf16 *half; /* products of bf16 matrices; NULL: fp32 */
    /* Seconds that forward and backward of a step take on this rank: tasks only wait for
     * their share of it and compute nothing (losses and gradients are zero), everything
     * else is real. So one machine stands for several. 0: they compute. */
    double compute_s;
};

/* What a run will take on one rank, before anything is allocated. */
struct engine_plan {
    size_t params, grads, moments, activations; /* [bytes] */
    /* Of the workers and the exchange; and weights packed for bf16 products. */
    size_t scratch;
    size_t total; /* of all of them */
    size_t owned; /* parameters that the rank owns, counted in `params` too */
    size_t blocks;
    double block_bytes; /* mean */
    double imbalance;   /* busiest owner over the mean */
    int rounds;
    uint64_t reduce_bytes, return_bytes; /* that the rank sends a step, direct engine */
};

struct engine;

/* Plan for `ranks` ranks seen from `rank`. `hosts` is the host number of each rank when
 * ranks of a host can share memory, else NULL. Parameters that a host has once are
 * counted in equal shares. LOCAL, pure. */
MUST_USE enum status engine_make_plan(const struct engine_options *o, int rank, int ranks,
                                      const int *hosts, struct engine_plan *out);

/* COLLECTIVE; status agreed. Parameters, gradients and moments are zero. */
MUST_USE enum status engine_new(struct comm *c, const struct engine_options *o,
                                struct engine **out);
void engine_free(struct engine *e); /* COLLECTIVE; NULL allowed */

/* Runs fn(arg) with the team of workers. */
void engine_run(struct engine *e, void (*fn)(void *arg), void *arg);

const struct layout *engine_layout(const struct engine *e);
const struct plan *engine_block_plan(const struct engine *e);
float *engine_params(struct engine *e);
float *engine_grads(struct engine *e);
/* Moments of what is updated here, one part after another (plan.h). */
void engine_moments(struct engine *e, float **m, float **v);

/* Initial weights from a seed (tensors.h), in tasks. */
void engine_init_weights(struct engine *e, uint64_t seed);

/* Token buffers of micro-batch a: inputs and targets [B*T], row by row. To be filled
 * before engine_step; ids are in range, targets may be -1 (no loss). */
int32_t *engine_inputs(struct engine *e, size_t a);
int32_t *engine_targets(struct engine *e, size_t a);

struct step_result {
    double loss;           /* mean over the global batch, before this step's update */
    double grad_norm;      /* global, before clipping */
    bool finite;           /* loss and norm are, and so is the clipped norm's square */
    int failed_ranks;      /* ranks that said local_failure */
    bool stop;             /* a rank called engine_request_stop before its agreement */
    bool save;             /* a rank called engine_request_save */
    int saved_ranks;       /* that have said engine_tell_saved(e, true) */
    double step_s;         /* wall time of the window */
    double compute_s;      /* inside task bodies: mean over workers */
    double comm_busy_s;    /* with communication in flight, on this rank */
    double comm_exposed_s; /* all workers idle while tasks were unfinished */
    double comm_cpu_s;     /* CPU time of the communication thread */
    double idle_s;         /* all workers idle, with communication in flight or not */
    uint64_t tasks;
    uint64_t comm_bytes, comm_messages; /* sent by this rank */
};

/* Sum of this rank's losses of the last step's rows. LOCAL; between steps. */
double engine_local_loss(const struct engine *e);

/* One step on the token buffers. The update of the step is only scheduled: it happens in
 * the next window (engine_step or engine_flush), with rate lr, and not at all when
 * the result is not finite or a rank failed.
 * Call     COLLECTIVE; SAME lr and adam_step on all ranks
 * In       adam_step: t of the bias correction, 1-based; local_failure: this rank could
 *          not fill its buffers */
void engine_step(struct engine *e, double lr, uint64_t adam_step, bool local_failure,
                 struct step_result *out);

/* This rank wants the run to stop, or a checkpoint: every rank's next step_result says
 * so. Between steps, from the training loop. */
void engine_request_stop(struct engine *e);
void engine_request_save(struct engine *e);
/* This rank's part of the checkpoint being written is done, or not; holds until changed.
 */
void engine_tell_saved(struct engine *e, bool saved);

/* Does the scheduled update, if any: afterwards params are equal on all ranks and no
 * message is in flight. COLLECTIVE. */
void engine_flush(struct engine *e);

/* Sum of the losses of the rows of micro-batch 0's buffers that have targets. LOCAL;
 * after engine_flush. */
double engine_eval(struct engine *e);

/* Logits [V] of the last of n tokens (1 <= n <= seq). LOCAL; after engine_flush. */
void engine_logits(struct engine *e, const int32_t *tokens, size_t n, float *logits);

/* Logits [n][V] of every token, for tests and scoring. */
void engine_all_logits(struct engine *e, const int32_t *tokens, size_t B, size_t T,
                       float *logits);

/* Runs forward and backward of the buffers and leaves the summed gradient of what
 * is owned here in engine_grads (with one rank: all of it). For tests. COLLECTIVE. */
void engine_gradients(struct engine *e, struct step_result *out);

#endif
