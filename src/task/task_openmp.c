/* SPDX-License-Identifier: MIT */
/* OpenMP back end: one parallel region is the team, its thread 0 is the creator.
 *
 * Invariants. The creator is the only thread that makes tasks, and it never waits inside
 * an OpenMP construct: it naps at a doorbell until few enough tasks are unfinished.
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
#include "base/trace.h"
#include "task/doorbell.h"
#include "task/team.h"

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
    READERS_PER_FENCE = 1 << 16
};

static struct {
    long limit;     /* of unfinished tasks, for the runtime's sake */
    size_t readers; /* `in` dependencies since the last fence */

    _Alignas(CACHE_LINE) atomic_long target; /* unfinished at which the creator wakes */
    struct doorbell creator;

    _Alignas(CACHE_LINE) _Atomic(struct record *) completed; /* events to hand over */
    atomic_bool stop;
    _Atomic uint64_t vain_ns; /* when a woken worker last found nothing */
    _Atomic uint64_t hold_ns; /* how long that forbids to ring on suspicion */
    struct doorbell workers;
} omp = {.creator = DOORBELL_INIT, .workers = DOORBELL_INIT, .limit = LONG_MAX};

static _Thread_local int seat; /* 0: the creator's */
static _Thread_local bool ran; /* a body has run since this worker last looked */

static void set_default(const char *name, const char *value)
{
    setenv(name, value, 0);
}

void task_configure_runtime(void)
{
    team_configure();
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
}

/* Finishing */

/* The doorbell outlives the window. */
static void take_part(struct record *r)
{
    long left;

    if (team_take_part(r, &left) && left == atomic_load(&omp.target))
        doorbell_ring(&omp.creator);
}

static void nap_until_at_most(long target)
{
    atomic_store(&omp.target, target);
    while (atomic_load(&team.unfinished) > target) {
        unsigned ticket = doorbell_enter(&omp.creator);

        if (atomic_load(&team.unfinished) > target)
            doorbell_sleep(&omp.creator, ticket, -1);
        else
            doorbell_leave(&omp.creator);
    }
    atomic_store(&omp.target, -1);
}

/* Waking workers (libomp) */

static uint64_t now_ns(double now_s)
{
    return (uint64_t)(now_s * 1e9);
}

/* There may be more work than this: wakes one worker, unless one has just been woken in
 * vain (its nap, which ends by itself, then stands in for the ring). */
static void ring_on_suspicion(void)
{
    if (WORKERS_LOOP && atomic_load(&omp.workers.sleepers) > 0 &&
        now_ns(clock_s()) - atomic_load(&omp.vain_ns) > atomic_load(&omp.hold_ns))
        doorbell_ring(&omp.workers);
}

/* What a worker found that was rung for. */
static void learn_from_ring(bool found)
{
    uint64_t hold = atomic_load(&omp.hold_ns);

    if (found) {
        atomic_store(&omp.hold_ns, HOLD_MIN_NS);
    } else {
        atomic_store(&omp.hold_ns, hold * 2 < HOLD_MAX_NS ? hold * 2 : HOLD_MAX_NS);
        atomic_store(&omp.vain_ns, now_ns(clock_s()));
    }
}

/* Bodies */

static void run_body(struct record *r, uintptr_t event)
{
    /* A libgomp creator that runs a body would then lose the event. */
    if (!WORKERS_LOOP && event && seat == 0)
        bug("%s: the OpenMP runtime ran it on the creator", r->label);
    /* Relaxed, like the meter: tasks without a dependency must look unordered to race
     * checkers. */
    if (atomic_load_explicit(&team.unfinished, memory_order_relaxed) >
        (long)meter_running(&team.meter) + 1)
        ring_on_suspicion();
    team_run_body(r, seat, (struct task_event){event, event ? r : NULL});
    ran = true;
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
    r->next = atomic_load_explicit(&omp.completed, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&omp.completed, &r->next, r))
        ;
    doorbell_ring(&omp.workers);
}

/* Workers (libomp) */

/* Whether there was one. The list is last in first out; order does not matter. */
static bool hand_over_events(void)
{
    struct record *r = atomic_exchange(&omp.completed, NULL);

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
    if (atomic_load(&omp.completed) && hand_over_events())
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
    unsigned ticket = doorbell_enter(&omp.workers);

    if (!atomic_load(&omp.stop) && !find_work())
        return doorbell_sleep(&omp.workers, ticket, us);
    doorbell_leave(&omp.workers);
    return false;
}

static void worker_loop(void)
{
    int looks = omp_get_max_task_priority() > 0 ? 2 : 2 * team.seats;
    long nap_us = NAP_MIN_US;
    bool found = true;

    while (!atomic_load(&omp.stop)) {
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

void task_spawn(const struct task *t)
{
    int priority;

    if (atomic_load(&team.unfinished) >= omp.limit)
        nap_until_at_most(omp.limit / 2);

    struct record *r = team_add(t, &priority);

    omp.readers += t->n_in;
    /* Above 0, else libomp keeps it in a queue of this thread's own. */
    make_task(r, t, priority + 1);
    ring_on_suspicion();
}

/* libomp remembers every reader of an address until its next writer, and a step that
 * only reads (validation, sampling) never writes its weights. A task that depends on all
 * memory makes it forget. */
static void forget_readers(void)
{
    static const struct task fence = {.label = "fence"};
    struct record *r = records_take(&team.records, &fence);

    omp.readers = 0;
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
    if (WORKERS_LOOP && omp.readers > READERS_PER_FENCE)
        forget_readers();
    if (atomic_load(&team.unfinished) > (long)meter_running(&team.meter))
        doorbell_ring(&omp.workers);
    nap_until_at_most(0);
    team_window_close();
}

/* The team */

static void omp_open(int threads)
{
    team_open(threads, threads - 1);
    omp.readers = 0;
    atomic_store(&omp.stop, false);
    atomic_store(&omp.target, -1);
    atomic_store(&omp.vain_ns, 0);
    atomic_store(&omp.hold_ns, HOLD_MIN_NS);
    /* Lags: each thread may still have one task that is finished for us only. */
    if (!WORKERS_LOOP)
        omp.limit = 63 * (long)threads - 8;
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
    if (omp_get_num_threads() != team.seats)
        bug("tasks: the OpenMP runtime gave %d threads, needs %d: unset "
            "OMP_THREAD_LIMIT",
            omp_get_num_threads(), team.seats);
    probe_workers();
    creator(arg);
    task_wait_all();
    atomic_store(&omp.stop, true);
    doorbell_ring_all(&omp.workers);
}

void task_run(int workers, void (*creator)(void *arg), void *arg)
{
    require(workers >= 1);
    omp_open(workers + 1);
    omp_set_dynamic(0);
#pragma omp parallel num_threads(workers + 1)
    {
        seat = omp_get_thread_num();
        trace_set_lane(TRACE_CREATOR + seat);
        if (seat == 0)
            lead(creator, arg);
        else if (WORKERS_LOOP)
            worker_loop();
    }
    team_close();
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
