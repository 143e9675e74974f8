/* strategy_private.h - the table rows; see strategy.h. */
#ifndef WEFT_COMM_STRATEGY_PRIVATE_H
#define WEFT_COMM_STRATEGY_PRIVATE_H

#include "comm/grid.h"
#include "comm/strategy.h"

extern const struct strategy_ops strategy_central, strategy_reduce_broadcast,
    strategy_reduce_scatter, strategy_allreduce;

/* reduce-scatter and allreduce cut blocks alike. */
int scatter_owners(const struct grid *g, int roots);
int scatter_owner(const struct grid *g, size_t b, int i, int roots);
size_t scatter_turn(const struct grid *g, int roots);
size_t scatter_block_bytes(const struct grid *g);

#endif
