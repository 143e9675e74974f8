/* strategy.h - the four ways to do the update phase.
 *
 * A strategy says who owns which part of a block and whether parameters or sums return to
 * the ranks. Everything else - the plan, the schedules, the step graph - asks these
 * questions and does not know which strategy it serves. One file a strategy.
 */
#ifndef WEFT_COMM_STRATEGY_H
#define WEFT_COMM_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>

enum strategy {
    STRATEGY_CENTRAL = 1,          /* rank 0 updates everything */
    STRATEGY_REDUCE_BROADCAST = 2, /* each block has its own root, roots rotate */
    STRATEGY_REDUCE_SCATTER = 3,   /* every rank updates its part of each block */
    STRATEGY_ALLREDUCE = 4         /* every rank updates everything */
};

struct grid;

struct strategy_ops {
    const char *name;
    bool replicated; /* every rank updates everything: the sums return, not parameters */
    /* Owners of a block; `roots` as in struct plan_options. */
    int (*owners)(const struct grid *g, int roots);
    /* Owner of part i of block b. */
    int (*owner)(const struct grid *g, size_t b, int i, int roots);
    /* Blocks come in multiples of this, so that all ranks own as much. */
    size_t (*turn)(const struct grid *g, int roots);
    /* Default size of a block [bytes]. */
    size_t (*block_bytes)(const struct grid *g);
};

const struct strategy_ops *strategy_ops(enum strategy s);

/* The fit one for so many ranks when nothing is known of the network. */
enum strategy strategy_default(int ranks);

#endif
