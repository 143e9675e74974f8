/* SPDX-License-Identifier: MIT */
/* Tasks of the update phase: each block is reduced to its owners, updated by them and
 * returned to all. Which rank owns what, and in how many rounds its sum is made, is the
 * plan's and the exchange's business. Dependencies alone make the overlap: a reduction
 * waits for the gradient tiles its block covers, a forward task for the return of the
 * slices it reads. */
#include "engine/engine_private.h"

#include <math.h>

#include "base/fault.h"

static void complete(void *arg)
{
    struct task_event *event = arg;

    task_event_complete(*event);
}

static void do_reduce(void *args, struct task_event event)
{
    struct job *j = args;
    const struct plan *plan = &j->e->plan;

    if (fault_at("reduce") == FAULT_SPOIL)
        j->e->grads[plan->pieces[plan->blocks[j->i].first_piece].offset] = INFINITY;
    j->event = event;
    exchange_reduce(j->e->exchange, j->i, j->round, complete, &j->event);
}

static void do_sum(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    double squares = exchange_sum(e->exchange, j->i, j->round, j->j);

    (void)event;
    if (j->round + 1 == exchange_rounds(e->exchange))
        e->squares[e->first_squares[j->i] + j->j] = squares;
}

static void do_return(void *args, struct task_event event)
{
    struct job *j = args;

    fault_at("return");
    j->event = event;
    exchange_return(j->e->exchange, j->i, complete, &j->event);
}

static void do_mark(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    exchange_mark(j->e->exchange, (enum exchange_mark)j->i);
}

static void update_part(const struct engine *e, size_t block, size_t part)
{
    const struct plan_part *p = &e->plan.parts[part];
    struct plan_cursor c = plan_walk(&e->plan, block, p->at, p->elems);
    size_t at = e->moment_offset[part];

    for (struct plan_segment run; plan_next(&c, &run); at += run.elems) {
        struct adamw a = e->adamw;

        if (!tensor_table[e->layout.slices[run.slice].kind].decays)
            a.weight_decay = 0;
        e->options.kernels->adamw(e->params + run.offset, e->m + at, e->v + at,
                                  e->grads + run.offset, run.elems, &a);
    }
}

static void do_update(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    const struct plan_block *b = &e->plan.blocks[j->i];

    (void)event;
    fault_at("update");
    if (e->plan.replicated)
        exchange_finish_sums(e->exchange, j->i);
    for (size_t p = b->first_part; p < b->first_part + b->n_parts; p++)
        if (plan_updates(&e->plan, &e->plan.parts[p], comm_rank(e->comm)))
            update_part(e, j->i, p);
}

/* Gradient tiles that a block covers. */
static void needs_block_gradient(struct engine *e, size_t block)
{
    const struct plan_block *b = &e->plan.blocks[block];
    const struct tiling *t = &e->model.tiling;

    for (size_t i = 0; i < b->n_segments; i++) {
        const struct plan_segment *seg = &e->plan.segments[b->first_segment + i];
        const struct slice *s = &e->layout.slices[seg->slice];
        size_t tile = tiling_grad_tile_elems(t, &e->layout.shape, s->kind);
        size_t first = seg->offset - s->offset;

        /* A segment of nothing but alignment gap has no gradient to wait for. */
        if (first >= s->elems)
            continue;
        size_t last = min_size(s->elems, first + seg->elems) - 1;
        needs_range(e, S_GRAD, seg->slice, first / tile, last / tile + 1);
    }
}

/* This rank updates at least a part of the block. */
static bool updates_block(const struct engine *e, size_t block)
{
    const struct plan_block *b = &e->plan.blocks[block];

    for (size_t p = b->first_part; p < b->first_part + b->n_parts; p++)
        if (plan_updates(&e->plan, &e->plan.parts[p], comm_rank(e->comm)))
            return true;
    return false;
}

/* This rank adds to the block in some round. */
static bool adds_to_block(const struct engine *e, size_t block)
{
    for (int round = 0; round < exchange_rounds(e->exchange); round++)
        if (exchange_sum_tasks(e->exchange, block, round) > 0)
            return true;
    return false;
}

/* The tasks of one round's additions run side by side; an empty one joins them. */
static void spawn_sums(struct engine *e, size_t block, int round)
{
    size_t n = exchange_sum_tasks(e->exchange, block, round);

    for (size_t i = 0; i < n; i++) {
        if (n == 1)
            makes(e, S_SUM, 0, block);
        else
            needs(e, S_SUM, 0, block);
        spawn(e, "sum", PRIORITY_COMM, do_sum,
              &(struct job){.e = e, .i = block, .j = i, .round = round});
    }
    if (n < 2)
        return;
    makes(e, S_SUM, 0, block);
    spawn(e, "sums", PRIORITY_COMM, NULL, NULL);
}

static void spawn_reduction(struct engine *e, size_t block)
{
    needs_block_gradient(e, block);
    for (int round = 0; round < exchange_rounds(e->exchange); round++) {
        makes(e, S_SUM, 0, block);
        spawn_with_event(e, "reduce", PRIORITY_COMM, do_reduce,
                         &(struct job){.e = e, .i = block, .round = round});
        spawn_sums(e, block, round);
    }
}

void spawn_reductions_up_to(struct engine *e, size_t slice)
{
    /* Without overlap they all follow when backward is over. */
    if (!e->options.overlap && slice + 1 < e->layout.n_slices)
        return;
    for (; e->next_block < e->plan.n_blocks; e->next_block++) {
        const struct plan_block *b = &e->plan.blocks[e->next_block];
        const struct plan_segment *last =
            &e->plan.segments[b->first_segment + b->n_segments - 1];

        if (last->slice > slice)
            return;
        spawn_reduction(e, e->next_block);
    }
}

static void do_agree(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    double loss = engine_local_loss(e);
    double squares = 0;

    for (size_t i = 0; i < e->first_squares[e->plan.n_blocks]; i++)
        squares += e->squares[i];
    fault_at("agree");
    e->agreed[0] = loss;
    e->agreed[1] = squares;
    e->agreed[2] = j->failed ? 1 : 0; /* this rank failed */
    j->event = event;
    e->agreed[3] = e->stop_wanted ? 1 : 0;
    e->agreed[4] = e->save_wanted ? 1 : 0;
    e->save_wanted = false;
    e->agreed[5] = e->part_saved ? 1 : 0;
    exchange_agree(e->exchange, e->agreed, 6, complete, &j->event);
}

void spawn_agreement(struct engine *e, bool local_failure)
{
    for (size_t b = 0; b < e->plan.n_blocks; b++)
        if (adds_to_block(e, b))
            needs(e, S_SUM, 0, b);
    needs_range(e, S_LOSS, 0, 0, e->model.tiling.chunks);
    if (e->split)
        needs(e, S_ROWS_IN, 0, 0);
    /* A rank may add to no block: the last gradient stands for the end of backward. */
    needs(e, S_GRAD, e->layout.n_slices - 1, 0);
    makes(e, S_AGREED, 0, 0);
    spawn_with_event(e, "agree", PRIORITY_COMM, do_agree,
                     &(struct job){.e = e, .failed = local_failure});
}

void spawn_backward_mark(struct engine *e)
{
    needs_range(e, S_GRAD, slice_index(e, WTE, 0), 0, e->model.tiling.vocab_tiles);
    needs_range(e, S_GRAD, slice_index(e, WPE, 0), 0,
                tiling_grad_tiles(&e->model.tiling, &e->layout.shape, WPE));
    if (e->split)
        needs_row_gradients(e);
    spawn(e, "backward end", PRIORITY_COMM, do_mark,
          &(struct job){.e = e, .i = MARK_BACKWARD_END});
}

/* This rank's own update is the last thing that changes its copy of the block. */
static bool final_when_updated(const struct engine *e, size_t block)
{
    return e->plan.replicated || plan_owns_block(&e->plan, block, comm_rank(e->comm));
}

/* Waits for the blocks that hold elements [begin, end) of production order. */
static void needs_param_range(struct engine *e, size_t begin, size_t end)
{
    const struct plan *p = &e->plan;
    size_t low = 0;
    size_t high = p->n_blocks;

    /* First block that ends after begin; blocks are in order. */
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (p->blocks[middle].begin + p->blocks[middle].elems <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (size_t b = low; b < p->n_blocks && p->blocks[b].begin < end; b++)
        needs(e, final_when_updated(e, b) ? S_UPDATED : S_ARRIVED, 0, b);
}

/* One empty task a slice (and a tile of wte) joins the blocks it lies in, so that forward
 * tasks name slices and know nothing of blocks. */
static void spawn_param_joins(struct engine *e)
{
    const struct slice *wte = layout_slice(&e->layout, WTE, 0);
    size_t wte_begin = 0;
    size_t begin = 0;

    for (size_t s = 0; s < e->layout.n_slices; s++) {
        if (&e->layout.slices[s] == wte)
            wte_begin = begin;
        needs_param_range(e, begin, begin + e->layout.slices[s].span);
        makes(e, S_PARAM, s, 0);
        spawn(e, "parameters", PRIORITY_PATH, NULL, NULL);
        begin += e->layout.slices[s].span;
    }
    size_t tile = tiling_grad_tile_elems(&e->model.tiling, &e->layout.shape, WTE);

    for (size_t v = 0; v < e->model.tiling.vocab_tiles; v++) {
        needs_param_range(e, wte_begin + v * tile,
                          wte_begin + min_size((v + 1) * tile, wte->elems));
        makes(e, S_WTE, 0, v);
        spawn(e, "parameters", PRIORITY_PATH, NULL, NULL);
    }
}

void spawn_block_update(struct engine *e, size_t block)
{
    if (!updates_block(e, block))
        return;
    needs_block_gradient(e, block);
    if (e->plan.replicated)
        needs(e, S_ARRIVED, 0, block);
    makes(e, S_UPDATED, 0, block);
    spawn(e, "update", PRIORITY_COMM, do_update, &(struct job){.e = e, .i = block});
}

static void spawn_block_return(struct engine *e, size_t block)
{
    if (!e->plan.replicated && updates_block(e, block))
        needs(e, S_UPDATED, 0, block);
    /* The rows that all of forward waits for go first: on one connection messages share
     * the link. */
    if (e->split && !e->plan.replicated)
        needs_rows_fetch(e);
    makes(e, S_ARRIVED, 0, block);
    spawn_with_event(e, "return", PRIORITY_COMM, do_return,
                     &(struct job){.e = e, .i = block});
}

void spawn_update(struct engine *e, bool fetch)
{
    size_t updated = 0; /* of the first blocks */

    if (e->split && !e->plan.replicated) {
        updated = spawn_rows_update(e);
        if (fetch)
            spawn_rows_fetch(e);
    }
    for (size_t i = 0; i < e->plan.n_blocks; i++) {
        size_t b = plan_return_order(&e->plan, i);

        if (e->plan.replicated) {
            spawn_block_return(e, b);
            spawn_block_update(e, b);
            continue;
        }
        if (b >= updated)
            spawn_block_update(e, b);
        spawn_block_return(e, b);
    }
    spawn_param_joins(e);
}
