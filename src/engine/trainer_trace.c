/* SPDX-License-Identifier: MIT */
/* The timeline of a run's newest steps: what the ranks recorded is brought to rank 0, on
 * one clock, and written there. */
#include "engine/trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/trace.h"
#include "report/timeline.h"

/* A thread's ring: 5 MB, some ten steps of a thousand tasks a worker. */
enum { RING_EVENTS = 1 << 16 };

void trainer_trace_begin(const struct trainer *t)
{
    if (t->options->trace)
        trace_start(RING_EVENTS);
}

void trainer_trace_step(const struct trainer *t, double begin_s)
{
    if (trace_is_on())
        trace_add("step", &(struct trace_event){.kind = TRACE_STEP,
                                                .begin_s = begin_s,
                                                .end_s = clock_s(),
                                                .place = t->state.step});
}

struct record {
    struct trace_event *events;
    size_t n;
};

/* First of the newest steps that this rank has whole; past the last when there is none.
 */
static double first_step(const struct record *r, double whole_from_s, uint64_t last,
                         size_t wanted)
{
    uint64_t first = last + 1;

    for (size_t i = 0; i < r->n; i++) {
        const struct trace_event *e = &r->events[i];

        if (e->kind == TRACE_STEP && e->begin_s >= whole_from_s &&
            e->place + wanted > last && e->place < first)
            first = e->place;
    }
    return (double)first;
}

/* Keeps what lies within the steps from `first` on, and puts it on rank 0's clock. */
static void trim(struct record *r, uint64_t first, double offset)
{
    double from_s = (double)INFINITY;
    double to_s = 0;
    size_t kept = 0;

    for (size_t i = 0; i < r->n; i++)
        if (r->events[i].kind == TRACE_STEP && r->events[i].place >= first) {
            from_s = fmin(from_s, r->events[i].begin_s);
            to_s = fmax(to_s, r->events[i].end_s);
        }
    for (size_t i = 0; i < r->n; i++) {
        struct trace_event e = r->events[i];
        double begin_s = e.kind == TRACE_OPERATION ? e.called_s : e.begin_s;

        if (begin_s < from_s || e.end_s > to_s)
            continue;
        e.begin_s += offset;
        e.end_s += offset;
        e.called_s += offset;
        r->events[kept++] = e;
    }
    r->n = kept;
}

/* Every rank's record to rank 0, one after another: all hear it, rank 0 keeps it. */
static enum status gather(struct trainer *t, struct record *own, struct record *all)
{
    int P = comm_size(t->comm);
    size_t *n = calloc((size_t)P, sizeof *n);
    enum status st = ST_OK;

    require(n);
    comm_gather_all(t->comm, &own->n, sizeof own->n, n);
    for (int r = 1; r < P; r++) {
        bool mine = r == comm_rank(t->comm);
        struct trace_event *events = mine ? own->events : NULL;
        enum status here = ST_OK;

        if (!mine)
            here = memory_alloc(n[r], sizeof *events, "trace", &events);
        here = comm_agree(t->comm, here);
        if (here == ST_OK)
            comm_broadcast(t->comm, events, n[r] * sizeof *events, r);
        if (comm_rank(t->comm) == 0)
            all[r] = (struct record){events, n[r]};
        else if (!mine)
            free(events);
        st = here;
        if (st != ST_OK)
            break;
    }
    free(n);
    return st;
}

static enum status write_files(const struct trainer *t, struct record *all,
                               uint64_t first)
{
    size_t P = (size_t)comm_size(t->comm);
    char folder[PATH_MAX];
    struct timeline_rank *ranks = calloc(P, sizeof *ranks);
    enum status st = ranks ? ST_OK : fail(ST_NOMEM, "no memory for a timeline");

    if (st == ST_OK && snprintf(folder, sizeof folder, "%s/trace", t->options->out) >=
                           (int)sizeof folder)
        st = fail(ST_IO, "%s: path too long", t->options->out);
    if (st == ST_OK)
        st = folder_make(folder);
    for (size_t r = 0; st == ST_OK && r < P; r++)
        ranks[r] = (struct timeline_rank){.events = all[r].events,
                                          .n = all[r].n,
                                          .host = comm_host_numbers(t->comm)[r]};
    if (st == ST_OK)
        st = timeline_write(
            folder,
            &(struct timeline){.ranks = ranks, .n_ranks = P, .workers = t->eo.workers});
    if (st == ST_OK)
        log_info("%s: timeline of steps %" PRIu64 " to %" PRIu64
                 "; trace.json for ui.perfetto.dev, trace.prv for Paraver",
                 folder, first, t->state.step);
    free(ranks);
    return st;
}

static enum status write_record(struct trainer *t, struct record *own,
                                double whole_from_s)
{
    size_t P = (size_t)comm_size(t->comm);
    double first = first_step(own, whole_from_s, t->state.step, t->options->trace_steps);
    double offset = comm_clock_offset(t->comm);
    struct record *all = calloc(P, sizeof *all);
    enum status st;

    require(all);
    comm_max(t->comm, &first, 1);
    if (first > (double)t->state.step && comm_rank(t->comm) == 0)
        log_warn("--trace: no step was recorded whole: a thread keeps %d events",
                 RING_EVENTS);
    trim(own, (uint64_t)first, offset);
    st = gather(t, own, all);
    all[0] = (struct record){.events = NULL};
    if (comm_rank(t->comm) == 0) {
        all[0] = *own;
        if (st == ST_OK && first <= (double)t->state.step)
            st = write_files(t, all, (uint64_t)first);
    }
    for (size_t r = 1; r < P; r++)
        free(all[r].events);
    free(all);
    return comm_agree(t->comm, st);
}

enum status trainer_trace_write(struct trainer *t)
{
    struct record own = {0};
    double whole_from_s;
    enum status st;

    if (!t->options->trace)
        return ST_OK;
    trace_stop();
    st = comm_agree(t->comm, trace_take(&own.events, &own.n, &whole_from_s));
    if (st == ST_OK)
        st = write_record(t, &own, whole_from_s);
    free(own.events);
    return st;
}
