/* SPDX-License-Identifier: MIT */
/* One rank, with MPI or without: everything is complete when it is called. */
#include "base/rng.h"
#include "comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "plans.h"

enum { N = 16 * 173, SLICES = 4 };

static struct comm *comm;

static void count(void *arg)
{
    ++*(int *)arg;
}

static void control_is_the_identity(void **state)
{
    double values[2] = {1.5, -2};
    int mine = 7;
    int all = 0;

    (void)state;
    assert_int_equal(comm_rank(comm), 0);
    assert_int_equal(comm_size(comm), 1);
    assert_true(strlen(comm_library(comm)) > 0 && strlen(comm_host(comm)) > 0);
    comm_sum(comm, values, 2);
    comm_max(comm, values, 2);
    comm_broadcast(comm, values, sizeof values, 0);
    assert_true(values[0] == 1.5 && values[1] == -2);
    comm_gather_all(comm, &mine, sizeof mine, &all);
    assert_int_equal(all, 7);
    assert_int_equal(comm_agree(comm, ST_OK), ST_OK);
    assert_int_equal(comm_same(comm, &mine, sizeof mine, "mine"), ST_OK);
    assert_int_equal(comm_self_test(comm), ST_OK);
}

/* Runs one step and returns the sum of squares over all blocks. */
static double run_step(const struct plan_slice *slices, enum strategy strategy,
                       enum exchange_engine engine)
{
    static float grads[N], params[N];
    struct exchange_options options = {.engine = engine};
    const struct comm_memory grads_memory = {.base = grads, .bytes = sizeof grads};
    const struct comm_memory params_memory = {.base = params, .bytes = sizeof params};
    struct plan plan =
        plan_of(slices, SLICES, 1,
                (struct plan_options){.strategy = strategy, .block_bytes = 4096});
    struct exchange *x;
    double squares = 0;
    int done = 0;

    for (size_t s = 0, at = 0; s < SLICES; s++)
        for (size_t i = 0; i < slices[s].elems; i++, at++)
            grads[slices[s].memory_offset + i] = (float)rng_normal(1, 2, at);
    assert_int_equal(
        exchange_new(comm, &plan, &grads_memory, &params_memory, &options, &x), ST_OK);
    assert_int_equal(exchange_rounds(x), 1);
    for (int step = 0; step < 2; step++) {
        double agreed[2] = {3, 0.25};

        squares = 0;
        done = 0;
        exchange_mark(x, MARK_STEP_BEGIN);
        exchange_begin(x, PHASE_REDUCE);
        exchange_begin(x, PHASE_RETURN);
        for (size_t b = 0; b < plan.n_blocks; b++) {
            exchange_reduce(x, b, 0, count, &done);
            for (size_t i = 0; i < exchange_sum_tasks(x, b, 0); i++)
                squares += exchange_sum(x, b, 0, i);
            exchange_return(x, b, count, &done);
            if (plan.replicated)
                exchange_finish_sums(x, b);
        }
        exchange_agree(x, agreed, 2, count, &done);
        assert_int_equal(done, 2 * plan.n_blocks + 1);
        assert_true(agreed[0] == 3 && agreed[1] == 0.25);
        exchange_mark(x, MARK_STEP_END);
    }
    struct exchange_stats stats;

    exchange_stats_get(x, &stats);
    assert_int_equal(stats.bytes_sent, 0);
    exchange_free(x);
    plan_release(&plan);
    return squares;
}

static void layouts_and_engines_agree_bit_for_bit(void **state)
{
    const struct plan_slice production[SLICES] = {
        {16 * 100, 0}, {16, 16 * 100}, {16 * 70, 16 * 101}, {32, 16 * 171}};
    const struct plan_slice storage[SLICES] = {
        {16 * 100, 16 * 73}, {16, 32}, {16 * 70, 48}, {32, 0}};
    double first = run_step(production, STRATEGY_CENTRAL, EXCHANGE_DIRECT);

    (void)state;
    assert_true(first > 0);
    for (enum strategy s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++) {
        double second = run_step(storage, s, EXCHANGE_DIRECT);
        double third = run_step(storage, s, EXCHANGE_COLLECTIVE);

        assert_memory_equal(&first, &second, sizeof first);
        assert_memory_equal(&first, &third, sizeof first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(control_is_the_identity),
        cmocka_unit_test(layouts_and_engines_agree_bit_for_bit),
    };

    if (comm_start(&comm) != ST_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    comm_stop(comm);
    return failed;
}
