/* comm.h - the ranks of a job and everything that passes between them.
 *
 * The only home of <mpi.h> is src/comm. One communication thread a rank makes all MPI
 * calls, MPI_Init_thread included, so MPI_THREAD_FUNNELED is enough. Other threads hand
 * it operations; each ends by calling a function (which completes a task's event).
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

struct comm;

/* Starts the communication thread and MPI. Refuses (ST_USAGE, on every process) when the
 * launcher says there should be more ranks than MPI sees: the binary was started by
 * another MPI's mpirun. Refuses a thread level below FUNNELED with both levels named.
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
/* Name of the host of this rank. */
const char *comm_host(const struct comm *c);

/* ---- control: blocking, small, outside steps; a communicator of their own ---- */

/* The worst status of all ranks. When it is not ST_OK, the lowest rank that has it logs
 * its fail_text() as one error line; the others stay silent. COLLECTIVE. */
MUST_USE enum status comm_agree(struct comm *c, enum status mine);
void comm_sum(struct comm *c, double *values, size_t n);                 /* COLLECTIVE */
void comm_max(struct comm *c, double *values, size_t n);                 /* COLLECTIVE */
void comm_broadcast(struct comm *c, void *data, size_t bytes, int root); /* COLLECTIVE */
/* Rank r's `bytes` land at out + r * bytes on every rank. */
void comm_gather_all(struct comm *c, const void *mine, size_t bytes, void *out);
/* ST_OK when all ranks hold the same `bytes`, else ST_BUG on all ranks naming `what` and
 * the first differing rank. COLLECTIVE. Here and in exchange_new and comm_self_test a
 * failure has the same fail_text() on all ranks and nothing is printed: pass it to
 * comm_agree. */
MUST_USE enum status comm_same(struct comm *c, const void *data, size_t bytes,
                               const char *what);

/* ---- exchange: reductions to the roots, broadcasts from them ---- */

/* Called once when an operation is complete, from the communication thread or, with one
 * rank, from the caller. */
typedef void (*comm_done)(void *arg);

enum exchange_engine {
    EXCHANGE_DIRECT,    /* point-to-point schedules of our own (default) */
    EXCHANGE_COLLECTIVE /* MPI_Ireduce and MPI_Ibcast, in canonical order */
};

struct exchange_options {
    enum exchange_engine engine;
    size_t window_bytes; /* receive and send windows, and scratch; 0 = 16 MiB */
    size_t max_count;    /* most elements one MPI call moves; 0 = 2^30 (less: tests) */
};

/* Figures since exchange_stats_reset(). */
struct exchange_stats {
    uint64_t bytes_sent; /* by this rank, payload */
    uint64_t messages;   /* sends posted or collectives started */
    double busy_s;       /* wall time with at least one operation in flight */
};

/* Memory of rank `rank` for the contributions of other ranks to the blocks rooted there,
 * as exchange_new allocates it; 0 with one rank. LOCAL, pure. */
size_t exchange_scratch_bytes(const struct plan *plan,
                              const struct exchange_options *options, int rank);

struct exchange;

/* Binds an exchange to a plan and to the buffers it moves; both outlive it.
 * Call     COLLECTIVE, SAME plan and options on all ranks (checked: ST_BUG)
 * In       grads, params: base pointers that the plan's offsets refer to, fp32
 * Memory   scratch for the root's receives is allocated here, once */
MUST_USE enum status exchange_new(struct comm *c, const struct plan *plan, float *grads,
                                  float *params, const struct exchange_options *options,
                                  struct exchange **out);
void exchange_free(struct exchange *x); /* COLLECTIVE; NULL allowed */

/* Opens a round of reductions or of broadcasts: from here every block is reduced (or
 * broadcast) exactly once, in any order of calls, before the next round of that phase is
 * opened. All operations of that phase's round before must be complete on this rank
 * (other ranks may lag). The phases are independent: the broadcasts of step k and the
 * reductions of step k + 1 are in flight at the same time, and a round of broadcasts is
 * left out, on all ranks alike, when a step is dropped. LOCAL.
 *
 * The canonical order is ascending for reductions and descending for broadcasts: a block
 * called early waits for those before it. Who waits for each operation before making the
 * next call must call in that order. Each reduced block is summed once at its root. */
enum exchange_phase { PHASE_REDUCE, PHASE_BROADCAST };
enum { N_PHASES = 2 };
void exchange_begin(struct exchange *x, enum exchange_phase phase);

/* Block b's local gradient is final. Non-roots send it; at the root `done` means every
 * rank's contribution is here. The gradient must not be written before `done`.
 * Call     every rank, once a block and window, any thread, any order: the exchange puts
 *          what MPI must see in order into canonical order itself */
void exchange_reduce(struct exchange *x, size_t b, comm_done done, void *arg);

/* At the root, after the reduction's `done`: leaves the sum over ranks in the gradient
 * buffer and returns the sum of squares of those sums, added segment by segment. The
 * direct engine adds here, in rank order, so the bits depend on P only; safe from any
 * worker, different blocks at the same time. */
double exchange_sum(struct exchange *x, size_t b);

/* Block b's parameters: at the root they are final and are sent, elsewhere they may be
 * overwritten and `done` means they have arrived. Same calling rules as the reduction. */
void exchange_broadcast(struct exchange *x, size_t b, comm_done done, void *arg);

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
