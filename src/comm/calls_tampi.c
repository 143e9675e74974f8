/* SPDX-License-Identifier: MIT */
/* Tasks make the calls, through TAMPI: each call is a task of the runtime that TAMPI runs
 * on, complete when TAMPI completes the event it has bound to it.
 *
 * Tasks that are ready start in any order, and TAMPI gives calls of different tasks none.
 * So no two calls are in flight on one communicator: message i of a sequence uses number
 * i mod CALLS_RUNNING of its own, and waits until the message that used it last is
 * complete here. As the sequence is the same on all ranks, so is the order on each
 * communicator, and their number depends on neither blocks nor ranks.
 *
 * The task's end is posted to the communication thread, which completes a generalized
 * request: the rest of the engine sees no difference to MPI's own. */
#include <TAMPI.h>
#include <nosv.h>
#include <nosv/alpi.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/calls_tampi.h"
#include "comm/comm_private.h"

/* A message on its way. Communication thread only, but for the task that calls. */
struct errand {
    struct traffic *traffic;
    const struct message *message;
    struct call call;
    MPI_Comm comm;
    MPI_Request request;
    struct post complete;
    bool under_way;
};

static void alpi_check(int code, const char *call)
{
    if (code != ALPI_SUCCESS)
        bug("%s: %s", call, alpi_error_string((alpi_error_t)code));
}

/* ---- start and end ---- */

int calls_thread_level(void)
{
    /* TAMPI starts below, once it is known that it can. */
    if (TAMPI_Property_set(TAMPI_PROPERTY_AUTO_INIT, 0) != 0)
        bug("TAMPI has started before MPI");
    return MPI_THREAD_MULTIPLE;
}

static enum status refuse(struct comm *c, const char *what)
{
    (void)snprintf(c->refusal, sizeof c->refusal,
                   "%s: %s; use another, or build with -DWEFT_COMM=mpi", c->library,
                   what);
    return ST_USAGE;
}

/* TAMPI needs the runtime of tasks from here on, src/task starts it with its first team:
 * nOS-V counts its users. */
enum status calls_begin(struct comm *c)
{
    int provided = -1;
    int enabled = 0;

    if (c->size == 1)
        return ST_OK; /* nothing is exchanged */
    if (c->thread_level < MPI_THREAD_MULTIPLE)
        return refuse(c, "found fewer threads allowed, TAMPI needs MPI_THREAD_MULTIPLE");
    if (nosv_init() != 0)
        return refuse(c, "TAMPI needs tasks, but nOS-V does not start");
    TAMPI_Init(MPI_THREAD_MULTIPLE, &provided);
    TAMPI_Nonblocking_enabled(&enabled);
    if (!enabled)
        return refuse(c, "found TAMPI without its non-blocking mode, needs it");
    c->tampi = true;
    (void)strncat(c->library, " with TAMPI", sizeof c->library - strlen(c->library) - 1);
    return ST_OK;
}

static void finalize(void *unused)
{
    (void)unused;
    TAMPI_Finalize();
}

static void tell(void *flag)
{
    atomic_store((atomic_bool *)flag, true);
}

/* TAMPI ends its own tasks by waiting for them as a task. */
void calls_end(struct comm *c)
{
    atomic_bool complete = false;

    if (!c->tampi)
        return;
    alpi_check(alpi_task_spawn(finalize, NULL, tell, &complete, "end of TAMPI", NULL),
               "alpi_task_spawn");
    while (!atomic_load(&complete))
        clock_nap_us(100);
    if (nosv_shutdown() != 0)
        bug("nosv_shutdown failed");
}

/* ---- an exchange ---- */

enum status calls_build(struct traffic *t)
{
    t->n_comms = N_PHASES * CALLS_RUNNING;
    return memory_alloc((size_t)t->n_comms, sizeof *t->errands, "exchange", &t->errands);
}

static size_t place_of(const struct traffic *t, enum exchange_phase phase,
                       const struct message *m)
{
    size_t i = (size_t)(m - t->streams[phase]->list);

    return (size_t)phase * CALLS_RUNNING + i % CALLS_RUNNING;
}

bool calls_may_start(const struct traffic *t, enum exchange_phase phase,
                     const struct message *m)
{
    return !t->errands[place_of(t, phase, m)].under_way;
}

static const char *const labels[] = {[REDUCE] = "TAMPI_Ireduce",
                                     [BROADCAST] = "TAMPI_Ibcast",
                                     [REDUCE_SCATTER] = "TAMPI_Ireduce_scatter",
                                     [ALL_GATHER] = "TAMPI_Iallgatherv",
                                     [ALLREDUCE] = "TAMPI_Iallreduce"};

/* The task. */
static void call(void *errand)
{
    const struct errand *e = errand;
    int n = (int)e->message->span.elems;

    mpi_check(e->traffic->comm, tampi_call(&e->call, n, e->message->peer, e->comm),
              labels[e->call.kind]);
}

static void post_complete(void *errand)
{
    struct errand *e = errand;

    comm_post(e->traffic->comm, &e->complete);
}

static void see_complete(void *errand)
{
    struct errand *e = errand;

    e->under_way = false;
    mpi_check(e->traffic->comm, MPI_Grequest_complete(e->request),
              "MPI_Grequest_complete");
}

static int answer_query(void *errand, MPI_Status *status)
{
    (void)errand;
    MPI_Status_set_elements(status, MPI_FLOAT, 0);
    MPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int free_nothing(void *errand)
{
    (void)errand;
    return MPI_SUCCESS;
}

static int cancel_nothing(void *errand, int complete)
{
    (void)errand;
    (void)complete;
    return MPI_SUCCESS;
}

void calls_start(struct traffic *t, const struct message *m, const struct call *what,
                 MPI_Request *request)
{
    bool returns = what->kind == BROADCAST || what->kind == ALL_GATHER;
    size_t place = place_of(t, returns ? PHASE_RETURN : PHASE_REDUCE, m);
    struct errand *e = &t->errands[place];

    *e = (struct errand){.traffic = t,
                         .message = m,
                         .call = *what,
                         .comm = t->comms[place],
                         .complete = {.run = see_complete, .self = e},
                         .under_way = true};
    mpi_check(
        t->comm,
        MPI_Grequest_start(answer_query, free_nothing, cancel_nothing, e, &e->request),
        "MPI_Grequest_start");
    *request = e->request;
    alpi_check(alpi_task_spawn(call, e, post_complete, e, labels[what->kind], NULL),
               "alpi_task_spawn");
}
