/* SPDX-License-Identifier: MIT */
/* Tasks without events: order against a reference, arguments, windows, statistics. */
#include <stdatomic.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/rng.h"
#include "task/task.h"

#include <cmocka.h> /* last: it has a macro named fail */

enum { CELLS = 23, MAX_DEPS = 6, MANY = 600 };

static bool is_serial(void)
{
    return strcmp(task_backend(), "serial") == 0;
}

/* Random graphs. A task reads some cells and rewrites others; the result depends on the
 * order of every pair of tasks that share a cell which one of them writes. */

struct cell {
    uint64_t value;
    atomic_int readers;
    atomic_int writers;
};

struct step {
    uint64_t id;
    unsigned n_in, n_out;
    unsigned in[MAX_DEPS], out[MAX_DEPS];
};

struct graph {
    struct cell cells[CELLS];
    uint64_t seed;
    size_t n_tasks;
    atomic_size_t clashes; /* a writer met another task in its cell */
    atomic_size_t runs;
};

struct step_args {
    struct graph *graph;
    struct step step;
};

static struct step random_step(uint64_t seed, uint64_t id)
{
    struct step s = {.id = id};
    uint64_t first = rng_bits(seed, 1, id);

    s.n_in = (unsigned)(first % MAX_DEPS);
    s.n_out = (unsigned)(first / MAX_DEPS % MAX_DEPS);
    /* Distinct cells: a slice of a permutation. */
    for (unsigned i = 0; i < s.n_in; i++)
        s.in[i] = (unsigned)rng_permute(seed, 100 + id, CELLS, i);
    for (unsigned i = 0; i < s.n_out; i++)
        s.out[i] = (unsigned)rng_permute(seed, 100 + id, CELLS, MAX_DEPS + i);
    return s;
}

static void apply(struct cell *cells, const struct step *s)
{
    uint64_t h = rng_bits(7, s->id, 0);

    for (unsigned i = 0; i < s->n_in; i++)
        h = rng_bits(h, i, cells[s->in[i]].value);
    for (unsigned i = 0; i < s->n_out; i++)
        h = rng_bits(h, i, cells[s->out[i]].value);
    for (unsigned i = 0; i < s->n_out; i++)
        cells[s->out[i]].value = rng_bits(h, 3, i);
}

static void step_body(void *args, struct task_event event)
{
    struct step_args *a = args;
    struct cell *cells = a->graph->cells;
    const struct step *s = &a->step;
    int clash = 0;

    (void)event;
    for (unsigned i = 0; i < s->n_in; i++) {
        atomic_fetch_add(&cells[s->in[i]].readers, 1);
        clash |= atomic_load(&cells[s->in[i]].writers) != 0;
    }
    for (unsigned i = 0; i < s->n_out; i++) {
        clash |= atomic_fetch_add(&cells[s->out[i]].writers, 1) != 0;
        clash |= atomic_load(&cells[s->out[i]].readers) != 0;
    }
    apply(cells, s);
    for (unsigned i = 0; i < s->n_in; i++)
        atomic_fetch_sub(&cells[s->in[i]].readers, 1);
    for (unsigned i = 0; i < s->n_out; i++)
        atomic_fetch_sub(&cells[s->out[i]].writers, 1);
    if (clash)
        atomic_fetch_add(&a->graph->clashes, 1);
    atomic_fetch_add(&a->graph->runs, 1);
}

static void spawn_step(struct graph *g, uint64_t id)
{
    struct step_args a = {g, random_step(g->seed, id)};
    const void *in[MAX_DEPS], *out[MAX_DEPS];

    for (unsigned i = 0; i < a.step.n_in; i++)
        in[i] = &g->cells[a.step.in[i]];
    for (unsigned i = 0; i < a.step.n_out; i++)
        out[i] = &g->cells[a.step.out[i]];
    task_spawn(&(struct task){.label = "step",
                              .body = step_body,
                              .args = &a,
                              .args_bytes = sizeof a,
                              .priority = (int)(id % 7),
                              .in = in,
                              .n_in = a.step.n_in,
                              .out = out,
                              .n_out = a.step.n_out});
    /* What is copied at spawn may go at once. */
    memset(&a, 0xff, sizeof a);
    memset(in, 0xff, sizeof in);
    memset(out, 0xff, sizeof out);
}

static void create_graph(void *arg)
{
    struct graph *g = arg;

    for (uint64_t id = 0; id < g->n_tasks; id++)
        spawn_step(g, id);
    /* Without task_wait_all(): task_run waits. */
}

static void check_graph(int workers, uint64_t seed, size_t n_tasks)
{
    static struct graph g;
    static struct cell expected[CELLS];

    memset(&g, 0, sizeof g);
    memset(expected, 0, sizeof expected);
    g.seed = seed;
    g.n_tasks = n_tasks;
    for (uint64_t id = 0; id < n_tasks; id++) {
        struct step s = random_step(seed, id);

        apply(expected, &s);
    }
    task_run(workers, create_graph, &g);
    assert_int_equal(atomic_load(&g.runs), n_tasks);
    assert_int_equal(atomic_load(&g.clashes), 0);
    for (unsigned c = 0; c < CELLS; c++)
        assert_int_equal(g.cells[c].value, expected[c].value);
}

static void random_graphs(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            check_graph(workers, seed, 3001);
}

static void random_graphs_shuffled(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        task_shuffle(seed);
        check_graph((int)seed, 10 + seed, 701);
    }
    task_shuffle(0);
}

/* Two readers may overlap: each waits (in this test only) until the other is there. */

static atomic_int met;

static void meet_body(void *args, struct task_event event)
{
    double begin_s = clock_s();

    (void)args;
    (void)event;
    atomic_fetch_add(&met, 1);
    while (atomic_load(&met) % 2 != 0 && clock_s() - begin_s < 20)
        clock_nap_us(10);
}

static void create_readers(void *arg)
{
    const void *cell = arg;

    for (int i = 0; i < 2; i++)
        task_spawn(
            &(struct task){.label = "reader", .body = meet_body, .in = &cell, .n_in = 1});
    task_wait_all();
}

static void readers_overlap(void **state)
{
    char cell = 0;
    double begin_s = clock_s();

    (void)state;
    if (is_serial())
        skip();
    atomic_store(&met, 0);
    task_run(2, create_readers, &cell);
    assert_int_equal(atomic_load(&met), 2);
    assert_true(clock_s() - begin_s < 15);
}

/* Any number of dependencies: a fan-out to n cells, a join over them, n = 0 .. 600. */

struct fan {
    char cells[MANY];
    atomic_int filled;
    int found[MANY + 1];
    int counts[MANY + 1];
    size_t n_counts;
};

static void fill_body(void *args, struct task_event event)
{
    struct fan *f = *(struct fan **)args;

    (void)event;
    atomic_fetch_add(&f->filled, 1);
}

struct join_args {
    struct fan *fan;
    size_t index;
    size_t n;
};

static void join_body(void *args, struct task_event event)
{
    struct join_args *j = args;

    (void)event;
    j->fan->found[j->index] = atomic_load(&j->fan->filled);
}

static void create_fans(void *arg)
{
    struct fan *f = arg;
    const void *cells[MANY];
    static const size_t sizes[] = {0, 1, 2, 3, 7, 16, 63, 64, 65, 127, 255, 599, MANY};

    for (size_t c = 0; c < MANY; c++)
        cells[c] = &f->cells[c];
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes * 2; k++) {
        size_t n = sizes[k / 2];
        struct join_args j = {f, k, n};
        struct task join = {
            .label = "join", .body = join_body, .args = &j, .args_bytes = sizeof j};

        if (k % 2 == 0) {
            join.in = cells;
            join.n_in = n;
        } else {
            join.out = cells;
            join.n_out = n;
        }
        atomic_store(&f->filled, 0);
        for (size_t c = 0; c < n; c++)
            task_spawn(&(struct task){.label = "fill",
                                      .body = fill_body,
                                      .args = &f,
                                      .args_bytes = sizeof f,
                                      .out = &cells[c],
                                      .n_out = 1});
        task_spawn(&join);
        task_wait_all();
        f->counts[k] = (int)n;
        f->n_counts++;
    }
}

static void dependency_counts(void **state)
{
    static struct fan f;

    (void)state;
    task_run(3, create_fans, &f);
    assert_int_equal(f.n_counts, 26);
    for (size_t k = 0; k < f.n_counts; k++)
        assert_int_equal(f.found[k], f.counts[k]);
}

/* The same sentinel named twice in a task, as reader and as writer. */

static void add_body(void *args, struct task_event event)
{
    int **p = args;

    (void)event;
    **p = **p * 3 + 1;
}

static void create_twice(void *arg)
{
    int *value = arg;
    const void *twice[2] = {value, value};

    for (int i = 0; i < 15; i++)
        task_spawn(&(struct task){.label = "twice",
                                  .body = add_body,
                                  .args = &value,
                                  .args_bytes = sizeof value,
                                  .in = twice,
                                  .n_in = (size_t)(i % 3),
                                  .out = twice,
                                  .n_out = 1 + (size_t)(i % 2)});
    task_wait_all();
}

static void sentinel_named_twice(void **state)
{
    int value = 0, expected = 0;

    (void)state;
    for (int i = 0; i < 15; i++)
        expected = expected * 3 + 1;
    task_run(2, create_twice, &value);
    assert_int_equal(value, expected);
}

/* Arguments of many sizes are copied, whole and aligned; larger than a chunk too. */

struct blob_result {
    atomic_int wrong;
    atomic_int seen;
};

static void blob_body(void *args, struct task_event event)
{
    unsigned char *bytes = args;
    struct blob_result *result;
    size_t n;

    (void)event;
    memcpy(&result, bytes, sizeof result);
    memcpy(&n, bytes + sizeof result, sizeof n);
    if ((uintptr_t)args % 16 != 0)
        atomic_fetch_add(&result->wrong, 1);
    for (size_t i = sizeof result + sizeof n; i < n; i++)
        if (bytes[i] != (unsigned char)(i * 31 + n))
            atomic_fetch_add(&result->wrong, 1);
    atomic_fetch_add(&result->seen, 1);
}

static void create_blobs(void *arg)
{
    struct blob_result *result = arg;

    for (int round = 0; round < 3; round++) {
        for (size_t n = 16; n < 700000; n = n * 5 / 3 + 1) {
            unsigned char *bytes = malloc(n);

            assert_non_null(bytes);
            for (size_t i = 0; i < n; i++)
                bytes[i] = (unsigned char)(i * 31 + n);
            memcpy(bytes, &result, sizeof result);
            memcpy(bytes + sizeof result, &n, sizeof n);
            task_spawn(&(struct task){
                .label = "blob", .body = blob_body, .args = bytes, .args_bytes = n});
            memset(bytes, 0xee, n);
            free(bytes);
        }
        if (round > 0)
            task_wait_all();
    }
}

static void arguments_are_copied(void **state)
{
    struct blob_result result = {0, 0};

    (void)state;
    task_run(2, create_blobs, &result);
    assert_int_equal(atomic_load(&result.wrong), 0);
    assert_int_equal(atomic_load(&result.seen), 3 * 21);
}

/* Thousands of small windows; weights that are only read must not pile up anything. */

struct windows {
    int64_t sum;
    int64_t expected;
    size_t bad;
    long grown_kib;
};

struct sum_args {
    int64_t *sum;
    int64_t add;
};

static void sum_body(void *args, struct task_event event)
{
    struct sum_args *a = args;

    (void)event;
    *a->sum += a->add;
}

static long resident_kib(void)
{
    long pages = 0, ignored;
    FILE *f = fopen("/proc/self/statm", "r");

    if (!f || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
        pages = 0;
    if (f)
        fclose(f);
    return pages * 4;
}

static void create_windows(void *arg)
{
    struct windows *w = arg;
    static char weights[40];
    const void *in[40];
    const void *out = &w->sum;
    long before = 0;

    for (size_t i = 0; i < 40; i++)
        in[i] = &weights[i];
    for (int64_t i = 0; i < 4000; i++) {
        for (int64_t k = 0; k < i % 4; k++) {
            struct sum_args a = {&w->sum, i * k};

            w->expected += i * k;
            task_spawn(&(struct task){.label = "sum",
                                      .body = sum_body,
                                      .args = &a,
                                      .args_bytes = sizeof a,
                                      .in = in,
                                      .n_in = 40,
                                      .out = &out,
                                      .n_out = 1});
        }
        task_wait_all();
        w->bad += w->sum != w->expected;
        if (i == 1999)
            before = resident_kib();
    }
    w->grown_kib = resident_kib() - before;
}

static void many_windows(void **state)
{
    struct windows w = {0, 0, 0, 0};

    (void)state;
    task_run(2, create_windows, &w);
    assert_int_equal(w.bad, 0);
    print_message("resident memory grew by %ld KiB in 2000 windows\n", w.grown_kib);
    /* Left to itself libomp keeps over 7 MiB here: 3000 tasks x 40 readers x 64 bytes. */
    assert_true(w.grown_kib < 2048);
}

/* A task without a body joins dependencies. */

static void create_bodyless(void *arg)
{
    int *values = arg;
    const void *cells[3] = {&values[0], &values[1], &values[2]};

    for (int i = 0; i < 2; i++) {
        int *p = &values[i];

        task_spawn(&(struct task){.label = "left, right",
                                  .body = add_body,
                                  .args = &p,
                                  .args_bytes = sizeof p,
                                  .out = &cells[i],
                                  .n_out = 1});
    }
    task_spawn(&(struct task){
        .label = "join", .in = cells, .n_in = 2, .out = &cells[2], .n_out = 1});
    for (int i = 0; i < 2; i++) {
        int *p = &values[i];

        task_spawn(&(struct task){.label = "after",
                                  .body = add_body,
                                  .args = &p,
                                  .args_bytes = sizeof p,
                                  .in = &cells[2],
                                  .n_in = 1});
    }
}

static void task_without_body(void **state)
{
    int values[3] = {0, 0, 0};

    (void)state;
    task_run(3, create_bodyless, values);
    assert_int_equal(values[0], 4);
    assert_int_equal(values[1], 4);
    assert_int_equal(values[2], 0);
}

/* Statistics. */

static void nap_body(void *args, struct task_event event)
{
    (void)args;
    (void)event;
    clock_nap_us(2000);
}

static void create_naps(void *arg)
{
    struct task_stats *stats = arg;
    char cell = 0;
    const void *chain = &cell;

    for (int i = 0; i < 5; i++)
        task_spawn(&(struct task){.label = "before reset", .body = nap_body});
    task_wait_all();
    task_stats_reset();
    for (int i = 0; i < 20; i++)
        task_spawn(
            &(struct task){.label = "nap", .body = nap_body, .out = &chain, .n_out = 1});
    task_wait_all();
    clock_nap_us(20000); /* nothing unfinished: no idle time */
    task_stats_get(stats);
}

static void statistics(void **state)
{
    struct task_stats stats;
    double begin_s = clock_s();

    (void)state;
    task_run(2, create_naps, &stats);

    double wall_s = clock_s() - begin_s;

    assert_int_equal(stats.tasks, 20);
    assert_true(stats.busy_s >= 20 * 0.002);
    /* The tasks are a chain: busy and idle time cannot overlap. */
    assert_true(stats.busy_s + stats.all_idle_s <= wall_s - 0.020);
    assert_true(stats.all_idle_s >= 0);
}

/* No CPU is used by workers that have nothing to do. (OmpSs-2's, nOS-V, always keeps one
 * of them looking for work.) */

static double process_cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void create_nothing(void *arg)
{
    double *cpu_s = arg;
    double begin_s = process_cpu_s();

    clock_nap_us(500000);
    *cpu_s = process_cpu_s() - begin_s;
}

static void idle_workers_sleep(void **state)
{
    double cpu_s = 0;
    double most_s = strstr(task_backend(), "OmpSs-2") ? 0.6 : 0.1;

    (void)state;
    task_run(4, create_nothing, &cpu_s);
    print_message("4 idle workers used %.1f ms of CPU in 500 ms\n", 1e3 * cpu_s);
    assert_true(cpu_s < most_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs),        cmocka_unit_test(random_graphs_shuffled),
        cmocka_unit_test(readers_overlap),      cmocka_unit_test(dependency_counts),
        cmocka_unit_test(sentinel_named_twice), cmocka_unit_test(arguments_are_copied),
        cmocka_unit_test(many_windows),         cmocka_unit_test(task_without_body),
        cmocka_unit_test(statistics),           cmocka_unit_test(idle_workers_sleep),
    };

    task_configure_runtime();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
