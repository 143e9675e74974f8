/* SPDX-License-Identifier: MIT */
/* The sampler keeps no position: a resumed run asks for step k and gets what the
 * uninterrupted one would have got. */
#include "data/sampler.h"

#include <inttypes.h>

#include "base/rng.h"

/* Streams of this module: STREAM_ORDER + epoch. The top byte is rng_permute's. */
#define STREAM_ORDER ((uint64_t)0x53 << 48)

uint64_t sampler_steps_per_epoch(const struct sampler *s)
{
    require(s->batch >= 1);
    return s->windows / s->batch;
}

uint64_t sampler_window(const struct sampler *s, uint64_t step, uint64_t slot)
{
    uint64_t steps = sampler_steps_per_epoch(s);

    require(steps >= 1);
    require(slot < s->batch);
    uint64_t epoch = step / steps;
    uint64_t entry = step % steps * s->batch + slot;

    if (!s->shuffled)
        return entry;
    return rng_permute(s->seed, STREAM_ORDER + epoch, s->windows, entry);
}

enum status sampler_check(const struct sampler *s, const char *where, uint64_t tokens,
                          size_t T)
{
    static const char lower[] = "lower --batch, --seq, --accum or the number of ranks";

    if (sampler_steps_per_epoch(s) >= 1)
        return ST_OK;
    /* G*T + 1, or the largest number there is: nobody has so many tokens. */
    uint64_t needed = T > (UINT64_MAX - 1) / s->batch ? UINT64_MAX : s->batch * T + 1;

    if (tokens < needed)
        return fail(ST_FORMAT,
                    "%s: has %" PRIu64 " tokens, one step needs %" PRIu64
                    " (ranks * batch * accum = %" PRIu64
                    " windows of %zu tokens, and 1): %s",
                    where, tokens, needed, s->batch, T, lower);
    /* Several shards: a window does not cross files, so the tail of each is left over. */
    return fail(ST_FORMAT,
                "%s: has %" PRIu64 " tokens, but in pieces of only %" PRIu64
                " whole windows of %zu tokens; one step needs %" PRIu64
                " windows (%" PRIu64 " tokens in one file): %s",
                where, tokens, s->windows, T, s->batch, needed, lower);
}
