/* SPDX-License-Identifier: MIT */
/* Where elements are: memory (slices with gaps, in one of two orders), the moments of a
 * rank (its blocks one after another) and the canonical vector (no gaps). */
#include "checkpoint/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static int by_memory(const void *a, const void *b)
{
    size_t x = (*(const struct slice *const *)a)->offset;
    size_t y = (*(const struct slice *const *)b)->offset;

    return (x > y) - (x < y);
}

static enum status sort_slices(const struct layout *l, const struct slice ***out)
{
    enum status st = memory_alloc(l->n_slices, sizeof **out, "slices", out);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < l->n_slices; i++)
        (*out)[i] = &l->slices[i];
    qsort(*out, l->n_slices, sizeof **out, by_memory);
    return ST_OK;
}

/* The slice whose place in memory holds `offset`. */
static const struct slice *slice_at(const struct slice **sorted, size_t n, size_t offset)
{
    size_t low = 0, high = n;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (sorted[middle]->offset <= offset)
            low = middle;
        else
            high = middle;
    }
    require(offset >= sorted[low]->offset &&
            offset - sorted[low]->offset < sorted[low]->span);
    return sorted[low];
}

static enum status owned_add(struct owned *o, struct owned_range r)
{
    struct owned_range *last = o->n > 0 ? &o->ranges[o->n - 1] : NULL;

    o->elems += r.elems;
    if (last && last->memory + last->elems == r.memory &&
        last->moment + last->elems == r.moment &&
        last->canonical + last->elems == r.canonical) {
        last->elems += r.elems;
        return ST_OK;
    }
    if (o->n == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 64;
        struct owned_range *grown = realloc(o->ranges, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for %zu ranges of a checkpoint", capacity);
        o->ranges = grown;
        o->capacity = capacity;
    }
    o->ranges[o->n++] = r;
    return ST_OK;
}

/* Adds a run of memory that starts at moment o->span. */
static enum status owned_add_run(struct owned *o, const struct slice **sorted, size_t n,
                                 size_t memory, size_t elems)
{
    enum status st = ST_OK;

    while (st == ST_OK && elems > 0) {
        const struct slice *s = slice_at(sorted, n, memory);
        size_t in = memory - s->offset;
        size_t run = min_size(elems, s->span - in);

        if (in < s->elems)
            st =
                owned_add(o, (struct owned_range){.memory = memory,
                                                  .moment = o->span,
                                                  .canonical = s->canonical_offset + in,
                                                  .elems = min_size(run, s->elems - in)});
        memory += run;
        o->span += run;
        elems -= run;
    }
    return st;
}

/* Adds a part that starts at moment o->span. */
static enum status owned_add_part(struct owned *o, const struct layout *l,
                                  const struct slice **sorted, const struct plan *plan,
                                  size_t block, const struct plan_part *part)
{
    struct plan_cursor c = plan_walk(plan, block, part->at, part->elems);
    enum status st = ST_OK;

    for (struct plan_segment run; st == ST_OK && plan_next(&c, &run);)
        st = owned_add_run(o, sorted, l->n_slices, run.offset, run.elems);
    return st;
}

enum status owned_init(struct owned *o, const struct layout *l, const struct plan *plan,
                       int rank, enum owned_kind kind)
{
    const struct slice **sorted;
    enum status st;

    *o = (struct owned){0};
    st = sort_slices(l, &sorted);
    for (size_t b = 0; st == ST_OK && b < plan->n_blocks; b++) {
        const struct plan_block *block = &plan->blocks[b];

        for (size_t i = 0; st == ST_OK && i < block->n_parts; i++) {
            const struct plan_part *part = &plan->parts[block->first_part + i];

            if (part->owner == rank ||
                (kind == OWNED_AND_COPIES && plan_updates(plan, part, rank)))
                st = owned_add_part(o, l, sorted, plan, b, part);
            else if (plan_updates(plan, part, rank))
                o->span += part->elems;
        }
    }
    require(st != ST_OK || o->span == plan_updated_elems(plan, rank));
    free(sorted);
    if (st != ST_OK)
        owned_release(o);
    return st;
}

void owned_release(struct owned *o)
{
    free(o->ranges);
    *o = (struct owned){0};
}

enum status shape_from_file(const struct shape *s, const char *path,
                            size_t *canonical_elems)
{
    const double limit = 1e15; /* elements; size_t arithmetic is safe far beyond */
    double C = (double)s->C;

    *canonical_elems = 0;
    if (shape_check(s, path) != ST_OK) {
        char text[1024];

        (void)snprintf(text, sizeof text, "%s", fail_text());
        return fail(ST_FORMAT, "%s", text);
    }
    if (((double)s->Vp + (double)s->T) * C + (double)s->L * 25.0 * C * C > limit)
        return fail(ST_FORMAT, "%s: found L=%zu C=%zu T=%zu Vp=%zu: out of range", path,
                    s->L, s->C, s->T, s->Vp);
    *canonical_elems = shape_parameters(s) + (s->Vp - s->V) * s->C;
    return ST_OK;
}

enum status shape_match(const struct shape *found, const char *path,
                        const struct shape *needed)
{
    if (found->L == needed->L && found->H == needed->H && found->C == needed->C &&
        found->T == needed->T && found->V == needed->V && found->Vp == needed->Vp)
        return ST_OK;
    return fail(ST_USAGE,
                "%s: found L=%zu,H=%zu,C=%zu,T=%zu,V=%zu, needs the model's "
                "L=%zu,H=%zu,C=%zu,T=%zu,V=%zu",
                path, found->L, found->H, found->C, found->T, found->V, needed->L,
                needed->H, needed->C, needed->T, needed->V);
}

void params_zero_gaps(const struct layout *l, float *params)
{
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];

        memset(params + s->offset + s->elems, 0, (s->span - s->elems) * sizeof *params);
    }
}
