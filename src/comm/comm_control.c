/* SPDX-License-Identifier: MIT */
/* Small blocking operations. The caller sleeps; the communication thread starts a
 * non-blocking call for it and tests it among everything else it does. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/comm_private.h"

static void start_control(void *self)
{
    struct control *op = self;

    op->requests = &op->one;
    op->n_requests = 1;
    op->one = MPI_REQUEST_NULL;
    op->start(op);
    op->next = op->comm->controls;
    op->comm->controls = op;
}

void control_run(struct comm *c, void (*start)(struct control *op), void *args)
{
    struct control op = {.comm = c, .start = start, .args = args};

    require(!pthread_equal(pthread_self(), c->thread));
    op.post = (struct post){.run = start_control, .self = &op};
    comm_post(c, &op.post);
    pthread_mutex_lock(&c->lock);
    while (!op.complete)
        pthread_cond_wait(&c->answered, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

bool control_advance(struct comm *c)
{
    bool moved = false;

    for (struct control **at = &c->controls; *at;) {
        struct control *op = *at;
        int flag = 0;

        mpi_check(c,
                  MPI_Testall(op->n_requests, op->requests, &flag, MPI_STATUSES_IGNORE),
                  "MPI_Testall");
        if (!flag) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        moved = true;
        pthread_mutex_lock(&c->lock);
        op->complete = true; /* op is gone as soon as the lock is free */
        pthread_cond_broadcast(&c->answered);
        pthread_mutex_unlock(&c->lock);
    }
    return moved;
}

/* Largest count of one call, in elements of any type. */
static const size_t most_count = EXCHANGE_MAX_COUNT;

struct buffers {
    void *mine;
    void *all;
    size_t n;
    int root;
    MPI_Datatype type;
    MPI_Op op;
};

static void start_allreduce(struct control *op)
{
    struct buffers *b = op->args;

    mpi_check(op->comm,
              MPI_Iallreduce(b->mine, b->all, (int)b->n, b->type, b->op,
                             op->comm->control, &op->one),
              "MPI_Iallreduce");
}

static void start_gather(struct control *op)
{
    struct buffers *b = op->args;

    mpi_check(op->comm,
              MPI_Iallgather(b->mine, (int)b->n, b->type, b->all, (int)b->n, b->type,
                             op->comm->control, &op->one),
              "MPI_Iallgather");
}

static void start_broadcast(struct control *op)
{
    struct buffers *b = op->args;

    mpi_check(
        op->comm,
        MPI_Ibcast(b->mine, (int)b->n, b->type, b->root, op->comm->control, &op->one),
        "MPI_Ibcast");
}

void comm_sum(struct comm *c, double *values, size_t n)
{
    enum { CHUNK = 256 };
    size_t ranks = (size_t)c->size;
    double *all;

    if (c->size == 1 || n == 0)
        return;
    if (memory_alloc(ranks * min_size(n, CHUNK), sizeof *all, "sum over ranks", &all) !=
        ST_OK) {
        log_error("%s", fail_text());
        comm_abort(c, status_exit_code(ST_NOMEM));
    }
    /* Gathered and added here in rank order: equal on all ranks whatever the library. */
    for (size_t i = 0; i < n; i += CHUNK) {
        size_t chunk = min_size(CHUNK, n - i);
        struct buffers b = {
            .mine = values + i, .all = all, .n = chunk, .type = MPI_DOUBLE};

        control_run(c, start_gather, &b);
        for (size_t j = 0; j < chunk; j++) {
            double sum = all[j];

            for (size_t r = 1; r < ranks; r++)
                sum += all[r * chunk + j];
            values[i + j] = sum;
        }
    }
    free(all);
}

void comm_max(struct comm *c, double *values, size_t n)
{
    enum { CHUNK = 256 };
    double mine[CHUNK];

    for (size_t i = 0; i < n && c->size > 1; i += CHUNK) {
        size_t chunk = min_size(CHUNK, n - i);
        struct buffers b = {mine, values + i, chunk, 0, MPI_DOUBLE, MPI_MAX};

        memcpy(mine, values + i, chunk * sizeof *mine);
        control_run(c, start_allreduce, &b);
    }
}

void comm_broadcast(struct comm *c, void *data, size_t bytes, int root)
{
    require(root >= 0 && root < c->size);
    for (size_t i = 0; i < bytes && c->size > 1; i += most_count) {
        struct buffers b = {.mine = (char *)data + i,
                            .n = min_size(most_count, bytes - i),
                            .root = root,
                            .type = MPI_BYTE};

        control_run(c, start_broadcast, &b);
    }
}

void comm_gather_all(struct comm *c, const void *mine, size_t bytes, void *out)
{
    struct buffers b = {.all = out, .n = bytes, .type = MPI_BYTE};

    memmove((char *)out + (size_t)c->rank * bytes, mine, bytes);
    if (c->size == 1 || bytes == 0)
        return;
    if (bytes > most_count) {
        for (int r = 0; r < c->size; r++)
            comm_broadcast(c, (char *)out + (size_t)r * bytes, bytes, r);
        return;
    }
    memcpy(&b.mine, &mine, sizeof mine); /* MPI only reads it */
    control_run(c, start_gather, &b);
}

/* The worst status and the lowest rank that has it. */
static enum status find_worst(struct comm *c, enum status mine, int *rank)
{
    struct {
        int code, rank;
    } in = {mine, c->rank}, worst = in;
    struct buffers b = {&in, &worst, 1, 0, MPI_2INT, MPI_MINLOC};

    if (c->size > 1)
        control_run(c, start_allreduce, &b);
    *rank = worst.rank;
    return (enum status)worst.code;
}

enum status comm_agree(struct comm *c, enum status mine)
{
    int speaker;
    enum status worst = find_worst(c, mine, &speaker);

    if (worst != ST_OK && speaker == c->rank)
        log_error("%s", fail_text());
    return worst;
}

enum status comm_share(struct comm *c, enum status mine)
{
    char text[512];
    int speaker;
    enum status worst = find_worst(c, mine, &speaker);

    if (worst == ST_OK)
        return ST_OK;
    (void)snprintf(text, sizeof text, "%s", fail_text());
    comm_broadcast(c, text, sizeof text, speaker);
    return fail(worst, "%s", text);
}

/* True when this rank's bytes are rank 0's. */
static bool same_as_first(struct comm *c, const char *data, size_t bytes)
{
    char chunk[4096];
    bool same = true;

    for (size_t i = 0; i < bytes; i += sizeof chunk) {
        size_t n = min_size(sizeof chunk, bytes - i);

        memcpy(chunk, data + i, n);
        comm_broadcast(c, chunk, n, 0);
        same = same && !memcmp(chunk, data + i, n);
    }
    return same;
}

enum status comm_same(struct comm *c, const void *data, size_t bytes, const char *what)
{
    if (c->size == 1)
        return ST_OK;
    uint64_t length = bytes;
    bool same = same_as_first(c, (const char *)&length, sizeof length);
    double least = -(double)length; /* with unequal lengths compare what all have */

    comm_max(c, &least, 1);
    same = same_as_first(c, data, (size_t)-least) && same;
    return comm_share(
        c, same ? ST_OK : fail(ST_BUG, "%s: rank %d differs from rank 0", what, c->rank));
}

struct new_comm {
    MPI_Comm parent;
    MPI_Comm comm;
};

static void start_duplicate(struct control *op)
{
    struct new_comm *n = op->args;

    mpi_check(op->comm, MPI_Comm_idup(n->parent, &n->comm, &op->one), "MPI_Comm_idup");
}

static void start_settings(struct control *op)
{
    struct new_comm *n = op->args;

    mpi_check(op->comm, MPI_Comm_set_errhandler(n->comm, MPI_ERRORS_RETURN),
              "MPI_Comm_set_errhandler");
}

static void start_free(struct control *op)
{
    struct new_comm *n = op->args;

    mpi_check(op->comm, MPI_Comm_free(&n->comm), "MPI_Comm_free");
}

MPI_Comm control_new_comm(struct comm *c)
{
    struct new_comm n = {c->control, MPI_COMM_NULL};

    control_run(c, start_duplicate, &n);
    control_run(c, start_settings, &n);
    return n.comm;
}

void control_free_comm(struct comm *c, MPI_Comm *comm)
{
    struct new_comm n = {.comm = *comm};

    if (*comm != MPI_COMM_NULL)
        control_run(c, start_free, &n);
    *comm = MPI_COMM_NULL;
}

/* ---- clocks ---- */

enum { CLOCK_TAG = 1, CLOCK_TURNS = 16 };

/* Rank 0 answers each question with its time. */
static void answer_clock(struct comm *c, int peer)
{
    for (int i = 0; i < CLOCK_TURNS; i++) {
        double now_s;

        mpi_check(c,
                  MPI_Recv(&now_s, 1, MPI_DOUBLE, peer, CLOCK_TAG, c->control,
                           MPI_STATUS_IGNORE),
                  "MPI_Recv");
        now_s = clock_s();
        mpi_check(c, MPI_Send(&now_s, 1, MPI_DOUBLE, peer, CLOCK_TAG, c->control),
                  "MPI_Send");
    }
}

/* The answer was given half-way between question and answer, as well as can be known; the
 * quickest turn leaves the least doubt. */
static double ask_clock(struct comm *c)
{
    double offset = 0;
    double quickest_s = (double)INFINITY;

    for (int i = 0; i < CLOCK_TURNS; i++) {
        double asked_s = clock_s();
        double there_s;

        mpi_check(c, MPI_Send(&asked_s, 1, MPI_DOUBLE, 0, CLOCK_TAG, c->control),
                  "MPI_Send");
        mpi_check(c,
                  MPI_Recv(&there_s, 1, MPI_DOUBLE, 0, CLOCK_TAG, c->control,
                           MPI_STATUS_IGNORE),
                  "MPI_Recv");
        double now_s = clock_s();

        if (now_s - asked_s < quickest_s) {
            quickest_s = now_s - asked_s;
            offset = there_s - (asked_s + now_s) / 2;
        }
    }
    return offset;
}

/* Blocking calls, since nothing else is under way. */
static void start_clock(struct control *op)
{
    struct comm *c = op->comm;
    double *offset = op->args;

    for (int peer = 1; peer < c->size && c->rank == 0; peer++)
        answer_clock(c, peer);
    *offset = c->rank == 0 ? 0 : ask_clock(c);
}

double comm_clock_offset(struct comm *c)
{
    double offset = 0;

    if (c->size > 1)
        control_run(c, start_clock, &offset);
    return offset;
}
