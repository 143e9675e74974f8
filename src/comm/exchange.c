/* SPDX-License-Identifier: MIT */
/* The rules of a round, the same for every back end: each block is reduced (broadcast)
 * once between two exchange_begin of that phase. With one rank everything is complete
 * when it is called. */
#include "comm/comm.h"

#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

static const size_t default_window_bytes = (size_t)16 << 20;

uint64_t exchange_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Cuts pieces longer than MPI may count; the plan itself knows no limit. */
static size_t list_spans(const struct plan *plan, size_t max_count, struct span *spans,
                         size_t *first_span)
{
    size_t n = 0;

    for (size_t b = 0; b < plan->n_blocks; b++) {
        const struct plan_block *block = &plan->blocks[b];
        size_t at = 0;

        if (first_span)
            first_span[b] = n;
        for (size_t i = 0; i < block->n_pieces; i++) {
            const struct plan_piece *piece = &plan->pieces[block->first_piece + i];

            for (size_t done = 0, run; done < piece->elems; done += run, at += run) {
                run = min_size(max_count, piece->elems - done);
                if (spans)
                    spans[n] = (struct span){piece->offset + done, run, at};
                n++;
            }
        }
    }
    if (first_span)
        first_span[plan->n_blocks] = n;
    return n;
}

static enum status build(struct exchange *x)
{
    const struct plan *plan = x->plan;
    size_t n = plan->n_blocks;
    enum status st;

    x->n_spans = list_spans(plan, x->options.max_count, NULL, NULL);
    st = memory_alloc(x->n_spans, sizeof *x->spans, "exchange", &x->spans);
    if (st == ST_OK)
        st = memory_alloc(n + 1, sizeof *x->first_span, "exchange", &x->first_span);
    if (st == ST_OK)
        st = memory_alloc(n, sizeof *x->scratch, "exchange", &x->scratch);
    for (int phase = 0; phase < N_PHASES && st == ST_OK; phase++)
        st = memory_alloc(n, sizeof *x->ops[0], "exchange", &x->ops[phase]);
    if (st != ST_OK)
        return st;
    list_spans(plan, x->options.max_count, x->spans, x->first_span);
    for (size_t b = 0; b < n; b++) {
        x->scratch[b].x = x;
        x->scratch[b].block = b;
        for (int phase = 0; phase < N_PHASES; phase++) {
            x->ops[phase][b].x = x;
            x->ops[phase][b].block = b;
            x->ops[phase][b].phase = (enum exchange_phase)phase;
        }
    }
    x->agreement.x = x;
    return ST_OK;
}

struct exchange_options exchange_complete_options(const struct exchange_options *given)
{
    struct exchange_options o = *given;

    if (o.window_bytes == 0)
        o.window_bytes = default_window_bytes;
    if (o.max_count == 0)
        o.max_count = EXCHANGE_MAX_COUNT;
    require(o.max_count <= EXCHANGE_MAX_COUNT);
    return o;
}

struct scratch_size exchange_scratch_size(const struct plan *plan,
                                          const struct exchange_options *options,
                                          int rank)
{
    struct exchange_options o = exchange_complete_options(options);
    struct scratch_size size = {0};
    size_t own = 0;
    size_t longest = 0;

    if (plan->ranks == 1)
        return size;
    for (size_t b = 0; b < plan->n_blocks; b++)
        if (plan->blocks[b].root == rank) {
            own++;
            longest = max_size(longest, plan->blocks[b].elems);
        }
    size.contributions = o.engine == EXCHANGE_DIRECT ? (size_t)plan->ranks - 1 : 1;
    size.stride = round_up(longest, PLAN_ALIGN_ELEMS);
    size.slot_elems = size.stride * size.contributions;
    if (own > 0)
        size.slots = min_size(
            own, max_size(1, o.window_bytes / (size.slot_elems * sizeof(float))));
    size.bytes = size.slots * size.slot_elems * sizeof(float);
    return size;
}

size_t exchange_scratch_bytes(const struct plan *plan,
                              const struct exchange_options *options, int rank)
{
    return exchange_scratch_size(plan, options, rank).bytes;
}

/* FNV-1a over what must be the same on all ranks. */
static uint64_t hash_words(uint64_t h, const size_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t shift = 0; shift < 8 * sizeof *words; shift += 8)
            h = (h ^ ((words[i] >> shift) & 0xff)) * 1099511628211u;
    return h;
}

static uint64_t hash_plan(const struct plan *plan, const struct exchange_options *o)
{
    size_t head[] = {plan->elems, (size_t)plan->ranks, plan->n_blocks,   plan->n_pieces,
                     o->engine,   o->window_bytes,     plan->n_segments, o->max_count};
    uint64_t h = hash_words(14695981039346656037u, head, sizeof head / sizeof head[0]);

    for (size_t i = 0; i < plan->n_blocks; i++)
        h = hash_words(h, &plan->blocks[i].begin, 1);
    for (size_t i = 0; i < plan->n_pieces; i++)
        h = hash_words(h, &plan->pieces[i].offset, 1);
    return h;
}

enum status exchange_new(struct comm *c, const struct plan *plan, float *grads,
                         float *params, const struct exchange_options *options,
                         struct exchange **out)
{
    struct exchange *x = NULL;
    enum status st = memory_alloc(1, sizeof *x, "exchange", &x);

    *out = NULL;
    require(plan->ranks == comm_size(c));
    if (st == ST_OK) {
        x->comm = c;
        x->plan = plan;
        x->grads = grads;
        x->params = params;
        x->rank = comm_rank(c);
        x->ranks = comm_size(c);
        x->options = exchange_complete_options(options);
        x->size = exchange_scratch_size(plan, options, x->rank);
        st = build(x);
    }
    st = comm_share(c, st);
    if (st == ST_OK) {
        uint64_t hash = hash_plan(plan, &x->options);

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
    free(x->scratch);
    free(x->first_span);
    free(x->spans);
    free(x);
}

void exchange_begin(struct exchange *x, enum exchange_phase phase)
{
    size_t n = x->plan->n_blocks;

    require(atomic_load(&x->open[phase]) == 0);
    require(!x->begun[phase] || atomic_load(&x->called[phase]) == n);
    x->begun[phase] = true;
    atomic_store(&x->called[phase], 0);
    for (size_t b = 0; b < n; b++)
        atomic_store_explicit(&x->ops[phase][b].called, false, memory_order_relaxed);
    if (phase == PHASE_REDUCE)
        atomic_store(&x->agreement.called, false);
    if (x->traffic && n > 0)
        comm_traffic(x->comm)->begin(x, phase);
}

void exchange_op_done(struct exchange *x, enum exchange_phase phase, comm_done done,
                      void *arg)
{
    /* First: `done` may be what lets the owner open the next round. */
    atomic_fetch_sub(&x->open[phase], 1);
    done(arg);
}

static void call(struct exchange *x, size_t b, enum exchange_phase phase, comm_done done,
                 void *arg)
{
    require(x->begun[phase] && b < x->plan->n_blocks);
    struct block_op *op = &x->ops[phase][b];

    require(!atomic_exchange(&op->called, true));
    op->done = done;
    op->arg = arg;
    atomic_fetch_add(&x->open[phase], 1);
    atomic_fetch_add(&x->called[phase], 1);
    if (x->traffic)
        comm_traffic(x->comm)->post(op);
    else
        exchange_op_done(x, phase, done, arg);
}

void exchange_reduce(struct exchange *x, size_t b, comm_done done, void *arg)
{
    call(x, b, PHASE_REDUCE, done, arg);
}

void exchange_broadcast(struct exchange *x, size_t b, comm_done done, void *arg)
{
    call(x, b, PHASE_BROADCAST, done, arg);
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
                                   .busy_s = 1e-9 * (double)busy};
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
}
