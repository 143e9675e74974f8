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

/* A run of a block in memory: of one piece, and no longer than one call may move. */
struct span {
    size_t offset; /* first element, from the base of the parameters */
    size_t elems;
    size_t at; /* first element, from the start of the block */
};

/* One operation: a round of a block's reduction, or its return. */
struct block_op {
    struct post post;
    struct exchange *x;
    size_t block;
    int round; /* of a reduction */
    enum exchange_phase phase;
    comm_done done;
    void *arg;
    atomic_bool called;
    double called_s; /* while traces are recorded */
    /* communication thread only */
    bool ready;     /* called, and seen by the communication thread */
    size_t left;    /* messages of this rank that are not complete */
    double moved_s; /* when the first of them started; 0: none has */
    uint64_t bytes; /* of those that have started */
};

/* What this rank adds to a block in one round. */
struct block_sum {
    size_t at, elems; /* extent within the block; elems 0: nothing */
    atomic_size_t tasks_left;
    /* Scratch from the first receive until the last task of exchange_sum has run. */
    struct post release;
    struct exchange *x;
    size_t block;
    int round;
    char *terms; /* contributions of partners, `stride` elements apart; NULL: none held */
};

/* How a rank's scratch for one round is cut: slots of one block each, in turn. */
struct scratch_size {
    size_t contributions; /* a slot holds: 0 when nothing is received into scratch */
    size_t stride;        /* elements from one contribution to the next */
    size_t slot_bytes;
    size_t slots; /* 0: the rank adds nothing in this round */
    size_t bytes; /* of all slots */
};
struct scratch_size exchange_scratch_size(const struct plan *plan,
                                          const struct exchange_options *options,
                                          bool host_memory, int rank, int round);

/* The options with the defaults filled in. */
struct exchange_options exchange_complete_options(const struct exchange_options *given);

/* Bytes of an element on the wire. */
size_t exchange_elem_bytes(const struct plan *plan,
                           const struct exchange_options *options,
                           enum exchange_phase phase);

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
    float *const *host_grads; /* [ranks] gradients of the ranks of this host, or NULL */
    bool host_params;         /* one copy of the parameters a host */
    int rank, ranks, rounds;
    struct exchange_options options;
    struct block_op *ops[N_PHASES]; /* reductions: [round][block] */
    size_t n_ops[N_PHASES];
    struct block_sum *sums; /* [round][block] */
    struct scratch_size size[GRID_MAX_DIGITS];
    bool sums_replace; /* what is received is the sum itself */
    struct agreement agreement;
    bool begun[N_PHASES];
    atomic_size_t called[N_PHASES]; /* since the last begin */
    atomic_size_t open[N_PHASES];   /* operations called and not complete */
    struct traffic *traffic;        /* NULL with one rank */
    /* written by the communication thread */
    atomic_uint_fast64_t bytes_sent, messages, busy_ns;
    atomic_uint_fast64_t busy_since_ns; /* 0: nothing in flight */
    struct exchange_stats base;         /* at the last reset */
};

/* In a round of a phase this rank's partners are on its host and their memory is seen: a
 * message without content tells them to look. */
bool exchange_in_memory(const struct exchange *x, enum exchange_phase phase, int round);

/* The block's memory in [at, at + elems), a span at a time:
 *     struct span_cursor c = span_walk(x, block, at, elems);
 *     for (struct span s; span_next(&c, &s);) */
struct span_cursor {
    const struct plan_piece *piece, *end_piece;
    size_t at, end, max_count;
};
struct span_cursor span_walk(const struct exchange *x, size_t block, size_t at,
                             size_t elems);
bool span_next(struct span_cursor *c, struct span *out);

enum rows_kind { ROWS_TELL, ROWS_FETCH, ROWS_REDUCE };

struct rows_traffic;

struct exchange_rows {
    struct exchange *x;
    struct rows_options options;
    size_t words;      /* of a set */
    uint64_t *own_set; /* as it is sent */
    uint64_t *sets;    /* [ranks][words] */
    size_t *before;    /* [word] rows of the own set before it */
    struct row_part {
        size_t part;       /* into plan->parts */
        size_t begin, end; /* elements of the tensor in it */
        int owner;
    } * parts;
    size_t n_parts;
    struct rows_peer {
        size_t mine, mine_at;     /* elements of this rank's rows that the peer owns */
        size_t others, others_at; /* elements of the peer's rows that are owned here */
        size_t used;
    } * peers;
    size_t *part_at; /* [rank][part] where the rank's rows of a part owned here lie */
    float *mine, *others;
    size_t bytes; /* of both */
    const float *gradients;
    enum rows_kind kind;
    comm_done done;
    void *arg;
    struct rows_traffic *traffic;
};

bool exchange_rows_in_memory(const struct exchange_rows *r, int peer);

/* The back end's part of an exchange; comm_traffic() is NULL with one rank. */
struct traffic_ops {
    enum status (*attach)(struct exchange *x); /* COLLECTIVE, fails alike on all ranks */
    void (*detach)(struct exchange *x);        /* COLLECTIVE; half-attached allowed */
    void (*begin)(struct exchange *x, enum exchange_phase phase);
    /* From the thread that calls the operation: what it may do for it. */
    void (*prepare)(struct block_op *op);
    void (*post)(struct block_op *op);
    void (*release)(struct block_sum *s);
    void (*agree)(struct exchange *x);
    enum status (*rows_attach)(struct exchange_rows *r); /* as attach */
    void (*rows_detach)(struct exchange_rows *r);
    void (*rows_start)(struct exchange_rows *r); /* what r->kind says */
};
const struct traffic_ops *comm_traffic(const struct comm *c);

/* Tries once whether ranks of a host can see each other's memory. COLLECTIVE, same answer
 * everywhere. */
bool comm_memory_works(struct comm *c);

/* MPI_Pcontrol(level) from the communication thread. */
void comm_mark(struct comm *c, int level);

/* Takes the operation as complete and tells its owner. */
void exchange_op_done(struct exchange *x, enum exchange_phase phase, comm_done done,
                      void *arg);

uint64_t exchange_now_ns(void);

/* ---- sum.c: arithmetic on plain arrays ---- */

/* dst[i] = the terms added in their order, for at most SUM_TILE elements. The first
 * `before` of them come before dst itself. before == SUM_REPLACE: dst is no term. */
#define SUM_REPLACE SIZE_MAX
enum { SUM_TILE = 4096 };
struct sum_term {
    const void *values;
    bool bf16; /* else float */
};
void sum_terms(float *restrict dst, const struct sum_term *terms, size_t n_terms,
               size_t before, size_t elems);

/* Rounds to nearest even; the packed numbers start where the floats did. */
void bf16_pack_in_place(float *x, size_t elems);
void bf16_unpack_in_place(float *x, size_t elems);

/* Sum of squares in double: 16 running sums, element i to sum i mod 16, added in order;
 * so the bits depend on the values and their number only. */
enum { SQUARE_LANES = 16 };
struct squares {
    double lane[SQUARE_LANES];
};
void squares_add(struct squares *s, const float *x, size_t elems); /* multiple of 16 */
double squares_total(const struct squares *s);

#endif
