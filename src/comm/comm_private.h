/* comm_private.h - inside the MPI back end.
 *
 * The communication thread makes every MPI call. Others hand it posts; it runs them in
 * the order they came, moves what it can of every open exchange, and rests when nothing
 * moves. Fields are marked with who may touch them.
 */
#ifndef WEFT_COMM_COMM_PRIVATE_H
#define WEFT_COMM_COMM_PRIVATE_H

#include <mpi.h>
#include <pthread.h>

#include "comm/exchange_private.h"

struct control;

struct comm {
    int rank, size; /* constant after the start */
    char library[128];
    char host[256];
    int *host_numbers; /* [size] */
    bool shares_memory;
    int thread_level; /* the least of all ranks */
    bool tampi;       /* has started */
    atomic_long longest_nap_us;
    atomic_uint_fast64_t watch_step;
    atomic_int watch_stage;
    char refusal[512]; /* why the start failed */
    enum status start_status;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* for the communication thread */
    pthread_cond_t answered; /* for those who wait for it */
    /* under lock */
    struct post *posts, **posts_end;
    bool started, stopping;
    bool abort_wanted;
    int abort_code;

    /* communication thread only */
    MPI_Comm control;
    struct control *controls; /* started, not complete */
    struct traffic *traffics; /* attached exchanges */
    struct rows_traffic *rows;
    struct watch *watch; /* NULL: off */
    uint64_t moves;      /* how often something moved */
    double moved_s;      /* when something moved last */
    long nap_us;
    bool pending;     /* some request is */
    bool collectives; /* some collective is */
};

/* ---- comm_thread.c ---- */

void comm_post(struct comm *c, struct post *p);
void *comm_thread_main(void *comm);
/* Prints MPI's own text and ends the job when `code` is not MPI_SUCCESS. */
void mpi_check(struct comm *c, int code, const char *call);
_Noreturn void comm_end_job(struct comm *c, int exit_code);

/* ---- comm_mpi.c ---- */

/* First and last thing the communication thread does. */
enum status comm_mpi_begin(struct comm *c);
void comm_mpi_end(struct comm *c);

/* ---- comm_control.c ---- */

/* A blocking operation: `start` runs on the communication thread and leaves its requests
 * in `requests`; the caller sleeps until they are complete. */
struct control {
    struct post post;
    struct comm *comm;
    void (*start)(struct control *op);
    void *args;
    MPI_Request *requests;
    int n_requests;
    MPI_Request one; /* where `requests` points unless start() says otherwise */
    struct control *next;
    bool complete; /* under lock */
};

void control_run(struct comm *c, void (*start)(struct control *op), void *args);
bool control_advance(struct comm *c); /* communication thread; true when one completed */
/* A duplicate of the control communicator that returns errors. COLLECTIVE. */
MPI_Comm control_new_comm(struct comm *c);
void control_free_comm(struct comm *c, MPI_Comm *comm); /* MPI_COMM_NULL allowed */

/* ---- comm_watch.c ---- */

/* When nothing but the end is left: names who does not come. COLLECTIVE; nothing without
 * a watch. */
void watch_end(struct comm *c);

/* Communication thread. */
void watch_tick(struct comm *c);
/* When the next tick is due (clock_s), 0: never. */
double watch_next_s(const struct comm *c);

/* ---- exchange_stream.c ---- */

/* One MPI call to make: `span` of its block, to or from `peer` (or their root). Elements
 * are of the phase's size on the wire; 0 of them: only that the message comes counts. */
struct message {
    size_t block;
    struct span span;
    int round;
    int peer;
};

enum { STREAM_MOST = 64, STREAM_LEAST = 8 };

/* A sequence of messages in canonical order: the next one starts only when all before it
 * have started, it may start, and the window has room. */
struct stream {
    struct traffic *traffic;
    enum exchange_phase phase;
    bool receives;
    int round;
    struct message *list;
    size_t n, next, capacity;
    struct message_range {
        size_t first, n;
    } * of_block; /* [n_blocks] the block's messages */
    bool (*may_start)(struct traffic *t, const struct message *m);
    void (*start)(struct traffic *t, const struct message *m, MPI_Request *request);
    int n_running, most_running;
    size_t bytes_running;
    struct peer_running {
        int messages;
        size_t bytes;
    } * to_peer; /* [ranks] of sends; NULL: not bounded */
    MPI_Request requests[STREAM_MOST];
    const struct message *running[STREAM_MOST];
    double began_s[STREAM_MOST]; /* while traces are recorded */
};

/* Sends and receives of each round of each phase. */
enum { MAX_STREAMS = 4 * GRID_MAX_DIGITS };

/* The MPI side of an exchange. Communication thread only, but for attach and detach. */
struct traffic {
    struct traffic *next;
    struct exchange *x;
    struct comm *comm;
    struct post begin[N_PHASES];
    struct traffic_phase {
        struct traffic *traffic;
        enum exchange_phase phase;
    } phases[N_PHASES];
    MPI_Comm reductions, agreements;
    MPI_Comm *comms; /* of the collective engine's calls; which is for what, they know */
    int n_comms;
    struct errand *errands; /* of calls_tampi.c */
    int tags;               /* tags run 0 .. tags - 1 */
    int n_streams;
    struct stream *streams[MAX_STREAMS];
    size_t *messages[N_PHASES]; /* [operation] messages of this rank */
    size_t *arriving;           /* [return round][block] messages still to arrive */
    size_t *arrivals;           /* the same before the first has */
    int *counts, *places; /* collective engine: of the parts of a scattered message */
    struct {
        char *base;
        char **free_slots; /* x->size[round].slots of them */
        size_t n_free;
    } scratch[GRID_MAX_DIGITS];
    size_t open;             /* operations seen and not complete */
    uint32_t turn[N_PHASES]; /* how often each phase has been opened */
    struct agreement *agreement;
    MPI_Request agree_request;
    double agree_mine[EXCHANGE_AGREE_MAX];
    double *agree_all;
    double agree_seen_s;
};

/* ---- comm_trace.c: what is recorded while trace_is_on() ---- */

void trace_message(const struct stream *s, const struct message *m, double began_s,
                   size_t bytes);
void trace_block_op(const struct traffic *t, const struct block_op *op);
/* An operation of no block: label, when it was seen, bytes sent. */
void trace_other_op(const char *label, double seen_s, uint64_t bytes);

bool traffic_advance(struct traffic *t); /* true when something started or completed */
bool traffic_pending(const struct traffic *t);
bool traffic_has_collectives(const struct traffic *t);
/* The operation a message belongs to. */
struct block_op *traffic_op(const struct traffic *t, enum exchange_phase phase,
                            const struct message *m);
/* Takes a slot for what a block receives in a round if it has none; false: none is free.
 */
bool traffic_take_scratch(struct traffic *t, size_t block, int round);
char *traffic_scratch(const struct traffic *t, size_t block, int round);
/* Adds a stream of no messages. */
MUST_USE enum status traffic_add_stream(struct traffic *t, enum exchange_phase phase,
                                        struct stream **out);
MUST_USE enum status stream_append(struct stream *s, struct message m);
/* Of operations, for the time with one in flight. */
void traffic_open(struct traffic *t);
void traffic_close(struct traffic *t);
void traffic_count(struct traffic *t, size_t bytes);

/* ---- exchange_rows_mpi.c ---- */

enum status rows_attach(struct exchange_rows *r);
void rows_detach(struct exchange_rows *r);
void rows_start(struct exchange_rows *r);
/* Communication thread. */
bool rows_advance(struct comm *c);
bool rows_on_their_way(const struct comm *c);

/* ---- calls_mpi.c, calls_tampi.c: who makes the collective engine's calls ----
 *
 * Chosen by WEFT_COMM. In both the communication thread starts a call by calls_start()
 * and finds it complete by testing the request that this returns. */

/* In flight in each of the two sequences: beyond 64 polls slow down. */
enum { CALLS_RUNNING = 32 };

enum call_kind { REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, ALLREDUCE };

/* Of a message, whose span says how many elements and whose peer is the root. */
struct call {
    enum call_kind kind;
    const float *from;
    float *to;
    int *counts, *places; /* [ranks] */
};

int calls_thread_level(void); /* that MPI must give */
/* Communication thread, once MPI has started (before it ends). Fails with c->refusal. */
MUST_USE enum status calls_begin(struct comm *c);
void calls_end(struct comm *c);
/* Says how many communicators are wanted, in t->n_comms. */
MUST_USE enum status calls_build(struct traffic *t);
bool calls_may_start(const struct traffic *t, enum exchange_phase phase,
                     const struct message *m);
void calls_start(struct traffic *t, const struct message *m, const struct call *call,
                 MPI_Request *request);

/* ---- the engines ---- */

/* Fill in the streams; local, may fail. */
MUST_USE enum status direct_build(struct traffic *t);
MUST_USE enum status collective_build(struct traffic *t);
void direct_prepare(struct block_op *op);

#endif
