/* SPDX-License-Identifier: MIT */
/* Strategy 3: every rank updates its part of each block (ZeRO stage 1: Rajbhandari et
 * al., 2020). Parts lie so that what goes to one partner in a round adjoins. */
#include "base/memory.h"
#include "comm/strategy_private.h"

int scatter_owners(const struct grid *g, int roots)
{
    (void)roots;
    return g->ranks;
}

int scatter_owner(const struct grid *g, size_t b, int i, int roots)
{
    (void)b;
    (void)roots;
    return grid_nested(g, i);
}

size_t scatter_turn(const struct grid *g, int roots)
{
    (void)g;
    (void)roots;
    return 1;
}

/* Parts of 64 KiB and more: smaller messages cost more than they carry. */
size_t scatter_block_bytes(const struct grid *g)
{
    return max_size((size_t)4 << 20, (size_t)g->ranks << 16);
}

const struct strategy_ops strategy_reduce_scatter = {
    "reduce-scatter", false,        scatter_owners,
    scatter_owner,    scatter_turn, scatter_block_bytes};
