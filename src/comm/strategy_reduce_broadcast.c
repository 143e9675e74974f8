/* SPDX-License-Identifier: MIT */
/* Strategy 2: each block has its own root, or a few, and roots take turns: neighbours in
 * production order have roots on different hosts, so that as many links as possible are
 * busy at any instant. */
#include "comm/strategy_private.h"

static int owners(const struct grid *g, int roots)
{
    (void)g;
    return roots;
}

static int owner(const struct grid *g, size_t b, int i, int roots)
{
    size_t turn = b * (size_t)roots + (size_t)i;

    return grid_spread(g, (int)(turn % (size_t)g->ranks));
}

static size_t turn(const struct grid *g, int roots)
{
    int a = g->ranks;

    /* Least n with n * roots a multiple of the ranks: ranks / gcd. */
    for (int b = roots; b > 0;) {
        int rest = a % b;

        a = b;
        b = rest;
    }
    return (size_t)(g->ranks / a);
}

static size_t block_bytes(const struct grid *g)
{
    /* Alone there is nothing to send early, and every block is some tasks. */
    return (size_t)(g->ranks == 1 ? 8 : 1) << 20;
}

const struct strategy_ops strategy_reduce_broadcast = {
    "reduce-broadcast", false, owners, owner, turn, block_bytes};
