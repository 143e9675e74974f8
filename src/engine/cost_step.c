/* SPDX-License-Identifier: MIT */
/* One step as a simulation of events: what the ranks' workers do, and the messages that
 * the direct engine has in flight, by its own schedule and with its own windows.
 *
 * Ranks start together, since a step begins when all have agreed on the one before. A
 * rank's workers are a pool: updates and sums go first, forward and backward have the
 * rest of it. A message is on its way when its sender has started it, behind what the
 * sender has sent to the same rank before, and is there when it was received as well. */
#include "engine/cost_private.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* As exchange_stream.c and exchange_sum.c have them. */
enum { MOST_RUNNING = 64, LEAST_RUNNING = 8, SUM_TASK_ELEMS = 1 << 18 };
static const double window_bytes = 16 << 20;
/* On the way to one rank. */
static const struct {
    int messages;
    double bytes;
} most_to_peer[] = {[TRAFFIC_REDUCE] = {3, 3 << 20},
                    [TRAFFIC_RETURN] = {2, 2 << 20},
                    [TRAFFIC_FETCH] = {64, 1e18},
                    [TRAFFIC_ROWS] = {64, 1e18}};
/* Events closer to one another, beside a rough length of the step, count as one. */
static const double tolerance_share = 1e-7;
static const double least_tolerance_s = 1e-9;
static const double rounding = 1e-12; /* of fractions */

enum item_kind { ITEM_UPDATE, ITEM_PACK, ITEM_SUM, ITEM_ROWS };

/* Urgent work of a rank. */
struct item {
    enum item_kind kind;
    double work_s; /* of one worker */
    int tasks;
    size_t block;
    int round;
};

struct rank {
    double now; /* accounted for up to here */
    double busy_s;
    /* forward and backward */
    double progress, speed; /* fractions of compute, a second */
    bool may_compute, computed;
    size_t next_ready, next_gate;
    /* the pool */
    struct item *items; /* a ring */
    size_t first, n, capacity;
    int tasks;
    double used;      /* workers */
    double free_s;    /* a worker is free from here on */
    uint32_t version; /* of what is expected of workers */

    double posted_s; /* the communication thread has time from here on */
    size_t updates_left, wte_updates_left, returns_left, sums_left;
    bool rows_called[2], rows_added;
    bool agreed;
};

enum event_kind { EVENT_JOIN, EVENT_LEAVE, EVENT_WORKERS };

struct event {
    double t;
    enum event_kind kind;
    uint32_t id, version; /* message, or rank */
};

struct step {
    const struct step_input *in;
    struct cost_lists lists;
    double t, tolerance_s;
    double agreement_s;
    struct rank *ranks;
    uint32_t *head, *tail; /* [connection] messages on it and behind it */
    struct peer {
        int messages;
        float bytes;
    } * peers[TRAFFIC_PHASES]; /* [connection] on the way */
    uint8_t *ready[2];         /* [operation] called; like lists.left */
    uint8_t *has_scratch;      /* [reduction] */
    uint32_t *slots;           /* [rank][round] scratch that is free */
    uint8_t *open;             /* [rank][block] forward may read it */
    struct flows flows;
    struct event *heap;
    size_t n_events, event_capacity;
    int agreed;
    enum status st; /* the first failure */
};

/* ---- events: a heap by time ---- */

static void keep(struct step *s, enum status st)
{
    if (s->st == ST_OK)
        s->st = st;
}

static bool grow_heap(struct step *s)
{
    size_t capacity = s->event_capacity ? 2 * s->event_capacity : 1024;
    struct event *grown = realloc(s->heap, capacity * sizeof *grown);

    if (!grown) {
        keep(s, fail(ST_NOMEM, "no memory for %zu events", capacity));
        return false;
    }
    s->heap = grown;
    s->event_capacity = capacity;
    return true;
}

static void expect(struct step *s, double t, enum event_kind kind, uint32_t id,
                   uint32_t version)
{
    size_t i = s->n_events;

    if (i == s->event_capacity && !grow_heap(s))
        return;
    s->n_events++;
    for (size_t up; i > 0 && s->heap[up = (i - 1) / 2].t > t; i = up)
        s->heap[i] = s->heap[up];
    s->heap[i] = (struct event){t, kind, id, version};
}

static struct event take_first(struct step *s)
{
    struct event first = s->heap[0];
    struct event last = s->heap[--s->n_events];
    size_t i = 0;

    for (size_t down; (down = 2 * i + 1) < s->n_events; i = down) {
        if (down + 1 < s->n_events && s->heap[down + 1].t < s->heap[down].t)
            down++;
        if (s->heap[down].t >= last.t)
            break;
        s->heap[i] = s->heap[down];
    }
    s->heap[i] = last;
    return first;
}

/* ---- workers ---- */

static struct rank *rank_of(struct step *s, int rank)
{
    return &s->ranks[rank];
}

static uint32_t number_of(const struct step *s, const struct rank *r)
{
    return (uint32_t)(r - s->ranks);
}

static uint8_t *is_open(struct step *s, const struct rank *r, size_t block)
{
    return &s->open[number_of(s, r) * s->lists.blocks + block];
}

static void account(struct step *s, struct rank *r)
{
    double dt = s->t - r->now;

    if (r->used > 0)
        r->items[r->first].work_s -= dt * r->used;
    r->progress += dt * r->speed;
    if (r->used > 0 || r->speed > 0)
        r->busy_s += dt;
    r->now = s->t;
}

/* The block that forward has to wait for next; false: none. */
static bool next_gate(struct step *s, struct rank *r, double *need)
{
    for (; r->next_gate < s->lists.blocks; r->next_gate++) {
        size_t b = plan_return_order(s->in->plan, r->next_gate);

        if (*is_open(s, r, b))
            continue;
        *need = s->in->need[b];
        return true;
    }
    return false;
}

/* How far compute can go until something begins, or until it has to wait; `waits`: it has
 * to now. */
static double next_stop(struct step *s, struct rank *r, bool *waits)
{
    const struct step_input *in = s->in;
    double stop = 1;
    double need;

    *waits = false;
    if (next_gate(s, r, &need)) {
        *waits = need <= r->progress + rounding;
        stop = need;
    }
    if (in->overlap && r->next_ready < s->lists.blocks)
        stop = fmin(stop, in->ready[r->next_ready]);
    return stop;
}

/* Plans what the workers do from now on. */
static void direct_workers(struct step *s, struct rank *r)
{
    int workers = s->in->workers;
    bool waits;
    double stop = next_stop(s, r, &waits);
    bool computes = r->may_compute && !r->computed && !waits;
    bool pool = r->n > 0 && s->t >= r->free_s;

    r->used = pool ? (r->tasks < workers ? r->tasks : workers) : 0;
    r->speed = computes ? (1 - r->used / workers) / s->in->compute_s : 0;
    r->version++;
    if (r->n > 0)
        expect(s, pool ? s->t + fmax(0, r->items[r->first].work_s) / r->used : r->free_s,
               EVENT_WORKERS, number_of(s, r), r->version);
    if (r->speed > 0)
        expect(s, s->t + fmax(0, stop - r->progress) / r->speed, EVENT_WORKERS,
               number_of(s, r), r->version);
}

static void grow_ring(struct step *s, struct rank *r)
{
    size_t capacity = r->capacity ? 2 * r->capacity : 16;
    struct item *grown = malloc(capacity * sizeof *grown);

    if (!grown)
        bug("no memory for %zu items of work", capacity);
    for (size_t i = 0; i < r->n; i++)
        grown[i] = r->items[(r->first + i) % r->capacity];
    free(r->items);
    r->items = grown;
    r->first = 0;
    r->capacity = capacity;
    (void)s;
}

static void push(struct step *s, struct rank *r, struct item item)
{
    account(s, r);
    if (r->n == r->capacity)
        grow_ring(s, r);
    /* Workers finish the tasks they are at. */
    if (r->n == 0)
        r->free_s = r->speed > 0 ? s->t + s->in->lag_s : s->t;
    r->items[(r->first + r->n++) % r->capacity] = item;
    r->tasks += item.tasks;
    direct_workers(s, r);
}

/* ---- streams ---- */

static size_t connection_of(const struct step *s, const struct cost_message *m)
{
    return (size_t)m->from * (size_t)s->in->plan->ranks + (size_t)m->peer;
}

static struct peer *peer_of(struct step *s, const struct cost_message *m)
{
    return &s->peers[m->phase][connection_of(s, m)];
}

static bool has_room(struct step *s, const struct cost_stream *x,
                     const struct cost_message *m, bool receives)
{
    const struct peer *p = peer_of(s, m);

    if (x->running >= MOST_RUNNING)
        return false;
    if (!receives && p->messages >= most_to_peer[m->phase].messages &&
        (double)p->bytes + m->bytes > most_to_peer[m->phase].bytes)
        return false;
    return x->running < LEAST_RUNNING || x->bytes_running + m->bytes <= window_bytes;
}

static void count_running(struct step *s, struct cost_stream *x,
                          const struct cost_message *m, bool receives, int sign)
{
    x->running += sign * m->calls;
    x->bytes_running += sign * m->bytes;
    if (!receives) {
        peer_of(s, m)->messages += sign * m->calls;
        peer_of(s, m)->bytes += (float)(sign * m->bytes);
    }
}

/* A slot for what a block receives in a round, kept until it has been added. */
static bool take_scratch(struct step *s, int rank, const struct cost_message *m)
{
    uint8_t *has = &s->has_scratch[lists_op(&s->lists, rank, m->round, m->block)];
    uint32_t *slots = &s->slots[rank * s->lists.rounds + m->round];

    if (m->bytes <= 0 || *has)
        return true;
    if (*slots == 0)
        return false;
    --*slots;
    *has = 1;
    return true;
}

static bool has_arrived(const struct step *s, int rank, const struct cost_message *m)
{
    for (int round = 0; round < m->round; round++)
        if (s->lists.arriving[lists_op(&s->lists, rank, round, m->block)] > 0)
            return false;
    return true;
}

static bool may_start(struct step *s, int rank, const struct cost_message *m,
                      bool receives)
{
    const struct cost_lists *l = &s->lists;

    switch (m->phase) {
    case TRAFFIC_REDUCE:
        return receives ? take_scratch(s, rank, m)
                        : s->ready[PHASE_REDUCE][lists_op(l, rank, m->round, m->block)];
    case TRAFFIC_RETURN:
        return s->ready[PHASE_RETURN][lists_op(l, rank, 0, m->block)] &&
               (receives || has_arrived(s, rank, m));
    default:
        return s->ranks[rank].rows_called[m->phase - TRAFFIC_FETCH];
    }
}

static void start_message(struct step *s, struct rank *r, uint32_t id, bool receives)
{
    struct cost_message *m = &s->lists.messages[id];

    r->posted_s = fmax(r->posted_s, s->t) + s->in->network->message_s * m->calls;
    if (!receives) {
        expect(s, r->posted_s, EVENT_JOIN, id, 0);
        return;
    }
    m->ready_s = fmax(m->ready_s, r->posted_s);
    m->is_posted = true;
    if (m->has_arrived)
        expect(s, m->ready_s, EVENT_LEAVE, id, 0);
}

static void advance_stream(struct step *s, int rank, enum traffic_phase phase, int round,
                           bool receives)
{
    struct cost_stream *x = lists_stream(&s->lists, rank, phase, round, receives);

    while (x->next < x->n) {
        const struct cost_message *m = &s->lists.messages[x->list[x->next]];

        x->block = m->block;
        if (!has_room(s, x, m, receives) || !may_start(s, rank, m, receives))
            return;
        count_running(s, x, m, receives, 1);
        start_message(s, rank_of(s, rank), x->list[x->next++], receives);
    }
    x->block = NO_MESSAGE;
}

/* Something has changed for one block. */
static void advance_block(struct step *s, int rank, enum traffic_phase phase, int round,
                          bool receives, size_t block)
{
    if (lists_stream(&s->lists, rank, phase, round, receives)->block == block)
        advance_stream(s, rank, phase, round, receives);
}

/* ---- what follows from what ---- */

static void reduce(struct step *s, int rank, int round, size_t block);

/* Forward may read the block from now on. */
static void open_block(struct step *s, int rank, size_t block)
{
    struct rank *r = rank_of(s, rank);

    account(s, r);
    *is_open(s, r, block) = 1;
    direct_workers(s, r);
}

static double sum_seconds(const struct step *s, double terms, size_t elems)
{
    /* The squares of a tile in cache cost a part of what a term does. */
    return (terms + 0.25) * (double)elems * sizeof(float) / s->in->network->sum_Bps;
}

static void push_update(struct step *s, int rank, size_t block)
{
    const struct plan *p = s->in->plan;
    const struct plan_block *b = &p->blocks[block];
    size_t elems = 0;

    for (size_t i = b->first_part; i < b->first_part + b->n_parts; i++)
        if (plan_updates(p, &p->parts[i], rank))
            elems += p->parts[i].elems;
    push(s, rank_of(s, rank),
         (struct item){.kind = ITEM_UPDATE,
                       .work_s = (double)elems * sizeof(float) / s->in->update_Bps,
                       .tasks = 1,
                       .block = block});
}

static bool updates_block(const struct plan *p, size_t block, int rank)
{
    const struct plan_block *b = &p->blocks[block];

    for (size_t i = b->first_part; i < b->first_part + b->n_parts; i++)
        if (plan_updates(p, &p->parts[i], rank))
            return true;
    return false;
}

/* Without overlap forward waits for all updates and returns. */
static void may_begin(struct step *s, int rank)
{
    struct rank *r = rank_of(s, rank);
    const struct cost_lists *l = &s->lists;

    if (r->may_compute ||
        (s->in->rows_fetched && !(r->rows_called[0] && l->rows_left[0][rank] == 0)))
        return;
    if (!s->in->overlap && r->updates_left + r->returns_left > 0)
        return;
    account(s, r);
    r->may_compute = true;
    direct_workers(s, r);
}

static void returned(struct step *s, int rank, size_t block)
{
    const struct plan *p = s->in->plan;

    rank_of(s, rank)->returns_left--;
    if (p->replicated)
        push_update(s, rank, block);
    else if (!*is_open(s, rank_of(s, rank), block))
        open_block(s, rank, block);
    may_begin(s, rank);
}

static void call_return(struct step *s, int rank, size_t block)
{
    size_t op = lists_op(&s->lists, rank, 0, block);

    s->ready[PHASE_RETURN][op] = 1;
    for (int round = 0; round < s->lists.rounds; round++) {
        advance_block(s, rank, TRAFFIC_RETURN, round, false, block);
        advance_block(s, rank, TRAFFIC_RETURN, round, true, block);
    }
    if (s->lists.left[PHASE_RETURN][op] == 0)
        returned(s, rank, block);
}

static void agree(struct step *s, int rank)
{
    struct rank *r = rank_of(s, rank);

    if (r->agreed || r->sums_left > 0 || !r->computed || (s->in->rows && !r->rows_added))
        return;
    r->agreed = true;
    s->agreed++;
}

static void rows_arrived(struct step *s, int rank, enum traffic_phase phase)
{
    struct rank *r = rank_of(s, rank);
    const struct step_input *in = s->in;

    if (!r->rows_called[phase - TRAFFIC_FETCH] ||
        s->lists.rows_left[phase - TRAFFIC_FETCH][rank] > 0)
        return;
    if (phase == TRAFFIC_FETCH) {
        may_begin(s, rank);
        return;
    }
    /* Of all ranks, to what is owned here. */
    push(s, r,
         (struct item){.kind = ITEM_ROWS,
                       .work_s = in->rows_bytes / in->network->sum_Bps,
                       .tasks = in->workers});
}

static void call_rows(struct step *s, int rank, enum traffic_phase phase)
{
    rank_of(s, rank)->rows_called[phase - TRAFFIC_FETCH] = true;
    advance_stream(s, rank, phase, 0, false);
    advance_stream(s, rank, phase, 0, true);
    /* A rank may have nothing to send or receive. */
    if (s->lists.rows_left[phase - TRAFFIC_FETCH][rank] == 0)
        rows_arrived(s, rank, phase);
}

static void added(struct step *s, int rank, int round, size_t block)
{
    uint8_t *has = &s->has_scratch[lists_op(&s->lists, rank, round, block)];

    if (*has) {
        *has = 0;
        s->slots[rank * s->lists.rounds + round]++;
        advance_stream(s, rank, TRAFFIC_REDUCE, round, true);
    }
    if (round + 1 < s->lists.rounds) {
        reduce(s, rank, round + 1, block);
        return;
    }
    rank_of(s, rank)->sums_left--;
    agree(s, rank);
}

static void reduced(struct step *s, int rank, int round, size_t block)
{
    const struct plan *p = s->in->plan;
    size_t at, elems;

    schedule_sum_range(p, round, block, rank, &at, &elems);
    if (elems == 0) {
        added(s, rank, round, block);
        return;
    }
    push(s, rank_of(s, rank),
         (struct item){.kind = ITEM_SUM,
                       .work_s = sum_seconds(s, p->grid.radix[round] - 1, elems),
                       .tasks = (int)ceil_div(elems, SUM_TASK_ELEMS),
                       .block = block,
                       .round = round});
}

static void call_reduce(struct step *s, int rank, int round, size_t block)
{
    size_t op = lists_op(&s->lists, rank, round, block);

    s->ready[PHASE_REDUCE][op] = 1;
    advance_block(s, rank, TRAFFIC_REDUCE, round, false, block);
    if (s->lists.left[PHASE_REDUCE][op] == 0)
        reduced(s, rank, round, block);
}

/* With bf16 on the wire the worker that calls packs first. */
static void reduce(struct step *s, int rank, int round, size_t block)
{
    const struct plan *p = s->in->plan;

    if (s->in->wire == WIRE_FP32 || grid_inside_host(&p->grid, round)) {
        call_reduce(s, rank, round, block);
        return;
    }
    push(s, rank_of(s, rank),
         (struct item){.kind = ITEM_PACK,
                       .work_s = sum_seconds(s, 0.5, p->blocks[block].elems) /
                                 p->grid.radix[round],
                       .tasks = 1,
                       .block = block,
                       .round = round});
}

static void updated(struct step *s, int rank, size_t block)
{
    struct rank *r = rank_of(s, rank);
    const struct plan *p = s->in->plan;

    r->updates_left--;
    if (p->replicated) {
        open_block(s, rank, block);
    } else {
        if (plan_owns_block(p, block, rank))
            open_block(s, rank, block);
        if (s->in->rows_fetched && p->blocks[block].begin < s->in->wte_elems &&
            --r->wte_updates_left == 0)
            call_rows(s, rank, TRAFFIC_FETCH);
        call_return(s, rank, block);
    }
    may_begin(s, rank);
}

static void finish_item(struct step *s, int rank)
{
    struct rank *r = rank_of(s, rank);
    struct item item = r->items[r->first];

    r->first = (r->first + 1) % r->capacity;
    r->n--;
    r->tasks -= item.tasks;
    direct_workers(s, r);
    switch (item.kind) {
    case ITEM_UPDATE:
        updated(s, rank, item.block);
        break;
    case ITEM_PACK:
        call_reduce(s, rank, item.round, item.block);
        break;
    case ITEM_SUM:
        added(s, rank, item.round, item.block);
        break;
    case ITEM_ROWS:
        r->rows_added = true;
        agree(s, rank);
        break;
    }
}

static void end_compute(struct step *s, int rank)
{
    struct rank *r = rank_of(s, rank);

    r->computed = true;
    r->speed = 0;
    for (; r->next_ready < s->lists.blocks; r->next_ready++)
        reduce(s, rank, 0, r->next_ready);
    if (s->in->rows)
        call_rows(s, rank, TRAFFIC_ROWS);
    agree(s, rank);
}

/* Compute has come to a point, or the pool to the end of an item. */
static void see_workers(struct step *s, int rank)
{
    struct rank *r = rank_of(s, rank);
    const struct step_input *in = s->in;
    double least_s =
        1e-3 * s->tolerance_s; /* nearer than a clock that has run can tell */
    bool waits;
    double stop = next_stop(s, r, &waits);

    account(s, r);
    if (r->speed > 0 && stop - r->progress <= r->speed * least_s)
        r->progress = stop;
    while (in->overlap && r->next_ready < s->lists.blocks &&
           in->ready[r->next_ready] <= r->progress + rounding)
        reduce(s, rank, 0, r->next_ready++);
    if (!r->computed && r->speed > 0 && r->progress >= 1 - rounding)
        end_compute(s, rank);
    if (r->used > 0 && r->items[r->first].work_s <= r->used * least_s)
        finish_item(s, rank);
    else
        direct_workers(s, r);
}

/* ---- messages under way ---- */

/* Links out and into hosts first, then those inside hosts, then the time of the ranks'
 * communication threads. */
static void begin_flow(struct step *s, uint32_t id)
{
    const struct cost_message *m = &s->lists.messages[id];
    const struct step_input *in = s->in;
    int inside = 2 * in->hosts;
    int cpu = inside + 2 * s->lists.ranks;
    int links[FLOW_LINKS];
    int n = 0;

    if (in->host[m->from] == in->host[m->peer]) {
        links[n++] = inside + 2 * m->from;
        links[n++] = inside + 2 * m->to + 1;
    } else {
        links[n++] = 2 * in->host[m->from];
        links[n++] = 2 * in->host[m->to] + 1;
        if (in->network->byte_s > 0) {
            links[n++] = cpu + m->from;
            links[n++] = cpu + m->to;
        }
    }
    flows_add(&s->flows, s->t, links, n, m->bytes, id);
}

static double latency_of(const struct step *s, const struct cost_message *m)
{
    const struct step_input *in = s->in;

    return in->host[m->from] == in->host[m->peer] ? in->network->host_latency_s
                                                  : in->network->latency_s;
}

static void leave_side(struct step *s, int rank, const struct cost_message *m,
                       bool receives)
{
    struct cost_lists *l = &s->lists;
    struct cost_stream *x = lists_stream(l, rank, m->phase, m->round, receives);
    size_t op = lists_op(l, rank, m->phase == TRAFFIC_REDUCE ? m->round : 0, m->block);

    count_running(s, x, m, receives, -1);
    if (m->phase == TRAFFIC_RETURN && receives &&
        --l->arriving[lists_op(l, rank, m->round, m->block)] == 0)
        for (int round = m->round + 1; round < l->rounds; round++)
            advance_block(s, rank, TRAFFIC_RETURN, round, false, m->block);
    advance_stream(s, rank, m->phase, m->round, receives);
    if (m->phase >= TRAFFIC_FETCH) {
        if (--l->rows_left[m->phase - TRAFFIC_FETCH][rank] == 0)
            rows_arrived(s, rank, m->phase);
        return;
    }
    if (--l->left[m->phase][op] > 0 || !s->ready[m->phase][op])
        return;
    if (m->phase == TRAFFIC_REDUCE)
        reduced(s, rank, m->round, m->block);
    else
        returned(s, rank, m->block);
}

/* The last byte has left: the sender is done with it. */
static void see_sent(struct step *s, uint32_t id)
{
    struct cost_message *m = &s->lists.messages[id];
    struct rank *to = rank_of(s, m->to);

    to->posted_s = fmax(to->posted_s, s->t) + s->in->network->message_s * m->calls;
    m->ready_s = fmax(m->ready_s, fmax(to->posted_s, s->t + latency_of(s, m)));
    m->has_arrived = true;
    if (m->is_posted)
        expect(s, m->ready_s, EVENT_LEAVE, id, 0);
    leave_side(s, m->from, m, false);
}

static void see_join(struct step *s, uint32_t id)
{
    const struct cost_message *m = &s->lists.messages[id];
    size_t c = connection_of(s, m);

    if (m->bytes <= 0) {
        see_sent(s, id);
        return;
    }
    if (s->tail[c] != NO_MESSAGE) {
        s->lists.messages[s->tail[c]].next = id;
        s->tail[c] = id;
        return;
    }
    s->head[c] = s->tail[c] = id;
    begin_flow(s, id);
}

static void see_flow_end(struct step *s, uint32_t id)
{
    const struct cost_message *m = &s->lists.messages[id];
    size_t c = connection_of(s, m);

    s->head[c] = m->next;
    if (m->next == NO_MESSAGE)
        s->tail[c] = NO_MESSAGE;
    else
        begin_flow(s, m->next);
    see_sent(s, id);
}

/* ---- the step ---- */

/* Workers have been told something else since. */
static bool is_stale(const struct step *s, const struct event *e)
{
    return e->kind == EVENT_WORKERS && e->version != s->ranks[e->id].version;
}

static void see(struct step *s, struct event e)
{
    switch (e.kind) {
    case EVENT_JOIN:
        see_join(s, e.id);
        break;
    case EVENT_LEAVE:
        leave_side(s, s->lists.messages[e.id].to, &s->lists.messages[e.id], true);
        break;
    case EVENT_WORKERS:
        if (!is_stale(s, &e))
            see_workers(s, (int)e.id);
        break;
    }
}

static void begin_rank(struct step *s, int rank)
{
    const struct plan *p = s->in->plan;
    struct rank *r = rank_of(s, rank);
    size_t blocks = s->lists.blocks;

    r->returns_left = r->sums_left = blocks;
    for (int round = 0; round < s->lists.rounds; round++)
        for (int receives = 0; receives < 2; receives++) {
            advance_stream(s, rank, TRAFFIC_REDUCE, round, receives != 0);
            advance_stream(s, rank, TRAFFIC_RETURN, round, receives != 0);
        }
    for (size_t b = 0; b < blocks; b++) {
        r->updates_left += updates_block(p, b, rank);
        r->wte_updates_left +=
            updates_block(p, b, rank) && p->blocks[b].begin < s->in->wte_elems;
    }
    if (s->in->rows_fetched)
        for (size_t b = 0; b < blocks && p->blocks[b].begin < s->in->wte_elems; b++)
            if (updates_block(p, b, rank))
                push_update(s, rank, b);
    if (s->in->rows_fetched && r->wte_updates_left == 0)
        call_rows(s, rank, TRAFFIC_FETCH);
    for (size_t i = 0; i < blocks; i++) {
        size_t b = plan_return_order(p, i);

        if (p->replicated || !updates_block(p, b, rank))
            call_return(s, rank, b);
        else if (!s->in->rows_fetched || p->blocks[b].begin >= s->in->wte_elems)
            push_update(s, rank, b);
    }
    may_begin(s, rank);
}

static void run(struct step *s)
{
    for (int r = 0; r < s->lists.ranks; r++)
        begin_rank(s, r);
    while (s->st == ST_OK) {
        double next = flows_next(&s->flows);
        uint32_t id;

        while (s->n_events > 0 && is_stale(s, &s->heap[0]))
            (void)take_first(s);
        if (s->n_events > 0)
            next = fmin(next, s->heap[0].t);
        if (!isfinite(next))
            break;
        s->t = fmax(s->t, next);

        double end = s->t + s->tolerance_s;

        while (flows_take(&s->flows, s->t, s->tolerance_s, &id))
            see_flow_end(s, id);
        while (s->n_events > 0 && s->heap[0].t <= end) {
            struct event e = take_first(s);

            s->t = fmax(s->t, e.t);
            see(s, e);
        }
    }
}

static void set_links(struct step *s)
{
    const struct step_input *in = s->in;
    const struct network *net = in->network;
    struct link *links = s->flows.links;
    /* Where one rank stands for all, it has its share of its host's link. */
    double share = s->lists.ranks == 1 ? (double)in->hosts / in->plan->ranks : 1;

    for (int h = 0; h < in->hosts; h++) {
        struct link out = {.capacity = net->bandwidth_Bps * share,
                           .congested = net->bandwidth_Bps * share};

        links[2 * h] = links[2 * h + 1] = out;
        links[2 * h + 1].congested = net->congested_Bps * share;
        links[2 * h + 1].crowd = (net->hosts > 2 ? net->hosts - 1 : 2) * share;
    }
    for (int r = 0; r < s->lists.ranks; r++) {
        struct link inside = {.capacity = net->host_bandwidth_Bps,
                              .congested = net->host_bandwidth_Bps};
        struct link cpu = {.capacity = 1 / net->byte_s, .congested = 1 / net->byte_s};

        links[2 * in->hosts + 2 * r] = links[2 * in->hosts + 2 * r + 1] = inside;
        links[2 * in->hosts + 2 * s->lists.ranks + r] = cpu;
    }
}

/* As exchange_scratch_size() has it. */
static void set_slots(struct step *s)
{
    const struct plan *p = s->in->plan;
    double elem = s->in->wire == WIRE_BF16 ? 2 : 4;

    for (int r = 0; r < s->lists.ranks; r++)
        for (int round = 0; round < s->lists.rounds; round++) {
            size_t longest = 0;

            for (size_t b = 0; b < p->n_blocks; b++) {
                size_t at, elems;

                schedule_sum_range(p, round, b, r, &at, &elems);
                longest = max_size(longest, elems);
            }
            s->slots[r * s->lists.rounds + round] =
                (uint32_t)fmax(1, window_bytes / ((double)max_size(longest, 1) * elem *
                                                  fmax(1, p->grid.radix[round] - 1)));
        }
}

static double agreement_seconds(const struct step_input *in)
{
    const struct network *net = in->network;
    double waking_s = net->ranks > 1
                          ? net->agreement_s - net->latency_s * ceil(log2(net->ranks))
                          : net->agreement_s;

    return in->plan->ranks == 1
               ? 0
               : fmax(0, waking_s) + net->latency_s * ceil(log2(in->plan->ranks));
}

static enum status allocate(struct step *s)
{
    size_t ranks = (size_t)s->lists.ranks;
    size_t rounds = (size_t)s->lists.rounds;
    size_t ops = ranks * rounds * s->lists.blocks;
    size_t connections = ranks * (size_t)s->in->plan->ranks;
    enum status st = memory_alloc(ranks, sizeof *s->ranks, "step", &s->ranks);

    for (int i = 0; i < 2 && st == ST_OK; i++)
        st = memory_alloc(ops, 1, "step", &s->ready[i]);
    if (st == ST_OK)
        st = memory_alloc(ops, 1, "step", &s->has_scratch);
    if (st == ST_OK)
        st = memory_alloc(ranks * s->lists.blocks, 1, "step", &s->open);
    if (st == ST_OK)
        st = memory_alloc(ranks * rounds, sizeof *s->slots, "step", &s->slots);
    for (int phase = 0; phase < TRAFFIC_PHASES && st == ST_OK; phase++)
        st = memory_alloc(connections, sizeof *s->peers[0], "step", &s->peers[phase]);
    if (st == ST_OK)
        st = memory_alloc(connections, sizeof *s->head, "step", &s->head);
    if (st == ST_OK)
        st = memory_alloc(connections, sizeof *s->tail, "step", &s->tail);
    for (size_t i = 0; i < connections && st == ST_OK; i++)
        s->head[i] = s->tail[i] = NO_MESSAGE;
    if (st == ST_OK)
        st = flows_init(&s->flows, 2 * (size_t)s->in->hosts + 3 * ranks);
    return st;
}

static void release(struct step *s)
{
    for (int r = 0; s->ranks && r < s->lists.ranks; r++)
        free(s->ranks[r].items);
    free(s->ranks);
    free(s->ready[0]);
    free(s->ready[1]);
    free(s->has_scratch);
    free(s->open);
    free(s->slots);
    free(s->head);
    free(s->tail);
    for (int phase = 0; phase < TRAFFIC_PHASES; phase++)
        free(s->peers[phase]);
    free(s->heap);
    flows_release(&s->flows);
    lists_release(&s->lists);
}

static void describe(struct step *s, struct step_output *out)
{
    require(s->agreed == s->lists.ranks);
    out->step_s = s->t + s->agreement_s;
    for (int r = 0; r < s->lists.ranks; r++) {
        double idle = fmax(0, out->step_s - s->ranks[r].busy_s);

        out->idle_s += idle / s->lists.ranks;
        out->most_idle_s = fmax(out->most_idle_s, idle);
    }
}

enum status step_simulate(const struct step_input *in, struct step_output *out)
{
    struct step s = {.in = in};
    enum status st = lists_init(&s.lists, in);

    *out = (struct step_output){0};
    if (st == ST_OK)
        st = lists_totals(&s.lists, out);
    if (st == ST_OK)
        st = allocate(&s);
    if (st == ST_OK) {
        set_links(&s);
        set_slots(&s);
        s.agreement_s = agreement_seconds(in);
        s.tolerance_s =
            fmax(least_tolerance_s,
                 tolerance_share *
                     (in->compute_s + 2 * out->link_bytes / in->network->bandwidth_Bps));
        run(&s);
        st = s.st;
    }
    if (st == ST_OK)
        describe(&s, out);
    release(&s);
    return st;
}
