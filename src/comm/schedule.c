/* SPDX-License-Identifier: MIT */
#include "comm/schedule.h"

#include <stdlib.h>

#include "base/memory.h"

int schedule_rounds(const struct plan *p)
{
    return p->grid.n_digits;
}

int schedule_digit(const struct plan *p, enum exchange_phase phase, int round)
{
    require(round >= 0 && round < p->grid.n_digits);
    return phase == PHASE_REDUCE ? round : p->grid.n_digits - 1 - round;
}

static enum status append(struct transfers *t, struct transfer x)
{
    struct transfer *last = t->n > 0 ? &t->list[t->n - 1] : NULL;

    if (last && last->block == x.block && last->from == x.from && last->to == x.to &&
        last->at + last->elems == x.at) {
        last->elems += x.elems;
        return ST_OK;
    }
    if (t->n == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 64;
        struct transfer *grown = realloc(t->list, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for %zu transfers", capacity);
        t->list = grown;
        t->capacity = capacity;
    }
    t->list[t->n++] = x;
    return ST_OK;
}

void transfers_release(struct transfers *t)
{
    free(t->list);
    *t = (struct transfers){0};
}

/* True when `rank` has to do with this part when partners differ in digit j. */
static bool takes_part(const struct plan *p, const struct plan_part *part, int rank,
                       int j)
{
    return grid_same_digits(&p->grid, rank, part->owner, j);
}

/* Everything that passes between `rank` and partner d of digit j, in one direction. In
 * the reduction parts go towards their owner's digit, in the return away from it. */
static enum status with_partner(const struct plan *p, enum exchange_phase phase, int j,
                                size_t block, int rank, int d, bool sends,
                                struct transfers *out)
{
    const struct plan_block *b = &p->blocks[block];
    int partner = grid_with_digit(&p->grid, rank, j, d);
    /* Whose digit the owner must have. */
    int wanted = sends == (phase == PHASE_REDUCE) ? partner : rank;
    enum status st = ST_OK;

    for (size_t i = 0; i < b->n_parts && st == ST_OK; i++) {
        const struct plan_part *part = &p->parts[b->first_part + i];

        if (takes_part(p, part, wanted, j + 1))
            st = append(out, (struct transfer){block, part->at, part->elems,
                                               sends ? rank : partner,
                                               sends ? partner : rank});
    }
    return st;
}

/* The partners one after another: i digits up for what is sent, i digits down for what is
 * received. So the first messages of all ranks are for one another, then the second, and
 * not all meet at one; and a window too narrow for what two ranks exchange fills with
 * what the partner sends. */
static enum status with_partners(const struct plan *p, enum exchange_phase phase,
                                 int round, size_t block, int rank, bool sends,
                                 struct transfers *out)
{
    int j = schedule_digit(p, phase, round);
    int radix = p->grid.radix[j];
    int own = grid_digit(&p->grid, rank, j);
    enum status st = ST_OK;

    for (int i = 1; i < radix && st == ST_OK; i++)
        st = with_partner(p, phase, j, block, rank,
                          (own + (sends ? i : radix - i)) % radix, sends, out);
    return st;
}

enum status schedule_sends(const struct plan *p, enum exchange_phase phase, int round,
                           size_t block, int rank, struct transfers *out)
{
    return with_partners(p, phase, round, block, rank, true, out);
}

enum status schedule_receives(const struct plan *p, enum exchange_phase phase, int round,
                              size_t block, int rank, struct transfers *out)
{
    return with_partners(p, phase, round, block, rank, false, out);
}

void schedule_sum_range(const struct plan *p, int round, size_t block, int rank,
                        size_t *at, size_t *elems)
{
    const struct plan_block *b = &p->blocks[block];
    size_t begin = b->elems;
    size_t end = 0;

    for (size_t i = 0; p->grid.radix[round] > 1 && i < b->n_parts; i++) {
        const struct plan_part *part = &p->parts[b->first_part + i];

        if (!takes_part(p, part, rank, round + 1))
            continue;
        begin = min_size(begin, part->at);
        end = max_size(end, part->at + part->elems);
    }
    *at = end > begin ? begin : 0;
    *elems = end > begin ? end - begin : 0;
}

enum status schedule_bytes(const struct plan *p, enum exchange_phase phase, int rank,
                           size_t elem_bytes, bool host_memory, uint64_t *bytes)
{
    enum status st = ST_OK;

    *bytes = 0;
    for (int round = 0; round < schedule_rounds(p) && st == ST_OK; round++) {
        struct transfers sent = {0};

        if (host_memory && grid_inside_host(&p->grid, schedule_digit(p, phase, round)))
            continue;
        for (size_t b = 0; b < p->n_blocks && st == ST_OK; b++) {
            sent.n = 0;
            st = schedule_sends(p, phase, round, b, rank, &sent);
            for (size_t i = 0; i < sent.n; i++)
                *bytes += sent.list[i].elems * elem_bytes;
        }
        transfers_release(&sent);
    }
    return st;
}
