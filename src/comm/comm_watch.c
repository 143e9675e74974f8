/* SPDX-License-Identifier: MIT */
/* Signs of life. Every few seconds each rank's communication thread sends a beat to rank
 * 0, and to rank 1 which watches rank 0: how far it is and what it waits for. It does so
 * while its workers compute, so a rank without beats is stopped or its host is gone, and
 * a rank that others wait for while its beats come is named too. Communication thread
 * only, but for the setting of step and stage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "comm/comm_private.h"

enum { WATCH_TAG = 31000, WATCHERS = 2 };

enum waiting {
    FOR_NOTHING,
    FOR_REDUCTION,
    FOR_RETURN,
    FOR_ROWS,
    FOR_AGREEMENT,
    FOR_CONTROL
};

struct beat {
    uint64_t step, moves;     /* moves: messages that have come or gone */
    uint64_t block;           /* of what it waits for */
    int stage, waiting, peer; /* peer: the rank it waits for, or -1 */
    int last;                 /* no other follows */
};

struct watched {
    struct beat beat;
    double heard_s; /* when its last beat came, by the watcher's clock */
    double moved_s; /* when a beat last said something new */
    bool named;
};

struct who {
    char host[64];
    int pid;
};

struct watch {
    MPI_Comm mpi;
    double period_s, notice_s, limit_s; /* limit 0: none */
    double next_s, last_s;              /* of this rank's beats */
    struct watched *of;                 /* [size] */
    struct who *who;                    /* [size] */
    struct beat sent[WATCHERS];
    MPI_Request requests[WATCHERS];
    int n_last; /* last beats received */
};

static bool watches(const struct comm *c, int rank)
{
    return c->rank == 0 ? rank != 0 : c->rank == 1 && rank == 0;
}

/* ---- what this rank waits for ---- */

static void see_streams(const struct traffic *t, struct beat *b)
{
    for (int i = 0; i < t->n_streams; i++) {
        const struct stream *s = t->streams[i];

        if (s->n_running == 0 || (b->waiting && !s->receives))
            continue;
        b->waiting = s->phase == PHASE_REDUCE ? FOR_REDUCTION : FOR_RETURN;
        b->block = s->running[0]->block;
        b->peer = s->receives ? s->running[0]->peer : -1;
        if (s->receives)
            return;
    }
}

static void look_at_self(struct comm *c, struct beat *b)
{
    *b = (struct beat){.step = atomic_load(&c->watch_step),
                       .stage = atomic_load(&c->watch_stage),
                       .moves = c->moves,
                       .peer = -1};
    for (const struct traffic *t = c->traffics; t && !b->waiting; t = t->next) {
        see_streams(t, b);
        if (!b->waiting && t->agree_request != MPI_REQUEST_NULL)
            b->waiting = FOR_AGREEMENT;
    }
    if (!b->waiting && rows_on_their_way(c))
        b->waiting = FOR_ROWS;
    if (!b->waiting && c->controls)
        b->waiting = FOR_CONTROL;
}

/* ---- beats ---- */

static void note(struct watch *w, int rank, const struct beat *b, double now_s)
{
    struct watched *of = &w->of[rank];

    if (b->step != of->beat.step || b->moves != of->beat.moves ||
        b->stage != of->beat.stage)
        of->moved_s = now_s;
    of->heard_s = now_s;
    of->beat = *b;
    w->n_last += b->last;
}

static void receive_beats(struct comm *c, double now_s)
{
    struct watch *w = c->watch;
    int there;

    do {
        MPI_Status status;
        MPI_Request request;
        struct beat b;

        mpi_check(c, MPI_Iprobe(MPI_ANY_SOURCE, WATCH_TAG, w->mpi, &there, &status),
                  "MPI_Iprobe");
        if (!there)
            break;
        mpi_check(c,
                  MPI_Irecv(&b, (int)sizeof b, MPI_BYTE, status.MPI_SOURCE, WATCH_TAG,
                            w->mpi, &request),
                  "MPI_Irecv");
        mpi_check(c, MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
        note(w, status.MPI_SOURCE, &b, now_s);
    } while (there);
}

/* A watcher that takes no messages is no reason to wait: the beat is left out. */
static void send_beat(struct comm *c, int watcher, const struct beat *b)
{
    struct watch *w = c->watch;
    int sent = 1;

    if (watcher == c->rank || watcher >= c->size || (watcher == 1 && c->rank != 0))
        return;
    mpi_check(c, MPI_Test(&w->requests[watcher], &sent, MPI_STATUS_IGNORE), "MPI_Test");
    if (!sent && !b->last)
        return;
    if (!sent)
        mpi_check(c, MPI_Wait(&w->requests[watcher], MPI_STATUS_IGNORE), "MPI_Wait");
    w->sent[watcher] = *b;
    mpi_check(c,
              MPI_Isend(&w->sent[watcher], (int)sizeof *b, MPI_BYTE, watcher, WATCH_TAG,
                        w->mpi, &w->requests[watcher]),
              "MPI_Isend");
}

/* ---- judgement ---- */

/* What the rank has not entered: what another one waits for. */
static void say_missing(const struct comm *c, int rank, char *out, size_t out_bytes)
{
    static const char *const stages[] = {"the start", "the agreement of the step",
                                         "the evaluation", "the saving of a checkpoint",
                                         "the end of the job"};
    const struct watch *w = c->watch;
    const struct beat *by = NULL;

    for (int r = 0; r < c->size; r++) {
        const struct beat *b = &w->of[r].beat;

        if (r == rank || b->waiting == FOR_NOTHING)
            continue;
        if (!by || b->peer == rank)
            by = b;
        if (b->peer == rank)
            break;
    }
    if (by && (by->waiting == FOR_REDUCTION || by->waiting == FOR_RETURN))
        (void)snprintf(out, out_bytes, "the %s of block %llu",
                       by->waiting == FOR_REDUCTION ? "reduction" : "return",
                       (unsigned long long)by->block);
    else if (by && by->waiting == FOR_ROWS)
        (void)snprintf(out, out_bytes, "the exchange of the embedding's rows");
    else
        (void)snprintf(out, out_bytes, "%s",
                       stages[(by ? by : &w->of[c->rank].beat)->stage]);
}

static uint64_t furthest_step(const struct comm *c)
{
    uint64_t step = 0;

    for (int r = 0; r < c->size; r++)
        step = c->watch->of[r].beat.step > step ? c->watch->of[r].beat.step : step;
    return step;
}

static void name_rank(struct comm *c, int rank, double since_s, bool silent)
{
    struct watch *w = c->watch;
    struct watched *of = &w->of[rank];
    bool over = w->limit_s > 0 && since_s >= w->limit_s;
    char missing[64], text[512];

    if (of->named && !over)
        return;
    say_missing(c, rank, missing, sizeof missing);
    (void)snprintf(
        text, sizeof text,
        "step %llu: rank %d (host %s, pid %d) has not entered %s; %s for %.0f s",
        (unsigned long long)furthest_step(c), rank, w->who[rank].host, w->who[rank].pid,
        missing, silent ? "no sign of life from it" : "the others wait for it", since_s);
    of->named = true;
    if (!over) {
        log_warn("%s", text);
        return;
    }
    log_error("%s: the job is ended (--stall-limit)", text);
    comm_end_job(c, status_exit_code(ST_IO));
}

static void judge_silence(struct comm *c, double now_s)
{
    struct watch *w = c->watch;

    for (int r = 0; r < c->size; r++) {
        struct watched *of = &w->of[r];
        double silent_s = now_s - of->heard_s;

        if (!watches(c, r) || of->beat.last)
            continue;
        if (silent_s >= w->notice_s)
            name_rank(c, r, silent_s, true);
        else if (of->named && now_s - of->moved_s < w->notice_s) {
            log_warn("rank %d (host %s, pid %d) goes on", r, w->who[r].host,
                     w->who[r].pid);
            of->named = false;
        }
    }
}

/* Nothing moves anywhere, some rank waits, and all give signs of life: the first one that
 * waits for nobody keeps the others waiting. */
static void judge_progress(struct comm *c, double now_s)
{
    const struct watch *w = c->watch;
    double moved_s = 0;
    int late = -1, waiters = 0;

    for (int r = 0; r < c->size; r++) {
        const struct watched *of = &w->of[r];

        if (of->beat.last || now_s - of->heard_s >= w->notice_s)
            return;
        moved_s = of->moved_s > moved_s ? of->moved_s : moved_s;
        waiters += of->beat.waiting != FOR_NOTHING;
        if (of->beat.waiting == FOR_NOTHING && late < 0)
            late = r;
    }
    if (late >= 0 && waiters > 0 && now_s - moved_s >= w->notice_s)
        name_rank(c, late, now_s - moved_s, false);
}

/* This rank was stopped itself, perhaps with all others: that time is not theirs. */
static void forgive_own_sleep(struct comm *c, double now_s)
{
    struct watch *w = c->watch;

    if (now_s - w->last_s > 2 * w->period_s)
        for (int r = 0; r < c->size; r++) {
            w->of[r].heard_s += now_s - w->last_s;
            w->of[r].moved_s += now_s - w->last_s;
        }
    w->last_s = now_s;
}

void watch_tick(struct comm *c)
{
    struct watch *w = c->watch;
    double now_s = clock_s();
    struct beat mine;

    if (!w || now_s < w->next_s)
        return;
    forgive_own_sleep(c, now_s);
    w->next_s = now_s + w->period_s;
    look_at_self(c, &mine);
    note(w, c->rank, &mine, now_s);
    receive_beats(c, now_s);
    for (int watcher = 0; watcher < WATCHERS; watcher++)
        send_beat(c, watcher, &mine);
    judge_silence(c, now_s);
    if (c->rank == 0)
        judge_progress(c, now_s);
}

double watch_next_s(const struct comm *c)
{
    return c->watch ? c->watch->next_s : 0;
}

/* ---- begin and end ---- */

static void start_watch(struct control *op)
{
    struct comm *c = op->comm;

    c->watch = op->args;
    op->n_requests = 0;
}

enum status comm_watch_begin(struct comm *c, double notice_s, double limit_s)
{
    const double longest_period_s = 5;
    struct watch *w = NULL;
    struct who mine = {.pid = getpid()};
    size_t P = (size_t)c->size;
    enum status st = ST_OK;

    if (P == 1)
        return ST_OK;
    st = memory_alloc(1, sizeof *w, "watch", &w);
    if (st == ST_OK)
        st = memory_alloc(P, sizeof *w->of, "watch", &w->of);
    if (st == ST_OK)
        st = memory_alloc(P, sizeof *w->who, "watch", &w->who);
    st = comm_agree(c, st);
    if (st != ST_OK) {
        free(w ? w->of : NULL);
        free(w ? w->who : NULL);
        free(w);
        return st;
    }
    (void)snprintf(mine.host, sizeof mine.host, "%.60s", c->host);
    comm_gather_all(c, &mine, sizeof mine, w->who);
    w->mpi = control_new_comm(c);
    w->notice_s = notice_s;
    w->limit_s = limit_s;
    w->period_s = notice_s / 6 < longest_period_s ? notice_s / 6 : longest_period_s;
    w->last_s = clock_s();
    w->next_s = w->last_s + w->period_s;
    for (size_t r = 0; r < P; r++)
        w->of[r] = (struct watched){.heard_s = w->last_s, .moved_s = w->last_s};
    for (int i = 0; i < WATCHERS; i++)
        w->requests[i] = MPI_REQUEST_NULL;
    control_run(c, start_watch, w);
    return ST_OK;
}

void comm_watch_at(struct comm *c, uint64_t step, enum comm_stage stage)
{
    atomic_store(&c->watch_step, step);
    atomic_store(&c->watch_stage, (int)stage);
}

/* Each rank's last beat is on its way before the ranks part, and is waited for: not
 * longer than for any other. */
static void end_watch(struct control *op)
{
    struct comm *c = op->comm;
    struct watch *w = c->watch;
    int expected = c->rank == 0 ? c->size - 1 : c->rank == 1 ? 1 : 0;
    struct beat last;

    look_at_self(c, &last);
    last.last = 1;
    last.waiting = FOR_NOTHING;
    w->of[c->rank].beat = last;
    w->next_s = clock_s() + 1e9; /* no more of the others */
    for (int watcher = 0; watcher < WATCHERS; watcher++)
        send_beat(c, watcher, &last);
    while (w->n_last < expected) {
        double now_s = clock_s();

        forgive_own_sleep(c, now_s);
        receive_beats(c, now_s);
        judge_silence(c, now_s);
        clock_nap_us(100);
    }
    for (int i = 0; i < WATCHERS; i++)
        mpi_check(c, MPI_Wait(&w->requests[i], MPI_STATUS_IGNORE), "MPI_Wait");
    c->watch = NULL;
    op->n_requests = 0;
}

void watch_end(struct comm *c)
{
    struct watch *w = c->watch;

    if (!w)
        return;
    comm_watch_at(c, atomic_load(&c->watch_step), STAGE_END);
    control_run(c, end_watch, NULL);
    control_free_comm(c, &w->mpi);
    free(w->of);
    free(w->who);
    free(w);
}
