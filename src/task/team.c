/* SPDX-License-Identifier: MIT */
#include "task/team.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/rng.h"
#include "base/trace.h"
#include "task/label_times.h"

enum {
    SHUFFLE_DELAY_US = 200,
    SHUFFLE_LEVELS = 16 /* few: a runtime may search a list of priorities */
};

struct slot {
    _Alignas(CACHE_LINE) uint64_t tasks;
    double busy_s;
};

struct team team;

static struct slot *slots;
static struct label_times *times; /* one a seat; NULL before the first profile */
static bool profiling;
static uint64_t seed; /* of the shuffling; 0: none */

static void *seats_alloc(size_t bytes)
{
    void *all = aligned_alloc(CACHE_LINE, (size_t)team.seats * bytes);

    if (!all)
        bug("tasks: no memory for %zu bytes", (size_t)team.seats * bytes);
    return all;
}

void team_configure(void)
{
    const char *shuffle = getenv("WEFT_TASK_SHUFFLE");

    if (shuffle)
        seed = strtoull(shuffle, NULL, 0);
}

void team_open(int seats, int workers)
{
    require(!team.running);
    team.seats = seats;
    team.workers = workers;
    slots = seats_alloc(sizeof *slots);
    team.running = true;
    team.spawned = 0;
    task_stats_reset();
}

void team_close(void)
{
    records_release(&team.records);
    free(slots);
    free(times);
    slots = NULL;
    times = NULL;
    profiling = false;
    team.running = false;
}

/* Idle time is settled with the records. */
void team_window_close(void)
{
    meter_window_close(&team.meter);
    records_reset(&team.records);
}

static int shuffled(struct record *r, int priority)
{
    if (seed == 0)
        return priority;
    uint64_t bits = rng_bits(seed, 0, team.spawned);

    /* Half of the tasks start at once. */
    r->delay_us = bits & 1 ? (unsigned)(bits >> 8 & 0xffff) % SHUFFLE_DELAY_US : 0;
    return (int)(bits >> 32 & 0xffff) % SHUFFLE_LEVELS;
}

struct record *team_add(const struct task *t, int *priority)
{
    require(team.running);
    if (atomic_load(&team.unfinished) == 0) {
        team_window_close();
        meter_window_open(&team.meter, clock_s());
    }

    struct record *r = records_take(&team.records, t);
    int wanted = t->priority < 0 ? 0 : t->priority;

    *priority = shuffled(r, wanted > TASK_PRIORITY_MAX ? TASK_PRIORITY_MAX : wanted);
    team.spawned++;
    atomic_fetch_add(&team.unfinished, 1);
    return r;
}

void team_run_body(struct record *r, int seat, struct task_event event)
{
    struct slot *s = &slots[seat];

    /* Pairs with records_take(): runtimes order this too, but not for race checkers. */
    (void)atomic_load_explicit(&r->parts, memory_order_acquire);
    if (r->delay_us > 0)
        clock_nap_us((long)r->delay_us);

    double cpu_s = profiling ? clock_thread_cpu_s() : 0;
    double begin_s = clock_s();

    meter_body_begin(&team.meter, begin_s);
    if (r->body)
        r->body(r->args, event);

    double end_s = clock_s();

    s->tasks++;
    s->busy_s += end_s - begin_s;
    if (profiling)
        label_times_add(&times[seat], r->label, end_s - begin_s,
                        clock_thread_cpu_s() - cpu_s);
    meter_body_end(&team.meter, end_s);
    if (trace_is_on() && r->body)
        trace_add(r->label, &(struct trace_event){
                                .kind = TRACE_TASK, .begin_s = begin_s, .end_s = end_s});
}

/* The counter is the last thing a finishing thread touches that belongs to the window. */
bool team_take_part(struct record *r, long *left)
{
    if (atomic_fetch_sub_explicit(&r->parts, 1, memory_order_acq_rel) != 1)
        return false;
    *left = atomic_fetch_sub(&team.unfinished, 1) - 1;
    return true;
}

void task_stats_reset(void)
{
    for (int i = 0; i < team.seats; i++)
        slots[i] = (struct slot){.tasks = 0};
    meter_reset(&team.meter, clock_s());
}

void task_stats_get(struct task_stats *out)
{
    *out = (struct task_stats){.workers = team.workers,
                               .all_idle_s = meter_idle_s(&team.meter)};
    for (int i = 0; i < team.seats; i++) {
        out->tasks += slots[i].tasks;
        out->busy_s += slots[i].busy_s;
    }
}

void task_profile_start(void)
{
    if (!times)
        times = seats_alloc(sizeof *times);
    for (int i = 0; i < team.seats; i++)
        times[i].n = 0;
    profiling = true;
}

void task_profile_stop(void)
{
    profiling = false;
}

size_t task_profile_get(struct task_label *out, size_t most)
{
    return times ? label_times_sum(times, (size_t)team.seats, out, most) : 0;
}

void task_shuffle(uint64_t new_seed)
{
    seed = new_seed;
}
