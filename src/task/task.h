/* task.h - tasks with dependencies. The only home of task pragmas is src/task.
 *
 * One creator thread spawns tasks in a fixed order; workers run them. A task waits for
 * what it names: dependencies are on *sentinels*, addresses that stand for a buffer tile
 * or a slice of parameters and are never dereferenced here. The rules are OpenMP's: `in`
 * waits for the last `out`/`inout` on that address spawned before; `out` and `inout`
 * also wait for every `in` since.
 *
 * A task may have an event: it is complete (and releases what depends on it) when its
 * body has returned *and* its event has been completed, by any thread. That is how an
 * operation on the network ends a task without a worker waiting for it.
 *
 * The creator is a thread of its own besides the workers and runs no task bodies while
 * it waits: it naps. Bodies never wait for other tasks.
 *
 * Back ends, chosen when the program is built: OpenMP (task_openmp.c), OmpSs-2
 * (task_ompss2.c) and serial (task_serial.c: a task runs when it is spawned, an event is
 * waited for at once).
 */
#ifndef WEFT_TASK_TASK_H
#define WEFT_TASK_TASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Completion of one task's event; opaque, at most pointer-sized content, passed by
 * address-free value. */
struct task_event {
    uintptr_t handle;
    void *record;
};

/* A task body. `args` points at the task's own copy of its arguments; `event` is
 * meaningful only for tasks spawned with has_event. */
typedef void (*task_body)(void *args, struct task_event event);

struct task {
    const char *label; /* static string, for traces and errors */
    task_body body;    /* NULL: a task without work, that joins dependencies */
    const void *args;  /* copied at spawn */
    size_t args_bytes;
    int priority; /* 0 .. TASK_PRIORITY_MAX, higher runs earlier; a hint */
    bool has_event;
    const void *const *in; /* sentinels; arrays are read at spawn and not kept */
    size_t n_in;
    const void *const *out; /* inout: waits for readers and the last writer */
    size_t n_out;
};

enum { TASK_PRIORITY_MAX = 1000 };

/* What the workers did since task_stats_reset(). */
struct task_stats {
    int workers;       /* threads that run bodies */
    uint64_t tasks;    /* bodies run */
    double busy_s;     /* sum over workers of time inside bodies */
    double all_idle_s; /* wall time in which no body ran while tasks were unfinished */
};

/* Process-wide settings the runtime reads from its environment at its first use (queue
 * throttling, priorities, waiting policy). Call first thing in main(), before any other
 * thread exists. */
void task_configure_runtime(void);

/* Runs creator(arg) on the creator thread of a team of `workers` worker threads and
 * returns when it has returned and every task has finished. Not reentrant. workers >= 1.
 * The serial back end ignores `workers`; OmpSs-2 has one a CPU of the process at most.
 * The calling thread becomes the creator (OmpSs-2: sleeps, and has the creator's
 * fail_text() afterwards); it must be the same for all calls and live as long as the
 * program (libomp crashes after the end of a thread that has led a team). */
void task_run(int workers, void (*creator)(void *arg), void *arg);

/* From the creator only. May nap when too many tasks are unfinished for the runtime. */
void task_spawn(const struct task *t);

/* From the creator only: naps until every spawned task has finished. Everything their
 * bodies wrote is visible afterwards. */
void task_wait_all(void);

/* From any thread, exactly once for each spawned task with has_event, during or after
 * its body. */
void task_event_complete(struct task_event event);

/* From the creator, between task_wait_all() and the next spawn. */
void task_stats_reset(void);
void task_stats_get(struct task_stats *out);

/* Where the workers' time goes, by the labels of their tasks. Off unless asked for: it
 * costs two readings of the thread's CPU clock a task. */
struct task_label {
    const char *label;
    uint64_t count;
    double busy_s; /* sum over workers of wall time inside bodies */
    double cpu_s;  /* the same of CPU time: less where others use the cores too */
};

/* From the creator, between task_wait_all() and the next spawn. Starting forgets what
 * was counted before; what is counted lasts until task_run() returns. */
void task_profile_start(void);
void task_profile_stop(void);
/* Writes the first `most` rows, by descending busy_s; returns the number of labels. */
size_t task_profile_get(struct task_label *out, size_t most);

/* For tests: with a seed other than 0 the order in which ready tasks start is perturbed
 * (random short delays and shuffled priorities). 0 turns it off. Set by the environment
 * variable WEFT_TASK_SHUFFLE too, in task_configure_runtime(). No effect on the serial
 * back end. */
void task_shuffle(uint64_t seed);

/* "OpenMP (LLVM 19)", "OmpSs-2 (NODES)", "serial" */
const char *task_backend(void);

/* Runs a small graph with events completed from a foreign thread and reports ST_BUG with
 * a text when the runtime releases a task too early. Takes < 1 s. If the runtime loses a
 * task, the program ends as for a broken invariant after 20 s: the team cannot be left.
 * From the thread that calls task_run(), outside of it. */
MUST_USE enum status task_self_test(int workers);

#endif
