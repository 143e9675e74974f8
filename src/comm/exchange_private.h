/* exchange_private.h - what exchange.c shares with the back ends; no MPI in here.
 *
 * exchange.c keeps the rules of a round and does everything when there is one rank. With
 * several ranks the traffic goes through a table of functions that the MPI back end has.
 */
#ifndef WEFT_COMM_EXCHANGE_PRIVATE_H
#define WEFT_COMM_EXCHANGE_PRIVATE_H

#include <stdatomic.h>

#include "comm/comm.h"

/* MPI counts are ints; kept well below their end, where libraries have had faults. */
#define EXCHANGE_MAX_COUNT ((size_t)1 << 30)

/* Work handed to the communication thread: intrusive, so that posting allocates nothing.
 * The node may be posted again once `run` has been entered. */
struct post {
    struct post *next;
    void (*run)(void *self);
    void *self;
};

/* What one MPI call moves: a piece of a block, or a part of one that is too long. */
struct span {
    size_t offset; /* first element, from the base of the parameters */
    size_t elems;
    size_t at; /* first element, from the start of the block */
};

/* One block's part in the present round of one phase. */
struct block_op {
    struct post post;
    struct exchange *x;
    size_t block;
    enum exchange_phase phase;
    comm_done done;
    void *arg;
    atomic_bool called;
    /* communication thread only */
    bool ready;  /* called, and seen by the communication thread */
    size_t left; /* messages of this rank that are not complete */
};

/* Scratch of a block at its root: from the first receive until exchange_sum has run. */
struct block_scratch {
    struct post release;
    struct exchange *x;
    size_t block;
    float *sums; /* contributions, `stride` elements apart; NULL: none held */
};

/* How a root's scratch is cut: slots of one block each, for blocks in turn. */
struct scratch_size {
    size_t contributions; /* a slot holds: 0 with one rank */
    size_t stride;        /* elements from one contribution to the next */
    size_t slot_elems;
    size_t slots; /* 0: the rank is root of nothing */
    size_t bytes; /* of all slots */
};
struct scratch_size exchange_scratch_size(const struct plan *plan,
                                          const struct exchange_options *options,
                                          int rank);

/* The options with the defaults filled in. */
struct exchange_options exchange_complete_options(const struct exchange_options *given);

struct agreement {
    struct post post;
    struct exchange *x;
    double *values;
    size_t n;
    comm_done done;
    void *arg;
    atomic_bool called;
};

struct traffic;

struct exchange {
    struct comm *comm;
    const struct plan *plan;
    float *grads;
    float *params;
    int rank, ranks;
    struct exchange_options options;
    size_t n_spans;
    struct span *spans;
    size_t *first_span; /* n_blocks + 1 */
    struct block_op *ops[N_PHASES];
    struct block_scratch *scratch; /* one a block */
    struct scratch_size size;      /* of the scratch */
    size_t own_place;              /* `before` of sum_add_ranks */
    struct agreement agreement;
    bool begun[N_PHASES];
    atomic_size_t called[N_PHASES]; /* in the present round */
    atomic_size_t open[N_PHASES];   /* operations called and not complete */
    struct traffic *traffic;        /* NULL with one rank */
    /* written by the communication thread */
    atomic_uint_fast64_t bytes_sent, messages, busy_ns;
    atomic_uint_fast64_t busy_since_ns; /* 0: nothing in flight */
    struct exchange_stats base;         /* at the last reset */
};

/* The back end's part of an exchange; comm_traffic() is NULL with one rank. */
struct traffic_ops {
    enum status (*attach)(struct exchange *x); /* COLLECTIVE, fails alike on all ranks */
    void (*detach)(struct exchange *x);        /* COLLECTIVE; half-attached allowed */
    void (*begin)(struct exchange *x, enum exchange_phase phase);
    void (*post)(struct block_op *op);
    void (*release)(struct block_scratch *s);
    void (*agree)(struct exchange *x);
};
const struct traffic_ops *comm_traffic(const struct comm *c);

/* MPI_Pcontrol(level) from the communication thread. */
void comm_mark(struct comm *c, int level);

/* The worst status of all ranks, with its text as fail_text() on every rank; prints
 * nothing. COLLECTIVE. */
MUST_USE enum status comm_share(struct comm *c, enum status mine);

/* Takes the operation as complete and tells its owner. */
void exchange_op_done(struct exchange *x, enum exchange_phase phase, comm_done done,
                      void *arg);

uint64_t exchange_now_ns(void);

/* dst[i] = the contributions added in rank order, for at most SUM_TILE elements. The
 * sources are arrays `stride` floats apart; the first `before` of them belong to ranks
 * before the one whose contribution is dst itself. before == SUM_REPLACE: dst is no
 * contribution. */
#define SUM_REPLACE SIZE_MAX
enum { SUM_TILE = 4096 };
void sum_add_ranks(float *restrict dst, const float *restrict sources, size_t stride,
                   size_t n_sources, size_t before, size_t elems);

/* Sum of squares in double: 16 running sums, element i to sum i mod 16, added in order;
 * so the bits depend on the values and their number only. */
enum { SQUARE_LANES = 16 };
struct squares {
    double lane[SQUARE_LANES];
};
void squares_add(struct squares *s, const float *x, size_t elems); /* multiple of 16 */
double squares_total(const struct squares *s);

#endif
