/* sampler.h - which window every row of every step is: a pure function.
 *
 * Global batch G = P * B * accum windows a step. Slot s of step k (0-based, from the
 * start of the run) is entry (k mod S) * G + s of epoch floor(k / S)'s order, where
 * S = floor(windows / G) is the number of steps an epoch. Order "shuffled" is a
 * pseudo-random permutation chosen by (seed, epoch), "sequential" is 0, 1, 2, ...
 * Every window is seen at most once an epoch; the windows - S*G left over are dropped,
 * other ones each epoch when shuffled. All ranks are in step by construction, and the set
 * of windows of a step depends on G only, not on how P, B and accum make it.
 */
#ifndef WEFT_DATA_SAMPLER_H
#define WEFT_DATA_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct sampler {
    uint64_t windows; /* in the shard set */
    uint64_t batch;   /* G [windows a step] */
    uint64_t seed;
    bool shuffled;
};

/* S; 0 when the set is too small for one step. */
uint64_t sampler_steps_per_epoch(const struct sampler *s);

/* Slot of row b of micro-batch a on this rank: (a * P + rank) * B + b. */
static inline uint64_t sampler_slot(int rank, int ranks, size_t B, size_t a, size_t b)
{
    return ((uint64_t)a * (uint64_t)ranks + (uint64_t)rank) * B + b;
}

/* Window of `slot` (< batch) of `step`. Needs sampler_steps_per_epoch() >= 1. */
uint64_t sampler_window(const struct sampler *s, uint64_t step, uint64_t slot);

/* ST_FORMAT when the set is too small for one step: names `where`, its tokens and the
 * tokens needed (G*T + 1), and the options that make it smaller. */
MUST_USE enum status sampler_check(const struct sampler *s, const char *where,
                                   uint64_t tokens, size_t T);

#endif
