/* SPDX-License-Identifier: MIT */
/* The direct engine: point-to-point messages as the schedule (schedule.h) has them.
 *
 * Each round of each phase has a sequence of sends and one of receives, in an order all
 * ranks share: reductions in block order, returns in reverse block order (the order in
 * which the forward pass needs parameters). Why bounded windows cannot block for ever:
 * docs/decisions/003-communication.md. Rounds and phases never share a tag, and between
 * two ranks the messages of a round are sent and received in the same order, so a tag
 * that has wrapped still finds its partner. */
#include "base/memory.h"
#include "comm/comm_private.h"

static int tag_of(const struct traffic *t, const struct message *m,
                  enum exchange_phase phase)
{
    size_t kinds = (size_t)t->x->rounds * N_PHASES;
    size_t names = (size_t)t->tags / kinds;

    return (int)(m->block % names * kinds + (size_t)m->round * N_PHASES + phase);
}

static MPI_Datatype type_of(const struct traffic *t, enum exchange_phase phase)
{
    bool half = exchange_elem_bytes(t->x->plan, &t->x->options, phase) < sizeof(float);

    return half ? MPI_UINT16_T : MPI_FLOAT;
}

/* ---- when a message may start ---- */

static bool may_send_terms(struct traffic *t, const struct message *m)
{
    return traffic_op(t, PHASE_REDUCE, m)->ready;
}

static bool may_receive_terms(struct traffic *t, const struct message *m)
{
    return m->span.elems == 0 || traffic_take_scratch(t, m->block, m->round);
}

static bool may_receive_return(struct traffic *t, const struct message *m)
{
    return traffic_op(t, PHASE_RETURN, m)->ready;
}

/* What came in the rounds before is passed on. */
static bool may_send_return(struct traffic *t, const struct message *m)
{
    size_t n = t->x->plan->n_blocks;

    if (!traffic_op(t, PHASE_RETURN, m)->ready)
        return false;
    for (size_t round = 0; round < (size_t)m->round; round++)
        if (t->arriving[round * n + m->block] > 0)
            return false;
    return true;
}

/* ---- starting one ---- */

static void send(struct traffic *t, const struct message *m, enum exchange_phase phase,
                 const float *from, MPI_Request *request)
{
    mpi_check(t->comm,
              MPI_Isend(from + m->span.offset, (int)m->span.elems, type_of(t, phase),
                        m->peer, tag_of(t, m, phase), t->reductions, request),
              "MPI_Isend");
    traffic_count(t,
                  m->span.elems * exchange_elem_bytes(t->x->plan, &t->x->options, phase));
}

static void receive(struct traffic *t, const struct message *m, enum exchange_phase phase,
                    void *to, MPI_Request *request)
{
    mpi_check(t->comm,
              MPI_Irecv(to, (int)m->span.elems, type_of(t, phase), m->peer,
                        tag_of(t, m, phase), t->reductions, request),
              "MPI_Irecv");
}

static void send_terms(struct traffic *t, const struct message *m, MPI_Request *request)
{
    send(t, m, PHASE_REDUCE, t->x->grads, request);
}

static void receive_terms(struct traffic *t, const struct message *m,
                          MPI_Request *request)
{
    const struct exchange *x = t->x;
    const struct block_sum *s = &x->sums[(size_t)m->round * x->plan->n_blocks + m->block];
    int peer = grid_digit(&x->plan->grid, m->peer, m->round);
    int own = grid_digit(&x->plan->grid, x->rank, m->round);
    size_t place = (size_t)(peer < own ? peer : peer - 1);
    size_t at = place * x->size[m->round].stride + m->span.at - s->at;

    receive(t, m, PHASE_REDUCE,
            m->span.elems == 0
                ? NULL
                : s->terms + at * exchange_elem_bytes(x->plan, &x->options, PHASE_REDUCE),
            request);
}

static float *returned(const struct exchange *x)
{
    return x->plan->replicated ? x->grads : x->params;
}

static void send_return(struct traffic *t, const struct message *m, MPI_Request *request)
{
    send(t, m, PHASE_RETURN, returned(t->x), request);
}

static void receive_return(struct traffic *t, const struct message *m,
                           MPI_Request *request)
{
    receive(t, m, PHASE_RETURN, returned(t->x) + m->span.offset, request);
}

/* ---- bfloat16 ---- */

static const struct stream *send_stream(const struct traffic *t,
                                        enum exchange_phase phase, int round)
{
    for (int i = 0; i < t->n_streams; i++) {
        const struct stream *s = t->streams[i];

        if (s->phase == phase && !s->receives && s->round == round)
            return s;
    }
    bug("no sends of round %d", round);
}

/* Terms are packed where they are: this rank needs them no more. */
static void pack_terms(const struct block_op *op)
{
    const struct exchange *x = op->x;
    const struct stream *s = send_stream(x->traffic, PHASE_REDUCE, op->round);
    struct message_range r = s->of_block[op->block];

    for (size_t i = r.first; i < r.first + r.n; i++)
        bf16_pack_in_place(x->grads + s->list[i].span.offset, s->list[i].span.elems);
}

/* Owners round their own sums too: every rank goes on with the same numbers. */
static void pack_sums(const struct block_op *op)
{
    const struct exchange *x = op->x;
    const struct plan_block *b = &x->plan->blocks[op->block];

    for (size_t p = 0; p < b->n_parts; p++) {
        const struct plan_part *part = &x->plan->parts[b->first_part + p];
        struct span_cursor c = span_walk(x, op->block, part->at, part->elems);

        for (struct span span; part->owner == x->rank && span_next(&c, &span);)
            bf16_pack_in_place(x->grads + span.offset, span.elems);
    }
}

void direct_prepare(struct block_op *op)
{
    const struct exchange *x = op->x;

    if (x->options.wire != WIRE_BF16)
        return;
    if (op->phase == PHASE_REDUCE && !exchange_in_memory(x, PHASE_REDUCE, op->round))
        pack_terms(op);
    else if (op->phase == PHASE_RETURN && x->plan->replicated)
        pack_sums(op);
}

/* ---- lists ---- */

static enum status append_spans(struct stream *s, const struct transfer *x, size_t at,
                                size_t elems)
{
    const struct exchange *exchange = s->traffic->x;
    struct span_cursor c = span_walk(exchange, x->block, at, elems);
    enum status st = ST_OK;

    for (struct span span; st == ST_OK && span_next(&c, &span);)
        st = stream_append(s, (struct message){.block = x->block,
                                               .span = span,
                                               .round = s->round,
                                               .peer = s->receives ? x->from : x->to});
    return st;
}

/* Packed sums lie at the start of each part: parts cannot share a message. */
static enum status append_parts(struct stream *s, const struct transfer *x)
{
    const struct plan *plan = s->traffic->x->plan;
    const struct plan_block *b = &plan->blocks[x->block];
    enum status st = ST_OK;

    for (size_t p = 0; p < b->n_parts && st == ST_OK; p++) {
        const struct plan_part *part = &plan->parts[b->first_part + p];

        if (part->at >= x->at && part->at < x->at + x->elems)
            st = append_spans(s, x, part->at, part->elems);
    }
    return st;
}

static enum status append_transfer(struct stream *s, const struct transfer *x)
{
    const struct exchange *exchange = s->traffic->x;

    if (exchange_in_memory(exchange, s->phase, s->round))
        return stream_append(s, (struct message){.block = x->block,
                                                 .round = s->round,
                                                 .peer = s->receives ? x->from : x->to});
    if (s->phase == PHASE_RETURN && exchange->options.wire == WIRE_BF16 &&
        exchange->plan->replicated)
        return append_parts(s, x);
    return append_spans(s, x, x->at, x->elems);
}

static enum status list_messages(struct stream *s)
{
    const struct exchange *x = s->traffic->x;
    size_t n_blocks = x->plan->n_blocks;
    struct transfers transfers = {0};
    enum status st = ST_OK;

    for (size_t i = 0; i < n_blocks && st == ST_OK; i++) {
        size_t b = s->phase == PHASE_REDUCE ? i : plan_return_order(x->plan, i);

        transfers.n = 0;
        st = s->receives
                 ? schedule_receives(x->plan, s->phase, s->round, b, x->rank, &transfers)
                 : schedule_sends(x->plan, s->phase, s->round, b, x->rank, &transfers);
        for (size_t k = 0; k < transfers.n && st == ST_OK; k++)
            st = append_transfer(s, &transfers.list[k]);
    }
    transfers_release(&transfers);
    return st;
}

static enum status add_round(struct traffic *t, enum exchange_phase phase, bool receives,
                             int round)
{
    struct stream *s;
    enum status st = traffic_add_stream(t, phase, &s);

    if (st != ST_OK)
        return st;
    s->receives = receives;
    s->round = round;
    if (phase == PHASE_REDUCE) {
        s->may_start = receives ? may_receive_terms : may_send_terms;
        s->start = receives ? receive_terms : send_terms;
    } else {
        s->may_start = receives ? may_receive_return : may_send_return;
        s->start = receives ? receive_return : send_return;
    }
    if (!receives)
        st = memory_alloc((size_t)t->x->ranks, sizeof *s->to_peer, "exchange",
                          &s->to_peer);
    return st == ST_OK ? list_messages(s) : st;
}

enum status direct_build(struct traffic *t)
{
    enum status st = ST_OK;

    for (int phase = 0; phase < N_PHASES; phase++)
        for (int round = 0; round < t->x->rounds; round++)
            for (int receives = 0; receives < 2 && st == ST_OK; receives++)
                st = add_round(t, (enum exchange_phase)phase, receives != 0, round);
    return st;
}
