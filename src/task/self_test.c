/* SPDX-License-Identifier: MIT */
/* Does this OpenMP runtime keep the promises of task.h? A graph of many short chains,
 * each task of which ends through an event that another thread completes late, more of
 * them ready at once than any runtime's throttle lets pass. */
#include "task/task.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"

enum { CHAIN = 3, PATIENCE_S = 20 };

struct link {
    struct self_test *test;
    size_t chain;
    size_t step;
};

struct self_test {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_chains;
    int workers;
    unsigned *value;            /* one a chain: steps completed */
    struct task_event *pending; /* handed to the completer, n_chains * CHAIN at most */
    size_t *pending_chain;
    size_t n_pending;
    size_t n_completed;
    atomic_size_t early; /* tasks that started before what they depend on was complete */
    size_t joined;       /* chains that the last task found complete */
    bool finished;
};

static void link_body(void *args, struct task_event event)
{
    struct link *k = args;
    struct self_test *t = k->test;

    if (t->value[k->chain] != k->step)
        atomic_fetch_add(&t->early, 1);
    pthread_mutex_lock(&t->lock);
    t->pending[t->n_pending] = event;
    t->pending_chain[t->n_pending] = k->chain;
    t->n_pending++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void join_body(void *args, struct task_event event)
{
    struct self_test *t = *(struct self_test **)args;

    (void)event;
    for (size_t c = 0; c < t->n_chains; c++)
        t->joined += t->value[c] == CHAIN;
}

/* Waits until there are events to complete, or until all is over. A lost task would keep
 * task_run() waiting for ever, so this thread is the one to notice. */
static size_t wait_pending(struct self_test *t)
{
    struct timespec until;
    int err = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&t->lock);
    while (t->n_pending == t->n_completed && !t->finished && err == 0)
        err = pthread_cond_timedwait(&t->changed, &t->lock, &until);
    size_t end = t->n_pending;
    bool stuck = end == t->n_completed && !t->finished;
    pthread_mutex_unlock(&t->lock);
    if (stuck)
        bug("%s lost a task: nothing happened for %d s, %zu of %zu events completed",
            task_backend(), PATIENCE_S, t->n_completed, t->n_chains * CHAIN);
    return end;
}

/* Stands in for the network: takes what is pending, lets some time pass, writes the
 * result and completes. */
static void *complete_events(void *arg)
{
    struct self_test *t = arg;
    size_t end;

    while ((end = wait_pending(t)) > t->n_completed) {
        clock_nap_us(50);
        while (t->n_completed < end) {
            pthread_mutex_lock(&t->lock);
            struct task_event event = t->pending[t->n_completed];
            size_t chain = t->pending_chain[t->n_completed];
            pthread_mutex_unlock(&t->lock);

            t->n_completed++;
            t->value[chain]++;
            task_event_complete(event);
        }
    }
    return NULL;
}

static void create(void *arg)
{
    struct self_test *t = arg;
    const void **all = calloc(t->n_chains, sizeof *all);

    require(all);
    for (size_t step = 0; step < CHAIN; step++) {
        for (size_t c = 0; c < t->n_chains; c++) {
            struct link k = {t, c, step};

            all[c] = &t->value[c];
            task_spawn(&(struct task){.label = "self-test link",
                                      .body = link_body,
                                      .args = &k,
                                      .args_bytes = sizeof k,
                                      .has_event = true,
                                      .out = &all[c],
                                      .n_out = 1});
        }
    }
    task_spawn(&(struct task){.label = "self-test join",
                              .body = join_body,
                              .args = &t,
                              .args_bytes = sizeof t,
                              .in = all,
                              .n_in = t->n_chains});
    task_wait_all();
    free(all);
}

static void release(struct self_test *t)
{
    free(t->value);
    free(t->pending);
    free(t->pending_chain);
    free(t);
}

static enum status prepare(int workers, struct self_test **out)
{
    struct self_test *t = calloc(1, sizeof *t);

    *out = t;
    if (!t)
        return fail(ST_NOMEM, "task self-test: no memory");
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->workers = workers;
    t->n_chains = 64 * ((size_t)workers + 1) + 37;
    t->value = calloc(t->n_chains, sizeof *t->value);
    t->pending = calloc(t->n_chains * CHAIN, sizeof *t->pending);
    t->pending_chain = calloc(t->n_chains * CHAIN, sizeof *t->pending_chain);
    if (!t->value || !t->pending || !t->pending_chain) {
        release(t);
        *out = NULL;
        return fail(ST_NOMEM, "task self-test: no memory");
    }
    return ST_OK;
}

static enum status run(struct self_test *t)
{
    pthread_t completer;

    if (pthread_create(&completer, NULL, complete_events, t) != 0)
        return fail(ST_NOMEM, "task self-test: cannot start a thread");
    task_run(t->workers, create, t);
    pthread_mutex_lock(&t->lock);
    t->finished = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    pthread_join(completer, NULL);
    if (atomic_load(&t->early) > 0)
        return fail(ST_BUG, "%s started %zu of %zu tasks before what they depend on",
                    task_backend(), atomic_load(&t->early), t->n_chains * CHAIN);
    if (t->joined != t->n_chains)
        return fail(ST_BUG, "%s: the last task found %zu of %zu chains complete",
                    task_backend(), t->joined, t->n_chains);
    return ST_OK;
}

/* On the calling thread: libomp does not survive the end of a thread that has led a
 * team. */
enum status task_self_test(int workers)
{
    struct self_test *t;
    enum status st = prepare(workers, &t);

    if (st != ST_OK)
        return st;
    st = run(t);
    release(t);
    return st;
}
