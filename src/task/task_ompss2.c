/* SPDX-License-Identifier: MIT */
/* OmpSs-2 back end: the runtime, its workers, and what a task does. Who makes the tasks:
 * see ompss2.h.
 *
 * NODES starts once a process. A thread of its own, the keeper, starts and ends it and
 * lies blocked in between, so that the caller of task_run() is no task and takes no core
 * of the workers. The creator is a function that the runtime runs on one of its workers:
 * while it waits for tasks, that core is free for them.
 *
 * There is one worker a CPU of the process, bound to it. A team of fewer workers is made
 * by parking the others: a function that sleeps until the team ends holds their CPU. A
 * seat is a CPU. */
#include "task/task.h"

#include <nodes.h>
#include <nosv/alpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/trace.h"
#include "task/ompss2.h"
#include "task/team.h"

enum { TEXT_BYTES = 1024 };

static struct {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    pthread_t keeper;
    void *keeper_block; /* what wakes the keeper; NULL: the runtime is not up */
    int parked;         /* workers that sleep */
    bool go_home;       /* they shall no longer */
    void (*creator)(void *arg);
    void *arg;
    bool complete;              /* the creator and all tasks are */
    char fail_text[TEXT_BYTES]; /* of the creator, which has run on another thread */
} oss = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void check(int code, const char *call)
{
    if (code != ALPI_SUCCESS)
        bug("tasks: %s: %s", call, alpi_error_string((alpi_error_t)code));
}

/* ---- the runtime ---- */

static void *keep_runtime(void *unused)
{
    nanos6_init();
    pthread_mutex_lock(&oss.lock);
    oss.keeper_block = nanos6_get_current_blocking_context();
    pthread_cond_broadcast(&oss.changed);
    pthread_mutex_unlock(&oss.lock);
    nanos6_block_current_task(oss.keeper_block);
    nanos6_shutdown();
    return unused;
}

static void stop_runtime(void)
{
    nanos6_unblock_task(oss.keeper_block);
    pthread_join(oss.keeper, NULL);
}

static void start_runtime(void)
{
    if (pthread_create(&oss.keeper, NULL, keep_runtime, NULL) != 0)
        bug("tasks: no thread for the OmpSs-2 runtime");
    pthread_mutex_lock(&oss.lock);
    while (!oss.keeper_block)
        pthread_cond_wait(&oss.changed, &oss.lock);
    pthread_mutex_unlock(&oss.lock);
    if (atexit(stop_runtime) != 0)
        bug("tasks: no memory to end the OmpSs-2 runtime at exit");
}

/* A user's own settings come last and win. The runtime starts with the first team: one of
 * its idle workers spins, which commands without tasks shall not have to pay. */
void task_configure_runtime(void)
{
    static const char ours[] = "turbo.enabled=false"; /* else denormals become 0 */
    const char *theirs = getenv("NOSV_CONFIG_OVERRIDE");
    char all[4096];

    team_configure();
    (void)snprintf(all, sizeof all, "%s%s%s", ours, theirs && *theirs ? "," : "",
                   theirs ? theirs : "");
    setenv("NOSV_CONFIG_OVERRIDE", all, 1);
}

static int count_cpus(void)
{
    uint64_t n = 0;

    check(alpi_cpu_count(&n), "alpi_cpu_count");
    return (int)n;
}

static void park_worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&oss.lock);
    oss.parked++;
    pthread_cond_broadcast(&oss.changed);
    while (!oss.go_home)
        pthread_cond_wait(&oss.changed, &oss.lock);
    oss.parked--;
    pthread_cond_broadcast(&oss.changed);
    pthread_mutex_unlock(&oss.lock);
}

static void park_workers(int n)
{
    for (int i = 0; i < n; i++)
        nanos6_spawn_function(park_worker, NULL, NULL, NULL, "parked");
    pthread_mutex_lock(&oss.lock);
    while (oss.parked < n)
        pthread_cond_wait(&oss.changed, &oss.lock);
    pthread_mutex_unlock(&oss.lock);
}

/* Under lock. */
static void fetch_parked(void)
{
    oss.go_home = true;
    pthread_cond_broadcast(&oss.changed);
    while (oss.parked > 0)
        pthread_cond_wait(&oss.changed, &oss.lock);
    oss.go_home = false;
}

/* ---- the team ---- */

static void lead(void *unused)
{
    (void)unused;
    oss.creator(oss.arg);
    task_wait_all();
    (void)snprintf(oss.fail_text, sizeof oss.fail_text, "%s", fail_text());
}

static void tell_complete(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&oss.lock);
    oss.complete = true;
    pthread_cond_broadcast(&oss.changed);
    pthread_mutex_unlock(&oss.lock);
}

void task_run(int workers, void (*creator)(void *arg), void *arg)
{
    int cpus;

    require(workers >= 1);
    if (!oss.keeper_block)
        start_runtime();
    cpus = count_cpus();
    if (workers > cpus)
        workers = cpus;
    team_open(cpus, workers);
    park_workers(cpus - workers);
    oss.creator = creator;
    oss.arg = arg;
    oss.complete = false;
    nanos6_spawn_function(lead, NULL, tell_complete, NULL, "creator");
    pthread_mutex_lock(&oss.lock);
    while (!oss.complete)
        pthread_cond_wait(&oss.changed, &oss.lock);
    fetch_parked();
    pthread_mutex_unlock(&oss.lock);
    team_close();
    require(fail(ST_OK, "%s", oss.fail_text) == ST_OK);
}

/* ---- tasks ---- */

/* The record is forgotten before the runtime releases what depends on the task. */
static void take_part(struct record *r)
{
    long left;

    (void)team_take_part(r, &left);
}

void ompss2_run(struct record *r, bool has_event)
{
    struct alpi_task *self = NULL;
    uint64_t cpu = 0;

    check(alpi_cpu_logical_id(&cpu), "alpi_cpu_logical_id");
    if (has_event) {
        check(alpi_task_self(&self), "alpi_task_self");
        check(alpi_task_events_increase(self, 1), "alpi_task_events_increase");
    }
    trace_set_lane(TRACE_WORKER + (int)cpu);
    team_run_body(r, (int)cpu,
                  (struct task_event){(uintptr_t)self, has_event ? r : NULL});
    take_part(r);
}

/* By whatever thread: NODES knows of completions by threads that are none of its own. */
void task_event_complete(struct task_event event)
{
    struct record *r = event.record;

    if (atomic_exchange(&r->completed, true))
        bug("%s: event completed twice", r->label);
    meter_event_finish(&team.meter, clock_s());
    take_part(r);

    union {
        uintptr_t handle;
        struct alpi_task *task;
    } runtime = {event.handle};

    check(alpi_task_events_decrease(runtime.task, 1), "alpi_task_events_decrease");
}

/* Priorities from below up to 0, which tasks of TAMPI have: calls and polls go first. */
void task_spawn(const struct task *t)
{
    int priority;
    struct record *r = team_add(t, &priority);

    ompss2_spawn(r, t, r->label, priority - TASK_PRIORITY_MAX);
}

void task_wait_all(void)
{
    ompss2_wait();
    require(atomic_load(&team.unfinished) == 0);
    team_window_close();
}

const char *task_backend(void)
{
    return ompss2_name;
}
