/* SPDX-License-Identifier: MIT */
/* Rows of one tensor on their way to the owners of its parts, and back. Everything but
 * the messages themselves, which the back end has.
 *
 * A set of rows is a bit a row. All ranks know all sets, so that both ends of a message
 * know its length and what lies where in it: for each part of the owner, in production
 * order, the runs of the set's rows inside the part. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

enum { WORD_BITS = 64 };

/* A row of a set, or what of it lies in one part. */
struct row_run {
    size_t row;
    size_t column, elems;
};

struct row_walk {
    const uint64_t *set;
    size_t cols;
    size_t at, end; /* elements of the tensor */
};

/* What of the tensor lies in a part, from the tensor's first element; end <= begin: none.
 */
static void part_extent(const struct exchange_rows *r, const struct plan_block *block,
                        const struct plan_part *part, size_t *begin, size_t *end)
{
    size_t from = block->begin + part->at;
    size_t to = from + part->elems;
    size_t first = r->options.begin;
    size_t last = first + r->options.rows * r->options.cols;

    *begin = max_size(from, first) - first;
    *end = min_size(to, last) > first ? min_size(to, last) - first : 0;
}

static bool next_run(struct row_walk *w, struct row_run *out)
{
    while (w->at < w->end) {
        size_t row = w->at / w->cols;
        uint64_t bits = w->set[row / WORD_BITS] >> (row % WORD_BITS);

        if (bits == 0) {
            w->at = (row / WORD_BITS + 1) * WORD_BITS * w->cols;
            continue;
        }
        size_t skipped = (size_t)__builtin_ctzll(bits);

        if (skipped > 0) {
            w->at = (row + skipped) * w->cols;
            continue;
        }
        size_t column = w->at % w->cols;
        size_t elems = min_size(w->cols - column, w->end - w->at);

        *out = (struct row_run){row, column, elems};
        w->at += elems;
        return true;
    }
    return false;
}

static const uint64_t *set_of(const struct exchange_rows *r, int rank)
{
    return r->sets + (size_t)rank * r->words;
}

static struct row_walk walk_part(const struct exchange_rows *r, int rank,
                                 const struct row_part *part)
{
    return (struct row_walk){set_of(r, rank), r->options.cols, part->begin, part->end};
}

/* How many rows of this rank's set are before `row`. */
static size_t index_of_row(const struct exchange_rows *r, size_t row)
{
    const uint64_t *set = set_of(r, r->x->rank);
    uint64_t below = ((uint64_t)1 << (row % WORD_BITS)) - 1;

    return r->before[row / WORD_BITS] +
           (size_t)__builtin_popcountll(set[row / WORD_BITS] & below);
}

static float *parameter(const struct exchange_rows *r, const struct row_run *run)
{
    return r->x->params + r->options.memory_offset + run->row * r->options.cols +
           run->column;
}

/* ---- making ---- */

static enum status list_parts(struct exchange_rows *r)
{
    const struct plan *plan = r->x->plan;
    enum status st =
        memory_alloc(plan->n_parts, sizeof *r->parts, "embedding rows", &r->parts);

    for (size_t b = 0; st == ST_OK && b < plan->n_blocks; b++) {
        const struct plan_block *block = &plan->blocks[b];

        for (size_t p = block->first_part; p < block->first_part + block->n_parts; p++) {
            struct row_part part = {.part = p, .owner = plan->parts[p].owner};

            part_extent(r, block, &plan->parts[p], &part.begin, &part.end);
            if (part.end > part.begin)
                r->parts[r->n_parts++] = part;
        }
    }
    return st;
}

/* Most elements that all other ranks together can have in this rank's parts. */
static size_t most_from_others(const struct plan *plan, const struct rows_options *o,
                               int rank)
{
    struct exchange x = {.plan = plan};
    struct exchange_rows r = {.x = &x, .options = *o};
    size_t own = 0;

    for (size_t b = 0; b < plan->n_blocks; b++) {
        const struct plan_block *block = &plan->blocks[b];

        for (size_t p = block->first_part; p < block->first_part + block->n_parts; p++) {
            size_t begin, end;

            part_extent(&r, block, &plan->parts[p], &begin, &end);
            if (plan->parts[p].owner == rank && end > begin)
                own += end - begin;
        }
    }
    return min_size(own, o->most * o->cols) * (size_t)(plan->ranks - 1);
}

size_t exchange_rows_bytes(const struct plan *plan, const struct rows_options *o,
                           int rank)
{
    if (plan->ranks == 1)
        return 0;
    return (o->most * o->cols + most_from_others(plan, o, rank)) * sizeof(float);
}

static enum status build_rows(struct exchange_rows *r)
{
    size_t ranks = (size_t)r->x->ranks;
    enum status st;
    void *map;

    r->words = ceil_div(r->options.rows, WORD_BITS);
    r->bytes = exchange_rows_bytes(r->x->plan, &r->options, r->x->rank);
    st = memory_map(r->bytes, "rows of the embedding", &map);
    r->mine = map;
    if (st == ST_OK)
        st = memory_alloc(ranks * r->words, sizeof *r->sets, "embedding rows", &r->sets);
    if (st == ST_OK)
        st = memory_alloc(r->words, sizeof *r->own_set, "embedding rows", &r->own_set);
    if (st == ST_OK)
        st = memory_alloc(r->words, sizeof *r->before, "embedding rows", &r->before);
    if (st == ST_OK)
        st = memory_alloc(ranks, sizeof *r->peers, "embedding rows", &r->peers);
    if (st == ST_OK)
        st = list_parts(r);
    if (st != ST_OK)
        return st;
    r->others = r->mine + r->options.most * r->options.cols;
    return memory_alloc(ranks * r->n_parts, sizeof *r->part_at, "embedding rows",
                        &r->part_at);
}

enum status exchange_rows_new(struct exchange *x, const struct rows_options *o,
                              struct exchange_rows **out)
{
    struct exchange_rows *r;
    enum status st = memory_alloc(1, sizeof *r, "embedding rows", &r);

    *out = NULL;
    require(x->ranks > 1 && !x->plan->replicated == o->fetches);
    if (st == ST_OK) {
        r->x = x;
        r->options = *o;
        st = build_rows(r);
    }
    st = comm_share(x->comm, st);
    if (st == ST_OK)
        st = comm_traffic(x->comm)->rows_attach(r);
    if (st == ST_OK) {
        *out = r;
        r = NULL;
    }
    exchange_rows_free(r);
    return st;
}

void exchange_rows_free(struct exchange_rows *r)
{
    if (!r)
        return;
    if (r->traffic)
        comm_traffic(r->x->comm)->rows_detach(r);
    memory_unmap(r->mine, r->bytes);
    free(r->sets);
    free(r->own_set);
    free(r->before);
    free(r->peers);
    free(r->parts);
    free(r->part_at);
    free(r);
}

/* ---- sets ---- */

static void start(struct exchange_rows *r, enum rows_kind kind, comm_done done, void *arg)
{
    r->kind = kind;
    r->done = done;
    r->arg = arg;
    comm_traffic(r->x->comm)->rows_start(r);
}

void exchange_rows_tell(struct exchange_rows *r, const int32_t *rows, size_t n,
                        comm_done done, void *arg)
{
    require(n <= r->options.most);
    memset(r->own_set, 0, r->words * sizeof *r->own_set);
    for (size_t i = 0; i < n; i++)
        r->own_set[(size_t)rows[i] / WORD_BITS] |= (uint64_t)1
                                                   << ((size_t)rows[i] % WORD_BITS);
    start(r, ROWS_TELL, done, arg);
}

/* Elements that pass between this rank and each other one, and where they lie. */
static void place_mine(struct exchange_rows *r)
{
    size_t at = 0;

    for (int peer = 0; peer < r->x->ranks; peer++)
        r->peers[peer].mine = 0;
    for (size_t k = 0; k < r->n_parts; k++) {
        struct row_walk w = walk_part(r, r->x->rank, &r->parts[k]);

        for (struct row_run run; next_run(&w, &run);)
            r->peers[r->parts[k].owner].mine += run.elems;
    }
    r->peers[r->x->rank].mine = 0; /* needs no message */
    for (int peer = 0; peer < r->x->ranks; peer++) {
        r->peers[peer].mine_at = at;
        at += r->peers[peer].mine;
    }
}

static void place_others(struct exchange_rows *r)
{
    size_t at = 0;

    for (int peer = 0; peer < r->x->ranks; peer++) {
        r->peers[peer].others_at = at;
        for (size_t k = 0; k < r->n_parts; k++) {
            struct row_walk w = walk_part(r, peer, &r->parts[k]);

            r->part_at[(size_t)peer * r->n_parts + k] = at;
            if (peer == r->x->rank || r->parts[k].owner != r->x->rank)
                continue;
            for (struct row_run run; next_run(&w, &run);)
                at += run.elems;
        }
        r->peers[peer].others = at - r->peers[peer].others_at;
    }
}

void exchange_rows_place(struct exchange_rows *r)
{
    const uint64_t *own = set_of(r, r->x->rank);
    size_t n = 0;

    for (size_t i = 0; i < r->words; i++) {
        r->before[i] = n;
        n += (size_t)__builtin_popcountll(own[i]);
    }
    place_mine(r);
    place_others(r);
}

/* ---- gradients to the owners ---- */

void exchange_rows_reduce(struct exchange_rows *r, const float *gradients, comm_done done,
                          void *arg)
{
    const struct exchange *x = r->x;

    for (int peer = 0; peer < x->ranks; peer++)
        r->peers[peer].used = 0;
    r->gradients = gradients;
    for (size_t k = 0; k < r->n_parts; k++) {
        struct rows_peer *peer = &r->peers[r->parts[k].owner];
        struct row_walk w = walk_part(r, x->rank, &r->parts[k]);

        if (r->parts[k].owner == x->rank)
            continue;
        for (struct row_run run; next_run(&w, &run); peer->used += run.elems)
            memcpy(r->mine + peer->mine_at + peer->used,
                   gradients + index_of_row(r, run.row) * r->options.cols + run.column,
                   run.elems * sizeof *gradients);
    }
    start(r, ROWS_REDUCE, done, arg);
}

static void add_run(float *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

static void add_rank(struct exchange_rows *r, size_t k, int rank)
{
    struct row_walk w = walk_part(r, rank, &r->parts[k]);
    const float *from = r->others + r->part_at[(size_t)rank * r->n_parts + k];
    float *tensor = r->x->grads + r->options.memory_offset;

    for (struct row_run run; next_run(&w, &run);) {
        const float *src = from;

        if (rank == r->x->rank)
            src = r->gradients + index_of_row(r, run.row) * r->options.cols + run.column;
        else
            from += run.elems;
        add_run(tensor + run.row * r->options.cols + run.column, src, run.elems);
    }
}

double exchange_rows_add(struct exchange_rows *r, size_t b)
{
    const struct plan_block *block = &r->x->plan->blocks[b];

    for (size_t k = 0; k < r->n_parts; k++) {
        const struct row_part *part = &r->parts[k];

        if (part->owner != r->x->rank || part->part < block->first_part ||
            part->part >= block->first_part + block->n_parts)
            continue;
        for (int rank = 0; rank < r->x->ranks; rank++)
            add_rank(r, k, rank);
    }
    return exchange_squares(r->x, b);
}

/* ---- parameters to those who need them first ---- */

/* The peer sees this rank's parameters in its own memory. */
bool exchange_rows_in_memory(const struct exchange_rows *r, int peer)
{
    const struct grid *g = &r->x->plan->grid;

    return r->x->host_params &&
           g->place[peer] / g->host_ranks == g->place[r->x->rank] / g->host_ranks;
}

void exchange_rows_fetch(struct exchange_rows *r, comm_done done, void *arg)
{
    const struct exchange *x = r->x;

    require(r->options.fetches);
    for (int peer = 0; peer < x->ranks; peer++)
        for (size_t k = 0; k < r->n_parts; k++) {
            struct row_walk w = walk_part(r, peer, &r->parts[k]);
            float *to = r->others + r->part_at[(size_t)peer * r->n_parts + k];

            if (peer == x->rank || r->parts[k].owner != x->rank ||
                exchange_rows_in_memory(r, peer))
                continue;
            for (struct row_run run; next_run(&w, &run); to += run.elems)
                memcpy(to, parameter(r, &run), run.elems * sizeof *to);
        }
    start(r, ROWS_FETCH, done, arg);
}

void exchange_rows_put(struct exchange_rows *r)
{
    const struct exchange *x = r->x;

    for (int peer = 0; peer < x->ranks; peer++)
        r->peers[peer].used = 0;
    for (size_t k = 0; k < r->n_parts; k++) {
        int owner = r->parts[k].owner;
        struct rows_peer *peer = &r->peers[owner];
        struct row_walk w = walk_part(r, x->rank, &r->parts[k]);

        if (owner == x->rank || exchange_rows_in_memory(r, owner))
            continue;
        for (struct row_run run; next_run(&w, &run); peer->used += run.elems)
            memcpy(parameter(r, &run), r->mine + peer->mine_at + peer->used,
                   run.elems * sizeof(float));
    }
}
