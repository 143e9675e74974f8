/* SPDX-License-Identifier: MIT */
/* Messages of exchange_rows.c: sets by an all-gather, rows straight between a rank and
 * the owners, on a communicator of their own. One operation at a time. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/trace.h"
#include "comm/comm_private.h"

/* Rows go in messages that MPI libraries send at once, without asking the receiver first:
 * an answer would come behind the blocks on the way. No more than so many to a rank. */
enum { EAGER_ELEMS = 12288, MOST_PIECES = 16 };

struct rows_traffic {
    struct rows_traffic *next; /* of the comm */
    struct exchange_rows *rows;
    struct post post;
    MPI_Comm mpi;
    MPI_Request *requests; /* 2 * ranks * MOST_PIECES */
    int *indices;
    int n_requests, n_left;
    double seen_s; /* while traces are recorded */
    uint64_t bytes;
};

static size_t piece_elems(size_t elems)
{
    return max_size(EAGER_ELEMS, ceil_div(elems, MOST_PIECES));
}

/* 0 elements are a message too. */
static void add_receive(struct rows_traffic *t, float *to, size_t elems, int peer)
{
    size_t piece = piece_elems(elems);
    size_t at = 0;

    do {
        mpi_check(t->rows->x->comm,
                  MPI_Irecv(to + at, (int)min_size(piece, elems - at), MPI_FLOAT, peer,
                            (int)t->rows->kind, t->mpi, &t->requests[t->n_requests++]),
                  "MPI_Irecv");
        at += piece;
    } while (at < elems);
}

static void add_send(struct rows_traffic *t, const float *from, size_t elems, int peer)
{
    size_t piece = piece_elems(elems);
    size_t at = 0;

    do {
        size_t n = min_size(piece, elems - at);

        mpi_check(t->rows->x->comm,
                  MPI_Isend(from + at, (int)n, MPI_FLOAT, peer, (int)t->rows->kind,
                            t->mpi, &t->requests[t->n_requests++]),
                  "MPI_Isend");
        traffic_count(t->rows->x->traffic, n * sizeof(float));
        t->bytes += n * sizeof(float);
        at += piece;
    } while (at < elems);
}

static void start_tell(struct rows_traffic *t)
{
    struct exchange_rows *r = t->rows;

    mpi_check(r->x->comm,
              MPI_Iallgather(r->own_set, (int)r->words, MPI_UINT64_T, r->sets,
                             (int)r->words, MPI_UINT64_T, t->mpi,
                             &t->requests[t->n_requests++]),
              "MPI_Iallgather");
}

/* Gradients go to the owners, parameters come from them: the same lengths. */
static void start_messages(struct rows_traffic *t)
{
    const struct exchange_rows *r = t->rows;
    const struct exchange *x = r->x;
    bool fetch = r->kind == ROWS_FETCH;

    for (int i = 1; i < x->ranks; i++) {
        int peer = (x->rank + i) % x->ranks;
        const struct rows_peer *p = &r->peers[peer];
        bool seen = fetch && exchange_rows_in_memory(r, peer);
        size_t mine = seen ? 0 : p->mine;
        size_t others = seen ? 0 : p->others;

        if (p->mine > 0 && fetch)
            add_receive(t, r->mine + p->mine_at, mine, peer);
        if (p->others > 0 && !fetch)
            add_receive(t, r->others + p->others_at, others, peer);
        if (p->mine > 0 && !fetch)
            add_send(t, r->mine + p->mine_at, mine, peer);
        if (p->others > 0 && fetch)
            add_send(t, r->others + p->others_at, others, peer);
    }
}

static void finish(struct rows_traffic *t)
{
    struct exchange_rows *r = t->rows;

    static const char *const labels[] = {[ROWS_TELL] = "rows told",
                                         [ROWS_FETCH] = "rows fetched",
                                         [ROWS_REDUCE] = "rows reduced"};

    t->n_requests = 0;
    if (trace_is_on())
        trace_other_op(labels[r->kind], t->seen_s, t->bytes);
    traffic_close(r->x->traffic);
    r->done(r->arg);
}

static void see_start(void *self)
{
    struct rows_traffic *t = self;

    require(t->n_requests == 0);
    traffic_open(t->rows->x->traffic);
    t->seen_s = trace_is_on() ? clock_s() : 0;
    t->bytes = 0;
    if (t->rows->kind == ROWS_TELL)
        start_tell(t);
    else
        start_messages(t);
    t->n_left = t->n_requests;
    if (t->n_left == 0)
        finish(t);
}

static bool advance_one(struct comm *c, struct rows_traffic *t)
{
    int n = 0;

    if (t->n_requests == 0)
        return false;
    mpi_check(
        c, MPI_Testsome(t->n_requests, t->requests, &n, t->indices, MPI_STATUSES_IGNORE),
        "MPI_Testsome");
    if (n <= 0)
        return false;
    t->n_left -= n;
    if (t->n_left == 0)
        finish(t);
    return true;
}

bool rows_advance(struct comm *c)
{
    bool moved = false;

    for (struct rows_traffic *t = c->rows; t; t = t->next) {
        moved |= advance_one(c, t);
        c->pending |= t->n_requests > 0;
        c->collectives |= t->n_requests > 0 && t->rows->kind == ROWS_TELL;
    }
    return moved;
}

bool rows_on_their_way(const struct comm *c)
{
    for (const struct rows_traffic *t = c->rows; t; t = t->next)
        if (t->n_requests > 0)
            return true;
    return false;
}

static void start_attach(struct control *op)
{
    struct rows_traffic *t = op->args;

    t->next = op->comm->rows;
    op->comm->rows = t;
}

static void start_detach(struct control *op)
{
    struct rows_traffic *t = op->args;

    require(t->n_requests == 0);
    for (struct rows_traffic **at = &op->comm->rows; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
}

void rows_detach(struct exchange_rows *r)
{
    struct rows_traffic *t = r->traffic;
    struct comm *c = r->x->comm;

    control_run(c, start_detach, t);
    control_free_comm(c, &t->mpi);
    free(t->requests);
    free(t->indices);
    free(t);
    r->traffic = NULL;
}

enum status rows_attach(struct exchange_rows *r)
{
    size_t most = 2 * (size_t)r->x->ranks * MOST_PIECES;
    struct comm *c = r->x->comm;
    struct rows_traffic *t;
    enum status st = memory_alloc(1, sizeof *t, "embedding rows", &t);

    if (st == ST_OK) {
        r->traffic = t;
        t->rows = r;
        t->mpi = MPI_COMM_NULL;
        t->post = (struct post){.run = see_start, .self = t};
        st = memory_alloc(most, sizeof(MPI_Request), "embedding rows", &t->requests);
    }
    if (st == ST_OK)
        st = memory_alloc(most, sizeof *t->indices, "embedding rows", &t->indices);
    st = comm_share(c, st);
    if (st != ST_OK)
        return st; /* exchange_rows_free detaches what there is */
    t->mpi = control_new_comm(c);
    control_run(c, start_attach, t);
    return ST_OK;
}

void rows_start(struct exchange_rows *r)
{
    comm_post(r->x->comm, &r->traffic->post);
}
