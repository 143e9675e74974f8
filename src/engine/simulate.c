/* SPDX-License-Identifier: MIT */
/* Compute that only takes its time. A worker sleeps as long as its task would last, to a
 * deadline: what it wakes too late it sleeps less in its next task, so that errors do not
 * add up. */
#include "engine/engine_private.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"

/* On the way from one task to the next, when the machine has too few cores. */
static const double longest_gap_s = 300e-6;

/* How far this worker is behind in this window, and when it last woke. */
static _Thread_local struct {
    uint64_t window;
    double late_s, woken_s;
} own;

static void sleep_until(double t_s)
{
    struct timespec t = {.tv_sec = (time_t)t_s};

    t.tv_nsec = (long)((t_s - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void simulate_work(void *args, struct task_event event)
{
    const struct job *j = args;
    const struct engine *e = j->e;
    double cost = work_cost(&e->layout.shape, &e->model.tiling, j->work, j->i, j->j);
    double now_s = clock_s();
    double end_s = now_s + cost * e->cost_s;

    (void)event;
    if (own.window == e->window)
        end_s -= own.late_s;
    if (now_s - own.woken_s < longest_gap_s)
        end_s -= now_s - own.woken_s;
    if (end_s > now_s)
        sleep_until(end_s);
    own.window = e->window;
    own.woken_s = clock_s();
    own.late_s = own.woken_s - end_s;
}

enum status simulation_init(struct engine *e)
{
    const struct engine_options *o = &e->options;
    struct profile profile;
    enum status st;

    if (o->compute_s <= 0 || !o->train)
        return ST_OK;
    st = profile_init(&profile, &e->layout, o->batch, o->seq, o->accum, o->recompute,
                      o->workers);
    if (st == ST_OK)
        e->cost_s = o->compute_s / profile.length;
    profile_release(&profile);
    return st;
}
