/* SPDX-License-Identifier: MIT */
/* The root's arithmetic: contributions added in rank order, squares in fixed lanes.
 * Loops are over tiles that stay in the first-level cache and are left to the compiler to
 * vectorise: additions stay separate for each element, so that vectors change no bits. */
#include <string.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

static void add(float *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

void sum_add_ranks(float *restrict dst, const float *restrict sources, size_t stride,
                   size_t n_sources, size_t before, size_t elems)
{
    size_t next = 0;

    require(elems <= SUM_TILE);
    if (before == SUM_REPLACE) {
        memcpy(dst, sources, elems * sizeof *dst);
        next = 1;
    } else if (before >= 2) {
        float sum[SUM_TILE];

        memcpy(sum, sources, elems * sizeof *sum);
        for (next = 1; next < before; next++)
            add(sum, sources + next * stride, elems);
        add(dst, sum, elems);
    }
    /* With one rank before, a + b is the same bits as b + a. */
    for (; next < n_sources; next++)
        add(dst, sources + next * stride, elems);
}

void squares_add(struct squares *s, const float *x, size_t elems)
{
    struct squares sum = *s; /* a copy of its own, that may stay in registers */

    for (size_t i = 0; i < elems; i += SQUARE_LANES)
        for (size_t j = 0; j < SQUARE_LANES; j++)
            sum.lane[j] += (double)x[i + j] * (double)x[i + j];
    *s = sum;
}

double squares_total(const struct squares *s)
{
    double total = 0;

    for (size_t j = 0; j < SQUARE_LANES; j++)
        total += s->lane[j];
    return total;
}

double exchange_sum(struct exchange *x, size_t b)
{
    const struct plan_block *block = &x->plan->blocks[b];
    struct block_scratch *scratch = &x->scratch[b];
    size_t at = 0;
    double total = 0;

    require(b < x->plan->n_blocks && block->root == x->rank);
    require(x->size.contributions == 0 || scratch->sums);
    for (size_t s = 0; s < block->n_segments; s++) {
        const struct plan_segment *segment = &x->plan->segments[block->first_segment + s];
        struct squares squares = {{0}};

        for (size_t i = 0; i < segment->elems; i += SUM_TILE) {
            float *dst = x->grads + segment->offset + i;
            size_t n = min_size(SUM_TILE, segment->elems - i);

            if (x->size.contributions > 0)
                sum_add_ranks(dst, scratch->sums + at + i, x->size.stride,
                              x->size.contributions, x->own_place, n);
            squares_add(&squares, dst, n);
        }
        total += squares_total(&squares);
        at += segment->elems;
    }
    if (x->traffic)
        comm_traffic(x->comm)->release(scratch);
    return total;
}
