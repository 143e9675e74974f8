/* SPDX-License-Identifier: MIT */
/* The memory an exchange is said to take, for any number of ranks. (That it is what is
 * taken: tests/mpi/test_exchange.c.) */
#include "comm/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "plans.h"

enum { F = sizeof(float) };

/* Bytes for `units` x 16 elements in blocks of block_bytes, seen from `rank`. */
static size_t scratch(size_t units, int ranks, size_t block_bytes, bool one_block,
                      struct exchange_options o, int rank)
{
    const struct plan_slice slice = {units * 16, 0};
    struct plan plan =
        plan_of(&slice, 1, ranks,
                (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                      .block_bytes = block_bytes,
                                      .one_block = one_block});
    size_t bytes = exchange_scratch_bytes(&plan, &o, false, rank);

    plan_release(&plan);
    return bytes;
}

static void one_rank_takes_none(void **state)
{
    (void)state;
    assert_int_equal(scratch(99, 1, 64, false, (struct exchange_options){0}, 0), 0);
    assert_int_equal(scratch(99, 1, 64, false,
                             (struct exchange_options){.engine = EXCHANGE_COLLECTIVE}, 0),
                     0);
}

/* 30 units on 5 ranks in blocks of one unit: each rank is root of 6 of them. */
static void slots_are_bounded_by_window_and_blocks(void **state)
{
    const size_t unit = 16 * F;
    struct exchange_options o = {.engine = EXCHANGE_DIRECT};

    (void)state;
    assert_int_equal(scratch(30, 5, 64, false, o, 2), 6 * 4 * unit);
    o.window_bytes = 1; /* one slot at least */
    assert_int_equal(scratch(30, 5, 64, false, o, 2), 4 * unit);
    o.window_bytes = 3 * 4 * unit - 1;
    assert_int_equal(scratch(30, 5, 64, false, o, 2), 2 * 4 * unit);
    o.window_bytes++;
    assert_int_equal(scratch(30, 5, 64, false, o, 4), 3 * 4 * unit);
    o.engine = EXCHANGE_COLLECTIVE; /* a slot holds the sum only */
    assert_int_equal(scratch(30, 5, 64, false, o, 4), 6 * unit);
}

static void long_blocks_take_one_slot_each(void **state)
{
    const size_t mib = (size_t)1 << 20;
    struct exchange_options o = {.engine = EXCHANGE_DIRECT};

    (void)state;
    /* 160 MiB on 8 ranks, one block a rank: 7 contributions of 20 MiB. */
    assert_int_equal(scratch(160 * mib / (16 * F), 8, SIZE_MAX, false, o, 7), 140 * mib);
    /* Blocks of 1 MiB: 16 MiB hold two slots of 7. */
    assert_int_equal(scratch(160 * mib / (16 * F), 8, mib, false, o, 7), 14 * mib);
}

static void who_is_root_of_nothing_takes_none(void **state)
{
    struct exchange_options o = {.engine = EXCHANGE_DIRECT};

    (void)state;
    assert_int_equal(scratch(7, 3, 64, true, o, 0), 2 * 7 * 16 * F);
    assert_int_equal(scratch(7, 3, 64, true, o, 1), 0);
    assert_int_equal(scratch(2, 3, 64, false, o, 1), 2 * 16 * F);
    assert_int_equal(scratch(2, 3, 64, false, o, 2), 0);
}

/* 4 ranks, two a host; one block of 32 units, 8 a part. */
static size_t recursive(enum strategy strategy, struct exchange_options o,
                        bool host_memory)
{
    const int host[] = {0, 0, 1, 1};
    const struct plan_slice slice = {32 * 16, 0};
    struct plan_options options = {
        .strategy = strategy, .block_bytes = 64, .one_block = true};
    struct grid grid;
    struct plan plan;
    size_t bytes;

    assert_int_equal(grid_init(&grid, 4, host, SCHEDULE_RECURSIVE), ST_OK);
    options.grid = &grid;
    assert_int_equal(plan_init(&plan, &slice, 1, &options), ST_OK);
    bytes = exchange_scratch_bytes(&plan, &o, host_memory, 3);
    plan_release(&plan);
    grid_release(&grid);
    return bytes;
}

static void rounds_take_what_they_receive(void **state)
{
    const size_t unit = 16 * F;
    struct exchange_options o = {.engine = EXCHANGE_DIRECT};

    (void)state;
    for (int k = 0; k < 2; k++) {
        enum strategy s = k ? STRATEGY_ALLREDUCE : STRATEGY_REDUCE_SCATTER;

        /* Half a block from the partner on the host, a quarter from the other host. */
        o.wire = WIRE_FP32;
        assert_int_equal(recursive(s, o, false), (16 + 8) * unit);
        assert_int_equal(recursive(s, o, true), 8 * unit);
        o.wire = WIRE_BF16;
        assert_int_equal(recursive(s, o, false), (16 + 8) * unit / 2);
        assert_int_equal(recursive(s, o, true), 8 * unit / 2);
    }
    /* The owner is rank 0: rank 3 receives nothing in any round. */
    assert_int_equal(recursive(STRATEGY_CENTRAL, o, false), 0);
}

static void collectives_take_one_result(void **state)
{
    const struct plan_slice slice = {40 * 16, 0};
    const struct exchange_options o = {.engine = EXCHANGE_COLLECTIVE};

    (void)state;
    for (enum strategy s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++) {
        struct plan plan =
            plan_of(&slice, 1, 4,
                    (struct plan_options){.strategy = s, .block_bytes = 10 * 16 * F});
        /* 4 blocks of 10 units: rank 0 has all of each, one, 2 units of each, all. */
        const size_t units[] = {40, 10, 4 * 2, 40};

        assert_int_equal(exchange_scratch_bytes(&plan, &o, false, 0),
                         units[s - STRATEGY_CENTRAL] * 16 * F);
        plan_release(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_none),
        cmocka_unit_test(slots_are_bounded_by_window_and_blocks),
        cmocka_unit_test(long_blocks_take_one_slot_each),
        cmocka_unit_test(who_is_root_of_nothing_takes_none),
        cmocka_unit_test(rounds_take_what_they_receive),
        cmocka_unit_test(collectives_take_one_result),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
