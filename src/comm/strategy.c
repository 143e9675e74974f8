/* SPDX-License-Identifier: MIT */
#include "comm/strategy.h"

#include "base/memory.h"
#include "comm/strategy_private.h"

static const struct strategy_ops *const table[] = {
    [STRATEGY_CENTRAL] = &strategy_central,
    [STRATEGY_REDUCE_BROADCAST] = &strategy_reduce_broadcast,
    [STRATEGY_REDUCE_SCATTER] = &strategy_reduce_scatter,
    [STRATEGY_ALLREDUCE] = &strategy_allreduce,
};

const struct strategy_ops *strategy_ops(enum strategy s)
{
    require(s >= STRATEGY_CENTRAL && s <= STRATEGY_ALLREDUCE);
    return table[s];
}

enum strategy strategy_default(int ranks)
{
    enum { FEW_RANKS = 16 };

    return ranks <= FEW_RANKS ? STRATEGY_REDUCE_BROADCAST : STRATEGY_REDUCE_SCATTER;
}
