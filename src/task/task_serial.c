/* SPDX-License-Identifier: MIT */
/* Serial back end: a task runs when it is spawned, and its event is waited for at once.
 * Spawn order respects every dependency, so there is nothing to keep track of. */
#include "task/task.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/trace.h"
#include "task/label_times.h"
#include "task/records.h"

static struct {
    pthread_mutex_t lock; /* guards `completed` of the record being waited for */
    pthread_cond_t changed;
    struct records records;
    struct task_stats stats;
    struct label_times times;
    bool profiling;
    bool running;
} serial = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void task_configure_runtime(void)
{
}

void task_run(int workers, void (*creator)(void *arg), void *arg)
{
    require(workers >= 1);
    require(!serial.running);
    serial.running = true;
    trace_set_lane(TRACE_WORKER);
    memset(&serial.stats, 0, sizeof serial.stats);
    serial.times.n = 0;
    serial.profiling = false;
    creator(arg);
    records_release(&serial.records);
    serial.running = false;
}

static void wait_for_event(struct record *r)
{
    pthread_mutex_lock(&serial.lock);
    while (!atomic_load(&r->completed))
        pthread_cond_wait(&serial.changed, &serial.lock);
    pthread_mutex_unlock(&serial.lock);
}

void task_spawn(const struct task *t)
{
    require(serial.running);
    records_reset(&serial.records);

    struct record *r = records_take(&serial.records, t);
    double cpu_s = serial.profiling ? clock_thread_cpu_s() : 0;
    double begin_s = clock_s();

    if (r->body)
        r->body(r->args, (struct task_event){0, t->has_event ? r : NULL});

    double end_s = clock_s();

    if (trace_is_on() && r->body)
        trace_add(r->label, &(struct trace_event){
                                .kind = TRACE_TASK, .begin_s = begin_s, .end_s = end_s});
    serial.stats.tasks++;
    serial.stats.busy_s += end_s - begin_s;
    if (serial.profiling)
        label_times_add(&serial.times, r->label, end_s - begin_s,
                        clock_thread_cpu_s() - cpu_s);
    if (t->has_event) {
        wait_for_event(r);
        serial.stats.all_idle_s += clock_s() - end_s;
    }
}

void task_wait_all(void)
{
}

void task_event_complete(struct task_event event)
{
    struct record *r = event.record;

    pthread_mutex_lock(&serial.lock);
    if (atomic_exchange(&r->completed, true))
        bug("%s: event completed twice", r->label);
    pthread_cond_broadcast(&serial.changed);
    pthread_mutex_unlock(&serial.lock);
}

void task_stats_reset(void)
{
    memset(&serial.stats, 0, sizeof serial.stats);
}

void task_stats_get(struct task_stats *out)
{
    *out = serial.stats;
    out->workers = 1;
}

void task_profile_start(void)
{
    serial.times.n = 0;
    serial.profiling = true;
}

void task_profile_stop(void)
{
    serial.profiling = false;
}

size_t task_profile_get(struct task_label *out, size_t most)
{
    return label_times_sum(&serial.times, 1, out, most);
}

void task_shuffle(uint64_t seed)
{
    (void)seed; /* one order only */
}

const char *task_backend(void)
{
    return "serial";
}
