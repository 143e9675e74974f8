/* SPDX-License-Identifier: MIT */
/* Cuts the production order into communication blocks, and those into the runs that are
 * contiguous in memory. */
#include "comm/plan.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/memory.h"

/* floor(i * u / k) without the product of two large numbers: i <= k <= u. */
static size_t share(size_t i, size_t u, size_t k)
{
    return i * (u / k) + i * (u % k) / k;
}

/* The number nearest to n * 4 / block_bytes in whole turns of the owners. */
static size_t count_blocks(size_t n, size_t units, size_t turn, size_t block_bytes)
{
    if (units < turn)
        return units;

    size_t turn_bytes = block_bytes > SIZE_MAX / turn ? SIZE_MAX : block_bytes * turn;
    size_t bytes = n * sizeof(float);
    size_t turns = bytes / turn_bytes;

    if (bytes % turn_bytes >= turn_bytes - bytes % turn_bytes)
        turns++;
    return turn * min_size(max_size(turns, 1), units / turn);
}

/* Adds a run to the last block; it joins the piece before when it adjoins in memory. */
static void add_run(struct plan *p, struct plan_block *block, size_t at,
                    struct plan_segment run)
{
    struct plan_piece *last = &p->pieces[p->n_pieces - (block->n_pieces > 0)];

    run.at = at;
    p->segments[p->n_segments++] = run;
    block->n_segments++;
    if (block->n_pieces > 0 && last->offset + last->elems == run.offset) {
        last->elems += run.elems;
        return;
    }
    p->pieces[p->n_pieces++] = (struct plan_piece){run.offset, run.elems, at};
    block->n_pieces++;
}

static void cut_runs(struct plan *p, const struct plan_slice *slices)
{
    size_t slice = 0;
    size_t used = 0; /* elements of that slice given to blocks so far */

    for (size_t i = 0; i < p->n_blocks; i++) {
        struct plan_block *block = &p->blocks[i];

        block->first_segment = p->n_segments;
        block->first_piece = p->n_pieces;
        for (size_t at = 0, run; at < block->elems; at += run) {
            run = min_size(block->elems - at, slices[slice].elems - used);
            if (run > 0)
                add_run(
                    p, block, at,
                    (struct plan_segment){.slice = slice,
                                          .offset = slices[slice].memory_offset + used,
                                          .elems = run});
            used += run;
            if (used == slices[slice].elems) {
                slice++;
                used = 0;
            }
        }
    }
}

static void cut_parts(struct plan *p, const struct plan_options *o, int owners)
{
    const struct strategy_ops *ops = strategy_ops(o->strategy);
    int roots = o->roots > 0 ? o->roots : 1;

    for (size_t b = 0; b < p->n_blocks; b++) {
        struct plan_block *block = &p->blocks[b];
        size_t units = block->elems / PLAN_ALIGN_ELEMS;
        size_t begin = 0;

        block->first_part = p->n_parts;
        for (int i = 0; i < owners; i++) {
            size_t end = share((size_t)i + 1, units, (size_t)owners) * PLAN_ALIGN_ELEMS;
            int owner = o->one_root ? 0 : ops->owner(&p->grid, b, i, roots);

            if (end > begin)
                p->parts[p->n_parts++] = (struct plan_part){begin, end - begin, owner};
            begin = end;
        }
        block->n_parts = p->n_parts - block->first_part;
    }
}

static void cut_blocks(struct plan *p)
{
    size_t units = p->elems / PLAN_ALIGN_ELEMS;

    for (size_t i = 0; i < p->n_blocks; i++) {
        size_t begin = share(i, units, p->n_blocks) * PLAN_ALIGN_ELEMS;
        size_t end = share(i + 1, units, p->n_blocks) * PLAN_ALIGN_ELEMS;

        p->blocks[i] = (struct plan_block){.begin = begin, .elems = end - begin};
    }
}

static enum status check_options(const struct plan_options *o)
{
    if (o->block_bytes < PLAN_ALIGN_ELEMS * sizeof(float) && !o->one_block)
        return fail(ST_USAGE, "block size: found %zu bytes, needs at least %zu",
                    o->block_bytes, PLAN_ALIGN_ELEMS * sizeof(float));
    if (o->roots < 0 || o->roots > o->grid->ranks)
        return fail(ST_USAGE, "roots of a block: found %d, needs 1 to %d, the ranks",
                    o->roots, o->grid->ranks);
    return ST_OK;
}

enum status plan_init(struct plan *p, const struct plan_slice *slices, size_t n_slices,
                      const struct plan_options *o)
{
    const struct strategy_ops *ops = strategy_ops(o->strategy);
    int roots = o->roots > 0 ? o->roots : 1;
    enum status st = check_options(o);

    *p = (struct plan){0};
    if (st == ST_OK)
        st = grid_copy(&p->grid, o->grid);
    if (st != ST_OK)
        return st;
    p->strategy = o->strategy;
    p->replicated = ops->replicated;
    p->ranks = o->grid->ranks;
    for (size_t s = 0; s < n_slices; s++) {
        require(slices[s].elems % PLAN_ALIGN_ELEMS == 0);
        p->elems += slices[s].elems;
    }

    size_t units = p->elems / PLAN_ALIGN_ELEMS;
    int owners = ops->owners(&p->grid, roots);

    p->n_blocks = o->one_block ? min_size(units, 1)
                               : count_blocks(p->elems, units, ops->turn(&p->grid, roots),
                                              o->block_bytes);
    /* Every run ends a block or a slice. */
    size_t most_runs = p->n_blocks + n_slices;
    /* None is empty. */
    size_t most_parts = min_size(p->n_blocks * (size_t)owners, units);

    st = memory_alloc(p->n_blocks, sizeof *p->blocks, "block plan", &p->blocks);
    if (st == ST_OK)
        st = memory_alloc(most_runs, sizeof *p->segments, "block plan", &p->segments);
    if (st == ST_OK)
        st = memory_alloc(most_runs, sizeof *p->pieces, "block plan", &p->pieces);
    if (st == ST_OK)
        st = memory_alloc(most_parts, sizeof *p->parts, "block plan", &p->parts);
    if (st != ST_OK) {
        plan_release(p);
        return st;
    }
    cut_blocks(p);
    cut_runs(p, slices);
    cut_parts(p, o, owners);
    while (p->n_return_first < p->n_blocks &&
           p->blocks[p->n_return_first].begin < o->return_first)
        p->n_return_first++;
    return ST_OK;
}

void plan_release(struct plan *p)
{
    grid_release(&p->grid);
    free(p->blocks);
    free(p->segments);
    free(p->pieces);
    free(p->parts);
    *p = (struct plan){0};
}

size_t plan_owned_elems(const struct plan *p, int rank)
{
    size_t sum = 0;

    for (size_t i = 0; i < p->n_parts; i++)
        if (p->parts[i].owner == rank)
            sum += p->parts[i].elems;
    return sum;
}

size_t plan_updated_elems(const struct plan *p, int rank)
{
    return p->replicated ? p->elems : plan_owned_elems(p, rank);
}

bool plan_updates(const struct plan *p, const struct plan_part *part, int rank)
{
    return p->replicated || part->owner == rank;
}

bool plan_owns_block(const struct plan *p, size_t block, int rank)
{
    const struct plan_block *b = &p->blocks[block];

    for (size_t i = 0; i < b->n_parts; i++)
        if (p->parts[b->first_part + i].owner != rank)
            return false;
    return true;
}

size_t plan_return_order(const struct plan *p, size_t i)
{
    require(i < p->n_blocks);
    return i < p->n_return_first ? p->n_return_first - 1 - i
                                 : p->n_blocks - 1 - (i - p->n_return_first);
}

double plan_imbalance(const struct plan *p)
{
    size_t *owned = calloc((size_t)p->ranks, sizeof *owned);
    size_t most = 0;

    if (!owned)
        bug("no memory for %d sums", p->ranks);
    for (size_t i = 0; i < p->n_parts; i++)
        owned[p->parts[i].owner] += p->parts[i].elems;
    for (int r = 0; r < p->ranks; r++)
        most = max_size(most, owned[r]);
    free(owned);
    return p->elems == 0 ? 1.0 : (double)most * p->ranks / (double)p->elems;
}

struct plan_cursor plan_walk(const struct plan *p, size_t block, size_t at, size_t elems)
{
    const struct plan_block *b = &p->blocks[block];
    size_t low = b->first_segment;
    size_t high = b->first_segment + b->n_segments;

    require(at + elems <= b->elems);
    /* First segment that ends after `at`. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (p->segments[middle].at + p->segments[middle].elems <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return (struct plan_cursor){p, low, b->first_segment + b->n_segments, at, at + elems};
}

bool plan_next(struct plan_cursor *c, struct plan_segment *out)
{
    if (c->segment == c->end_segment || c->begin == c->end)
        return false;
    const struct plan_segment *s = &c->plan->segments[c->segment++];

    if (s->at >= c->end)
        return false;
    size_t begin = max_size(s->at, c->begin);
    size_t end = min_size(s->at + s->elems, c->end);

    *out = (struct plan_segment){.slice = s->slice,
                                 .offset = s->offset + (begin - s->at),
                                 .elems = end - begin,
                                 .at = begin};
    return true;
}
