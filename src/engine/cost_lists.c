/* SPDX-License-Identifier: MIT */
/* The messages of a step, as the schedule has them.
 *
 * Where every rank owns a part of every block and hosts are alike, all ranks do the same
 * at the same time: one is simulated, and what it sends it also receives. */
#include "engine/cost_private.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* As exchange_rows_mpi.c has them. */
static const double rows_piece = 12288 * sizeof(float), most_rows_pieces = 16;

/* ---- do all ranks behave alike? ---- */

/* Partners of a rank in a round that are on other hosts. */
static int partners_elsewhere(const struct step_input *in, int rank, int digit)
{
    const struct grid *g = &in->plan->grid;
    int count = 0;

    for (int d = 0; d < g->radix[digit]; d++)
        count += in->host[grid_with_digit(g, rank, digit, d)] != in->host[rank];
    return count;
}

static bool all_alike(const struct step_input *in)
{
    const struct plan *p = in->plan;

    if (p->strategy != STRATEGY_REDUCE_SCATTER && p->strategy != STRATEGY_ALLREDUCE)
        return false;
    /* Blocks too short for a part a rank. */
    if (p->n_parts != p->n_blocks * (size_t)p->ranks)
        return false;
    for (int j = 0; j < p->grid.n_digits; j++)
        for (int r = 1; r < p->ranks; r++)
            if (partners_elsewhere(in, r, j) != partners_elsewhere(in, 0, j))
                return false;
    return true;
}

/* ---- messages ---- */

size_t lists_op(const struct cost_lists *l, int rank, int round, size_t block)
{
    return ((size_t)rank * (size_t)l->rounds + (size_t)round) * l->blocks + block;
}

struct cost_stream *lists_stream(const struct cost_lists *l, int rank,
                                 enum traffic_phase phase, int round, bool receives)
{
    size_t i = (size_t)rank * TRAFFIC_PHASES + phase;

    return &l->streams[(i * (size_t)l->rounds + (size_t)round) * 2 + receives];
}

bool message_leaves_host(const struct step_input *in, const struct cost_message *m)
{
    return m->bytes > 0 && in->host[m->from] != in->host[m->peer];
}

static enum status append(struct cost_stream *s, uint32_t message)
{
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        uint32_t *grown = realloc(s->list, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for %zu messages", capacity);
        s->list = grown;
        s->capacity = capacity;
    }
    s->list[s->n++] = message;
    return ST_OK;
}

static enum status add_message(struct cost_lists *l, struct cost_message m)
{
    uint32_t id = (uint32_t)l->n_messages;
    enum status st;

    if (l->n_messages == l->message_capacity) {
        size_t capacity = l->message_capacity ? 2 * l->message_capacity : 1024;
        struct cost_message *grown = realloc(l->messages, capacity * sizeof *grown);

        if (!grown || capacity > NO_MESSAGE)
            return fail(ST_NOMEM, "no memory for %zu messages", capacity);
        l->messages = grown;
        l->message_capacity = capacity;
    }
    m.next = NO_MESSAGE;
    l->messages[l->n_messages++] = m;
    st = append(lists_stream(l, m.from, m.phase, m.round, false), id);
    return st == ST_OK ? append(lists_stream(l, m.to, m.phase, m.round, true), id) : st;
}

/* The rank that plays this one's part. */
static int simulated(const struct cost_lists *l, int rank)
{
    return l->ranks == 1 ? 0 : rank;
}

/* Runs of memory that a transfer touches. */
static size_t count_runs(const struct plan *p, const struct transfer *x)
{
    const struct plan_block *b = &p->blocks[x->block];
    size_t n = 0;

    for (size_t i = b->first_piece; i < b->first_piece + b->n_pieces; i++)
        n += p->pieces[i].at < x->at + x->elems &&
             p->pieces[i].at + p->pieces[i].elems > x->at;
    return n;
}

/* Ranks of the host look into each other's memory instead. */
static bool in_memory(const struct plan *p, enum exchange_phase phase, int round)
{
    return grid_inside_host(&p->grid, schedule_digit(p, phase, round)) &&
           (phase == PHASE_REDUCE || !p->replicated);
}

static double elem_bytes(const struct step_input *in, enum exchange_phase phase)
{
    bool sums = phase == PHASE_REDUCE || in->plan->replicated;

    return in->wire == WIRE_BF16 && sums ? 2 : 4;
}

/* A transfer of many short runs counts as one message with as many calls. */
static enum status add_transfer(struct cost_lists *l, enum exchange_phase phase,
                                int round, const struct transfer *x)
{
    const struct plan *p = l->in->plan;
    bool memory = in_memory(p, phase, round);
    size_t longest = EXCHANGE_MESSAGE_ELEMS;
    size_t messages = memory ? 1 : (x->elems + longest - 1) / longest;
    size_t calls = memory ? 1 : max_size(1, count_runs(p, x) / messages);
    struct cost_message m = {
        .bytes =
            memory ? 0 : (double)x->elems * elem_bytes(l->in, phase) / (double)messages,
        .block = (uint32_t)x->block,
        .from = simulated(l, x->from),
        .to = simulated(l, x->to),
        .peer = x->to,
        .calls = (uint16_t)min_size(calls, UINT16_MAX),
        .round = (uint8_t)round,
        .phase = (uint8_t)phase};
    int op_round = phase == PHASE_REDUCE ? round : 0;
    enum status st = ST_OK;

    for (size_t i = 0; i < messages && st == ST_OK; i++) {
        l->left[phase][lists_op(l, m.from, op_round, x->block)]++;
        l->left[phase][lists_op(l, m.to, op_round, x->block)]++;
        if (phase == PHASE_RETURN)
            l->arriving[lists_op(l, m.to, round, x->block)]++;
        st = add_message(l, m);
    }
    return st;
}

static enum status list_round(struct cost_lists *l, enum exchange_phase phase, int round)
{
    const struct plan *p = l->in->plan;
    struct transfers sent = {0};
    enum status st = ST_OK;

    for (size_t i = 0; i < l->blocks && st == ST_OK; i++) {
        size_t b = phase == PHASE_REDUCE ? i : plan_return_order(p, i);

        for (int r = 0; r < l->ranks && st == ST_OK; r++) {
            sent.n = 0;
            st = schedule_sends(p, phase, round, b, r, &sent);
            for (size_t k = 0; k < sent.n && st == ST_OK; k++)
                st = add_transfer(l, phase, round, &sent.list[k]);
        }
    }
    transfers_release(&sent);
    return st;
}

/* ---- rows of the embedding ---- */

/* Fraction of wte that each rank owns. */
static enum status wte_shares(const struct step_input *in, double **out)
{
    const struct plan *p = in->plan;
    enum status st = memory_alloc((size_t)p->ranks, sizeof **out, "shares", out);

    for (size_t b = 0; b < p->n_blocks && st == ST_OK; b++)
        for (size_t i = 0; i < p->blocks[b].n_parts; i++) {
            const struct plan_part *part = &p->parts[p->blocks[b].first_part + i];
            size_t begin = p->blocks[b].begin + part->at;
            size_t end = min_size(in->wte_elems, begin + part->elems);

            if (end > begin)
                (*out)[part->owner] += (double)(end - begin) / (double)in->wte_elems;
        }
    return st;
}

static enum status add_rows(struct cost_lists *l, enum traffic_phase phase, int from,
                            int to, double bytes)
{
    const struct step_input *in = l->in;
    bool memory = phase == TRAFFIC_FETCH && in->plan->grid.host_ranks > 1 &&
                  in->host[from] == in->host[to];
    double pieces = memory ? 1 : ceil(fmin(bytes / rows_piece, most_rows_pieces));
    struct cost_message m = {.bytes = memory ? 0 : bytes,
                             .from = simulated(l, from),
                             .to = simulated(l, to),
                             .peer = to,
                             .calls = (uint16_t)pieces,
                             .phase = (uint8_t)phase};

    l->rows_left[phase - TRAFFIC_FETCH][m.from]++;
    l->rows_left[phase - TRAFFIC_FETCH][m.to]++;
    return add_message(l, m);
}

static enum status list_rows(struct cost_lists *l)
{
    const struct step_input *in = l->in;
    double *share = NULL;
    enum status st = wte_shares(in, &share);

    for (int a = 0; a < l->ranks; a++)
        for (int i = 1; i < in->plan->ranks && st == ST_OK; i++) {
            int b = (a + i) % in->plan->ranks;

            if (share[b] > 0)
                st = add_rows(l, TRAFFIC_ROWS, a, b, in->rows_bytes * share[b]);
            if (st == ST_OK && in->rows_fetched && share[a] > 0)
                st = add_rows(l, TRAFFIC_FETCH, a, b, in->rows_bytes * share[a]);
        }
    free(share);
    return st;
}

/* ---- making ---- */

static enum status allocate(struct cost_lists *l)
{
    size_t ranks = (size_t)l->ranks;
    size_t ops = ranks * (size_t)l->rounds * l->blocks;
    enum status st = memory_alloc(ranks * (size_t)l->rounds * TRAFFIC_PHASES * 2,
                                  sizeof *l->streams, "messages", &l->streams);

    for (int i = 0; i < 2 && st == ST_OK; i++) {
        st = memory_alloc(ops, sizeof *l->left[i], "messages", &l->left[i]);
        if (st == ST_OK)
            st = memory_alloc(ranks, sizeof *l->rows_left[i], "messages",
                              &l->rows_left[i]);
    }
    if (st == ST_OK)
        st = memory_alloc(ops, sizeof *l->arriving, "messages", &l->arriving);
    return st;
}

enum status lists_init(struct cost_lists *l, const struct step_input *in)
{
    enum status st;

    *l = (struct cost_lists){.in = in,
                             .ranks = all_alike(in) ? 1 : in->plan->ranks,
                             .rounds = schedule_rounds(in->plan),
                             .blocks = in->plan->n_blocks};
    st = allocate(l);
    for (int phase = 0; phase < N_PHASES; phase++)
        for (int round = 0; round < l->rounds && st == ST_OK; round++)
            st = list_round(l, (enum exchange_phase)phase, round);
    return st == ST_OK && in->rows ? list_rows(l) : st;
}

void lists_release(struct cost_lists *l)
{
    size_t n = (size_t)l->ranks * (size_t)l->rounds * TRAFFIC_PHASES * 2;

    for (size_t i = 0; l->streams && i < n; i++)
        free(l->streams[i].list);
    free(l->streams);
    free(l->messages);
    for (int i = 0; i < 2; i++) {
        free(l->left[i]);
        free(l->rows_left[i]);
    }
    free(l->arriving);
    *l = (struct cost_lists){0};
}

/* ---- totals ---- */

struct totals {
    double *out, *in;       /* [host] through its link */
    uint64_t *sent, *count; /* [rank] */
};

static enum status totals_init(struct totals *t, size_t hosts, size_t ranks)
{
    enum status st = memory_alloc(hosts, sizeof *t->out, "totals", &t->out);

    if (st == ST_OK)
        st = memory_alloc(hosts, sizeof *t->in, "totals", &t->in);
    if (st == ST_OK)
        st = memory_alloc(ranks, sizeof *t->sent, "totals", &t->sent);
    if (st == ST_OK)
        st = memory_alloc(ranks, sizeof *t->count, "totals", &t->count);
    return st;
}

/* Ranks that a simulated one stands for on its host. */
static double weight(const struct cost_lists *l)
{
    return l->ranks == 1 ? (double)l->in->plan->ranks / l->in->hosts : 1;
}

static void add_up(const struct cost_lists *l, struct totals *t)
{
    for (size_t i = 0; i < l->n_messages; i++) {
        const struct cost_message *m = &l->messages[i];

        t->count[m->from] += m->calls;
        if (!message_leaves_host(l->in, m))
            continue;
        t->sent[m->from] += (uint64_t)m->bytes;
        t->out[l->in->host[m->from]] += m->bytes * weight(l);
        t->in[l->in->host[m->to]] += m->bytes * weight(l);
    }
}

enum status lists_totals(const struct cost_lists *l, struct step_output *out)
{
    struct totals t = {0};
    enum status st = totals_init(&t, (size_t)l->in->hosts, (size_t)l->ranks);

    if (st == ST_OK)
        add_up(l, &t);
    for (int h = 0; h < l->in->hosts && st == ST_OK; h++)
        out->link_bytes = fmax(out->link_bytes, fmax(t.out[h], t.in[h]));
    for (int r = 0; r < l->ranks && st == ST_OK; r++) {
        out->sent_bytes = t.sent[r] > out->sent_bytes ? t.sent[r] : out->sent_bytes;
        out->messages = t.count[r] > out->messages ? t.count[r] : out->messages;
    }
    free(t.out);
    free(t.in);
    free(t.sent);
    free(t.count);
    return st;
}
