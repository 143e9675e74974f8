/* SPDX-License-Identifier: MIT */
/* Who owns which part of which block, and how evenly. */
#include "comm/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"
#include "plans.h"

enum { MOST_RANKS = 64 };

/* Two ranks a host in turn, where the number is even. */
static struct grid grid_of(int ranks)
{
    int host[MOST_RANKS];
    struct grid g;

    for (int r = 0; r < ranks; r++)
        host[r] = r % ((ranks + 1) / 2);
    assert_int_equal(grid_init(&g, ranks, host, SCHEDULE_RECURSIVE), ST_OK);
    return g;
}

static struct plan plan_on(const struct grid *g, size_t elems, struct plan_options o)
{
    const struct plan_slice slice = {elems, 0};
    struct plan p;

    o.grid = g;
    assert_int_equal(plan_init(&p, &slice, 1, &o), ST_OK);
    return p;
}

static void central_has_one_owner(void **state)
{
    struct grid g = grid_of(6);
    struct plan p =
        plan_on(&g, 16 * 100,
                (struct plan_options){.strategy = STRATEGY_CENTRAL, .block_bytes = 640});

    (void)state;
    assert_int_equal(p.n_blocks, 10);
    assert_int_equal(p.n_parts, 10);
    for (size_t i = 0; i < p.n_parts; i++)
        assert_int_equal(p.parts[i].owner, 0);
    assert_int_equal(plan_owned_elems(&p, 0), p.elems);
    assert_int_equal(plan_owned_elems(&p, 5), 0);
    assert_true(plan_imbalance(&p) == 6);
    plan_release(&p);
    grid_release(&g);
}

/* Owners go round in spread order, from part to part and block to block; in a whole
 * number of turns each has as many parts. */
static void check_turns(int ranks, int roots)
{
    struct grid g = grid_of(ranks);
    struct plan p =
        plan_on(&g, PLAN_ALIGN_ELEMS * (size_t)(4 * roots * ranks + 1),
                (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                      .roots = roots,
                                      .block_bytes = 2 * (size_t)roots *
                                                     PLAN_ALIGN_ELEMS * sizeof(float)});
    int parts[MOST_RANKS] = {0};

    assert_int_equal(p.n_parts, p.n_blocks * (size_t)roots);
    assert_int_equal(p.n_parts % (size_t)ranks, 0);
    for (size_t i = 0; i < p.n_parts; i++) {
        assert_int_equal(p.parts[i].owner, grid_spread(&g, (int)(i % (size_t)ranks)));
        parts[p.parts[i].owner]++;
    }
    for (int r = 0; r < ranks; r++)
        assert_int_equal(parts[r], p.n_parts / (size_t)ranks);
    assert_false(p.replicated);
    plan_release(&p);
    grid_release(&g);
}

static void roots_take_turns(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 30; ranks++)
        for (int roots = 1; roots <= ranks; roots++)
            check_turns(ranks, roots);
}

static void check_scatter(int ranks, enum strategy strategy)
{
    struct grid g = grid_of(ranks);
    struct plan p =
        plan_on(&g, PLAN_ALIGN_ELEMS * (size_t)(5 * ranks),
                (struct plan_options){.strategy = strategy,
                                      .block_bytes = 2 * (size_t)ranks *
                                                     PLAN_ALIGN_ELEMS * sizeof(float)});

    assert_int_equal(p.n_parts, p.n_blocks * (size_t)ranks);
    for (size_t i = 0; i < p.n_parts; i++)
        assert_int_equal(p.parts[i].owner, grid_nested(&g, (int)(i % (size_t)ranks)));
    plan_release(&p);
    grid_release(&g);
}

static void everyone_owns_a_part(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) {
        check_scatter(ranks, STRATEGY_REDUCE_SCATTER);
        check_scatter(ranks, STRATEGY_ALLREDUCE);
    }
}

static void one_root_is_rank_0(void **state)
{
    struct grid g = grid_of(6);
    struct plan p = plan_on(&g, 16 * 100,
                            (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                                  .roots = 2,
                                                  .block_bytes = 640,
                                                  .one_root = true});

    (void)state;
    assert_int_equal(plan_owned_elems(&p, 0), p.elems);
    for (size_t b = 0; b < p.n_blocks; b++)
        assert_true(plan_owns_block(&p, b, 0) && !plan_owns_block(&p, b, 1));
    plan_release(&p);
    grid_release(&g);
}

/* Who updates what, and what a rank keeps moments of. */
static void updates_follow_ownership(void **state)
{
    struct grid g = grid_of(4);

    (void)state;
    for (enum strategy s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++) {
        struct plan p =
            plan_on(&g, 16 * 103,
                    (struct plan_options){.strategy = s, .roots = 3, .block_bytes = 640});
        bool all = s == STRATEGY_ALLREDUCE;
        size_t owned = 0;

        assert_int_equal(p.replicated, all);
        for (int r = 0; r < 4; r++) {
            size_t updated = 0;

            owned += plan_owned_elems(&p, r);
            for (size_t i = 0; i < p.n_parts; i++) {
                assert_int_equal(plan_updates(&p, &p.parts[i], r),
                                 all || p.parts[i].owner == r);
                updated += plan_updates(&p, &p.parts[i], r) ? p.parts[i].elems : 0;
            }
            assert_int_equal(plan_updated_elems(&p, r), updated);
            assert_int_equal(updated, all ? p.elems : plan_owned_elems(&p, r));
            for (size_t b = 0; b < p.n_blocks; b++) {
                bool owns = true;

                for (size_t i = 0; i < p.blocks[b].n_parts; i++)
                    owns = owns && p.parts[p.blocks[b].first_part + i].owner == r;
                assert_int_equal(plan_owns_block(&p, b, r), owns);
            }
        }
        assert_int_equal(owned, p.elems);
        plan_release(&p);
    }
    grid_release(&g);
}

/* ---- balance ---- */

static size_t least_common_multiple(size_t a, size_t b)
{
    size_t x = a, y = b;

    while (y > 0) {
        size_t rest = x % y;

        x = y;
        y = rest;
    }
    return a / x * b;
}

/* A vector of some turns of owners, whose parts come out a little above 64 KiB. */
static void check_balance(int ranks, int owners, enum strategy strategy)
{
    size_t part = 5 * 4096 + 48;
    size_t turn = least_common_multiple((size_t)ranks, (size_t)owners);
    struct plan_slice slice = {(part * turn * 11 / 8) / 16 * 16, 0};
    struct plan p = plan_of(
        &slice, 1, ranks,
        (struct plan_options){.strategy = strategy,
                              .roots = owners,
                              .block_bytes = part * sizeof(float) * (size_t)owners});

    for (size_t i = 0; i < p.n_parts; i++)
        assert_true(p.parts[i].elems * sizeof(float) >= 65536);
    assert_true(plan_imbalance(&p) <= 1.01);
    plan_release(&p);
}

static void owners_have_as_much(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 1024; ranks += ranks < 48 ? 1 : 61) {
        const int some[] = {1, 2, 3, 7, ranks / 2, ranks - 1, ranks};

        check_balance(ranks, ranks, STRATEGY_REDUCE_SCATTER);
        for (int roots = 1; ranks < 48 && roots <= ranks; roots++)
            check_balance(ranks, roots, STRATEGY_REDUCE_BROADCAST);
        for (size_t i = 0; ranks >= 48 && i < sizeof some / sizeof some[0]; i++)
            check_balance(ranks, some[i], STRATEGY_REDUCE_BROADCAST);
    }
    check_balance(1024, 1024, STRATEGY_REDUCE_BROADCAST);
    check_balance(1021, 1, STRATEGY_REDUCE_BROADCAST);
    check_balance(1021, 1021, STRATEGY_REDUCE_SCATTER);
}

/* ---- what is taken when nothing is said ---- */

static void default_blocks_are_balanced(void **state)
{
    const struct plan_slice gpt2 = {124475904, 0};

    (void)state;
    for (int ranks = 1; ranks <= 1024; ranks += ranks < 64 ? 1 : 37) {
        struct plan_options o = {.strategy = strategy_default(ranks)};
        struct grid g;

        assert_int_equal(grid_init(&g, ranks, NULL, SCHEDULE_AUTO), ST_OK);
        o.block_bytes = strategy_ops(o.strategy)->block_bytes(&g);
        struct plan p = plan_of(&gpt2, 1, ranks, o);

        assert_true(plan_imbalance(&p) <= 1.01);
        /* Messages are worth sending. */
        for (size_t i = 0; i < p.n_parts; i++)
            assert_true(p.parts[i].elems * sizeof(float) >= 40000);
        plan_release(&p);
        grid_release(&g);
    }
}

static void defaults_and_names(void **state)
{
    static const char *const names[] = {"central", "reduce-broadcast", "reduce-scatter",
                                        "allreduce"};

    (void)state;
    for (enum strategy s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++)
        assert_string_equal(strategy_ops(s)->name, names[s - 1]);
    for (int ranks = 1; ranks <= 1024; ranks++)
        assert_int_equal(strategy_default(ranks), ranks <= 16 ? STRATEGY_REDUCE_BROADCAST
                                                              : STRATEGY_REDUCE_SCATTER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(central_has_one_owner),
        cmocka_unit_test(roots_take_turns),
        cmocka_unit_test(everyone_owns_a_part),
        cmocka_unit_test(one_root_is_rank_0),
        cmocka_unit_test(updates_follow_ownership),
        cmocka_unit_test(owners_have_as_much),
        cmocka_unit_test(default_blocks_are_balanced),
        cmocka_unit_test(defaults_and_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
