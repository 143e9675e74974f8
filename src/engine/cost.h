/* cost.h - how long a step will take, without running it.
 *
 * The model goes through one step event by event: workers that compute, update and add,
 * and the messages of the direct engine on the links of a network whose figures are
 * given. What it knows and what it leaves out: docs/COST-MODEL.md.
 */
#ifndef WEFT_ENGINE_COST_H
#define WEFT_ENGINE_COST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/network.h"

/* The machines of a job. */
struct cost_cluster {
    int ranks;
    int hosts; /* 1 .. ranks; neighbouring ranks share one, as evenly as it goes */
    struct network network;
};

struct cost {
    double step_s;         /* from one step to the next, in a long row of steps */
    double compute_s;      /* forward and backward */
    double exposed_s;      /* no task of a rank runs: mean over ranks */
    double most_exposed_s; /* of the rank with most */
    double wire_bound_s;   /* bytes of the busiest link, one direction, over bandwidth */
    uint64_t sent_bytes;   /* between hosts, by the rank that sends most */
    uint64_t messages;     /* that it sends */
    size_t blocks;
};

/* Predicts a step of options `o` with o->compute_s for forward and backward (not of the
 * collective engine, whose messages are the MPI library's secret).
 * Call     LOCAL, pure
 * Returns  ST_OK; ST_USAGE for hosts out of range or what engine_make_plan refuses,
 *          ST_NOMEM
 * Cost     about a microsecond a message that is simulated: ranks x blocks x rounds, or
 *          blocks x rounds where all ranks behave alike */
MUST_USE enum status cost_predict(const struct engine_options *o,
                                  const struct cost_cluster *c, struct cost *out);

/* ---- the choice ---- */

/* Block sizes that are tried: powers of two, the longest first. */
enum { COST_LEAST_BLOCK = 64 << 10, COST_MOST_BLOCK = 32 << 20, COST_BLOCK_SIZES = 10 };
enum { COST_STRATEGIES = 4 };

/* False where there would be so many messages that it could not be the best, and would
 * take long to predict. */
bool cost_worth_trying(const struct engine_options *o, const struct cost_cluster *c);

/* Predictions for each block size, whatever o->block_bytes; step_s = 0 where it is not
 * worth trying. */
MUST_USE enum status cost_try_blocks(const struct engine_options *o,
                                     const struct cost_cluster *c,
                                     struct cost out[COST_BLOCK_SIZES]);

/* All strategies, the usual one for so many ranks first. */
void cost_order_strategies(int ranks, enum strategy out[COST_STRATEGIES]);

/* The first of n predictions that is within 1 % of the shortest step; those with step_s =
 * 0 do not count. */
size_t cost_best(const struct cost *costs, size_t n);

/* Fills in what is 0 of o->strategy and o->block_bytes with the best (cost_best) in the
 * orders above. As cost_predict, whose result for the choice is *out. */
MUST_USE enum status cost_choose(struct engine_options *o, const struct cost_cluster *c,
                                 struct cost *out);

/* Host number of each rank [ranks]. */
MUST_USE enum status cost_hosts(const struct cost_cluster *c, int **out);

#endif
