/* SPDX-License-Identifier: MIT */
/* What a rank adds in a round of a reduction, cut into tasks for its workers. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

/* Long enough to be worth a task, short enough that a large block keeps all workers busy.
 */
enum { TASK_ELEMS = 1 << 18 };

static struct block_sum *sum_of(const struct exchange *x, size_t b, int round)
{
    require(b < x->plan->n_blocks && round >= 0 && round < x->rounds);
    return &x->sums[(size_t)round * x->plan->n_blocks + b];
}

size_t exchange_sum_tasks(const struct exchange *x, size_t b, int round)
{
    return ceil_div(sum_of(x, b, round)->elems, TASK_ELEMS);
}

static size_t term_count(const struct exchange *x, int round)
{
    if (x->ranks == 1)
        return 0;
    return x->sums_replace ? 1 : (size_t)x->plan->grid.radix[round] - 1;
}

/* Term k of the partners, in the order of their places. */
static struct sum_term term_at(const struct exchange *x, const struct block_sum *s,
                               size_t k, size_t at, size_t offset)
{
    const struct scratch_size *size = &x->size[s->round];
    size_t elem = exchange_elem_bytes(x->plan, &x->options, PHASE_REDUCE);

    if (!exchange_in_memory(x, PHASE_REDUCE, s->round))
        return (struct sum_term){s->terms + (k * size->stride + at - s->at) * elem,
                                 elem < sizeof(float)};
    const struct grid *g = &x->plan->grid;
    int own = grid_digit(g, x->rank, s->round);
    int partner =
        grid_with_digit(g, x->rank, s->round, (int)k < own ? (int)k : (int)k + 1);

    return (struct sum_term){x->host_grads[partner] + offset, false};
}

static size_t terms_before(const struct exchange *x, int round)
{
    return x->sums_replace ? SUM_REPLACE
                           : (size_t)grid_digit(&x->plan->grid, x->rank, round);
}

/* Adds a tile at a time, and the squares of its sums while it is in cache. */
static double add_run(const struct exchange *x, const struct block_sum *s,
                      const struct plan_segment *run, struct sum_term *terms, bool count)
{
    size_t n = term_count(x, s->round);
    struct squares squares = {{0}};

    for (size_t i = 0; i < run->elems; i += SUM_TILE) {
        float *dst = x->grads + run->offset + i;
        size_t elems = min_size(SUM_TILE, run->elems - i);

        for (size_t k = 0; k < n; k++)
            terms[k] = term_at(x, s, k, run->at + i, run->offset + i);
        if (n > 0)
            sum_terms(dst, terms, n, terms_before(x, s->round), elems);
        if (count)
            squares_add(&squares, dst, elems);
    }
    return squares_total(&squares);
}

/* This rank adds to the part in this round. */
static bool adds_to(const struct exchange *x, const struct plan_part *part, int round)
{
    if (x->sums_replace && x->plan->replicated)
        return true;
    return grid_same_digits(&x->plan->grid, x->rank, part->owner, round + 1);
}

/* Adds what lies in [begin, end) of the block and of one part. */
static double add_part(const struct exchange *x, const struct block_sum *s,
                       const struct plan_part *part, size_t begin, size_t end,
                       struct sum_term *terms)
{
    bool counts = s->round + 1 == x->rounds && part->owner == x->rank;
    struct plan_cursor c = plan_walk(x->plan, s->block, begin, end - begin);
    double squares = 0;

    for (struct plan_segment run; plan_next(&c, &run);)
        squares += add_run(x, s, &run, terms, counts);
    return squares;
}

double exchange_sum(struct exchange *x, size_t b, int round, size_t i)
{
    const struct plan_block *block = &x->plan->blocks[b];
    struct block_sum *s = sum_of(x, b, round);
    size_t begin = s->at + i * TASK_ELEMS;
    size_t end = min_size(s->at + s->elems, begin + TASK_ELEMS);
    struct sum_term *terms = malloc((term_count(x, round) + 1) * sizeof *terms);
    double squares = 0;

    require(terms && begin < end);
    require(x->size[round].contributions == 0 || s->terms);
    for (size_t p = 0; p < block->n_parts; p++) {
        const struct plan_part *part = &x->plan->parts[block->first_part + p];
        size_t from = max_size(begin, part->at);
        size_t to = min_size(end, part->at + part->elems);

        if (from < to && adds_to(x, part, round))
            squares += add_part(x, s, part, from, to, terms);
    }
    free(terms);
    if (atomic_fetch_sub(&s->tasks_left, 1) == 1 && x->traffic && s->terms)
        comm_traffic(x->comm)->release(s);
    return squares;
}

double exchange_squares(const struct exchange *x, size_t b)
{
    const struct plan_block *block = &x->plan->blocks[b];
    double squares = 0;

    for (size_t p = 0; p < block->n_parts; p++) {
        const struct plan_part *part = &x->plan->parts[block->first_part + p];
        struct plan_cursor c = plan_walk(x->plan, b, part->at, part->elems);

        for (struct plan_segment run; part->owner == x->rank && plan_next(&c, &run);) {
            struct squares sum = {{0}};

            squares_add(&sum, x->grads + run.offset, run.elems);
            squares += squares_total(&sum);
        }
    }
    return squares;
}

void exchange_finish_sums(struct exchange *x, size_t b)
{
    const struct plan_block *block = &x->plan->blocks[b];

    require(x->plan->replicated);
    if (x->ranks == 1 || x->options.wire != WIRE_BF16)
        return;
    for (size_t p = 0; p < block->n_parts; p++) {
        const struct plan_part *part = &x->plan->parts[block->first_part + p];
        struct span_cursor c = span_walk(x, b, part->at, part->elems);

        for (struct span span; span_next(&c, &span);)
            bf16_unpack_in_place(x->grads + span.offset, span.elems);
    }
}
