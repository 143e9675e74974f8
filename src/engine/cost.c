/* SPDX-License-Identifier: MIT */
/* From options to the figures that a step's simulation starts from, and the choice among
 * predictions. */
#include "engine/cost.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "engine/cost_private.h"
#include "engine/engine_private.h"
#include "engine/profile.h"

/* AdamW moves 28 bytes a parameter where a sum moves 12: both wait for memory. */
static const double update_per_sum = 12.0 / 28.0;
static const double least_compute_s = 1e-6;
/* Blocks times ranks: of what is tried for a choice, and of what is simulated at all. */
static const double most_tried = 130000;
static const double most_simulated = 2e7;

struct job_plan {
    struct layout layout;
    struct grid grid;
    struct plan plan;
    struct profile profile;
    int *host;
    double *need, *ready; /* [block] */
};

enum status cost_hosts(const struct cost_cluster *c, int **out)
{
    size_t P = (size_t)c->ranks;
    enum status st;

    *out = NULL;
    if (c->ranks < 1 || c->hosts < 1 || c->hosts > c->ranks)
        return fail(ST_USAGE, "found %d hosts for %d ranks, needs 1 to %d", c->hosts,
                    c->ranks, c->ranks);
    st = memory_alloc(P, sizeof **out, "hosts", out);
    for (size_t r = 0; st == ST_OK && r < P; r++)
        (*out)[r] = (int)(r * (size_t)c->hosts / P);
    return st;
}

/* Where a part of a slice's gradient ends, in whole tiles: a fraction of the slice. */
static double tile_end(const struct tiling *t, const struct layout *l,
                       const struct slice *s, size_t end)
{
    size_t tile = tiling_grad_tile_elems(t, &l->shape, s->kind);

    return fmin(1, (double)round_up(end, tile) / (double)s->elems);
}

static void time_block(struct job_plan *j, const struct tiling *t, size_t b)
{
    const struct plan_block *block = &j->plan.blocks[b];

    j->need[b] = 1;
    j->ready[b] = 0;
    for (size_t i = block->first_segment; i < block->first_segment + block->n_segments;
         i++) {
        const struct plan_segment *seg = &j->plan.segments[i];
        const struct slice *s = &j->layout.slices[seg->slice];
        const struct profile_slice *p = &j->profile.slices[seg->slice];
        double end = tile_end(t, &j->layout, s, seg->offset - s->offset + seg->elems);

        j->need[b] = fmin(j->need[b], p->need);
        j->ready[b] =
            fmax(j->ready[b], p->ready_begin + end * (p->ready_end - p->ready_begin));
    }
}

/* When forward needs the blocks and when backward has them. Messages go in canonical
 * order: no block leaves before an earlier one. */
static void time_blocks(struct job_plan *j, const struct engine_options *o)
{
    size_t n = j->plan.n_blocks;
    struct tiling t;

    tiling_init(&t, &o->shape, o->batch, o->seq);
    for (size_t b = 0; b < n; b++) {
        time_block(j, &t, b);
        if (b > 0)
            j->ready[b] = fmax(j->ready[b], j->ready[b - 1]);
        /* Sums of wte are of use when all of them are here. */
        if (b < j->plan.n_return_first)
            j->need[b] = 0;
    }
    for (size_t i = n; i-- > 1;) {
        double later = j->need[plan_return_order(&j->plan, i)];
        double *need = &j->need[plan_return_order(&j->plan, i - 1)];

        *need = fmin(*need, later);
    }
}

static enum status job_plan_init(struct job_plan *j, const struct engine_options *o,
                                 const struct cost_cluster *c)
{
    enum status st;

    *j = (struct job_plan){0};
    st = cost_hosts(c, &j->host);
    if (st == ST_OK)
        st = engine_cut(o, c->ranks, j->host, &j->layout, &j->grid, &j->plan);
    if (st == ST_OK)
        st = profile_init(&j->profile, &j->layout, o->batch, o->seq, o->accum,
                          o->recompute, o->workers);
    if (st == ST_OK)
        st = memory_alloc(j->plan.n_blocks, sizeof *j->need, "blocks", &j->need);
    if (st == ST_OK)
        st = memory_alloc(j->plan.n_blocks, sizeof *j->ready, "blocks", &j->ready);
    if (st == ST_OK)
        time_blocks(j, o);
    return st;
}

static void job_plan_release(struct job_plan *j)
{
    free(j->host);
    free(j->need);
    free(j->ready);
    profile_release(&j->profile);
    plan_release(&j->plan);
    grid_release(&j->grid);
    layout_release(&j->layout);
}

/* Different rows among a rank's tokens, were they drawn evenly: a text has fewer. */
static double expected_rows(const struct engine_options *o)
{
    double V = (double)o->shape.V;
    double tokens = (double)o->accum * (double)o->batch * (double)o->seq;

    return V * -expm1(-tokens / V);
}

static enum status simulate(const struct engine_options *o, const struct cost_cluster *c,
                            const struct job_plan *j, struct step_output *out)
{
    bool rows = splits_embedding(o, c->ranks);
    struct step_input in = {
        .plan = &j->plan,
        .network = &c->network,
        .host = j->host,
        .hosts = c->hosts,
        .wire = o->wire,
        .overlap = o->overlap,
        .workers = o->workers,
        .compute_s = fmax(o->compute_s, least_compute_s),
        /* Of the tasks running, the first to end is as far as this on the average. */
        .lag_s = o->compute_s * j->profile.task / (o->workers + 1),
        .update_Bps = c->network.sum_Bps * update_per_sum,
        .need = j->need,
        .ready = j->ready,
        .rows = rows,
        .rows_fetched = rows && !j->plan.replicated,
        .rows_bytes = expected_rows(o) * (double)o->shape.C * sizeof(float),
        .wte_elems = rows ? j->layout.slices[0].span : 0};

    return step_simulate(&in, out);
}

/* Blocks times ranks, before any block is cut. */
static double size_of(const struct engine_options *o, const struct cost_cluster *c)
{
    double bytes = (double)shape_parameters(&o->shape) * sizeof(float);
    double blocks = 1;

    if (!o->one_block && o->block_bytes > 0)
        blocks = fmax(1, bytes / (double)o->block_bytes);
    if (o->strategy == STRATEGY_REDUCE_BROADCAST)
        blocks = fmax(blocks, (double)c->ranks / (o->roots > 1 ? o->roots : 1));
    return blocks * c->ranks;
}

enum status cost_predict(const struct engine_options *o, const struct cost_cluster *c,
                         struct cost *out)
{
    struct job_plan j;
    struct step_output step = {0};
    enum status st;

    *out = (struct cost){0};
    if (size_of(o, c) > most_simulated)
        return fail(ST_USAGE,
                    "prediction: found %.3g blocks x ranks, needs at most %.3g; larger "
                    "blocks, or fewer ranks",
                    size_of(o, c), most_simulated);
    st = job_plan_init(&j, o, c);
    if (st == ST_OK)
        st = simulate(o, c, &j, &step);
    if (st == ST_OK)
        *out = (struct cost){.step_s = step.step_s,
                             .compute_s = o->compute_s,
                             .exposed_s = step.idle_s,
                             .most_exposed_s = step.most_idle_s,
                             .wire_bound_s = step.link_bytes / c->network.bandwidth_Bps,
                             .sent_bytes = step.sent_bytes,
                             .messages = step.messages,
                             .blocks = j.plan.n_blocks};
    job_plan_release(&j);
    return st;
}

/* ---- the choice ---- */

bool cost_worth_trying(const struct engine_options *o, const struct cost_cluster *c)
{
    return size_of(o, c) <= most_tried;
}

size_t cost_best(const struct cost *costs, size_t n)
{
    const double equal = 0.01;
    double shortest = (double)INFINITY;

    for (size_t i = 0; i < n; i++)
        if (costs[i].step_s > 0)
            shortest = fmin(shortest, costs[i].step_s);
    for (size_t i = 0; i < n; i++)
        if (costs[i].step_s > 0 && costs[i].step_s <= shortest * (1 + equal))
            return i;
    return 0;
}

enum status cost_try_blocks(const struct engine_options *o, const struct cost_cluster *c,
                            struct cost out[COST_BLOCK_SIZES])
{
    struct engine_options trial = *o;
    enum status st = ST_OK;

    trial.block_bytes = COST_MOST_BLOCK;
    for (size_t i = 0; i < COST_BLOCK_SIZES && st == ST_OK; i++, trial.block_bytes /= 2) {
        out[i] = (struct cost){0};
        if (cost_worth_trying(&trial, c))
            st = cost_predict(&trial, c, &out[i]);
    }
    return st;
}

static enum status choose_block(struct engine_options *o, const struct cost_cluster *c,
                                struct cost *out)
{
    struct cost costs[COST_BLOCK_SIZES];
    enum status st;

    if (o->block_bytes > 0)
        return cost_predict(o, c, out);
    st = cost_try_blocks(o, c, costs);
    if (st == ST_OK) {
        size_t best = cost_best(costs, COST_BLOCK_SIZES);

        o->block_bytes = (size_t)COST_MOST_BLOCK >> best;
        *out = costs[best];
    }
    return st;
}

enum status cost_choose(struct engine_options *o, const struct cost_cluster *c,
                        struct cost *out)
{
    enum strategy order[COST_STRATEGIES];
    struct engine_options trials[COST_STRATEGIES];
    struct cost costs[COST_STRATEGIES];
    enum status st = ST_OK;
    size_t best;

    if (o->strategy)
        return choose_block(o, c, out);
    cost_order_strategies(c->ranks, order);
    for (size_t i = 0; i < COST_STRATEGIES && st == ST_OK; i++) {
        trials[i] = *o;
        trials[i].strategy = order[i];
        st = choose_block(&trials[i], c, &costs[i]);
    }
    if (st != ST_OK)
        return st;
    best = cost_best(costs, COST_STRATEGIES);
    *o = trials[best];
    *out = costs[best];
    return ST_OK;
}

void cost_order_strategies(int ranks, enum strategy out[COST_STRATEGIES])
{
    static const enum strategy sharded[] = {STRATEGY_REDUCE_BROADCAST,
                                            STRATEGY_REDUCE_SCATTER};
    enum strategy usual = strategy_default(ranks);

    out[0] = usual;
    out[1] = sharded[usual == sharded[0]];
    out[2] = STRATEGY_ALLREDUCE;
    out[3] = STRATEGY_CENTRAL;
}
