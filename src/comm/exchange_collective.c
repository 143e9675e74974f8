/* SPDX-License-Identifier: MIT */
/* The collective engine: MPI's own non-blocking collectives, a call a piece.
 *
 *   whole blocks at a root   MPI_Ireduce, MPI_Ibcast a part
 *   parts at all ranks       MPI_Ireduce_scatter, MPI_Iallgatherv
 *   sums at all ranks        MPI_Iallreduce; nothing returns
 *
 * Collectives on one communicator match by order, not by name. So every rank starts every
 * reduction in block order, on one communicator, and every return in reverse block order;
 * a block that is ready early waits for those before it. Sums go out of place into
 * scratch: MPI_IN_PLACE has been wrong in released libraries, and in others funnels
 * everything through rank 0. */
#include "base/memory.h"
#include "comm/comm_private.h"

enum {
    /* Two sequences, together no more than 64 in flight: polls slow down beyond. */
    MOST_RUNNING = 32,
    /* MPICH has some 2000 communicators in all; the order holds on a shared one too. */
    MOST_COMMS = 64
};

enum { NO_ROOT = -1 }; /* message.peer: all ranks are alike */

static bool is_scattered(const struct traffic *t)
{
    return t->x->plan->strategy == STRATEGY_REDUCE_SCATTER;
}

static bool may_reduce(struct traffic *t, const struct message *m)
{
    const struct exchange *x = t->x;

    if (!traffic_op(t, PHASE_REDUCE, m)->ready)
        return false;
    return x->sums[m->block].elems == 0 || traffic_take_scratch(t, m->block, 0);
}

static bool may_return(struct traffic *t, const struct message *m)
{
    return traffic_op(t, PHASE_RETURN, m)->ready;
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
    float *to = m->peer == x->rank ? scratch_at(t, m->block, m->span.at) : NULL;

    mpi_check(t->comm,
              MPI_Ireduce(x->grads + m->span.offset, to, (int)m->span.elems, MPI_FLOAT,
                          MPI_SUM, m->peer, t->reductions, request),
              "MPI_Ireduce");
    traffic_count(t, m->peer == x->rank ? 0 : m->span.elems * sizeof(float));
}

static void start_broadcast(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t copies = m->peer == x->rank ? (size_t)x->ranks - 1 : 0;

    mpi_check(t->comm,
              MPI_Ibcast(x->params + m->span.offset, (int)m->span.elems, MPI_FLOAT,
                         m->peer, t->broadcasts[m->peer % t->n_broadcasts], request),
              "MPI_Ibcast");
    traffic_count(t, m->span.elems * sizeof(float) * copies);
}

static void start_reduce_scatter(struct traffic *t, const struct message *m,
                                 MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t row = counts_of(t, t->streams[PHASE_REDUCE], m);
    int own = t->counts[row + (size_t)x->rank];
    size_t at = m->span.at + (size_t)t->places[row + (size_t)x->rank];

    mpi_check(t->comm,
              MPI_Ireduce_scatter(
                  x->grads + m->span.offset, own > 0 ? scratch_at(t, m->block, at) : NULL,
                  t->counts + row, MPI_FLOAT, MPI_SUM, t->reductions, request),
              "MPI_Ireduce_scatter");
    traffic_count(t, (m->span.elems - (size_t)own) * sizeof(float));
}

static void start_all_gather(struct traffic *t, const struct message *m,
                             MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t row = counts_of(t, t->streams[PHASE_RETURN], m);
    size_t own = (size_t)t->counts[row + (size_t)x->rank];

    mpi_check(t->comm,
              MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                              x->params + m->span.offset, t->counts + row,
                              t->places + row, MPI_FLOAT, t->broadcasts[0], request),
              "MPI_Iallgatherv");
    traffic_count(t, own * ((size_t)x->ranks - 1) * sizeof(float));
}

/* Counted as the least any method sends: 2 (P - 1) / P of the piece a rank. */
static void start_allreduce(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t ranks = (size_t)x->ranks;

    mpi_check(t->comm,
              MPI_Iallreduce(x->grads + m->span.offset,
                             scratch_at(t, m->block, m->span.at), (int)m->span.elems,
                             MPI_FLOAT, MPI_SUM, t->reductions, request),
              "MPI_Iallreduce");
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
    s->most_running = MOST_RUNNING;
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
    enum status st;

    t->n_broadcasts = t->x->ranks < MOST_COMMS ? t->x->ranks : MOST_COMMS;
    if (is_scattered(t) || t->x->plan->replicated)
        t->n_broadcasts = 1;
    st = memory_alloc((size_t)t->n_broadcasts, sizeof *t->broadcasts, "exchange",
                      &t->broadcasts);
    for (int i = 0; i < t->n_broadcasts && st == ST_OK; i++)
        t->broadcasts[i] = MPI_COMM_NULL;
    if (st == ST_OK)
        st = list_phase(t, PHASE_REDUCE);
    if (st == ST_OK)
        st = list_phase(t, PHASE_RETURN);
    if (st == ST_OK && is_scattered(t))
        st = build_counts(t);
    return st;
}
