/* SPDX-License-Identifier: MIT */
/* Schedules carried out on sets instead of numbers: each rank starts with itself in every
 * unit of the vector, and adding is a union of sets that must not meet. */
#include "comm/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"

enum { MOST_RANKS = 100, UNIT = PLAN_ALIGN_ELEMS };

/* Of at most 128 ranks. */
struct set {
    uint64_t low, high;
};

static struct set only(int rank)
{
    return rank < 64 ? (struct set){(uint64_t)1 << rank, 0}
                     : (struct set){0, (uint64_t)1 << (rank - 64)};
}

static bool meet(struct set a, struct set b)
{
    return (a.low & b.low) != 0 || (a.high & b.high) != 0;
}

static struct set join(struct set a, struct set b)
{
    return (struct set){a.low | b.low, a.high | b.high};
}

static bool is_everyone(struct set a, int ranks)
{
    struct set all = {0, 0};

    for (int r = 0; r < ranks; r++)
        all = join(all, only(r));
    return a.low == all.low && a.high == all.high;
}

struct simulation {
    struct grid grid;
    struct plan plan;
    bool in_turn; /* all ranks own as much, within rounding */
    size_t units;
    struct set *now, *next;       /* [rank][unit] */
    struct transfers *sent, *got; /* [rank], of one block and round */
    uint64_t *bytes;              /* [rank], of a phase */
};

static void *allocate(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);

    assert_non_null(p);
    return p;
}

/* ---- one round of one block ---- */

static void list_round(struct simulation *s, enum exchange_phase phase, int round,
                       size_t block)
{
    for (int r = 0; r < s->plan.ranks; r++) {
        s->sent[r].n = s->got[r].n = 0;
        assert_int_equal(schedule_sends(&s->plan, phase, round, block, r, &s->sent[r]),
                         ST_OK);
        assert_int_equal(schedule_receives(&s->plan, phase, round, block, r, &s->got[r]),
                         ST_OK);
    }
}

/* What a sends to b is what b receives from a, in the same order. */
static void check_pairs(const struct simulation *s, int digit, size_t block)
{
    size_t n_sent = 0, n_got = 0;

    for (int to = 0; to < s->plan.ranks; to++) {
        size_t at[MOST_RANKS] = {0}; /* in what each rank sends */

        n_sent += s->sent[to].n;
        n_got += s->got[to].n;
        for (size_t i = 0; i < s->got[to].n; i++) {
            const struct transfer *x = &s->got[to].list[i];
            const struct transfers *others = &s->sent[x->from];
            size_t *k = &at[x->from];

            assert_true(x->to == to && x->from != to && x->block == block);
            assert_int_equal(grid_with_digit(&s->grid, to, digit,
                                             grid_digit(&s->grid, x->from, digit)),
                             x->from);
            while (*k < others->n && others->list[*k].to != to)
                ++*k;
            assert_true(*k < others->n);
            assert_memory_equal(&others->list[*k], x, sizeof *x);
            ++*k;
        }
    }
    assert_int_equal(n_sent, n_got);
}

/* All ranks exchange with the i-th partner at the same time: sends to it stand where the
 * receives from this rank stand at the partner. */
static void check_steps(const struct simulation *s, int digit)
{
    int radix = s->grid.radix[digit];

    for (int r = 0; r < s->plan.ranks; r++) {
        int own = grid_digit(&s->grid, r, digit);
        int before = 0;

        for (size_t i = 0; i < s->sent[r].n; i++) {
            int step =
                (grid_digit(&s->grid, s->sent[r].list[i].to, digit) - own + radix) %
                radix;

            assert_true(step >= before);
            before = step;
        }
        before = 0;
        for (size_t i = 0; i < s->got[r].n; i++) {
            int step =
                (own - grid_digit(&s->grid, s->got[r].list[i].from, digit) + radix) %
                radix;

            assert_true(step >= before);
            before = step;
        }
    }
}

static size_t first_unit(const struct simulation *s, const struct transfer *x)
{
    assert_true(x->at % UNIT == 0 && x->elems % UNIT == 0 && x->elems > 0);
    assert_true(x->at + x->elems <= s->plan.blocks[x->block].elems);
    return (s->plan.blocks[x->block].begin + x->at) / UNIT;
}

/* The extent that a rank adds to is that of what it receives. */
static void check_sum_range(const struct simulation *s, int round, size_t block, int rank)
{
    size_t begin = SIZE_MAX, end = 0;
    size_t at, elems;

    for (size_t i = 0; i < s->got[rank].n; i++) {
        const struct transfer *x = &s->got[rank].list[i];

        begin = min_size(begin, x->at);
        end = max_size(end, x->at + x->elems);
    }
    schedule_sum_range(&s->plan, round, block, rank, &at, &elems);
    assert_int_equal(elems, end > 0 ? end - begin : 0);
    if (elems > 0)
        assert_int_equal(at, begin);
}

static void add_round(struct simulation *s)
{
    for (int r = 0; r < s->plan.ranks; r++)
        for (size_t i = 0; i < s->got[r].n; i++) {
            const struct transfer *x = &s->got[r].list[i];
            size_t unit = first_unit(s, x);

            for (size_t u = unit; u < unit + x->elems / UNIT; u++) {
                struct set *mine = &s->next[(size_t)r * s->units + u];
                struct set theirs = s->now[(size_t)x->from * s->units + u];

                assert_false(meet(*mine, theirs));
                *mine = join(*mine, theirs);
            }
        }
}

/* In the return a set is empty until the owner's value has come. */
static void pass_round(struct simulation *s)
{
    for (int r = 0; r < s->plan.ranks; r++)
        for (size_t i = 0; i < s->got[r].n; i++) {
            const struct transfer *x = &s->got[r].list[i];
            size_t unit = first_unit(s, x);

            for (size_t u = unit; u < unit + x->elems / UNIT; u++) {
                struct set *mine = &s->next[(size_t)r * s->units + u];
                struct set theirs = s->now[(size_t)x->from * s->units + u];

                assert_true(mine->low == 0 && mine->high == 0);
                assert_true(theirs.low != 0 || theirs.high != 0);
                *mine = theirs;
            }
        }
}

static void run_phase(struct simulation *s, enum exchange_phase phase)
{
    size_t all = (size_t)s->plan.ranks * s->units;

    memset(s->bytes, 0, (size_t)s->plan.ranks * sizeof *s->bytes);
    for (int round = 0; round < schedule_rounds(&s->plan); round++) {
        int digit = schedule_digit(&s->plan, phase, round);

        assert_int_equal(digit,
                         phase == PHASE_REDUCE ? round : s->grid.n_digits - 1 - round);
        memcpy(s->next, s->now, all * sizeof *s->now);
        for (size_t b = 0; b < s->plan.n_blocks; b++) {
            list_round(s, phase, round, b);
            check_pairs(s, digit, b);
            check_steps(s, digit);
            for (int r = 0; r < s->plan.ranks; r++) {
                if (phase == PHASE_REDUCE)
                    check_sum_range(s, round, b, r);
                for (size_t i = 0; i < s->sent[r].n; i++)
                    s->bytes[r] += s->sent[r].list[i].elems * sizeof(float);
            }
            if (phase == PHASE_REDUCE)
                add_round(s);
            else
                pass_round(s);
        }
        memcpy(s->now, s->next, all * sizeof *s->now);
    }
}

/* ---- a whole step ---- */

static void check_reduction(struct simulation *s)
{
    for (int r = 0; r < s->plan.ranks; r++)
        for (size_t u = 0; u < s->units; u++)
            s->now[(size_t)r * s->units + u] = only(r);
    run_phase(s, PHASE_REDUCE);
    for (size_t b = 0; b < s->plan.n_blocks; b++) {
        const struct plan_block *block = &s->plan.blocks[b];

        for (size_t i = 0; i < block->n_parts; i++) {
            const struct plan_part *p = &s->plan.parts[block->first_part + i];
            size_t unit = (block->begin + p->at) / UNIT;

            for (size_t u = unit; u < unit + p->elems / UNIT; u++)
                assert_true(
                    is_everyone(s->now[(size_t)p->owner * s->units + u], s->plan.ranks));
        }
    }
}

static void check_return(struct simulation *s)
{
    memset(s->now, 0, (size_t)s->plan.ranks * s->units * sizeof *s->now);
    for (size_t b = 0; b < s->plan.n_blocks; b++) {
        const struct plan_block *block = &s->plan.blocks[b];

        for (size_t i = 0; i < block->n_parts; i++) {
            const struct plan_part *p = &s->plan.parts[block->first_part + i];
            size_t unit = (block->begin + p->at) / UNIT;

            for (size_t u = unit; u < unit + p->elems / UNIT; u++)
                s->now[(size_t)p->owner * s->units + u] = only(p->owner);
        }
    }
    run_phase(s, PHASE_RETURN);
    for (int r = 0; r < s->plan.ranks; r++)
        for (size_t u = 0; u < s->units; u++) {
            const struct set *x = &s->now[(size_t)r * s->units + u];

            assert_true(x->low != 0 || x->high != 0);
        }
}

/* Every element passes as many times as there are other ranks, or, between hosts, other
 * hosts; and where owners take turns all ranks send as much. */
static void check_bytes(const struct simulation *s, enum exchange_phase phase)
{
    const struct plan *p = &s->plan;
    uint64_t n = p->elems * sizeof(float);
    uint64_t ranks = (uint64_t)p->ranks;
    uint64_t total = 0, between_hosts = 0, half;
    double mean = (double)(ranks - 1) / (double)ranks * (double)n;
    double rounding = (double)(UNIT * sizeof(float) * p->n_blocks * ranks);

    for (int r = 0; r < p->ranks; r++) {
        uint64_t bytes;

        assert_int_equal(schedule_bytes(p, phase, r, sizeof(float), false, &bytes),
                         ST_OK);
        assert_int_equal(bytes, s->bytes[r]);
        total += bytes;
        if (s->in_turn)
            assert_true((double)bytes <= mean + rounding &&
                        (double)bytes >= mean - rounding);
        assert_int_equal(schedule_bytes(p, phase, r, 2, false, &half), ST_OK);
        assert_int_equal(half, bytes / 2);
        assert_int_equal(schedule_bytes(p, phase, r, sizeof(float), true, &bytes), ST_OK);
        between_hosts += bytes;
    }
    assert_int_equal(total, (ranks - 1) * n);
    assert_int_equal(between_hosts, (ranks / (uint64_t)s->grid.host_ranks - 1) * n);
}

static void run(int ranks, const int *host, enum grid_schedule schedule, size_t units,
                struct plan_options o)
{
    const struct plan_slice slices[] = {{units / 3 * UNIT, units * UNIT},
                                        {(units - units / 3) * UNIT, 0}};
    struct simulation s = {.in_turn = o.strategy != STRATEGY_CENTRAL && !o.one_root,
                           .units = units};
    size_t all = (size_t)ranks * units;

    assert_int_equal(grid_init(&s.grid, ranks, host, schedule), ST_OK);
    o.grid = &s.grid;
    assert_int_equal(plan_init(&s.plan, slices, 2, &o), ST_OK);
    s.now = allocate(all, sizeof *s.now);
    s.next = allocate(all, sizeof *s.next);
    s.sent = allocate((size_t)ranks, sizeof *s.sent);
    s.got = allocate((size_t)ranks, sizeof *s.got);
    s.bytes = allocate((size_t)ranks, sizeof *s.bytes);
    check_reduction(&s);
    check_bytes(&s, PHASE_REDUCE);
    check_return(&s);
    check_bytes(&s, PHASE_RETURN);
    for (int r = 0; r < ranks; r++) {
        transfers_release(&s.sent[r]);
        transfers_release(&s.got[r]);
    }
    free(s.now);
    free(s.next);
    free(s.sent);
    free(s.got);
    free(s.bytes);
    plan_release(&s.plan);
    grid_release(&s.grid);
}

/* ---- which ones ---- */

/* Some units a part, in blocks of which owners get a whole number of turns. */
static void run_strategies(int ranks, const int *host, enum grid_schedule schedule)
{
    size_t P = (size_t)ranks;
    const int roots[] = {1, 2, 3, ranks / 2, ranks};

    run(ranks, host, schedule, 2 * P + 3,
        (struct plan_options){.strategy = STRATEGY_CENTRAL,
                              .block_bytes = UNIT * sizeof(float) * P});
    for (int s = STRATEGY_REDUCE_SCATTER; s <= STRATEGY_ALLREDUCE; s++)
        run(ranks, host, schedule, 3 * (2 * P + 1),
            (struct plan_options){.strategy = (enum strategy)s,
                                  .block_bytes = UNIT * sizeof(float) * (2 * P + 1)});
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++)
        if (roots[i] >= 1 && roots[i] <= ranks && (i == 0 || roots[i] > roots[i - 1]))
            run(ranks, host, schedule, P * (size_t)roots[i] + 5,
                (struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                      .roots = roots[i],
                                      .block_bytes =
                                          UNIT * sizeof(float) * (size_t)roots[i]});
}

static void run_hosts(int ranks, int per_host, bool cyclic)
{
    int host[MOST_RANKS];
    int hosts = ranks / per_host;

    if (ranks % per_host != 0)
        return;
    for (int r = 0; r < ranks; r++)
        host[r] = cyclic ? r % hosts : r / per_host;
    run_strategies(ranks, host, SCHEDULE_FLAT);
    run_strategies(ranks, host, SCHEDULE_RECURSIVE);
}

static void any_number_of_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 24; ranks++) {
        run_strategies(ranks, NULL, SCHEDULE_FLAT);
        run_strategies(ranks, NULL, SCHEDULE_RECURSIVE);
    }
}

static void any_shape_of_hosts(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 24; ranks++) {
        run_hosts(ranks, 2, false);
        run_hosts(ranks, 2, true);
        if (ranks > 4)
            run_hosts(ranks, 4, ranks % 8 == 0);
        run_hosts(ranks, ranks, false);
    }
}

static void many_ranks(void **state)
{
    static const int counts[] = {64, 100};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        size_t P = (size_t)counts[i];
        struct plan_options scatter = {.strategy = STRATEGY_REDUCE_SCATTER,
                                       .block_bytes = UNIT * sizeof(float) * P};
        struct plan_options broadcast = {.strategy = STRATEGY_REDUCE_BROADCAST,
                                         .roots = 3,
                                         .block_bytes = UNIT * sizeof(float) * 3};
        int host[MOST_RANKS];

        for (int r = 0; r < counts[i]; r++)
            host[r] = r % (counts[i] / 4);
        run(counts[i], NULL, SCHEDULE_FLAT, 2 * P, scatter);
        run(counts[i], NULL, SCHEDULE_AUTO, 2 * P, scatter);
        run(counts[i], host, SCHEDULE_AUTO, 2 * P, scatter);
        run(counts[i], NULL, SCHEDULE_AUTO, 3 * P, broadcast);
        run(counts[i], host, SCHEDULE_AUTO, 3 * P, broadcast);
    }
}

/* Parts are missing, and ranks own nothing. */
static void fewer_units_than_ranks(void **state)
{
    const int host[6] = {0, 1, 2, 0, 1, 2};

    (void)state;
    for (size_t units = 1; units < 6; units++)
        for (int s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++)
            for (int schedule = SCHEDULE_FLAT; schedule <= SCHEDULE_RECURSIVE; schedule++)
                for (int one = 0; one < 2; one++) {
                    struct plan_options o = {.strategy = (enum strategy)s,
                                             .roots =
                                                 s == STRATEGY_REDUCE_BROADCAST ? 4 : 1,
                                             .block_bytes = 3 * UNIT * sizeof(float),
                                             .one_block = one != 0,
                                             .one_root = units == 5};

                    run(6, one ? host : NULL, (enum grid_schedule)schedule, units, o);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks),
        cmocka_unit_test(any_shape_of_hosts),
        cmocka_unit_test(many_ranks),
        cmocka_unit_test(fewer_units_than_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
