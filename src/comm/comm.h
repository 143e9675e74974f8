/* comm.h - the ranks of a job and everything that passes between them.
 *
 * The only home of <mpi.h> is src/comm. One communication thread a rank makes all MPI
 * calls, MPI_Init_thread included, so MPI_THREAD_FUNNELED is enough. (Built with
 * WEFT_COMM=tampi, tasks make those of the collective engine: calls_tampi.c.) Other
 * threads hand it operations; each ends by calling a function (which completes a task's
 * event).
 *
 * Built serially (WEFT_COMM=serial, comm_serial.c) there is one rank and every operation
 * is complete when it is called; so it is with MPI and one rank.
 *
 * Call words used below: LOCAL; COLLECTIVE = every rank calls it, in the same order, with
 * the SAME arguments where said.
 */
#ifndef WEFT_COMM_COMM_H
#define WEFT_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/plan.h"
#include "comm/schedule.h"

struct comm;

/* Starts the communication thread and MPI. Refuses (ST_USAGE, on every process) when the
 * launcher says there should be more ranks than MPI sees: the binary was started by
 * another MPI's mpirun. Warns of a thread level below FUNNELED: that one thread makes all
 * calls is then the best that can be done. (With TAMPI it refuses less than MULTIPLE.)
 * Installs the bug_on_exit hook and log_set_rank.
 * Call     COLLECTIVE, once a process */
MUST_USE enum status comm_start(struct comm **out);
/* Ends MPI normally. COLLECTIVE; every operation must be complete. NULL allowed. */
void comm_stop(struct comm *c);
/* Ends the whole job at once with this exit code; for one rank's fatal error. */
_Noreturn void comm_abort(struct comm *c, int exit_code);

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
/* "Open MPI v4.1.4", "none (one rank)": one line. */
const char *comm_library(const struct comm *c);
/* CPU time that the communication thread has taken so far. LOCAL. */
double comm_cpu_s(const struct comm *c);
/* How long the communication thread may nap while messages are in flight and none moves;
 * 0: it polls without pause. For measurements of what progress costs and is worth. */
enum { COMM_LONGEST_NAP_US = 500 };
void comm_set_longest_nap(struct comm *c, long us);
/* Name of the host of this rank. */
const char *comm_host(const struct comm *c);

/* ---- control: blocking, small, outside steps; a communicator of their own ---- */

/* The worst status of all ranks. When it is not ST_OK, the lowest rank that has it logs
 * its fail_text() as one error line; the others stay silent. COLLECTIVE. */
MUST_USE enum status comm_agree(struct comm *c, enum status mine);
/* The same with the text as fail_text() on every rank and nothing printed. COLLECTIVE. */
MUST_USE enum status comm_share(struct comm *c, enum status mine);
void comm_sum(struct comm *c, double *values, size_t n);                 /* COLLECTIVE */
void comm_max(struct comm *c, double *values, size_t n);                 /* COLLECTIVE */
void comm_broadcast(struct comm *c, void *data, size_t bytes, int root); /* COLLECTIVE */
/* Rank r's `bytes` land at out + r * bytes on every rank. */
void comm_gather_all(struct comm *c, const void *mine, size_t bytes, void *out);
/* Seconds to add to this rank's clock_s() for rank 0's at that time, from the quickest of
 * some messages to and fro: right to half the time such a message takes. COLLECTIVE,
 * while no exchange has anything in flight. */
double comm_clock_offset(struct comm *c);
/* ST_OK when all ranks hold the same `bytes`, else ST_BUG on all ranks naming `what` and
 * the first differing rank. COLLECTIVE. Here and in exchange_new and comm_self_test a
 * failure has the same fail_text() on all ranks and nothing is printed: pass it to
 * comm_agree. */
MUST_USE enum status comm_same(struct comm *c, const void *data, size_t bytes,
                               const char *what);

/* ---- watch: who keeps the others waiting ---- */

/* From now on the ranks give signs of life. One that gives none, or that all others wait
 * for, for `notice_s` seconds is named in a warning, with its host, its process and what
 * it has not entered; after `limit_s` (0: never) the job is ended with exit code 1.
 * COLLECTIVE, agreed; ends in comm_stop, when all ranks have come there. */
MUST_USE enum status comm_watch_begin(struct comm *c, double notice_s, double limit_s);
/* Where this rank is, for those messages. Any thread. */
enum comm_stage { STAGE_START, STAGE_STEP, STAGE_EVALUATION, STAGE_SAVE, STAGE_END };
void comm_watch_at(struct comm *c, uint64_t step, enum comm_stage stage);

/* ---- memory that the ranks of one host see ---- */

/* True when ranks of this job share a host and can see each other's memory there; the
 * same answer on all ranks. LOCAL. */
bool comm_shares_memory(const struct comm *c);
/* Number of the host of each rank [size], from 0, the same on all ranks. LOCAL. */
const int *comm_host_numbers(const struct comm *c);

enum comm_sharing {
    MEMORY_PRIVATE,   /* this rank's own */
    MEMORY_VISIBLE,   /* this rank's own; the others of its host can read it */
    MEMORY_ONE_A_HOST /* the same bytes for all ranks of a host */
};

struct comm_memory {
    void *base; /* this rank's; zeroed, 2 MiB aligned where private */
    size_t bytes;
    enum comm_sharing sharing;
    void **of_rank; /* MEMORY_VISIBLE: [size] base of a rank of this host, else NULL */
};

/* Maps zeroed memory. COLLECTIVE for sharing other than MEMORY_PRIVATE, which then wants
 * comm_shares_memory(); `bytes` the same on all ranks of a host. Returns ST_OK, ST_NOMEM.
 */
MUST_USE enum status comm_memory_map(struct comm *c, size_t bytes, const char *what,
                                     enum comm_sharing sharing, struct comm_memory *out);
/* LOCAL; zeroed memory allowed. */
void comm_memory_unmap(struct comm *c, struct comm_memory *m);

/* ---- exchange: reductions to the owners, and what returns from them ---- */

/* Called once when an operation is complete, from the communication thread or, with one
 * rank, from the caller. */
typedef void (*comm_done)(void *arg);

enum exchange_engine {
    EXCHANGE_DIRECT,    /* point-to-point schedules of our own (default) */
    EXCHANGE_COLLECTIVE /* MPI's non-blocking collectives, in canonical order */
};

enum exchange_wire { WIRE_FP32, WIRE_BF16 };

/* The direct engine's messages are no longer than 1 MiB. */
enum { EXCHANGE_MESSAGE_ELEMS = 1 << 18 };

struct exchange_options {
    enum exchange_engine engine;
    enum exchange_wire wire; /* of sums and their terms; direct engine only */
    size_t window_bytes;     /* receive and send windows, and scratch; 0 = 16 MiB */
    size_t max_count; /* most elements one MPI call moves; 0: EXCHANGE_MESSAGE_ELEMS in
                         the direct engine, 2^30 in the collective one (less: tests) */
};

/* Figures since exchange_stats_reset(). */
struct exchange_stats {
    uint64_t bytes_sent; /* by this rank, payload */
    uint64_t messages;   /* sends posted or collectives started */
    double busy_s;       /* wall time with at least one operation in flight */
    double cpu_s;        /* CPU time of the communication thread */
};

/* Memory of rank `rank` for what other ranks send it, as exchange_new allocates it; 0
 * with one rank. `host_memory`: gradients are visible within hosts. LOCAL, pure. */
size_t exchange_scratch_bytes(const struct plan *plan,
                              const struct exchange_options *options, bool host_memory,
                              int rank);

/* Bytes that `rank` puts on the wire in one step's phase. LOCAL, pure. Returns ST_OK,
 * ST_NOMEM. */
MUST_USE enum status exchange_wire_bytes(const struct plan *plan,
                                         const struct exchange_options *options,
                                         bool host_memory, enum exchange_phase phase,
                                         int rank, uint64_t *bytes);

struct exchange;

/* Binds an exchange to a plan and to the buffers it moves; all outlive it. Gradients that
 * are MEMORY_VISIBLE are read in place by the ranks of their host; parameters that are
 * MEMORY_ONE_A_HOST (never with plan->replicated) return to a host once.
 * Call     COLLECTIVE, SAME plan, options and kinds of memory on all ranks (checked:
 * ST_BUG) In       grads, params: what the plan's offsets refer to, fp32 Memory   scratch
 * for receives is allocated here, once */
MUST_USE enum status exchange_new(struct comm *c, const struct plan *plan,
                                  const struct comm_memory *grads,
                                  const struct comm_memory *params,
                                  const struct exchange_options *options,
                                  struct exchange **out);
void exchange_free(struct exchange *x); /* COLLECTIVE; NULL allowed */

/* Opens a sequence of reductions or of returns: from here every block is reduced (or
 * returned) exactly once, in any order of calls, before the next of that phase is opened.
 * All operations of that phase before must be complete on this rank (other ranks may
 * lag). The phases are independent: the returns of step k and the reductions of step k +
 * 1 are in flight at the same time, and returns are left out, on all ranks alike, when a
 * step is dropped. LOCAL.
 *
 * The canonical order is ascending for reductions and plan_return_order for returns: a
 * block called early waits for those before it. Who waits for each operation before
 * making the next call must call in that order, round by round. */
void exchange_begin(struct exchange *x, enum exchange_phase phase);

/* Rounds of a reduction, >= 1. LOCAL. */
int exchange_rounds(const struct exchange *x);

/* Round `round` of block b's reduction: in round 0 the local gradient is final, in later
 * ones the sums of the round before are. `done`: this rank's part in the round is sent
 * and what it adds is here. The gradient must not be written before, nor before an
 * agreement that every rank enters after its sums. Call     every rank, once a block and
 * round, any thread, any order */
void exchange_reduce(struct exchange *x, size_t b, int round, comm_done done, void *arg);

/* How many calls of exchange_sum this rank owes after `done` of a block's round: 0 where
 * it receives nothing. LOCAL, the same in every step. */
size_t exchange_sum_tasks(const struct exchange *x, size_t b, int round);

/* Adds, in the order of the partners' places, to this rank's gradient; the additions of
 * task i < exchange_sum_tasks. Returns, in the last round, the sum of squares of the sums
 * it made, added segment by segment. With the direct engine the bits depend on the plan
 * only. Any worker, different tasks at the same time. */
double exchange_sum(struct exchange *x, size_t b, int round, size_t i);

/* Sum of squares of what this rank owns of block b, for sums changed afterwards. */
double exchange_squares(const struct exchange *x, size_t b);

/* Block b returns: parameters (with plan->replicated: sums of gradients). Where owned
 * they are final and are sent, elsewhere they may be overwritten and `done` means they
 * have arrived. Same calling rules as the reduction. */
void exchange_return(struct exchange *x, size_t b, comm_done done, void *arg);
/* Makes returned sums usable: to be called once by a worker after `done`, before the
 * update, with plan->replicated. */
void exchange_finish_sums(struct exchange *x, size_t b);

/* ---- rows: the part of a tied embedding that is known last and needed first ----
 *
 * The gradient of wte has two parts: the head's, which is dense and known first, goes
 * with the blocks; the embedding's touches the rows of this step's tokens only and is
 * known last: it goes as rows to the owners. And the rows of the next step's tokens come
 * from the owners ahead of the tensor. One operation at a time, in this order in each
 * step: tell, place, (fetch, put,) reduce, add. */
struct exchange_rows;

struct rows_options {
    size_t begin;         /* first element of the tensor in production order */
    size_t memory_offset; /* and in memory, where it is contiguous */
    size_t rows, cols;
    size_t most;  /* rows that a rank touches in a step, at most */
    bool fetches; /* rows are fetched: never with plan->replicated, always else */
};

/* Memory for rows in messages. LOCAL, pure. */
size_t exchange_rows_bytes(const struct plan *plan, const struct rows_options *o,
                           int rank);
/* Several ranks only. COLLECTIVE, SAME options. */
MUST_USE enum status exchange_rows_new(struct exchange *x, const struct rows_options *o,
                                       struct exchange_rows **out);
void exchange_rows_free(struct exchange_rows *r); /* COLLECTIVE; NULL allowed */

/* This rank's rows of the step: n different ones, in ascending order. After `done` every
 * rank's are known and exchange_rows_place must be called once, by any thread.
 * COLLECTIVE. */
void exchange_rows_tell(struct exchange_rows *r, const int32_t *rows, size_t n,
                        comm_done done, void *arg);
void exchange_rows_place(struct exchange_rows *r);
/* The parameters of what this rank owns are final; `done`: those of this rank's rows are
 * here, and become visible by exchange_rows_put. COLLECTIVE. */
void exchange_rows_fetch(struct exchange_rows *r, comm_done done, void *arg);
void exchange_rows_put(struct exchange_rows *r);
/* gradients: [n][cols] of this rank's rows; kept until the step's last exchange_rows_add.
 * `done`: the other ranks' rows are here. COLLECTIVE. */
void exchange_rows_reduce(struct exchange_rows *r, const float *gradients, comm_done done,
                          void *arg);
/* Adds all ranks' rows, in rank order, to the sums this rank owns in block b. Different
 * blocks at the same time. Returns the squares of all it owns there. */
double exchange_rows_add(struct exchange_rows *r, size_t b);

/* Sum over ranks of n <= EXCHANGE_AGREE_MAX doubles, in place, equal on all ranks. Once a
 * round of reductions, on a communicator of its own. Added in rank order. */
enum { EXCHANGE_AGREE_MAX = 8 };
void exchange_agree(struct exchange *x, double *values, size_t n, comm_done done,
                    void *arg);

/* Marks a point of the step for profilers: MPI_Pcontrol(level) from the communication
 * thread. LOCAL. */
enum exchange_mark {
    MARK_STEP_BEGIN = 101,
    MARK_BACKWARD_END = 102,
    MARK_STEP_END = 103
};
void exchange_mark(struct exchange *x, enum exchange_mark mark);

void exchange_stats_reset(struct exchange *x);
void exchange_stats_get(struct exchange *x, struct exchange_stats *out);

/* Self-test of what the exchange relies on: MPI_Ireduce and MPI_Ibcast in 1, 16384 and
 * 262144 floats at every root, messages between all pairs. ST_BUG names library and case.
 * COLLECTIVE. */
MUST_USE enum status comm_self_test(struct comm *c);

#endif
