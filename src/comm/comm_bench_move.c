/* SPDX-License-Identifier: MIT */
/* How the messages of a measurement are moved and timed, on the communication thread.
 *
 * A group of ranks starts together (its first rank releases the others), moves its
 * messages through bounded windows, and is done when its first rank has heard so from
 * all. That rank's clock counts; a start and an end cost two messages, of some 40 ms. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm_bench_move.h"

enum { TAG_DATA, TAG_READY, TAG_GO, TAG_DONE, TAG_PING };

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- waiting, on the communication thread ---- */

/* Rests as the thread does in training: polls, then naps that double. */
struct rest {
    double moved_s;
    long nap_us;
};

static void rest(struct rest *r, bool moved, long longest_nap_us)
{
    const double spin_s = 30e-6;
    const long first_nap_us = 20;
    double now = clock_s();

    if (moved || r->nap_us == 0) {
        r->moved_s = now;
        r->nap_us = first_nap_us;
    } else if (now - r->moved_s > spin_s) {
        clock_nap_us(r->nap_us);
        r->nap_us = r->nap_us < longest_nap_us / 2 ? 2 * r->nap_us : longest_nap_us;
    }
}

enum { SHORT_NAP_US = 100, LONG_NAP_US = 500, NO_NAP = 0 };

static void wait_for(struct mover *m, int n, MPI_Request *requests, long longest_nap_us)
{
    struct rest r = {0};
    int flag = 0;

    for (;;) {
        mpi_check(m->comm, MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE),
                  "MPI_Testall");
        if (flag)
            return;
        if (longest_nap_us == NO_NAP)
            (void)sched_yield();
        else
            rest(&r, false, longest_nap_us);
    }
}

/* ---- a group starts and ends together ---- */

static bool leads(const struct mover *m)
{
    return m->n_group > 0 && m->group[0] == m->comm->rank;
}

static bool is_member(const struct mover *m)
{
    for (int i = 0; i < m->n_group; i++)
        if (m->group[i] == m->comm->rank)
            return true;
    return false;
}

/* The leader hears from all (or tells all), the others tell it (or hear from it). */
static void signal_group(struct mover *m, bool to_leader, int tag)
{
    struct comm *c = m->comm;
    bool leader = leads(m);
    int n = 0;

    for (int i = leader ? 1 : 0; i < (leader ? m->n_group : 1); i++) {
        if (leader == to_leader)
            mpi_check(
                c,
                MPI_Irecv(NULL, 0, MPI_BYTE, m->group[i], tag, m->mpi, &m->requests[n++]),
                "MPI_Irecv");
        else
            mpi_check(
                c,
                MPI_Isend(NULL, 0, MPI_BYTE, m->group[i], tag, m->mpi, &m->requests[n++]),
                "MPI_Isend");
    }
    wait_for(m, n, m->requests, SHORT_NAP_US);
}

/* ---- messages through windows ---- */

/* One direction of a pattern. */
struct flow {
    const int *peers;
    size_t n, started, complete;
    bool sends;
    MPI_Request requests[BENCH_WINDOW_MOST];
    int peer_of[BENCH_WINDOW_MOST];
};

static void start_message(struct mover *m, struct flow *f, size_t slot)
{
    size_t bytes = m->pattern.bytes;
    int peer = f->peers[f->started];

    if (f->sends) {
        /* From all over the buffer, as gradients are. */
        size_t at = f->started % (m->touched_bytes / bytes) * bytes;

        mpi_check(m->comm,
                  MPI_Isend(m->buffer[0] + at, (int)bytes, MPI_BYTE, peer, TAG_DATA,
                            m->mpi, &f->requests[slot]),
                  "MPI_Isend");
    } else {
        mpi_check(m->comm,
                  MPI_Irecv(m->buffer[1] + slot * bytes, (int)bytes, MPI_BYTE, peer,
                            TAG_DATA, m->mpi, &f->requests[slot]),
                  "MPI_Irecv");
    }
    f->peer_of[slot] = peer;
    m->running_to[peer] += f->sends;
    f->started++;
}

/* As in training: few messages on their way to one rank. */
static bool has_room(const struct mover *m, const struct flow *f)
{
    size_t most = bench_peer_window(m->pattern.bytes);

    return !f->sends || m->running_to[f->peers[f->started]] < most;
}

/* Fills the window and sees what is complete; true when something was. */
static bool advance(struct mover *m, struct flow *f, size_t window)
{
    int indices[BENCH_WINDOW_MOST];
    int n = 0;

    for (size_t i = 0; i < window && f->started < f->n && has_room(m, f); i++)
        if (f->requests[i] == MPI_REQUEST_NULL)
            start_message(m, f, i);
    if (f->complete == f->started)
        return false;
    mpi_check(m->comm,
              MPI_Testsome((int)window, f->requests, &n, indices, MPI_STATUSES_IGNORE),
              "MPI_Testsome");
    for (int i = 0; i < n; i++)
        m->running_to[f->peer_of[indices[i]]] -= f->sends;
    f->complete += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static void begin_flow(struct flow *f, const int *peers, size_t n, bool sends)
{
    *f = (struct flow){.peers = peers, .n = n, .sends = sends};
    for (size_t i = 0; i < BENCH_WINDOW_MOST; i++)
        f->requests[i] = MPI_REQUEST_NULL;
}

static void move_messages(struct mover *m)
{
    struct pattern *p = &m->pattern;
    size_t window = bench_window(p->bytes);
    struct flow receives, sends;
    struct rest r = {0};

    begin_flow(&receives, p->from, p->n_from, false);
    begin_flow(&sends, p->to, p->n_to, true);
    while (receives.complete < receives.n || sends.complete < sends.n) {
        bool moved = advance(m, &receives, window);

        moved |= advance(m, &sends, window);
        rest(&r, moved, LONG_NAP_US);
    }
}

/* Memory that is touched for the first time costs more than a message in it. */
static void touch_buffers(struct mover *m)
{
    size_t needed =
        min_size(m->buffer_bytes, bench_window(m->pattern.bytes) * m->pattern.bytes);

    if (needed <= m->touched_bytes)
        return;
    for (int i = 0; i < 2; i++)
        memset(m->buffer[i] + m->touched_bytes, i + 1, needed - m->touched_bytes);
    m->touched_bytes = needed;
}

struct timed {
    struct mover *mover;
    double seconds; /* at the leader */
    double cpu_s;
};

static void start_pattern(struct control *op)
{
    struct timed *t = op->args;
    struct mover *m = t->mover;

    if (!is_member(m))
        return;
    touch_buffers(m);
    if (m->n_group > 1) {
        signal_group(m, true, TAG_READY);
        signal_group(m, false, TAG_GO);
    }
    double start_s = clock_s();
    double start_cpu_s = cpu_s();

    move_messages(m);
    t->cpu_s = cpu_s() - start_cpu_s;
    if (m->n_group > 1)
        signal_group(m, true, TAG_DONE);
    if (leads(m))
        t->seconds = clock_s() - start_s;
}

double mover_move(struct mover *m, double *message_s)
{
    struct timed t = {.mover = m};

    control_run(m->comm, start_pattern, &t);
    double sums[3] = {t.seconds, t.cpu_s, (double)(m->pattern.n_to + m->pattern.n_from)};

    comm_sum(m->comm, sums, 3);
    if (message_s)
        *message_s = sums[1] / sums[2];
    return sums[0];
}

/* ---- round trips ---- */

struct trips {
    struct mover *mover;
    int a, b; /* ranks */
    size_t bytes, n;
    double seconds[MOVER_MOST_TRIPS]; /* half of each round trip, at a */
};

static void pass(struct mover *m, bool send, int peer, size_t bytes)
{
    MPI_Request request;

    if (send)
        mpi_check(m->comm,
                  MPI_Isend(m->buffer[0], (int)bytes, MPI_BYTE, peer, TAG_PING, m->mpi,
                            &request),
                  "MPI_Isend");
    else
        mpi_check(m->comm,
                  MPI_Irecv(m->buffer[1], (int)bytes, MPI_BYTE, peer, TAG_PING, m->mpi,
                            &request),
                  "MPI_Irecv");
    wait_for(m, 1, &request, NO_NAP);
}

static void start_trips(struct control *op)
{
    enum { WARM_UP = 3 };
    struct trips *t = op->args;
    struct mover *m = t->mover;
    bool first = m->comm->rank == t->a;

    if (!first && m->comm->rank != t->b)
        return;
    m->pattern.bytes = t->bytes;
    touch_buffers(m);
    for (size_t i = 0; i < WARM_UP + t->n; i++) {
        double start_s = clock_s();

        pass(m, first, first ? t->b : t->a, t->bytes);
        pass(m, !first, first ? t->b : t->a, t->bytes);
        if (i >= WARM_UP)
            t->seconds[i - WARM_UP] = (clock_s() - start_s) / 2;
    }
}

double mover_trips(struct mover *m, int rank_a, int rank_b, size_t bytes, size_t n)
{
    struct trips t = {.mover = m, .a = rank_a, .b = rank_b, .bytes = bytes, .n = n};
    double median = 0;

    require(n >= 1 && n <= MOVER_MOST_TRIPS);
    control_run(m->comm, start_trips, &t);
    if (m->comm->rank == rank_a)
        median = bench_spread_of(t.seconds, n).median;
    comm_sum(m->comm, &median, 1);
    return median;
}

/* ---- barriers ---- */

enum { BARRIERS = 20 };

static void start_barriers(struct control *op)
{
    struct timed *t = op->args;
    double start_s = clock_s();

    for (int i = 0; i < BARRIERS; i++) {
        MPI_Request request;

        mpi_check(op->comm, MPI_Ibarrier(t->mover->mpi, &request), "MPI_Ibarrier");
        wait_for(t->mover, 1, &request, SHORT_NAP_US);
    }
    t->seconds = (clock_s() - start_s) / (double)BARRIERS;
}

double mover_barriers(struct mover *m)
{
    struct timed t = {.mover = m};

    control_run(m->comm, start_barriers, &t);
    comm_max(m->comm, &t.seconds, 1);
    return t.seconds;
}

/* ---- life ---- */

static enum status allocate(struct mover *m)
{
    size_t ranks = (size_t)m->comm->size;
    void *map;
    enum status st = memory_alloc(ranks, sizeof *m->group, "ranks", &m->group);

    if (st == ST_OK)
        st = memory_alloc(ranks, sizeof *m->requests, "requests", &m->requests);
    if (st == ST_OK)
        st = memory_alloc(ranks, sizeof *m->running_to, "ranks", &m->running_to);
    for (int i = 0; i < 2 && st == ST_OK; i++) {
        st = memory_map(m->buffer_bytes, "messages", &map);
        m->buffer[i] = map;
    }
    return st;
}

enum status mover_init(struct mover *m, struct comm *c, size_t buffer_bytes)
{
    enum status st;

    *m = (struct mover){.comm = c, .mpi = MPI_COMM_NULL, .buffer_bytes = buffer_bytes};
    st = comm_share(c, allocate(m));
    if (st == ST_OK)
        m->mpi = control_new_comm(c);
    return st;
}

void mover_release(struct mover *m)
{
    if (!m->comm)
        return;
    control_free_comm(m->comm, &m->mpi);
    for (int i = 0; i < 2; i++)
        memory_unmap(m->buffer[i], m->buffer_bytes);
    free(m->running_to);
    free(m->requests);
    free(m->group);
    pattern_release(&m->pattern);
    *m = (struct mover){0};
}
