/* SPDX-License-Identifier: MIT */
/* The collective engine: MPI_Ireduce of each piece to the block's root, MPI_Ibcast back.
 *
 * Collectives on one communicator match by order, not by name. So every rank starts every
 * reduction in block order, on one communicator, and every broadcast in reverse block
 * order; a block that is ready early waits for those before it. Reductions at the root go
 * out of place into scratch: MPI_IN_PLACE has been wrong in released libraries. */
#include "base/memory.h"
#include "comm/comm_private.h"

enum {
    /* Two sequences, together no more than 64 in flight: polls slow down beyond. */
    MOST_RUNNING = 32,
    /* MPICH has some 2000 communicators in all; the order holds on a shared one too. */
    MOST_COMMS = 64
};

size_t collective_messages(const struct traffic *t, size_t block)
{
    return t->x->first_span[block + 1] - t->x->first_span[block];
}

static bool may_reduce(struct traffic *t, const struct message *m)
{
    if (!t->x->ops[PHASE_REDUCE][m->block].ready)
        return false;
    return m->peer != t->x->rank || traffic_take_scratch(t, m->block);
}

static bool may_broadcast(struct traffic *t, const struct message *m)
{
    return t->x->ops[PHASE_BROADCAST][m->block].ready;
}

static void start_reduce(struct traffic *t, const struct message *m, MPI_Request *request)
{
    struct exchange *x = t->x;
    const struct span *span = &x->spans[m->span];
    bool root = m->peer == x->rank;
    float *to = root ? x->scratch[m->block].sums + span->at : NULL;

    mpi_check(t->comm,
              MPI_Ireduce(x->grads + span->offset, to, (int)span->elems, MPI_FLOAT,
                          MPI_SUM, m->peer, t->reductions, request),
              "MPI_Ireduce");
    traffic_count(t, span->elems, root ? 0 : 1);
}

static void start_broadcast(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    struct exchange *x = t->x;
    const struct span *span = &x->spans[m->span];

    mpi_check(t->comm,
              MPI_Ibcast(x->params + span->offset, (int)span->elems, MPI_FLOAT, m->peer,
                         t->broadcasts[m->peer % t->n_broadcasts], request),
              "MPI_Ibcast");
    traffic_count(t, span->elems, m->peer == x->rank ? (size_t)x->ranks - 1 : 0);
}

static enum status list_phase(struct traffic *t, enum exchange_phase phase)
{
    const struct exchange *x = t->x;
    size_t n_blocks = x->plan->n_blocks;
    struct stream *s;
    enum status st = traffic_add_stream(t, phase, x->n_spans, &s);

    s->may_start = phase == PHASE_REDUCE ? may_reduce : may_broadcast;
    s->start = phase == PHASE_REDUCE ? start_reduce : start_broadcast;
    s->most_running = MOST_RUNNING;
    for (size_t i = 0; i < n_blocks && st == ST_OK; i++) {
        size_t b = phase == PHASE_REDUCE ? i : n_blocks - 1 - i;

        for (size_t span = x->first_span[b]; span < x->first_span[b + 1]; span++)
            s->list[s->n++] = (struct message){b, span, x->plan->blocks[b].root};
    }
    return st;
}

enum status collective_build(struct traffic *t)
{
    enum status st;

    t->x->own_place = SUM_REPLACE;
    t->n_broadcasts = t->x->ranks < MOST_COMMS ? t->x->ranks : MOST_COMMS;
    st = memory_alloc((size_t)t->n_broadcasts, sizeof *t->broadcasts, "exchange",
                      &t->broadcasts);
    for (int i = 0; i < t->n_broadcasts && st == ST_OK; i++)
        t->broadcasts[i] = MPI_COMM_NULL;
    if (st == ST_OK)
        st = list_phase(t, PHASE_REDUCE);
    if (st == ST_OK)
        st = list_phase(t, PHASE_BROADCAST);
    return st;
}
