/* SPDX-License-Identifier: MIT */
/* Strategy 4: sums as strategy 3 makes them, then all sums to all ranks, and every rank
 * updates everything (as data parallelism without sharding does). The state is P times as
 * large in all, and so is the work of the update; here for comparison. */
#include "comm/strategy_private.h"

const struct strategy_ops strategy_allreduce = {
    "allreduce", true, scatter_owners, scatter_owner, scatter_turn, scatter_block_bytes};
