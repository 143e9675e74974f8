/* SPDX-License-Identifier: MIT */
#include "comm/grid.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { FLAT_LIMIT = 8 };

/* Ranks a host when all hosts have the same number of them, else 1. */
static enum status even_host_ranks(int ranks, const int *host, int *out)
{
    int *count;
    enum status st =
        memory_alloc((size_t)ranks, sizeof *count, "ranks of a host", &count);

    *out = 1;
    if (st != ST_OK)
        return st;
    for (int r = 0; r < ranks; r++) {
        require(host[r] >= 0 && host[r] < ranks);
        count[host[r]]++;
    }
    bool even = true;

    for (int h = 0; h < ranks; h++)
        even = even && (count[h] == 0 || count[h] == count[0]);
    if (even)
        *out = count[0];
    free(count);
    return ST_OK;
}

/* Ranks of a host adjoin in the grid, in rank order. */
static enum status number_places(struct grid *g, const int *host)
{
    int *used;
    enum status st =
        memory_alloc((size_t)g->ranks, sizeof *used, "ranks of a host", &used);

    if (st != ST_OK)
        return st;
    for (int r = 0; r < g->ranks; r++) {
        int p = g->host_ranks > 1 ? host[r] * g->host_ranks + used[host[r]]++ : r;

        require(p < g->ranks); /* host numbers without gaps */
        g->place[r] = p;
        g->rank[p] = r;
    }
    free(used);
    return ST_OK;
}

static void add_digit(struct grid *g, int radix)
{
    require(g->n_digits < GRID_MAX_DIGITS);
    g->radix[g->n_digits++] = radix;
}

static void add_digits(struct grid *g, int n, enum grid_schedule schedule)
{
    if (n == 1)
        return;
    if (schedule == SCHEDULE_FLAT || (schedule == SCHEDULE_AUTO && n <= FLAT_LIMIT)) {
        add_digit(g, n);
        return;
    }
    for (int f = 2; n > 1; f++)
        for (; n % f == 0; n /= f)
            add_digit(g, f);
}

enum status grid_init(struct grid *g, int ranks, const int *host,
                      enum grid_schedule schedule)
{
    enum status st;

    require(ranks >= 1);
    *g = (struct grid){.ranks = ranks, .host_ranks = 1};
    st = memory_alloc((size_t)ranks, sizeof *g->place, "grid", &g->place);
    if (st == ST_OK)
        st = memory_alloc((size_t)ranks, sizeof *g->rank, "grid", &g->rank);
    if (st == ST_OK && host)
        st = even_host_ranks(ranks, host, &g->host_ranks);
    if (st == ST_OK)
        st = number_places(g, host);
    if (st != ST_OK) {
        grid_release(g);
        return st;
    }
    if (g->host_ranks > 1)
        add_digit(g, g->host_ranks);
    add_digits(g, ranks / g->host_ranks, schedule);
    if (g->n_digits == 0)
        add_digit(g, 1);
    return ST_OK;
}

enum status grid_copy(struct grid *to, const struct grid *from)
{
    size_t n = (size_t)from->ranks;
    enum status st;

    *to = *from;
    to->place = to->rank = NULL;
    st = memory_alloc(n, sizeof *to->place, "grid", &to->place);
    if (st == ST_OK)
        st = memory_alloc(n, sizeof *to->rank, "grid", &to->rank);
    if (st != ST_OK) {
        grid_release(to);
        return st;
    }
    memcpy(to->place, from->place, n * sizeof *to->place);
    memcpy(to->rank, from->rank, n * sizeof *to->rank);
    return ST_OK;
}

void grid_release(struct grid *g)
{
    free(g->place);
    free(g->rank);
    *g = (struct grid){0};
}

/* Product of the radices before digit j. */
static int weight(const struct grid *g, int j)
{
    int w = 1;

    for (int i = 0; i < j; i++)
        w *= g->radix[i];
    return w;
}

int grid_digit(const struct grid *g, int rank, int j)
{
    return g->place[rank] / weight(g, j) % g->radix[j];
}

int grid_with_digit(const struct grid *g, int rank, int j, int d)
{
    return g->rank[g->place[rank] + (d - grid_digit(g, rank, j)) * weight(g, j)];
}

bool grid_same_digits(const struct grid *g, int a, int b, int n)
{
    int w = weight(g, n);

    return g->place[a] % w == g->place[b] % w;
}

int grid_nested(const struct grid *g, int i)
{
    int place = 0;

    /* The last digit is the lowest of i. */
    for (int j = g->n_digits; j-- > 0; i /= g->radix[j])
        place += i % g->radix[j] * weight(g, j);
    return g->rank[place];
}

int grid_spread(const struct grid *g, int i)
{
    int hosts = g->ranks / g->host_ranks;

    return g->rank[i % hosts * g->host_ranks + i / hosts];
}

bool grid_inside_host(const struct grid *g, int j)
{
    return j == 0 && g->host_ranks > 1;
}
