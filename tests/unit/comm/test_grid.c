/* SPDX-License-Identifier: MIT */
/* Ranks as numbers with several digits, for every count of ranks up to some hundred and
 * every even way to place them on hosts. */
#include "base/rng.h"
#include "comm/grid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_RANKS = 130 };

enum placing { ADJOINING, CYCLIC, SHUFFLED, PLACINGS };

/* `per_host` ranks on each host, numbered from 0 in the order in which they appear. */
static void place(int ranks, int per_host, enum placing placing, int *host)
{
    int number[MOST_RANKS];
    int hosts = ranks / per_host;
    int found = 0;

    for (int h = 0; h < hosts; h++)
        number[h] = -1;
    for (int r = 0; r < ranks; r++) {
        int i = placing == SHUFFLED ? (int)rng_permute(7, (uint64_t)per_host,
                                                       (uint64_t)ranks, (uint64_t)r)
                                    : r;
        int h = placing == CYCLIC ? i % hosts : i / per_host;

        if (number[h] < 0)
            number[h] = found++;
        host[r] = number[h];
    }
}

static int weight_of(const struct grid *g, int j)
{
    int w = 1;

    while (j-- > 0)
        w *= g->radix[j];
    return w;
}

/* Places and ranks are inverse, digits are those of the place, and a partner differs in
 * one digit. */
static void check_digits(const struct grid *g)
{
    assert_true(g->n_digits >= 1 && weight_of(g, g->n_digits) == g->ranks);
    for (int r = 0; r < g->ranks; r++) {
        int rest = g->place[r];

        assert_true(rest >= 0 && rest < g->ranks);
        assert_int_equal(g->rank[rest], r);
        for (int j = 0; j < g->n_digits; j++) {
            int digit = rest % g->radix[j];

            assert_int_equal(grid_digit(g, r, j), digit);
            for (int d = 0; d < g->radix[j]; d++)
                assert_int_equal(g->place[grid_with_digit(g, r, j, d)],
                                 g->place[r] + (d - digit) * weight_of(g, j));
            rest /= g->radix[j];
        }
        assert_int_equal(rest, 0);
    }
}

static void check_same_digits(const struct grid *g)
{
    for (int a = 0; a < g->ranks; a++)
        for (int b = 0; b < g->ranks; b += 1 + a % 3) {
            bool same = true;

            for (int n = 0; n <= g->n_digits; n++) {
                assert_int_equal(grid_same_digits(g, a, b, n), same);
                if (n < g->n_digits)
                    same = same && grid_digit(g, a, n) == grid_digit(g, b, n);
            }
        }
}

/* In nested order all ranks that share their first n digits adjoin, for each n. */
static void check_nested(const struct grid *g)
{
    bool seen[MOST_RANKS] = {false};

    for (int i = 0; i < g->ranks; i++) {
        int r = grid_nested(g, i);

        assert_false(seen[r]);
        seen[r] = true;
    }
    for (int n = 1; n <= g->n_digits; n++) {
        int length = g->ranks / weight_of(g, n);

        for (int i = 0; i < g->ranks; i++)
            assert_true(grid_same_digits(g, grid_nested(g, i),
                                         grid_nested(g, i / length * length), n));
    }
}

/* Any `hosts` neighbours in spread order are on different hosts. */
static void check_spread(const struct grid *g)
{
    bool seen[MOST_RANKS] = {false};
    int hosts = g->ranks / g->host_ranks;

    for (int i = 0; i < g->ranks; i++) {
        int r = grid_spread(g, i);

        assert_false(seen[r]);
        seen[r] = true;
        assert_int_equal(g->place[r] / g->host_ranks, i % hosts);
    }
}

static void check_grid(const struct grid *g)
{
    check_digits(g);
    check_same_digits(g);
    check_nested(g);
    check_spread(g);
    for (int j = 0; j < g->n_digits; j++)
        assert_int_equal(grid_inside_host(g, j), j == 0 && g->host_ranks > 1);
}

/* Digits from `first` on: one, or the prime factors from the smallest. */
static void check_radices(const struct grid *g, int first, int n, bool flat)
{
    if (n == 1) {
        assert_int_equal(g->n_digits, first > 0 ? first : 1);
        return;
    }
    if (flat) {
        assert_int_equal(g->n_digits, first + 1);
        assert_int_equal(g->radix[first], n);
        return;
    }
    for (int j = first; j < g->n_digits; j++) {
        assert_true(j == first || g->radix[j] >= g->radix[j - 1]);
        for (int f = 2; f < g->radix[j]; f++)
            assert_true(g->radix[j] % f != 0);
        assert_true(g->radix[j] > 1);
    }
}

static struct grid make(int ranks, const int *host, enum grid_schedule schedule)
{
    struct grid g;

    assert_int_equal(grid_init(&g, ranks, host, schedule), ST_OK);
    return g;
}

static void without_hosts(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
        for (int s = SCHEDULE_AUTO; s <= SCHEDULE_RECURSIVE; s++) {
            struct grid g = make(ranks, NULL, (enum grid_schedule)s);

            assert_int_equal(g.ranks, ranks);
            assert_int_equal(g.host_ranks, 1);
            check_radices(&g, 0, ranks,
                          s == SCHEDULE_FLAT || (s == SCHEDULE_AUTO && ranks <= 8));
            check_grid(&g);
            for (int r = 0; r < ranks; r++)
                assert_int_equal(g.place[r], r);
            grid_release(&g);
        }
}

static void check_hosts(int ranks, int per_host, enum placing placing,
                        enum grid_schedule schedule)
{
    int host[MOST_RANKS];
    int hosts = ranks / per_host;

    place(ranks, per_host, placing, host);
    struct grid g = make(ranks, host, schedule);

    assert_int_equal(g.host_ranks, per_host);
    if (per_host > 1)
        assert_int_equal(g.radix[0], per_host);
    check_radices(&g, per_host > 1, hosts,
                  schedule == SCHEDULE_FLAT || (schedule == SCHEDULE_AUTO && hosts <= 8));
    check_grid(&g);
    /* Partners in digit 0 are just those of the host, in rank order. */
    for (int r = 0; per_host > 1 && r < ranks; r++)
        for (int d = 0; d < per_host; d++) {
            int partner = grid_with_digit(&g, r, 0, d);

            assert_int_equal(host[partner], host[r]);
            if (d > 0)
                assert_true(partner > grid_with_digit(&g, r, 0, d - 1));
        }
    grid_release(&g);
}

static void with_as_many_ranks_on_each_host(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks += ranks < 40 ? 1 : 6)
        for (int per_host = 1; per_host <= ranks; per_host++)
            for (int placing = 0; ranks % per_host == 0 && placing < PLACINGS; placing++)
                for (int s = SCHEDULE_AUTO; s <= SCHEDULE_RECURSIVE; s++)
                    check_hosts(ranks, per_host, (enum placing)placing,
                                (enum grid_schedule)s);
}

static void same_grid(const struct grid *a, const struct grid *b)
{
    size_t n = (size_t)a->ranks;

    assert_int_equal(a->ranks, b->ranks);
    assert_int_equal(a->host_ranks, b->host_ranks);
    assert_int_equal(a->n_digits, b->n_digits);
    assert_memory_equal(a->radix, b->radix, (size_t)a->n_digits * sizeof *a->radix);
    assert_memory_equal(a->place, b->place, n * sizeof *a->place);
    assert_memory_equal(a->rank, b->rank, n * sizeof *a->rank);
}

/* Then no digit is kept inside hosts. */
static void with_uneven_hosts(void **state)
{
    static const int hosts[][6] = {
        {0, 0, 1, 1, 1, 2}, {0, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 1}, {0, 1, 2, 3, 4, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
        for (int s = SCHEDULE_AUTO; s <= SCHEDULE_RECURSIVE; s++) {
            struct grid uneven = make(6, hosts[i], (enum grid_schedule)s);
            struct grid plain = make(6, NULL, (enum grid_schedule)s);

            same_grid(&uneven, &plain);
            check_grid(&uneven);
            grid_release(&uneven);
            grid_release(&plain);
        }
}

static void large_primes_and_powers(void **state)
{
    (void)state;
    static const struct {
        int ranks, n_digits;
    } cases[] = {{1021, 1}, {1024, 10}, {2 * 499, 2}, {1 << 15, 15}, {3 * 5 * 7 * 11, 4}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct grid g = make(cases[i].ranks, NULL, SCHEDULE_RECURSIVE);

        assert_int_equal(g.n_digits, cases[i].n_digits);
        check_radices(&g, 0, cases[i].ranks, false);
        check_digits(&g);
        grid_release(&g);
    }
}

static void copies_are_independent(void **state)
{
    const int host[4] = {0, 1, 0, 1};
    struct grid g = make(4, host, SCHEDULE_RECURSIVE);
    struct grid copy;

    (void)state;
    assert_int_equal(grid_copy(&copy, &g), ST_OK);
    same_grid(&g, &copy);
    grid_release(&g);
    grid_release(&g);
    check_grid(&copy);
    grid_release(&copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_hosts),
        cmocka_unit_test(with_as_many_ranks_on_each_host),
        cmocka_unit_test(with_uneven_hosts),
        cmocka_unit_test(large_primes_and_powers),
        cmocka_unit_test(copies_are_independent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
