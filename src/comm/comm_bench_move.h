/* comm_bench_move.h - moves and times the messages of one measurement.
 *
 * All functions are COLLECTIVE over all ranks of the job, with a result that is the same
 * on all of them; ranks without a part in the measurement only wait for it.
 */
#ifndef WEFT_COMM_COMM_BENCH_MOVE_H
#define WEFT_COMM_COMM_BENCH_MOVE_H

#include "comm/comm_bench_private.h"
#include "comm/comm_private.h"

struct mover {
    struct comm *comm;
    MPI_Comm mpi;
    struct pattern pattern; /* this rank's messages, to be set before mover_move */
    int *group;             /* [n_group] ranks that take part, its leader first; */
    int n_group;            /* set with the pattern */
    char *buffer[2];        /* sent from, received into */
    size_t buffer_bytes;
    size_t touched_bytes;
    MPI_Request *requests; /* [ranks] */
    size_t *running_to;    /* [ranks] messages on their way there */
};

/* `buffer_bytes`: bench_window(b) * b of the longest message b. Returns ST_OK, ST_NOMEM
 * on all ranks alike. Memory: mover_release() frees, COLLECTIVE; half made allowed */
MUST_USE enum status mover_init(struct mover *m, struct comm *c, size_t buffer_bytes);
void mover_release(struct mover *m);

/* Time in which the group's messages are moved once. Out: *message_s (may be NULL), CPU
 * time of a rank for a message that it sends or receives. */
double mover_move(struct mover *m, double *message_s);

/* Median of half the time of n <= MOVER_MOST_TRIPS round trips between two ranks. */
enum { MOVER_MOST_TRIPS = 200 };
double mover_trips(struct mover *m, int rank_a, int rank_b, size_t bytes, size_t n);

/* Mean time of a barrier of all ranks, on the slowest rank. */
double mover_barriers(struct mover *m);

#endif
