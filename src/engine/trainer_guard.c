/* SPDX-License-Identifier: MIT */
/* Which rank and which tensor, when numbers go wrong. */
#include "engine/trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/fault.h"
#include "base/memory.h"

/* ---- not finite ---- */

/* What a rank found in its memory, the most telling last: a sum may owe its infinity to
 * any rank, a gradient that has not been summed here and a loss only to this one. */
enum finding { NOTHING, IN_SUM, IN_GRADIENT, IN_LOSS, IN_WEIGHT };

struct evidence {
    int finding;
    size_t slice;
    double value;
};

static void find_in(const float *x, const struct plan_segment *run, enum finding finding,
                    struct evidence *out)
{
    if (out->finding >= (int)finding)
        return;
    for (size_t i = 0; i < run->elems; i++)
        if (!isfinite(x[run->offset + i])) {
            *out =
                (struct evidence){(int)finding, run->slice, (double)x[run->offset + i]};
            return;
        }
}

static struct evidence look(const struct trainer *t)
{
    const struct plan *plan = engine_block_plan(t->engine);
    const float *grads = engine_grads(t->engine), *params = engine_params(t->engine);
    double loss = engine_local_loss(t->engine);
    struct evidence found = {0};

    if (!isfinite(loss))
        found = (struct evidence){.finding = IN_LOSS, .value = loss};
    for (size_t b = 0; b < plan->n_blocks; b++)
        for (size_t p = 0; p < plan->blocks[b].n_parts; p++) {
            const struct plan_part *part = &plan->parts[plan->blocks[b].first_part + p];
            bool own = part->owner == comm_rank(t->comm);
            struct plan_cursor c = plan_walk(plan, b, part->at, part->elems);

            for (struct plan_segment run; plan_next(&c, &run);) {
                find_in(params, &run, IN_WEIGHT, &found);
                find_in(grads, &run, own ? IN_SUM : IN_GRADIENT, &found);
            }
        }
    return found;
}

static void describe(const struct trainer *t, const struct evidence *e, int rank,
                     char *out, size_t out_bytes)
{
    const struct layout *l = engine_layout(t->engine);
    char name[40];

    if (e->finding == NOTHING)
        (void)snprintf(out, out_bytes, "its square is not a finite number");
    else if (e->finding == IN_LOSS)
        (void)snprintf(out, out_bytes, "the loss on rank %d is %g, not a finite number",
                       rank, e->value);
    else
        (void)snprintf(out, out_bytes,
                       "found %g in the %s of %s on rank %d, not a finite number",
                       e->value, e->finding == IN_WEIGHT ? "weights" : "gradient",
                       slice_name(&l->slices[e->slice], name, sizeof name), rank);
}

enum status trainer_say_diverged(struct trainer *t, const struct step_result *r)
{
    size_t P = (size_t)comm_size(t->comm);
    struct evidence mine = look(t);
    struct evidence *all = calloc(P, sizeof *all);
    size_t worst = 0;
    char text[160];

    require(all);
    comm_gather_all(t->comm, &mine, sizeof mine, all);
    for (size_t i = 1; i < P; i++)
        if (all[i].finding > all[worst].finding)
            worst = i;
    describe(t, &all[worst], (int)worst, text, sizeof text);
    free(all);
    return comm_agree(t->comm, fail(ST_NUMERIC,
                                    "step %" PRIu64
                                    ": loss %g, gradient norm %g: %s; no weight was "
                                    "changed. Lower --lr, or lengthen --warmup",
                                    t->state.step + 1, r->loss, r->grad_norm, text));
}

/* ---- not the same ---- */

/* Checksum of each slice of this rank's weights. */
static void sum_slices(const struct trainer *t, uint64_t *sums)
{
    const struct layout *l = engine_layout(t->engine);
    const float *params = engine_params(t->engine);

    for (size_t i = 0; i < l->n_slices; i++)
        sums[i] = XXH3_64bits(params + l->slices[i].offset,
                              l->slices[i].elems * sizeof *params);
}

/* How many ranks agree with rank r in slice i. */
static size_t followers(const uint64_t *all, size_t n, size_t P, size_t r, size_t i)
{
    size_t same = 0;

    for (size_t q = 0; q < P; q++)
        same += all[q * n + i] == all[r * n + i];
    return same;
}

/* The first slice in which ranks differ: names a rank of those that are fewest. */
static enum status compare(const struct trainer *t, const uint64_t *all)
{
    const struct layout *l = engine_layout(t->engine);
    size_t n = l->n_slices, P = (size_t)comm_size(t->comm);
    char name[40];

    for (size_t i = 0; i < n; i++) {
        size_t odd = P - 1;

        if (followers(all, n, P, 0, i) == P)
            continue;
        for (size_t r = P - 1; r-- > 0;)
            if (followers(all, n, P, r, i) < followers(all, n, P, odd, i))
                odd = r;
        return fail(ST_NUMERIC,
                    "step %" PRIu64
                    ": rank %zu holds other weights of %s than %zu of %zu "
                    "ranks; nothing is saved",
                    t->state.step, odd, slice_name(&l->slices[i], name, sizeof name),
                    P - followers(all, n, P, odd, i), P);
    }
    return ST_OK;
}

/* A bit of a weight that this rank does not own. */
static void spoil_weight(struct trainer *t)
{
    const struct plan *plan = engine_block_plan(t->engine);

    for (size_t b = 0; b < plan->n_blocks; b++)
        if (!plan_owns_block(plan, b, comm_rank(t->comm))) {
            float *x = engine_params(t->engine) +
                       plan->pieces[plan->blocks[b].first_piece].offset;

            *x += 1;
            return;
        }
}

enum status trainer_check_sync(struct trainer *t)
{
    size_t n = engine_layout(t->engine)->n_slices;
    size_t P = (size_t)comm_size(t->comm);
    uint64_t *mine = NULL, *all = NULL;
    enum status st = memory_alloc(n, sizeof *mine, "checksums", &mine);

    if (st == ST_OK)
        st = memory_alloc(n * P, sizeof *all, "checksums", &all);
    st = comm_agree(t->comm, st);
    if (st == ST_OK) {
        engine_flush(t->engine);
        if (fault_at("weights") == FAULT_SPOIL)
            spoil_weight(t);
        sum_slices(t, mine);
        comm_gather_all(t->comm, mine, n * sizeof *mine, all);
        st = comm_agree(t->comm, compare(t, all));
    }
    free(mine);
    free(all);
    return st;
}
