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

static size_t count_blocks(size_t n, size_t units, size_t ranks, size_t block_bytes)
{
    if (units < ranks)
        return units;

    size_t group_bytes = block_bytes > SIZE_MAX / ranks ? SIZE_MAX : block_bytes * ranks;
    size_t bytes = n * sizeof(float);
    size_t rounds = bytes / group_bytes;

    if (bytes % group_bytes >= group_bytes - bytes % group_bytes)
        rounds++;
    return ranks * min_size(max_size(rounds, 1), units / ranks);
}

/* Adds a run to the last block; it joins the piece before when it adjoins in memory. */
static void add_run(struct plan *p, struct plan_block *block, struct plan_segment run)
{
    struct plan_piece *last = &p->pieces[p->n_pieces - (block->n_pieces > 0)];

    p->segments[p->n_segments++] = run;
    block->n_segments++;
    if (block->n_pieces > 0 && last->offset + last->elems == run.offset) {
        last->elems += run.elems;
        return;
    }
    p->pieces[p->n_pieces++] = (struct plan_piece){run.offset, run.elems};
    block->n_pieces++;
}

static void cut(struct plan *p, const struct plan_slice *slices, bool one_block)
{
    size_t units = p->elems / PLAN_ALIGN_ELEMS;
    size_t slice = 0;
    size_t used = 0; /* elements of that slice given to blocks so far */

    for (size_t i = 0; i < p->n_blocks; i++) {
        struct plan_block *block = &p->blocks[i];
        size_t begin = share(i, units, p->n_blocks) * PLAN_ALIGN_ELEMS;
        size_t end = share(i + 1, units, p->n_blocks) * PLAN_ALIGN_ELEMS;

        *block = (struct plan_block){.begin = begin,
                                     .elems = end - begin,
                                     .root = one_block ? 0 : (int)(i % (size_t)p->ranks),
                                     .first_segment = p->n_segments,
                                     .first_piece = p->n_pieces};
        for (size_t left = end - begin; left > 0;) {
            size_t run = min_size(left, slices[slice].elems - used);

            if (run > 0)
                add_run(p, block,
                        (struct plan_segment){slice, slices[slice].memory_offset + used,
                                              run});
            used += run;
            left -= run;
            if (used == slices[slice].elems) {
                slice++;
                used = 0;
            }
        }
    }
}

enum status plan_init(struct plan *p, const struct plan_slice *slices, size_t n_slices,
                      int ranks, size_t block_bytes, bool one_block)
{
    enum status st;

    *p = (struct plan){.ranks = ranks};
    require(ranks >= 1);
    if (block_bytes < PLAN_ALIGN_ELEMS * sizeof(float) && !one_block) {
        *p = (struct plan){0};
        return fail(ST_USAGE, "block size: found %zu bytes, needs at least %zu",
                    block_bytes, PLAN_ALIGN_ELEMS * sizeof(float));
    }
    for (size_t s = 0; s < n_slices; s++) {
        require(slices[s].elems % PLAN_ALIGN_ELEMS == 0);
        p->elems += slices[s].elems;
    }

    size_t units = p->elems / PLAN_ALIGN_ELEMS;

    p->n_blocks = one_block ? min_size(units, 1)
                            : count_blocks(p->elems, units, (size_t)ranks, block_bytes);
    /* Every run ends a block or a slice. */
    size_t most_runs = p->n_blocks + n_slices;

    st = memory_alloc(p->n_blocks, sizeof *p->blocks, "block plan", &p->blocks);
    if (st == ST_OK)
        st = memory_alloc(most_runs, sizeof *p->segments, "block plan", &p->segments);
    if (st == ST_OK)
        st = memory_alloc(most_runs, sizeof *p->pieces, "block plan", &p->pieces);
    if (st != ST_OK) {
        plan_release(p);
        return st;
    }
    cut(p, slices, one_block);
    return ST_OK;
}

void plan_release(struct plan *p)
{
    free(p->blocks);
    free(p->segments);
    free(p->pieces);
    *p = (struct plan){0};
}

size_t plan_root_elems(const struct plan *p, int rank)
{
    size_t sum = 0;

    for (size_t i = (size_t)rank; i < p->n_blocks; i += (size_t)p->ranks)
        sum += p->blocks[i].elems;
    return sum;
}

double plan_imbalance(const struct plan *p)
{
    size_t most = 0;

    if (p->elems == 0)
        return 1.0;
    for (int r = 0; r < p->ranks; r++)
        most = max_size(most, plan_root_elems(p, r));
    return (double)most * p->ranks / (double)p->elems;
}
