/* SPDX-License-Identifier: MIT */
/* The rules, the same for every back end: each block is reduced (returned) once between
 * two exchange_begin of that phase. With one rank everything is complete when it is
 * called. */
#include "comm/comm.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/trace.h"
#include "comm/exchange_private.h"

static const size_t default_window_bytes = (size_t)16 << 20;

uint64_t exchange_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct span_cursor span_walk(const struct exchange *x, size_t block, size_t at,
                             size_t elems)
{
    const struct plan_block *b = &x->plan->blocks[block];
    const struct plan_piece *pieces = x->plan->pieces + b->first_piece;
    size_t low = 0;
    size_t high = b->n_pieces;

    /* First piece that ends after `at`. */
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (pieces[middle].at + pieces[middle].elems <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return (struct span_cursor){pieces + low, pieces + b->n_pieces, at, at + elems,
                                x->options.max_count};
}

bool span_next(struct span_cursor *c, struct span *out)
{
    if (c->at >= c->end || c->piece == c->end_piece)
        return false;
    size_t in = c->at - c->piece->at;
    size_t left = min_size(c->piece->elems - in, c->end - c->at);

    *out = (struct span){c->piece->offset + in, min_size(left, c->max_count), c->at};
    c->at += out->elems;
    if (out->elems == c->piece->elems - in)
        c->piece++;
    return true;
}

bool exchange_in_memory(const struct exchange *x, enum exchange_phase phase, int round)
{
    if (!grid_inside_host(&x->plan->grid, schedule_digit(x->plan, phase, round)))
        return false;
    return phase == PHASE_REDUCE ? x->host_grads != NULL : x->host_params;
}

size_t exchange_elem_bytes(const struct plan *plan,
                           const struct exchange_options *options,
                           enum exchange_phase phase)
{
    bool sums = phase == PHASE_REDUCE || plan->replicated;

    return options->wire == WIRE_BF16 && sums ? sizeof(uint16_t) : sizeof(float);
}

enum status exchange_wire_bytes(const struct plan *plan,
                                const struct exchange_options *options, bool host_memory,
                                enum exchange_phase phase, int rank, uint64_t *bytes)
{
    return schedule_bytes(plan, phase, rank, exchange_elem_bytes(plan, options, phase),
                          host_memory && (phase == PHASE_REDUCE || !plan->replicated),
                          bytes);
}

/* The extent of a block that a rank adds to in a round. */
static void sum_range(const struct plan *plan, const struct exchange_options *o, int rank,
                      int round, size_t block, size_t *at, size_t *elems)
{
    bool whole =
        plan->ranks == 1 || (o->engine == EXCHANGE_COLLECTIVE && plan->replicated);

    *at = 0;
    *elems = plan->blocks[block].elems;
    if (!whole)
        schedule_sum_range(plan, round, block, rank, at, elems);
}

static void init_ops(struct exchange *x, enum exchange_phase phase)
{
    size_t n = x->plan->n_blocks;

    for (size_t i = 0; i < x->n_ops[phase]; i++) {
        struct block_op *op = &x->ops[phase][i];

        op->x = x;
        op->block = i % n;
        op->round = (int)(i / n);
        op->phase = phase;
    }
}

static void init_sums(struct exchange *x)
{
    size_t n = x->plan->n_blocks;

    for (size_t i = 0; i < x->n_ops[PHASE_REDUCE]; i++) {
        struct block_sum *s = &x->sums[i];

        s->x = x;
        s->block = i % n;
        s->round = (int)(i / n);
        sum_range(x->plan, &x->options, x->rank, s->round, s->block, &s->at, &s->elems);
    }
}

static enum status build(struct exchange *x)
{
    size_t n = x->plan->n_blocks;
    enum status st;

    x->n_ops[PHASE_REDUCE] = n * (size_t)x->rounds;
    x->n_ops[PHASE_RETURN] = n;
    st = memory_alloc(x->n_ops[PHASE_REDUCE], sizeof *x->sums, "exchange", &x->sums);
    for (int phase = 0; phase < N_PHASES && st == ST_OK; phase++)
        st = memory_alloc(x->n_ops[phase], sizeof *x->ops[0], "exchange", &x->ops[phase]);
    if (st != ST_OK)
        return st;
    for (int phase = 0; phase < N_PHASES; phase++)
        init_ops(x, (enum exchange_phase)phase);
    init_sums(x);
    x->agreement.x = x;
    return ST_OK;
}

struct exchange_options exchange_complete_options(const struct exchange_options *given)
{
    struct exchange_options o = *given;

    if (o.window_bytes == 0)
        o.window_bytes = default_window_bytes;
    if (o.max_count == 0)
        o.max_count = o.engine == EXCHANGE_DIRECT ? (size_t)EXCHANGE_MESSAGE_ELEMS
                                                  : EXCHANGE_MAX_COUNT;
    require(o.max_count <= EXCHANGE_MAX_COUNT);
    require(o.wire == WIRE_FP32 || o.engine == EXCHANGE_DIRECT);
    return o;
}

struct scratch_size exchange_scratch_size(const struct plan *plan,
                                          const struct exchange_options *options,
                                          bool host_memory, int rank, int round)
{
    struct exchange_options o = exchange_complete_options(options);
    struct scratch_size size = {0};
    size_t own = 0;
    size_t longest = 0;

    if (plan->ranks == 1 || (host_memory && grid_inside_host(&plan->grid, round)))
        return size;
    for (size_t b = 0; b < plan->n_blocks; b++) {
        size_t at, elems;

        sum_range(plan, &o, rank, round, b, &at, &elems);
        own += elems > 0;
        longest = max_size(longest, elems);
    }
    if (own == 0)
        return size;
    size.contributions =
        o.engine == EXCHANGE_DIRECT ? (size_t)plan->grid.radix[round] - 1 : 1;
    size.stride = round_up(longest, PLAN_ALIGN_ELEMS);
    size.slot_bytes =
        size.stride * size.contributions * exchange_elem_bytes(plan, &o, PHASE_REDUCE);
    size.slots = min_size(own, max_size(1, o.window_bytes / size.slot_bytes));
    size.bytes = size.slots * size.slot_bytes;
    return size;
}

size_t exchange_scratch_bytes(const struct plan *plan,
                              const struct exchange_options *options, bool host_memory,
                              int rank)
{
    size_t bytes = 0;

    for (int round = 0; round < schedule_rounds(plan); round++)
        bytes += exchange_scratch_size(plan, options, host_memory, rank, round).bytes;
    return bytes;
}

/* FNV-1a over what must be the same on all ranks. */
static uint64_t hash_words(uint64_t h, const size_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t shift = 0; shift < 8 * sizeof *words; shift += 8)
            h = (h ^ ((words[i] >> shift) & 0xff)) * 1099511628211u;
    return h;
}

static uint64_t hash_exchange(const struct exchange *x)
{
    const struct plan *plan = x->plan;
    const struct exchange_options *o = &x->options;
    size_t head[] = {plan->elems,
                     (size_t)plan->ranks,
                     plan->n_blocks,
                     plan->n_pieces,
                     plan->n_segments,
                     plan->n_parts,
                     plan->n_return_first,
                     (size_t)plan->replicated,
                     (size_t)x->rounds,
                     o->engine,
                     o->wire,
                     o->window_bytes,
                     o->max_count,
                     x->host_grads != NULL,
                     (size_t)x->host_params};
    uint64_t h = hash_words(14695981039346656037u, head, sizeof head / sizeof head[0]);

    for (size_t i = 0; i < plan->n_blocks; i++)
        h = hash_words(h, &plan->blocks[i].begin, 1);
    for (size_t i = 0; i < plan->n_pieces; i++)
        h = hash_words(h, &plan->pieces[i].offset, 1);
    for (size_t i = 0; i < plan->n_parts; i++) {
        size_t owner[] = {plan->parts[i].at, (size_t)plan->parts[i].owner};

        h = hash_words(h, owner, 2);
    }
    return h;
}

static void bind(struct exchange *x, struct comm *c, const struct plan *plan,
                 const struct comm_memory *grads, const struct comm_memory *params,
                 const struct exchange_options *options)
{
    x->comm = c;
    x->plan = plan;
    x->grads = grads->base;
    x->params = params->base;
    x->host_grads = (float *const *)grads->of_rank;
    x->host_params = params->sharing == MEMORY_ONE_A_HOST;
    x->rank = comm_rank(c);
    x->ranks = comm_size(c);
    x->rounds = schedule_rounds(plan);
    x->options = exchange_complete_options(options);
    x->sums_replace = x->options.engine == EXCHANGE_COLLECTIVE;
    require(!(x->host_params && plan->replicated));
    require(x->options.engine == EXCHANGE_DIRECT || x->rounds == 1);
    require(x->options.engine == EXCHANGE_DIRECT || !(x->host_grads || x->host_params));
    for (int r = 0; r < x->rounds; r++)
        x->size[r] =
            exchange_scratch_size(plan, options, x->host_grads != NULL, x->rank, r);
}

enum status exchange_new(struct comm *c, const struct plan *plan,
                         const struct comm_memory *grads,
                         const struct comm_memory *params,
                         const struct exchange_options *options, struct exchange **out)
{
    struct exchange *x = NULL;
    enum status st = memory_alloc(1, sizeof *x, "exchange", &x);

    *out = NULL;
    require(plan->ranks == comm_size(c));
    if (st == ST_OK) {
        bind(x, c, plan, grads, params, options);
        st = build(x);
    }
    st = comm_share(c, st);
    if (st == ST_OK) {
        uint64_t hash = hash_exchange(x);

        st = comm_same(c, &hash, sizeof hash, "plan and options of the exchange");
    }
    if (st == ST_OK && comm_traffic(c))
        st = comm_traffic(c)->attach(x);
    if (st == ST_OK) {
        *out = x;
        x = NULL;
    }
    exchange_free(x);
    return st;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    if (x->traffic)
        comm_traffic(x->comm)->detach(x);
    for (int phase = 0; phase < N_PHASES; phase++)
        free(x->ops[phase]);
    free(x->sums);
    free(x);
}

static void begin_sums(struct exchange *x)
{
    for (size_t i = 0; i < x->n_ops[PHASE_REDUCE]; i++) {
        struct block_sum *s = &x->sums[i];

        atomic_store(&s->tasks_left, exchange_sum_tasks(x, s->block, s->round));
    }
}

void exchange_begin(struct exchange *x, enum exchange_phase phase)
{
    size_t n = x->n_ops[phase];

    require(atomic_load(&x->open[phase]) == 0);
    require(!x->begun[phase] || atomic_load(&x->called[phase]) == n);
    x->begun[phase] = true;
    atomic_store(&x->called[phase], 0);
    for (size_t i = 0; i < n; i++)
        atomic_store_explicit(&x->ops[phase][i].called, false, memory_order_relaxed);
    if (phase == PHASE_REDUCE) {
        atomic_store(&x->agreement.called, false);
        begin_sums(x);
    }
    if (x->traffic && n > 0)
        comm_traffic(x->comm)->begin(x, phase);
}

int exchange_rounds(const struct exchange *x)
{
    return x->rounds;
}

void exchange_op_done(struct exchange *x, enum exchange_phase phase, comm_done done,
                      void *arg)
{
    /* First: `done` may be what lets the owner open the next round. */
    atomic_fetch_sub(&x->open[phase], 1);
    done(arg);
}

static void call(struct exchange *x, enum exchange_phase phase, size_t i, comm_done done,
                 void *arg)
{
    require(x->begun[phase] && i < x->n_ops[phase]);
    struct block_op *op = &x->ops[phase][i];

    require(!atomic_exchange(&op->called, true));
    op->done = done;
    op->arg = arg;
    op->called_s = trace_is_on() ? clock_s() : 0;
    atomic_fetch_add(&x->open[phase], 1);
    atomic_fetch_add(&x->called[phase], 1);
    if (!x->traffic) {
        exchange_op_done(x, phase, done, arg);
        return;
    }
    comm_traffic(x->comm)->prepare(op);
    comm_traffic(x->comm)->post(op);
}

void exchange_reduce(struct exchange *x, size_t b, int round, comm_done done, void *arg)
{
    require(round >= 0 && round < x->rounds && b < x->plan->n_blocks);
    call(x, PHASE_REDUCE, (size_t)round * x->plan->n_blocks + b, done, arg);
}

void exchange_return(struct exchange *x, size_t b, comm_done done, void *arg)
{
    call(x, PHASE_RETURN, b, done, arg);
}

void exchange_agree(struct exchange *x, double *values, size_t n, comm_done done,
                    void *arg)
{
    struct agreement *a = &x->agreement;

    require(x->begun[PHASE_REDUCE] && n <= EXCHANGE_AGREE_MAX);
    require(!atomic_exchange(&a->called, true));
    a->values = values;
    a->n = n;
    a->done = done;
    a->arg = arg;
    atomic_fetch_add(&x->open[PHASE_REDUCE], 1);
    if (x->traffic)
        comm_traffic(x->comm)->agree(x);
    else
        exchange_op_done(x, PHASE_REDUCE, done, arg);
}

void exchange_mark(struct exchange *x, enum exchange_mark mark)
{
    comm_mark(x->comm, (int)mark);
}

static struct exchange_stats stats_now(struct exchange *x)
{
    uint64_t busy = atomic_load(&x->busy_ns);
    uint64_t since = atomic_load(&x->busy_since_ns);

    if (since)
        busy += exchange_now_ns() - since;
    return (struct exchange_stats){.bytes_sent = atomic_load(&x->bytes_sent),
                                   .messages = atomic_load(&x->messages),
                                   .busy_s = 1e-9 * (double)busy,
                                   .cpu_s = comm_cpu_s(x->comm)};
}

void exchange_stats_reset(struct exchange *x)
{
    x->base = stats_now(x);
}

void exchange_stats_get(struct exchange *x, struct exchange_stats *out)
{
    *out = stats_now(x);
    out->bytes_sent -= x->base.bytes_sent;
    out->messages -= x->base.messages;
    out->busy_s -= x->base.busy_s;
    out->cpu_s -= x->base.cpu_s;
}
