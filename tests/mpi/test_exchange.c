/* SPDX-License-Identifier: MIT */
/* The exchange in every way it can be set up. With the direct engine sums are compared
 * bit for bit.
 *
 * With the argument "logged" a few cases run with the marks of a step, for
 * pmpi_check.py. */
#include "exchange_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static struct comm *comm;
static size_t left_out; /* settings */

static int rank(void)
{
    return comm_rank(comm);
}

/* Ranks go on or stop together. */
static void must_be_right(const struct setting *s)
{
    double wrong = (double)run_setting(comm, s, &left_out);

    comm_sum(comm, &wrong, 1);
    if (wrong > 0) {
        char text[512];

        describe_setting(s, text, sizeof text);
        print_error("%s: %.0f wrong values over all ranks\n", text, wrong);
    }
    assert_true(wrong == 0);
}

static const enum strategy strategies[] = {STRATEGY_CENTRAL, STRATEGY_REDUCE_BROADCAST,
                                           STRATEGY_REDUCE_SCATTER, STRATEGY_ALLREDUCE};

static bool is_prime(int n)
{
    for (int f = 2; f < n; f++)
        if (n % f == 0)
            return false;
    return n > 1;
}

/* All strategies, schedules and kinds of memory; layout and precision change from one to
 * the next, so that each meets each. */
static void direct_engine_adds_in_order(void **state)
{
    static const struct {
        enum hosts hosts;
        bool visible, shared;
    } memories[] = {{HOSTS_APART, false, false}, {HOSTS_PAIRS, true, true},
                    {HOSTS_CYCLIC, true, true},  {HOSTS_ONE, true, true},
                    {HOSTS_PAIRS, true, false},  {HOSTS_CYCLIC, false, true}};
    enum { MEMORIES = sizeof memories / sizeof memories[0] };

    /* Prime numbers have one round in any schedule. */
    int schedules = is_prime(comm_size(comm)) ? 1 : 2;
    int variants = 3 - schedules;

    (void)state;
    for (int i = 0; i < 4 * schedules * MEMORIES; i++) {
        int s = i % 4, schedule = i / 4 % schedules, memory = i / 4 / schedules;

        for (int k = 0; k < variants; k++) {
            int variant = (k * 3 + s + schedule + memory) % 4;

            must_be_right(&(struct setting){.strategy = strategies[s],
                                            .schedule = schedule ? SCHEDULE_RECURSIVE
                                                                 : SCHEDULE_FLAT,
                                            .wire = variant % 2 ? WIRE_BF16 : WIRE_FP32,
                                            .hosts = memories[memory].hosts,
                                            .visible = memories[memory].visible,
                                            .shared = memories[memory].shared,
                                            .storage = variant >= 2,
                                            .block_bytes = 1200,
                                            .scale = 1,
                                            .steps = 2});
        }
    }
}

static void direct_engine_in_special_cases(void **state)
{
    static const struct setting settings[] = {
        {.strategy = STRATEGY_REDUCE_BROADCAST, .block_bytes = 64, .scale = 1},
        {.strategy = STRATEGY_REDUCE_SCATTER, .block_bytes = 64, .scale = 1},
        {.strategy = STRATEGY_REDUCE_BROADCAST,
         .block_bytes = SIZE_MAX,
         .storage = true,
         .scale = 7},
        {.strategy = STRATEGY_REDUCE_BROADCAST, .one_block = true, .scale = 10},
        {.strategy = STRATEGY_REDUCE_SCATTER,
         .schedule = SCHEDULE_RECURSIVE,
         .one_block = true,
         .storage = true,
         .scale = 10},
        {.strategy = STRATEGY_REDUCE_BROADCAST,
         .block_bytes = 4096,
         .one_root = true,
         .scale = 5},
        {.strategy = STRATEGY_REDUCE_BROADCAST,
         .schedule = SCHEDULE_RECURSIVE,
         .wire = WIRE_BF16,
         .block_bytes = 16384,
         .one_root = true,
         .roots = 1,
         .storage = true,
         .scale = 5},
        {.strategy = STRATEGY_ALLREDUCE,
         .schedule = SCHEDULE_RECURSIVE,
         .wire = WIRE_BF16,
         .block_bytes = 100000,
         .max_count = 77,
         .storage = true,
         .scale = 3},
        {.strategy = STRATEGY_REDUCE_SCATTER,
         .block_bytes = 4096,
         .return_first = 5000,
         .storage = true,
         .scale = 2},
        /* Several tasks for one sum. */
        {.strategy = STRATEGY_CENTRAL, .one_block = true, .scale = 70},
    };

    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        struct setting s = settings[i];

        s.steps = 2;
        must_be_right(&s);
    }
}

/* Every number of roots, with parts of others between those of one owner. */
static void blocks_have_several_roots(void **state)
{
    (void)state;
    for (int i = 1; i < 2 * comm_size(comm); i++) {
        int roots = (i + 1) / 2;

        must_be_right(
            &(struct setting){.strategy = STRATEGY_REDUCE_BROADCAST,
                              .schedule = i % 4 < 2 ? SCHEDULE_RECURSIVE : SCHEDULE_FLAT,
                              .wire = i % 3 ? WIRE_FP32 : WIRE_BF16,
                              .hosts = i % 2 ? HOSTS_APART : HOSTS_PAIRS,
                              .visible = i % 2 == 0,
                              .shared = i % 2 == 0,
                              .roots = roots,
                              .storage = i % 5 < 2,
                              .block_bytes = 3000,
                              .scale = 2,
                              .steps = 2});
    }
}

/* Messages too long to be sent before they are received, in more pieces than a window
 * holds. */
static void windows_may_be_narrow(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int schedule = 0; schedule < 2; schedule++) {
            struct setting narrow = {.strategy = strategies[s],
                                     .schedule =
                                         schedule ? SCHEDULE_RECURSIVE : SCHEDULE_FLAT,
                                     .block_bytes = 4096,
                                     .storage = true,
                                     .window_bytes = 64,
                                     .scale = 3,
                                     .steps = 2};

            must_be_right(&narrow);
            narrow.one_block = true;
            narrow.max_count = 1100;
            narrow.scale = 20;
            must_be_right(&narrow);
        }
}

/* Fewer tags than blocks, rounds and phases want. */
static void tags_may_be_few(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int bound = 15; bound <= 16; bound++)
            must_be_right(&(struct setting){.strategy = strategies[s],
                                            .schedule = SCHEDULE_RECURSIVE,
                                            .block_bytes = 512,
                                            .tag_bound = bound,
                                            .scale = 2,
                                            .steps = 4});
}

static void collective_engine_adds(void **state)
{
    static const struct setting settings[] = {
        {.block_bytes = 64, .scale = 1},
        {.block_bytes = 1000, .storage = true, .scale = 2},
        {.block_bytes = 65536, .scale = 20},
        {.one_block = true, .storage = true, .scale = 20},
        {.block_bytes = 4096, .window_bytes = 64, .scale = 5},
        {.block_bytes = 30000, .max_count = 1000, .scale = 10},
    };

    (void)state;
    for (int s = 0; s < 4; s++)
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
            struct setting c = settings[i];

            c.engine = EXCHANGE_COLLECTIVE;
            c.schedule = SCHEDULE_FLAT;
            c.strategy = strategies[s];
            c.roots = i % 2 && s == 1 ? comm_size(comm) : 0;
            c.whole = true;
            c.steps = 2;
            must_be_right(&c);
        }
}

static void logged_steps(void **state)
{
    static const struct setting settings[] = {
        {.strategy = STRATEGY_REDUCE_BROADCAST,
         .block_bytes = 8000,
         .storage = true,
         .scale = 4,
         .steps = 4},
        {.strategy = STRATEGY_REDUCE_BROADCAST,
         .engine = EXCHANGE_COLLECTIVE,
         .block_bytes = 8000,
         .whole = true,
         .scale = 4,
         .steps = 4},
    };

    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        must_be_right(&settings[i]);
}

/* ---- refusals and unused steps ---- */

static struct exchange *try_exchange(size_t block_bytes, struct plan *plan,
                                     enum status needed)
{
    const struct plan_slice slice = {16 * 99, 0};
    struct exchange_options options = {.engine = EXCHANGE_DIRECT};
    static float floats[16 * 99];
    const struct comm_memory memory = {.base = floats, .bytes = sizeof floats};
    struct exchange *x;
    struct grid grid;

    assert_int_equal(grid_init(&grid, comm_size(comm), NULL, SCHEDULE_RECURSIVE), ST_OK);
    assert_int_equal(plan_init(plan, &slice, 1,
                               &(struct plan_options){.strategy = STRATEGY_REDUCE_SCATTER,
                                                      .grid = &grid,
                                                      .block_bytes = block_bytes}),
                     ST_OK);
    assert_int_equal(exchange_new(comm, plan, &memory, &memory, &options, &x), needed);
    grid_release(&grid);
    return x;
}

/* A step that was opened and never used leaves nothing behind. */
static void an_unused_step_can_be_freed(void **state)
{
    struct plan plan;
    struct exchange *x = try_exchange(640, &plan, ST_OK);

    (void)state;
    exchange_begin(x, PHASE_REDUCE);
    exchange_begin(x, PHASE_RETURN);
    exchange_free(x);
    plan_release(&plan);
}

static void different_plans_are_refused(void **state)
{
    struct plan plan;
    char text[32];

    (void)state;
    if (comm_size(comm) == 1)
        skip();
    assert_null(try_exchange(rank() == comm_size(comm) - 1 ? 64 : 128, &plan, ST_BUG));
    snprintf(text, sizeof text, "rank %d", comm_size(comm) - 1);
    assert_non_null(strstr(fail_text(), text));
    plan_release(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(direct_engine_adds_in_order),
        cmocka_unit_test(direct_engine_in_special_cases),
        cmocka_unit_test(blocks_have_several_roots),
        cmocka_unit_test(windows_may_be_narrow),
        cmocka_unit_test(tags_may_be_few),
        cmocka_unit_test(collective_engine_adds),
        cmocka_unit_test(an_unused_step_can_be_freed),
        cmocka_unit_test(different_plans_are_refused),
    };
    const struct CMUnitTest logged[] = {cmocka_unit_test(logged_steps)};

    if (comm_start(&comm) != ST_OK) {
        fprintf(stderr, "%s\n", fail_text());
        return status_exit_code(ST_USAGE);
    }
    int failed = argc > 1 && !strcmp(argv[1], "logged")
                     ? cmocka_run_group_tests(logged, NULL, NULL)
                     : cmocka_run_group_tests(all, NULL, NULL);

    if (left_out > 0 && rank() == 0)
        printf("%zu settings left out: ranks do not see each other's memory\n", left_out);
    if (failed)
        comm_abort(comm, 1);
    comm_stop(comm);
    return 0;
}
