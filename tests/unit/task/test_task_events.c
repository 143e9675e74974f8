/* SPDX-License-Identifier: MIT */
/* Tasks that end through events: completed during the body, right after it and long
 * after it, by the body itself and by a foreign thread; more of them than a runtime's
 * throttle lets pass. */
#include <pthread.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/status.h"
#include "task/task.h"

#include <cmocka.h> /* last: it has a macro named fail */

/* The foreign thread: completes what is handed to it, in order, after a delay; before
 * that it sets *value, which the task's dependants read. */

struct errand {
    struct task_event event;
    unsigned *value;
    unsigned set_to;
    long delay_us;
    atomic_bool *done; /* may be NULL */
    struct errand *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct errand *first, *last;
    bool quit;
    pthread_t thread;
} agent = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct errand *next_errand(void)
{
    pthread_mutex_lock(&agent.lock);
    while (!agent.first && !agent.quit)
        pthread_cond_wait(&agent.changed, &agent.lock);
    struct errand *e = agent.first;
    if (e)
        agent.first = e->next;
    pthread_mutex_unlock(&agent.lock);
    return e;
}

static void *run_agent(void *arg)
{
    struct errand *e;

    while ((e = next_errand())) {
        if (e->delay_us > 0)
            clock_nap_us(e->delay_us);
        *e->value = e->set_to;
        task_event_complete(e->event);
        if (e->done)
            atomic_store(e->done, true);
        free(e);
    }
    return arg;
}

static void hand_over(const struct errand *what)
{
    struct errand *e = malloc(sizeof *e);

    require(e);
    *e = *what;
    e->next = NULL;
    pthread_mutex_lock(&agent.lock);
    if (agent.first)
        agent.last->next = e;
    else
        agent.first = e;
    agent.last = e;
    pthread_cond_signal(&agent.changed);
    pthread_mutex_unlock(&agent.lock);
}

static int start_agent(void **state)
{
    (void)state;
    agent.quit = false;
    return pthread_create(&agent.thread, NULL, run_agent, NULL);
}

static int stop_agent(void **state)
{
    (void)state;
    pthread_mutex_lock(&agent.lock);
    agent.quit = true;
    pthread_cond_signal(&agent.changed);
    pthread_mutex_unlock(&agent.lock);
    return pthread_join(agent.thread, NULL);
}

/* Chains of tasks in which link k may start only when link k-1 is complete, that is,
 * when its value has been set, possibly by the agent. */

enum way { IN_BODY, FOREIGN_DURING_BODY, FOREIGN, FOREIGN_LATE, PLAIN, N_WAYS };

struct chains {
    unsigned *values;
    size_t n_chains;
    unsigned length;
    uint64_t seed;
    size_t window; /* task_wait_all() after so many tasks; 0: never */
    atomic_size_t early;
    atomic_size_t runs;
    size_t incomplete; /* seen after a task_wait_all() */
};

struct link {
    struct chains *chains;
    unsigned *value;
    unsigned k;
    enum way way;
};

static void link_body(void *args, struct task_event event)
{
    struct link *l = args;
    atomic_bool done = false;
    struct errand e = {event, l->value, l->k + 1, 0, NULL, NULL};

    if (*l->value != l->k)
        atomic_fetch_add(&l->chains->early, 1);
    atomic_fetch_add(&l->chains->runs, 1);
    switch (l->way) {
    case IN_BODY:
        *l->value = l->k + 1;
        task_event_complete(event);
        break;
    case FOREIGN_DURING_BODY:
        e.done = &done;
        hand_over(&e);
        while (!atomic_load(&done))
            clock_nap_us(5);
        break;
    case FOREIGN_LATE:
        e.delay_us = 300;
        hand_over(&e);
        break;
    case FOREIGN:
        hand_over(&e);
        break;
    default:
        *l->value = l->k + 1;
    }
}

static void spawn_link(struct chains *c, size_t chain, unsigned k)
{
    uint64_t bits = rng_bits(c->seed, chain, k);
    struct link l = {c, &c->values[chain], k, (enum way)(bits % N_WAYS)};
    const void *cell = l.value;

    /* Late ones are slow: few of them. */
    if (l.way == FOREIGN_LATE && bits >> 32 & 7)
        l.way = FOREIGN;
    task_spawn(&(struct task){.label = "link",
                              .body = link_body,
                              .args = &l,
                              .args_bytes = sizeof l,
                              .priority = (int)(bits >> 8 & 3),
                              .has_event = l.way != PLAIN,
                              .out = &cell,
                              .n_out = 1});
}

static void create_chains(void *arg)
{
    struct chains *c = arg;
    size_t spawned = 0;

    for (unsigned k = 0; k < c->length; k++)
        for (size_t chain = 0; chain < c->n_chains; chain++) {
            spawn_link(c, chain, k);
            if (c->window == 0 || ++spawned % c->window != 0)
                continue;
            task_wait_all();
            for (size_t i = 0; i < c->n_chains; i++)
                c->incomplete += c->values[i] != (i <= chain ? k + 1 : k);
        }
    task_wait_all();
}

static void check_chains(int workers, size_t n_chains, unsigned length, size_t window)
{
    struct chains c = {.n_chains = n_chains,
                       .length = length,
                       .window = window,
                       .seed = (uint64_t)workers};

    c.values = calloc(n_chains, sizeof *c.values);
    assert_non_null(c.values);
    task_run(workers, create_chains, &c);
    assert_int_equal(atomic_load(&c.early), 0);
    assert_int_equal(atomic_load(&c.runs), n_chains * length);
    assert_int_equal(c.incomplete, 0);
    for (size_t i = 0; i < n_chains; i++)
        assert_int_equal(c.values[i], length);
    free(c.values);
}

static void events_in_every_way(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers++)
        check_chains(workers, 17, 60, 0);
}

static void events_in_small_windows(void **state)
{
    (void)state;
    check_chains(1, 5, 200, 3);
    check_chains(3, 7, 300, 1);
}

static void events_shuffled(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        task_shuffle(seed);
        check_chains((int)seed, 31, 13, 0);
    }
    task_shuffle(0);
}

/* Far more than 64 x threads detached tasks ready at once: libgomp's creator would run
 * them itself and release what depends on them at the end of their bodies. */
static void more_than_the_throttle(void **state)
{
    (void)state;
    check_chains(1, 1000, 3, 0);
    check_chains(3, 2003, 2, 0);
}

/* All at once: n events, each completed long after every body has run. */

struct late {
    unsigned values[257];
    atomic_size_t early;
};

struct late_args {
    struct late *late;
    size_t i;
};

static void late_body(void *args, struct task_event event)
{
    struct late_args *a = args;

    hand_over(&(struct errand){event, &a->late->values[a->i], 1, a->i == 0 ? 50000 : 0,
                               NULL, NULL});
}

static void after_body(void *args, struct task_event event)
{
    struct late_args *a = args;

    (void)event;
    if (a->late->values[a->i] != 1)
        atomic_fetch_add(&a->late->early, 1);
    a->late->values[a->i] = 2;
}

static void create_late(void *arg)
{
    struct late *l = arg;

    for (size_t i = 0; i < 257; i++) {
        struct late_args a = {l, i};
        const void *cell = &l->values[i];
        struct task t = {.label = "late",
                         .body = late_body,
                         .args = &a,
                         .args_bytes = sizeof a,
                         .has_event = true,
                         .out = &cell,
                         .n_out = 1};

        task_spawn(&t);
        t.body = after_body;
        t.has_event = false;
        task_spawn(&t);
    }
}

static void events_long_after_bodies(void **state)
{
    static struct late l;

    (void)state;
    task_run(2, create_late, &l);
    assert_int_equal(atomic_load(&l.early), 0);
    for (size_t i = 0; i < 257; i++)
        assert_int_equal(l.values[i], 2);
}

/* Idle time is the wait for the event. */

static void wait_body(void *args, struct task_event event)
{
    unsigned **value = args;

    hand_over(&(struct errand){event, *value, 1, 30000, NULL, NULL});
}

static void create_wait(void *arg)
{
    static unsigned value;
    unsigned *p = &value;

    task_stats_reset();
    task_spawn(&(struct task){.label = "wait",
                              .body = wait_body,
                              .args = &p,
                              .args_bytes = sizeof p,
                              .has_event = true});
    task_wait_all();
    task_stats_get(arg);
}

static void waiting_is_idle_time(void **state)
{
    struct task_stats stats;

    (void)state;
    task_run(2, create_wait, &stats);
    assert_int_equal(stats.tasks, 1);
    assert_true(stats.all_idle_s >= 0.029);
    assert_true(stats.busy_s < stats.all_idle_s);
}

/* Two waits between which the creator waits for all: no wait counts twice. */

struct two_waits {
    struct task_stats stats;
    double wall_s;
};

static void create_two_waits(void *arg)
{
    static unsigned value;
    unsigned *p = &value;
    const struct task t = {.label = "wait",
                           .body = wait_body,
                           .args = &p,
                           .args_bytes = sizeof p,
                           .has_event = true};
    double start_s = clock_s();
    struct two_waits *out = arg;

    task_stats_reset();
    for (int i = 0; i < 2; i++) {
        task_spawn(&t);
        task_wait_all();
    }
    task_stats_get(&out->stats);
    out->wall_s = clock_s() - start_s;
}

static void idle_time_counts_once(void **state)
{
    struct two_waits out;

    (void)state;
    task_run(2, create_two_waits, &out);
    assert_true(out.stats.all_idle_s >= 0.059);
    assert_true(out.stats.all_idle_s <= out.wall_s);
}

static void self_test_passes(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers++) {
        double begin_s = clock_s();
        enum status st = task_self_test(workers);

        if (st != ST_OK)
            print_message("%s\n", fail_text());
        assert_int_equal(st, ST_OK);
        print_message("self-test, %d workers: %.0f ms\n", workers,
                      1e3 * (clock_s() - begin_s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_in_every_way),
        cmocka_unit_test(events_in_small_windows),
        cmocka_unit_test(events_shuffled),
        cmocka_unit_test(more_than_the_throttle),
        cmocka_unit_test(events_long_after_bodies),
        cmocka_unit_test(waiting_is_idle_time),
        cmocka_unit_test(idle_time_counts_once),
        cmocka_unit_test(self_test_passes),
    };

    task_configure_runtime();
    return cmocka_run_group_tests(tests, start_agent, stop_agent);
}
