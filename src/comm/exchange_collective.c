/* SPDX-License-Identifier: MIT */
/* The collective engine: non-blocking collectives, a call a piece. Who makes the calls is
 * said by calls_mpi.c (the communication thread) or calls_tampi.c (tasks, through TAMPI).
 *
 *   whole blocks at a root   MPI_Ireduce, MPI_Ibcast a part
 *   parts at all ranks       MPI_Ireduce_scatter, MPI_Iallgatherv
 *   sums at all ranks        MPI_Iallreduce; nothing returns
 *
 * Collectives on one communicator match by order, not by name. So every rank starts every
 * reduction in block order and every return in the order of forward's need; a block that
 * is ready early waits for those before it. Sums go out of place into scratch:
 * MPI_IN_PLACE has been wrong in released libraries, and in others funnels everything
 * through rank 0. */
#include "base/memory.h"
#include "comm/comm_private.h"

enum { NO_ROOT = -1 }; /* message.peer: all ranks are alike */

static bool is_scattered(const struct traffic *t)
{
    return t->x->plan->strategy == STRATEGY_REDUCE_SCATTER;
}

static bool may_reduce(struct traffic *t, const struct message *m)
{
    const struct exchange *x = t->x;

    if (!traffic_op(t, PHASE_REDUCE, m)->ready || !calls_may_start(t, PHASE_REDUCE, m))
        return false;
    return x->sums[m->block].elems == 0 || traffic_take_scratch(t, m->block, 0);
}

static bool may_return(struct traffic *t, const struct message *m)
{
    return traffic_op(t, PHASE_RETURN, m)->ready && calls_may_start(t, PHASE_RETURN, m);
}

/* Where the elements from `at` of the block are received. */
static float *scratch_at(const struct traffic *t, size_t block, size_t at)
{
    const struct block_sum *s = &t->x->sums[block];

    return s->elems == 0 ? NULL : (float *)(void *)s->terms + (at - s->at);
}

/* Elements of the span in each rank's part, and where the first of them is in the span.
 */
static void divide(const struct traffic *t, const struct message *m, int *counts,
                   int *places)
{
    const struct plan *plan = t->x->plan;
    const struct plan_block *b = &plan->blocks[m->block];
    size_t span_end = m->span.at + m->span.elems;

    for (int r = 0; r < plan->ranks; r++)
        counts[r] = places[r] = 0;
    for (size_t p = 0; p < b->n_parts; p++) {
        const struct plan_part *part = &plan->parts[b->first_part + p];
        size_t begin = max_size(part->at, m->span.at);
        size_t end = min_size(part->at + part->elems, span_end);

        if (begin >= end)
            continue;
        counts[part->owner] = (int)(end - begin);
        places[part->owner] = (int)(begin - m->span.at);
    }
}

/* This message's own counts: MPI reads them until the call is complete. */
static size_t counts_of(const struct traffic *t, const struct stream *s,
                        const struct message *m)
{
    size_t base = s->phase == PHASE_REDUCE ? 0 : s->n;

    return (base + (size_t)(m - s->list)) * (size_t)t->x->ranks;
}

static void start_reduce(struct traffic *t, const struct message *m, MPI_Request *request)
{
    struct exchange *x = t->x;
    bool root = m->peer == x->rank;

    calls_start(t, m,
                &(struct call){.kind = REDUCE,
                               .from = x->grads + m->span.offset,
                               .to = root ? scratch_at(t, m->block, m->span.at) : NULL},
                request);
    traffic_count(t, root ? 0 : m->span.elems * sizeof(float));
}

static void start_broadcast(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t copies = m->peer == x->rank ? (size_t)x->ranks - 1 : 0;

    calls_start(t, m,
                &(struct call){
                    .kind = BROADCAST,
                    .to = x->params + m->span.offset,
                },
                request);
    traffic_count(t, m->span.elems * sizeof(float) * copies);
}

static void start_reduce_scatter(struct traffic *t, const struct message *m,
                                 MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t row = counts_of(t, t->streams[PHASE_REDUCE], m);
    int own = t->counts[row + (size_t)x->rank];
    size_t at = m->span.at + (size_t)t->places[row + (size_t)x->rank];

    calls_start(t, m,
                &(struct call){.kind = REDUCE_SCATTER,
                               .from = x->grads + m->span.offset,
                               .to = own > 0 ? scratch_at(t, m->block, at) : NULL,
                               .counts = t->counts + row},
                request);
    traffic_count(t, (m->span.elems - (size_t)own) * sizeof(float));
}

static void start_all_gather(struct traffic *t, const struct message *m,
                             MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t row = counts_of(t, t->streams[PHASE_RETURN], m);
    size_t own = (size_t)t->counts[row + (size_t)x->rank];

    calls_start(t, m,
                &(struct call){.kind = ALL_GATHER,
                               .to = x->params + m->span.offset,
                               .counts = t->counts + row,
                               .places = t->places + row},
                request);
    traffic_count(t, own * ((size_t)x->ranks - 1) * sizeof(float));
}

/* Counted as the least any method sends: 2 (P - 1) / P of the piece a rank. */
static void start_allreduce(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t ranks = (size_t)x->ranks;

    calls_start(t, m,
                &(struct call){.kind = ALLREDUCE,
                               .from = x->grads + m->span.offset,
                               .to = scratch_at(t, m->block, m->span.at)},
                request);
    traffic_count(t, 2 * (ranks - 1) * m->span.elems / ranks * sizeof(float));
}

/* ---- lists ---- */

static enum status list_run(struct stream *s, size_t block, size_t at, size_t elems,
                            int root)
{
    struct span_cursor c = span_walk(s->traffic->x, block, at, elems);
    enum status st = ST_OK;

    for (struct span span; st == ST_OK && span_next(&c, &span);)
        st = stream_append(s,
                           (struct message){.block = block, .span = span, .peer = root});
    return st;
}

static enum status list_block(struct stream *s, size_t block)
{
    const struct plan *plan = s->traffic->x->plan;
    const struct plan_block *b = &plan->blocks[block];
    enum status st = ST_OK;

    if (is_scattered(s->traffic) || plan->replicated)
        return list_run(s, block, 0, b->elems, NO_ROOT);
    for (size_t p = 0; p < b->n_parts && st == ST_OK; p++) {
        const struct plan_part *part = &plan->parts[b->first_part + p];

        st = list_run(s, block, part->at, part->elems, part->owner);
    }
    return st;
}

static enum status list_phase(struct traffic *t, enum exchange_phase phase)
{
    size_t n_blocks = t->x->plan->n_blocks;
    struct stream *s;
    enum status st = traffic_add_stream(t, phase, &s);

    if (st != ST_OK)
        return st;
    s->most_running = CALLS_RUNNING;
    if (phase == PHASE_REDUCE) {
        s->may_start = may_reduce;
        s->start = is_scattered(t)          ? start_reduce_scatter
                   : t->x->plan->replicated ? start_allreduce
                                            : start_reduce;
    } else {
        s->may_start = may_return;
        s->start = is_scattered(t) ? start_all_gather : start_broadcast;
        if (t->x->plan->replicated)
            return ST_OK;
    }
    for (size_t i = 0; i < n_blocks && st == ST_OK; i++)
        st = list_block(s, phase == PHASE_REDUCE ? i : plan_return_order(t->x->plan, i));
    return st;
}

static enum status build_counts(struct traffic *t)
{
    size_t ranks = (size_t)t->x->ranks;
    size_t rows = t->streams[PHASE_REDUCE]->n + t->streams[PHASE_RETURN]->n;
    enum status st =
        memory_alloc(rows * ranks, sizeof *t->counts, "exchange", &t->counts);

    if (st == ST_OK)
        st = memory_alloc(rows * ranks, sizeof *t->places, "exchange", &t->places);
    for (int i = 0; i < t->n_streams && st == ST_OK; i++) {
        const struct stream *s = t->streams[i];

        for (size_t j = 0; j < s->n; j++) {
            size_t row = counts_of(t, s, &s->list[j]);

            divide(t, &s->list[j], t->counts + row, t->places + row);
        }
    }
    return st;
}

enum status collective_build(struct traffic *t)
{
    enum status st = calls_build(t);

    if (st == ST_OK)
        st = memory_alloc((size_t)t->n_comms, sizeof *t->comms, "exchange", &t->comms);
    for (int i = 0; i < t->n_comms && st == ST_OK; i++)
        t->comms[i] = MPI_COMM_NULL;
    if (st == ST_OK)
        st = list_phase(t, PHASE_REDUCE);
    if (st == ST_OK)
        st = list_phase(t, PHASE_RETURN);
    if (st == ST_OK && is_scattered(t))
        st = build_counts(t);
    return st;
}
