/* SPDX-License-Identifier: MIT */
/* OpenMP back end: one parallel region is the team, its thread 0 is the creator.
 *
 * Invariants. The creator is the only thread that makes tasks, and it never waits inside
 * an OpenMP construct: it naps at a doorbell. `unfinished` counts spawned tasks whose
 * body or event is still to come; the runtime may still be busy with a task after that
 * (releasing what depends on it), but it no longer touches anything of ours.
 *
 * The two runtimes differ in how an idle worker waits and who may complete an event:
 * - libomp (clang): its own waiting either burns a core or may sleep through work. Here
 *   workers loop over taskyield, which runs one ready task, and nap at a doorbell when
 *   there is none. Naps are short, so that a ring that is missing costs time only.
 *   Completed events are put on a list that workers empty: in the team, completion
 *   releases what depends on the task at once.
 * - libgomp (gcc): taskyield does nothing, so workers wait in the region's barrier, which
 *   sleeps. Any thread completes events itself. A creator that makes more than
 *   64 x threads tasks would run bodies itself and lose events, so it naps before.
 * The measurements behind this are in docs/decisions/002-task-backend.md.
 */
#include "task/task.h"

#include <limits.h>
#include <omp.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "base/trace.h"
#include "task/doorbell.h"
#include "task/label_times.h"
#include "task/meter.h"
#include "task/records.h"

#ifdef __clang__
#    define WORKERS_LOOP 1
#else
#    define WORKERS_LOOP 0
#endif

enum {
    NAP_MIN_US = 100,
    NAP_MAX_US = 2000,
    HOLD_MIN_NS = 50000, /* no ring on suspicion so soon after one in vain; grows */
    HOLD_MAX_NS = 400000,
    SHUFFLE_DELAY_US = 200,
    SHUFFLE_LEVELS = 16, /* few: the runtime searches a list of priorities */
    READERS_PER_FENCE = 1 << 16
};

/* One a thread, written by that thread only; the creator reads it when all is done. */
struct slot {
    _Alignas(CACHE_LINE) uint64_t tasks;
    double busy_s;
};

static struct {
    struct slot *slots;
    int threads;               /* workers and creator */
    struct label_times *times; /* one a thread, like the slots; NULL before the first */
    bool profiling;
    struct records records;
    long limit;       /* of unfinished tasks, for the runtime's sake */
    size_t readers;   /* `in` dependencies since the last fence */
    uint64_t seed;    /* of the shuffling; 0: none */
    uint64_t spawned; /* since task_run */
    bool running;

    _Alignas(CACHE_LINE) atomic_long unfinished;
    atomic_long target; /* the creator sleeps until unfinished falls to this */
    struct doorbell creator;

    _Alignas(CACHE_LINE) struct meter meter;

    _Alignas(CACHE_LINE) _Atomic(struct record *) completed; /* events to hand over */
    atomic_bool stop;
    _Atomic uint64_t vain_ns; /* when a woken worker last found nothing */
    _Atomic uint64_t hold_ns; /* how long that forbids to ring on suspicion */
    struct doorbell workers;
} team = {.creator = DOORBELL_INIT, .workers = DOORBELL_INIT, .limit = LONG_MAX};

static _Thread_local struct slot *own;
static _Thread_local bool ran; /* a body has run since this worker last looked */

static void set_default(const char *name, const char *value)
{
    setenv(name, value, 0);
}

void task_configure_runtime(void)
{
    const char *shuffle = getenv("WEFT_TASK_SHUFFLE");

    /* libgomp has read its environment before main(); for it these are no more than
     * what the user may set outside. */
    set_default("OMP_MAX_TASK_PRIORITY", "1001"); /* TASK_PRIORITY_MAX + 1 */
    if (WORKERS_LOOP) {
        /* Lets taskyield run tasks that are no children of the worker's own. */
        set_default("KMP_TASK_STEALING_CONSTRAINT", "0");
        /* A full queue must grow; else the creator runs bodies. */
        set_default("KMP_ENABLE_TASK_THROTTLING", "0");
        /* Between two teams threads sleep instead of spinning for 200 ms. */
        set_default("KMP_BLOCKTIME", "0");
        set_default("LIBOMP_USE_HIDDEN_HELPER_TASK", "0");
    }
    if (shuffle)
        team.seed = strtoull(shuffle, NULL, 0);
}

/* Finishing */

/* The counter is the last thing a finishing thread touches that belongs to the window;
 * the doorbell outlives it. */
static void take_part(struct record *r)
{
    if (atomic_fetch_sub_explicit(&r->parts, 1, memory_order_acq_rel) != 1)
        return;
    long left = atomic_fetch_sub(&team.unfinished, 1) - 1;
    if (left == atomic_load(&team.target))
        doorbell_ring(&team.creator);
}

/* Only of the creator. Everything spawned has finished: records and idle time are
 * settled. */
static void window_close(void)
{
    meter_window_close(&team.meter);
    records_reset(&team.records);
}

static void nap_until_at_most(long target)
{
    atomic_store(&team.target, target);
    while (atomic_load(&team.unfinished) > target) {
        unsigned ticket = doorbell_enter(&team.creator);

        if (atomic_load(&team.unfinished) > target)
            doorbell_sleep(&team.creator, ticket, -1);
        else
            doorbell_leave(&team.creator);
    }
    atomic_store(&team.target, -1);
}

/* Waking workers (libomp) */

static uint64_t now_ns(double now_s)
{
    return (uint64_t)(now_s * 1e9);
}

/* There may be more work than this: wakes one worker, unless one has just been woken in
 * vain (its nap, which ends by itself, then stands in for the ring). */
static void ring_on_suspicion(double now_s)
{
    if (WORKERS_LOOP && atomic_load(&team.workers.sleepers) > 0 &&
        now_ns(now_s) - atomic_load(&team.vain_ns) > atomic_load(&team.hold_ns))
        doorbell_ring(&team.workers);
}

/* What a worker found that was rung for. */
static void learn_from_ring(bool found)
{
    uint64_t hold = atomic_load(&team.hold_ns);

    if (found) {
        atomic_store(&team.hold_ns, HOLD_MIN_NS);
    } else {
        atomic_store(&team.hold_ns, hold * 2 < HOLD_MAX_NS ? hold * 2 : HOLD_MAX_NS);
        atomic_store(&team.vain_ns, now_ns(clock_s()));
    }
}

/* Bodies */

static void run_body(struct record *r, uintptr_t event)
{
    /* Pairs with records_take(): runtimes order this too, but not for race checkers. */
    (void)atomic_load_explicit(&r->parts, memory_order_acquire);
    struct slot *s = own;

    /* A libgomp creator that runs a body would then lose the event. */
    if (!WORKERS_LOOP && event && s == team.slots)
        bug("%s: the OpenMP runtime ran it on the creator", r->label);
    if (r->delay_us > 0)
        clock_nap_us((long)r->delay_us);

    struct label_times *times = team.profiling ? &team.times[s - team.slots] : NULL;
    double cpu_s = times ? clock_thread_cpu_s() : 0;
    double begin_s = clock_s();

    meter_body_begin(&team.meter, begin_s);
    /* Relaxed, like the meter: tasks without a dependency must look unordered to race
     * checkers. */
    if (atomic_load_explicit(&team.unfinished, memory_order_relaxed) >
        (long)meter_running(&team.meter))
        ring_on_suspicion(begin_s);
    if (r->body)
        r->body(r->args, (struct task_event){event, event ? r : NULL});

    double end_s = clock_s();

    s->tasks++;
    s->busy_s += end_s - begin_s;
    if (times)
        label_times_add(times, r->label, end_s - begin_s, clock_thread_cpu_s() - cpu_s);
    ran = true;
    meter_body_end(&team.meter, end_s);
    if (trace_is_on() && r->body)
        trace_add(r->label, &(struct trace_event){
                                .kind = TRACE_TASK, .begin_s = begin_s, .end_s = end_s});
    take_part(r);
}

/* Hands a completed event to the runtime. From then on what depends on the task may run;
 * the task itself is finished for us afterwards. */
static void fulfill(struct record *r)
{
    omp_event_handle_t handle = (omp_event_handle_t)r->handle;

    omp_fulfill_event(handle);
    meter_event_finish(&team.meter, clock_s());
    take_part(r);
}

void task_event_complete(struct task_event event)
{
    struct record *r = event.record;

    if (atomic_exchange(&r->completed, true))
        bug("%s: event completed twice", r->label);
    r->handle = event.handle;
    if (!WORKERS_LOOP) {
        fulfill(r);
        return;
    }
    r->next = atomic_load_explicit(&team.completed, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&team.completed, &r->next, r))
        ;
    doorbell_ring(&team.workers);
}

/* Workers (libomp) */

/* Whether there was one. The list is last in first out; order does not matter. */
static bool hand_over_events(void)
{
    struct record *r = atomic_exchange(&team.completed, NULL);

    if (!r)
        return false;
    while (r) {
        struct record *next = r->next; /* r is gone after fulfill() */

        fulfill(r);
        r = next;
    }
    return true;
}

static bool find_work(void)
{
    if (atomic_load(&team.completed) && hand_over_events())
        return true;
    ran = false;
#pragma omp taskyield
    return ran;
}

/* With priorities on, all ready tasks are in one queue that a single look reaches. Else
 * a look tries one other thread's queue at random. */
static bool search_work(int looks)
{
    for (int i = 0; i < looks; i++)
        if (find_work())
            return true;
    return false;
}

/* Sleeps unless there is work after all. Returns whether it was rung for. */
static bool nap(long us)
{
    unsigned ticket = doorbell_enter(&team.workers);

    if (!atomic_load(&team.stop) && !find_work())
        return doorbell_sleep(&team.workers, ticket, us);
    doorbell_leave(&team.workers);
    return false;
}

static void worker_loop(void)
{
    int looks = omp_get_max_task_priority() > 0 ? 2 : 2 * team.threads;
    long nap_us = NAP_MIN_US;
    bool found = true;

    while (!atomic_load(&team.stop)) {
        bool rung = !found && nap(nap_us);

        found = search_work(looks);
        if (rung)
            learn_from_ring(found);
        if (found)
            nap_us = NAP_MIN_US;
        else if (nap_us < NAP_MAX_US)
            nap_us *= 2;
    }
}

/* Spawning */

static void make_free_task(struct record *r, bool has_event, int priority)
{
    if (has_event) {
        omp_event_handle_t event = (omp_event_handle_t)0; /* set by the pragma */
#pragma omp task detach(event) firstprivate(r) priority(priority)
        run_body(r, (uintptr_t)event);
    } else {
#pragma omp task firstprivate(r) priority(priority)
        run_body(r, 0);
    }
}

/* The pragmas name the bytes at the sentinels; only their addresses are taken. One of
 * the lists may be empty, both may not: compilers make an array of them. */
static void make_task(struct record *r, const struct task *t, int priority)
{
    if (t->n_in + t->n_out == 0) {
        make_free_task(r, t->has_event, priority);
    } else if (t->has_event) {
        omp_event_handle_t event = (omp_event_handle_t)0;
#pragma omp task detach(event) firstprivate(r) priority(priority)                        \
    depend(iterator(size_t i = 0                                                         \
                    : t->n_in),                                                          \
           in                                                                            \
           : *(const char *)t->in[i]) depend(iterator(size_t j = 0                       \
                                                      : t->n_out),                       \
                                             inout                                       \
                                             : *(const char *)t->out[j])
        run_body(r, (uintptr_t)event);
    } else {
#pragma omp task firstprivate(r) priority(priority) depend(iterator(size_t i = 0         \
                                                                    : t->n_in),          \
                                                           in                            \
                                                           : *(const char *)t->in[i])    \
    depend(iterator(size_t j = 0                                                         \
                    : t->n_out),                                                         \
           inout                                                                         \
           : *(const char *)t->out[j])
        run_body(r, 0);
    }
}

static int shuffled(struct record *r, int priority)
{
    if (team.seed == 0)
        return priority;
    uint64_t bits = rng_bits(team.seed, 0, team.spawned);

    /* Half of the tasks start at once. */
    r->delay_us = bits & 1 ? (unsigned)(bits >> 8 & 0xffff) % SHUFFLE_DELAY_US : 0;
    return (int)(bits >> 32 & 0xffff) % SHUFFLE_LEVELS;
}

void task_spawn(const struct task *t)
{
    require(team.running);
    if (atomic_load(&team.unfinished) >= team.limit)
        nap_until_at_most(team.limit / 2);
    if (atomic_load(&team.unfinished) == 0) {
        window_close();
        meter_window_open(&team.meter, clock_s());
    }

    struct record *r = records_take(&team.records, t);
    int priority = t->priority < 0 ? 0 : t->priority;

    if (priority > TASK_PRIORITY_MAX)
        priority = TASK_PRIORITY_MAX;
    priority = shuffled(r, priority);
    team.spawned++;
    team.readers += t->n_in;
    atomic_fetch_add(&team.unfinished, 1);
    /* Above 0, else libomp keeps it in a queue of this thread's own. */
    make_task(r, t, priority + 1);
    if (atomic_load(&team.workers.sleepers) > 0)
        ring_on_suspicion(clock_s());
}

/* libomp remembers every reader of an address until its next writer, and a step that
 * only reads (validation, sampling) never writes its weights. A task that depends on all
 * memory makes it forget. */
static void forget_readers(void)
{
    static const struct task fence = {.label = "fence"};
    struct record *r = records_take(&team.records, &fence);

    team.readers = 0;
    atomic_fetch_add(&team.unfinished, 1);
#if WORKERS_LOOP
#    pragma omp task firstprivate(r) depend(inout : omp_all_memory)
#else
#    pragma omp task firstprivate(r)
#endif
    take_part(r);
}

void task_wait_all(void)
{
    if (WORKERS_LOOP && team.readers > READERS_PER_FENCE)
        forget_readers();
    if (atomic_load(&team.unfinished) > (long)meter_running(&team.meter))
        doorbell_ring(&team.workers);
    nap_until_at_most(0);
    window_close();
}

/* The team */

static void team_init(int threads)
{
    size_t bytes = (size_t)threads * sizeof(struct slot);

    team.slots = aligned_alloc(CACHE_LINE, bytes);
    if (!team.slots)
        bug("tasks: no memory for %zu bytes", bytes);
    team.running = true;
    team.readers = 0;
    team.spawned = 0;
    atomic_store(&team.stop, false);
    atomic_store(&team.target, -1);
    atomic_store(&team.vain_ns, 0);
    atomic_store(&team.hold_ns, HOLD_MIN_NS);
    /* Lags: each thread may still have one task that is finished for us only. */
    if (!WORKERS_LOOP)
        team.limit = 63 * (long)threads - 8;
    team.threads = threads;
    task_stats_reset();
}

static void team_release(void)
{
    records_release(&team.records);
    free(team.slots);
    free(team.times);
    team.slots = NULL;
    team.times = NULL;
    team.profiling = false;
    team.running = false;
}

/* A runtime that was set up otherwise would let every task wait for ever: better said at
 * once. */
static void probe_workers(void)
{
    static const struct task probe = {.label = "probe"};
    double begin_s = clock_s();

    task_spawn(&probe);
    while (WORKERS_LOOP && atomic_load(&team.unfinished) > 0) {
        if (clock_s() - begin_s > 20)
            bug("tasks: the OpenMP runtime runs none: needs "
                "KMP_TASK_STEALING_CONSTRAINT=0 before its first use");
        clock_nap_us(20);
    }
    task_wait_all();
    task_stats_reset();
}

static void lead(void (*creator)(void *arg), void *arg)
{
    if (omp_get_num_threads() != team.threads)
        bug("tasks: the OpenMP runtime gave %d threads, needs %d: unset "
            "OMP_THREAD_LIMIT",
            omp_get_num_threads(), team.threads);
    probe_workers();
    creator(arg);
    task_wait_all();
    atomic_store(&team.stop, true);
    doorbell_ring_all(&team.workers);
}

void task_run(int workers, void (*creator)(void *arg), void *arg)
{
    require(workers >= 1);
    require(!team.running);
    team_init(workers + 1);
    omp_set_dynamic(0);
#pragma omp parallel num_threads(workers + 1)
    {
        own = &team.slots[omp_get_thread_num()];
        trace_set_lane(TRACE_CREATOR + omp_get_thread_num());
        if (own == team.slots)
            lead(creator, arg);
        else if (WORKERS_LOOP)
            worker_loop();
    }
    team_release();
}

void task_stats_reset(void)
{
    for (int i = 0; i < team.threads; i++)
        team.slots[i] = (struct slot){.tasks = 0};
    meter_reset(&team.meter, clock_s());
}

void task_stats_get(struct task_stats *out)
{
    *out = (struct task_stats){.workers = team.threads - 1,
                               .all_idle_s = meter_idle_s(&team.meter)};
    for (int i = 0; i < team.threads; i++) {
        out->tasks += team.slots[i].tasks;
        out->busy_s += team.slots[i].busy_s;
    }
}

void task_profile_start(void)
{
    size_t bytes = (size_t)team.threads * sizeof *team.times;

    if (!team.times)
        team.times = aligned_alloc(CACHE_LINE, bytes);
    if (!team.times)
        bug("tasks: no memory for %zu bytes", bytes);
    for (int i = 0; i < team.threads; i++)
        team.times[i].n = 0;
    team.profiling = true;
}

void task_profile_stop(void)
{
    team.profiling = false;
}

size_t task_profile_get(struct task_label *out, size_t most)
{
    return team.times ? label_times_sum(team.times, (size_t)team.threads, out, most) : 0;
}

void task_shuffle(uint64_t seed)
{
    team.seed = seed;
}

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

const char *task_backend(void)
{
#ifdef __clang__
    return "OpenMP (LLVM " TEXT_OF(__clang_major__) ")";
#else
    return "OpenMP (GCC " TEXT_OF(__GNUC__) ")";
#endif
}
