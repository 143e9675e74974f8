/* SPDX-License-Identifier: MIT */
/* The communication thread: runs posts, moves messages, rests.
 *
 * It polls without pause while messages move and SPIN_S longer, then naps, each nap twice
 * as long as the one before, and sleeps for good when no request is pending. A post ends
 * any rest at once. A collective goes through rounds that complete no request: while one
 * is in flight, naps grow only as 1/64 of the time since something was seen to move. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "comm/comm_private.h"

static const double spin_s = 30e-6;
enum { FIRST_NAP_US = 20, LINE_US = 200000 };

void comm_end_job(struct comm *c, int exit_code)
{
    /* With one rank nobody waits for us, and MPI_Abort would only add noise. MPICH's
     * launcher drops what it has not read by then, so the line that says why goes first.
     */
    if (c->size > 1) {
        usleep(LINE_US);
        MPI_Abort(MPI_COMM_WORLD, exit_code);
    }
    _exit(exit_code);
}

void mpi_check(struct comm *c, int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length;

    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    log_error("%s failed: %s", call, text);
    comm_end_job(c, status_exit_code(ST_BUG));
}

void comm_post(struct comm *c, struct post *p)
{
    p->next = NULL;
    pthread_mutex_lock(&c->lock);
    *c->posts_end = p;
    c->posts_end = &p->next;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

static bool run_posts(struct comm *c)
{
    pthread_mutex_lock(&c->lock);
    struct post *p = c->posts;

    c->posts = NULL;
    c->posts_end = &c->posts;
    pthread_mutex_unlock(&c->lock);
    if (!p)
        return false;
    while (p) {
        struct post *next = p->next; /* p may be posted again from inside run */

        p->run(p->self);
        p = next;
    }
    return true;
}

static bool advance(struct comm *c)
{
    bool moved = control_advance(c);

    c->pending = c->controls != NULL;
    c->collectives = c->controls != NULL;
    for (struct traffic *t = c->traffics; t; t = t->next) {
        moved |= traffic_advance(t);
        c->pending |= traffic_pending(t);
        c->collectives |= traffic_has_collectives(t);
    }
    moved |= rows_advance(c);
    return moved;
}

static long next_nap_us(const struct comm *c)
{
    double limit = (double)atomic_load(&c->longest_nap_us);

    if (c->collectives)
        limit = fmin(limit, 1e6 / 64 * (clock_s() - c->moved_s));
    return (long)fmin(limit, fmax(FIRST_NAP_US, 2.0 * (double)c->nap_us));
}

/* Until a post comes or so much time is over: then true. Under lock. */
static bool sleep_for(struct comm *c, double seconds)
{
    struct timespec until;
    long ns = (long)(1e9 * seconds);

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + ns) % 1000000000;
    return pthread_cond_timedwait(&c->wake, &c->lock, &until) == ETIMEDOUT;
}

/* Under lock. */
static void nap(struct comm *c)
{
    if (sleep_for(c, 1e-6 * (double)c->nap_us))
        c->nap_us = next_nap_us(c);
}

/* False when the thread shall end. */
static bool rest(struct comm *c, bool moved)
{
    bool go_on = true;

    if (moved) {
        c->moves++;
        c->moved_s = clock_s();
        c->nap_us = FIRST_NAP_US;
    } else if (c->pending && clock_s() - c->moved_s < spin_s) {
        return true;
    }
    pthread_mutex_lock(&c->lock);
    if (!c->posts && !c->abort_wanted && !moved) {
        if (c->pending)
            nap(c);
        else if (c->stopping)
            go_on = false;
        else if (watch_next_s(c) > 0)
            (void)sleep_for(c, fmax(0, watch_next_s(c) - clock_s()));
        else
            pthread_cond_wait(&c->wake, &c->lock);
    }
    bool abort_wanted = c->abort_wanted;

    pthread_mutex_unlock(&c->lock);
    if (abort_wanted)
        comm_end_job(c, c->abort_code);
    return go_on;
}

void *comm_thread_main(void *comm)
{
    struct comm *c = comm;
    enum status st;

    trace_set_lane(TRACE_COMMUNICATION);
    /* The kernel may add 50 us to every nap unless told. */
    (void)prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
    st = comm_mpi_begin(c);
    pthread_mutex_lock(&c->lock);
    c->start_status = st;
    c->started = true;
    pthread_cond_broadcast(&c->answered);
    pthread_mutex_unlock(&c->lock);
    if (st == ST_OK) {
        bool moved;

        do {
            moved = run_posts(c);
            moved |= advance(c);
            watch_tick(c);
        } while (rest(c, moved));
    }
    comm_mpi_end(c);
    return NULL;
}

void comm_abort(struct comm *c, int exit_code)
{
    const double patience_s = 2;

    if (!c)
        _exit(exit_code);
    if (pthread_equal(pthread_self(), c->thread))
        comm_end_job(c, exit_code);
    pthread_mutex_lock(&c->lock);
    if (!c->abort_wanted) {
        c->abort_wanted = true;
        c->abort_code = exit_code;
    }
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
    for (double start_s = clock_s(); clock_s() - start_s < patience_s;)
        clock_nap_us(1000);
    /* The communication thread is stuck: this thread has to do it. */
    comm_end_job(c, exit_code);
}
