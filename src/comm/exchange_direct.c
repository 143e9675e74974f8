/* SPDX-License-Identifier: MIT */
/* The direct engine: every rank sends its part of a block straight to the root, and the
 * root sends the parameters straight back.
 *
 * Four sequences, each in an order all ranks share: reductions in block order, broadcasts
 * in reverse block order (the order in which the forward pass needs parameters); sends
 * and receives apart. Why bounded windows cannot block for ever:
 * docs/decisions/003-communication.md. Between two ranks the messages of a phase are sent
 * and received in the same order, so a tag that has wrapped still finds its partner. */
#include "base/memory.h"
#include "comm/comm_private.h"

static bool is_own(const struct traffic *t, size_t block)
{
    return t->x->plan->blocks[block].root == t->x->rank;
}

static size_t n_spans(const struct traffic *t, size_t block)
{
    return t->x->first_span[block + 1] - t->x->first_span[block];
}

size_t direct_messages(const struct traffic *t, size_t block)
{
    /* The root receives from all what it later sends to all. */
    return n_spans(t, block) * (is_own(t, block) ? (size_t)t->x->ranks - 1 : 1);
}

static int tag_of(const struct traffic *t, const struct message *m,
                  enum exchange_phase phase)
{
    return (int)((2 * m->span + (size_t)phase) % (size_t)t->tags);
}

static bool is_reduction_ready(struct traffic *t, const struct message *m)
{
    return t->x->ops[PHASE_REDUCE][m->block].ready;
}

static bool is_broadcast_ready(struct traffic *t, const struct message *m)
{
    return t->x->ops[PHASE_BROADCAST][m->block].ready;
}

static bool has_scratch(struct traffic *t, const struct message *m)
{
    return traffic_take_scratch(t, m->block);
}

static void send(struct traffic *t, const struct message *m, enum exchange_phase phase,
                 const float *from, MPI_Request *request)
{
    const struct span *span = &t->x->spans[m->span];

    mpi_check(t->comm,
              MPI_Isend(from + span->offset, (int)span->elems, MPI_FLOAT, m->peer,
                        tag_of(t, m, phase), t->reductions, request),
              "MPI_Isend");
    traffic_count(t, span->elems, 1);
}

static void receive(struct traffic *t, const struct message *m, enum exchange_phase phase,
                    float *to, MPI_Request *request)
{
    mpi_check(t->comm,
              MPI_Irecv(to, (int)t->x->spans[m->span].elems, MPI_FLOAT, m->peer,
                        tag_of(t, m, phase), t->reductions, request),
              "MPI_Irecv");
}

static void send_gradient(struct traffic *t, const struct message *m,
                          MPI_Request *request)
{
    send(t, m, PHASE_REDUCE, t->x->grads, request);
}

static void receive_gradient(struct traffic *t, const struct message *m,
                             MPI_Request *request)
{
    struct exchange *x = t->x;
    size_t place = (size_t)(m->peer < x->rank ? m->peer : m->peer - 1);

    receive(t, m, PHASE_REDUCE,
            x->scratch[m->block].sums + place * x->size.stride + x->spans[m->span].at,
            request);
}

static void send_parameters(struct traffic *t, const struct message *m,
                            MPI_Request *request)
{
    send(t, m, PHASE_BROADCAST, t->x->params, request);
}

static void receive_parameters(struct traffic *t, const struct message *m,
                               MPI_Request *request)
{
    receive(t, m, PHASE_BROADCAST, t->x->params + t->x->spans[m->span].offset, request);
}

/* Appends the messages of one block: to or from all at its root, to or from the root
 * elsewhere; peers from the next rank on, so that not all meet at rank 0. */
static void list_block(struct stream *s, size_t block)
{
    const struct exchange *x = s->traffic->x;
    bool own = is_own(s->traffic, block);
    int peers = own ? x->ranks - 1 : 1;

    for (size_t span = x->first_span[block]; span < x->first_span[block + 1]; span++)
        for (int i = 0; i < peers; i++)
            s->list[s->n++] = (struct message){block, span,
                                               own ? (x->rank + 1 + i) % x->ranks
                                                   : x->plan->blocks[block].root};
}

/* The messages of all blocks whose root this rank is, or of all others. */
static enum status list_blocks(struct traffic *t, enum exchange_phase phase, bool own,
                               struct stream **out)
{
    size_t n_blocks = t->x->plan->n_blocks;
    size_t n = 0;
    enum status st;

    for (size_t b = 0; b < n_blocks; b++)
        n += is_own(t, b) == own ? direct_messages(t, b) : 0;
    st = traffic_add_stream(t, phase, n, out);
    for (size_t i = 0; i < n_blocks && st == ST_OK; i++) {
        size_t b = phase == PHASE_REDUCE ? i : n_blocks - 1 - i;

        if (is_own(t, b) == own)
            list_block(*out, b);
    }
    return st;
}

enum status direct_build(struct traffic *t)
{
    static const struct {
        enum exchange_phase phase;
        bool own;
        bool (*may_start)(struct traffic *t, const struct message *m);
        void (*start)(struct traffic *t, const struct message *m, MPI_Request *request);
    } table[MAX_STREAMS] = {
        {PHASE_REDUCE, true, has_scratch, receive_gradient},
        {PHASE_REDUCE, false, is_reduction_ready, send_gradient},
        {PHASE_BROADCAST, true, is_broadcast_ready, send_parameters},
        {PHASE_BROADCAST, false, is_broadcast_ready, receive_parameters},
    };
    enum status st = ST_OK;

    t->x->own_place = (size_t)t->x->rank;
    for (int i = 0; i < MAX_STREAMS && st == ST_OK; i++) {
        struct stream *s;

        st = list_blocks(t, table[i].phase, table[i].own, &s);
        s->may_start = table[i].may_start;
        s->start = table[i].start;
    }
    return st;
}
