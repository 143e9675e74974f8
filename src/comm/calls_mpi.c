/* SPDX-License-Identifier: MIT */
/* The communication thread makes the calls itself, in canonical order: reductions on one
 * communicator, broadcasts on one a root. */
#include "comm/comm_private.h"

enum {
    /* MPICH has some 2000 communicators in all; the order holds on a shared one too. */
    MOST_COMMS = 64
};

int calls_thread_level(void)
{
    return MPI_THREAD_FUNNELED;
}

enum status calls_begin(struct comm *c)
{
    (void)c;
    return ST_OK;
}

void calls_end(struct comm *c)
{
    (void)c;
}

enum status calls_build(struct traffic *t)
{
    const struct plan *plan = t->x->plan;

    t->n_comms = plan->ranks < MOST_COMMS ? plan->ranks : MOST_COMMS;
    if (plan->strategy == STRATEGY_REDUCE_SCATTER || plan->replicated)
        t->n_comms = 1;
    return ST_OK;
}

bool calls_may_start(const struct traffic *t, enum exchange_phase phase,
                     const struct message *m)
{
    (void)t;
    (void)phase;
    (void)m;
    return true;
}

void calls_start(struct traffic *t, const struct message *m, const struct call *call,
                 MPI_Request *request)
{
    int n = (int)m->span.elems;

    switch (call->kind) {
    case REDUCE:
        mpi_check(t->comm,
                  MPI_Ireduce(call->from, call->to, n, MPI_FLOAT, MPI_SUM, m->peer,
                              t->reductions, request),
                  "MPI_Ireduce");
        break;
    case BROADCAST:
        mpi_check(t->comm,
                  MPI_Ibcast(call->to, n, MPI_FLOAT, m->peer,
                             t->comms[m->peer % t->n_comms], request),
                  "MPI_Ibcast");
        break;
    case REDUCE_SCATTER:
        mpi_check(t->comm,
                  MPI_Ireduce_scatter(call->from, call->to, call->counts, MPI_FLOAT,
                                      MPI_SUM, t->reductions, request),
                  "MPI_Ireduce_scatter");
        break;
    case ALL_GATHER:
        mpi_check(t->comm,
                  MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, call->to,
                                  call->counts, call->places, MPI_FLOAT, t->comms[0],
                                  request),
                  "MPI_Iallgatherv");
        break;
    case ALLREDUCE:
        mpi_check(t->comm,
                  MPI_Iallreduce(call->from, call->to, n, MPI_FLOAT, MPI_SUM,
                                 t->reductions, request),
                  "MPI_Iallreduce");
        break;
    }
}
