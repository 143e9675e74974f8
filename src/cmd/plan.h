/* plan.h - what `weft plan` works out, for plan.c that does and plan_show.c that tells.
 */
#ifndef WEFT_CMD_PLAN_H
#define WEFT_CMD_PLAN_H

#include <stdbool.h>

#include "base/status.h"
#include "engine/cost.h"
#include "engine/engine.h"

enum compute_source { COMPUTE_GIVEN, COMPUTE_RATE_GIVEN, COMPUTE_OF_THIS_MACHINE };

struct forecast {
    const char *model; /* as typed */
    struct engine_options o;
    struct cost_cluster cluster;
    const char *network_file; /* NULL: assumed */
    enum compute_source compute_source;
    size_t texts_bytes; /* on rank 0, with --sample-every */
    double rank_flops;  /* a rank computes with, per second; 0: not known */

    struct engine_plan plan; /* of rank 0 */
    size_t program_bytes;    /* in memory before anything is made */
    struct cost cost;

    /* With the tables; each strategy with its own best block size, unless that is given.
     */
    bool tables;
    enum strategy strategies[COST_STRATEGIES];
    size_t strategy_block[COST_STRATEGIES];
    struct cost strategy_cost[COST_STRATEGIES];
    size_t best_strategy;
    struct cost block_cost[COST_BLOCK_SIZES]; /* of o.strategy */
    size_t best_block;
};

/* Tokens of a step, all ranks. */
double forecast_tokens(const struct forecast *f);

void forecast_print(const struct forecast *f);
/* One object on stdout. Returns ST_OK, ST_NOMEM. */
MUST_USE enum status forecast_print_json(const struct forecast *f);

#endif
