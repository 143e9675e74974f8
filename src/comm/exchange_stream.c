/* SPDX-License-Identifier: MIT */
/* Moves an exchange's messages: sequences in canonical order, each with a bounded window.
 * Everything here but attach and detach runs on the communication thread. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/trace.h"
#include "comm/comm_private.h"

/* ---- operations ---- */

void traffic_open(struct traffic *t)
{
    if (t->open++ == 0)
        atomic_store(&t->x->busy_since_ns, exchange_now_ns());
}

void traffic_close(struct traffic *t)
{
    if (--t->open > 0)
        return;
    uint64_t since = atomic_exchange(&t->x->busy_since_ns, 0);

    atomic_fetch_add(&t->x->busy_ns, exchange_now_ns() - since);
}

static void finish_if_complete(struct traffic *t, struct block_op *op)
{
    if (!op->ready || op->left > 0)
        return;
    op->ready = false;
    if (trace_is_on())
        trace_block_op(t, op);
    traffic_close(t);
    exchange_op_done(t->x, op->phase, op->done, op->arg);
}

static void see_op(void *self)
{
    struct block_op *op = self;

    op->ready = true;
    traffic_open(op->x->traffic);
    finish_if_complete(op->x->traffic, op);
}

static void see_release(void *self)
{
    struct block_sum *s = self;
    struct traffic *t = s->x->traffic;

    t->scratch[s->round].free_slots[t->scratch[s->round].n_free++] = s->terms;
    s->terms = NULL;
}

static void see_begin(void *self)
{
    const struct traffic_phase *p = self;
    struct traffic *t = p->traffic;
    struct exchange *x = t->x;

    for (int r = 0; p->phase == PHASE_REDUCE && r < x->rounds; r++)
        require(t->scratch[r].n_free == x->size[r].slots);
    for (size_t i = 0; i < x->n_ops[p->phase]; i++) {
        struct block_op *op = &x->ops[p->phase][i];

        op->left = t->messages[p->phase][i];
        op->moved_s = 0;
        op->bytes = 0;
    }
    t->turn[p->phase]++;
    if (p->phase == PHASE_RETURN)
        memcpy(t->arriving, t->arrivals,
               (size_t)x->rounds * x->plan->n_blocks * sizeof *t->arriving);
    for (int i = 0; i < t->n_streams; i++) {
        struct stream *s = t->streams[i];

        if (s->phase != p->phase)
            continue;
        require(s->next == s->n && s->n_running == 0);
        s->next = 0;
    }
}

static void see_agree(void *self)
{
    struct agreement *a = self;
    struct traffic *t = a->x->traffic;

    traffic_open(t);
    t->agreement = a;
    t->agree_seen_s = trace_is_on() ? clock_s() : 0;
    memcpy(t->agree_mine, a->values, a->n * sizeof(double));
    mpi_check(t->comm,
              MPI_Iallgather(t->agree_mine, (int)a->n, MPI_DOUBLE, t->agree_all,
                             (int)a->n, MPI_DOUBLE, t->agreements, &t->agree_request),
              "MPI_Iallgather");
}

/* Every rank adds the same numbers in rank order, so all get the same bits. */
static bool advance_agreement(struct traffic *t)
{
    struct agreement *a = t->agreement;
    int flag = 0;

    if (!a)
        return false;
    mpi_check(t->comm, MPI_Test(&t->agree_request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    if (!flag)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        a->values[i] = t->agree_all[i];
        for (size_t r = 1; r < (size_t)t->x->ranks; r++)
            a->values[i] += t->agree_all[r * a->n + i];
    }
    t->agreement = NULL;
    if (trace_is_on())
        trace_other_op("agree", t->agree_seen_s, a->n * sizeof(double));
    traffic_close(t);
    exchange_op_done(t->x, PHASE_REDUCE, a->done, a->arg);
    return true;
}

/* ---- streams ---- */

struct block_op *traffic_op(const struct traffic *t, enum exchange_phase phase,
                            const struct message *m)
{
    size_t round = phase == PHASE_REDUCE ? (size_t)m->round : 0;

    return &t->x->ops[phase][round * t->x->plan->n_blocks + m->block];
}

static size_t message_bytes(const struct stream *s, const struct message *m)
{
    const struct exchange *x = s->traffic->x;

    return m->span.elems * exchange_elem_bytes(x->plan, &x->options, s->phase);
}

/* What is on its way to one rank. More would not move faster: an MPI library lets all
 * messages to a rank advance side by side, so that none is complete before all nearly
 * are. In the reduction a receiver's scratch then comes back all at once, with the link
 * idle meanwhile; in the return forward waits for the first block as long as for the
 * last. */
static const struct peer_running most_to_peer[N_PHASES] = {
    [PHASE_REDUCE] = {3, (size_t)3 << 20},
    [PHASE_RETURN] = {2, (size_t)2 << 20},
};

static bool peer_has_room(const struct stream *s, const struct message *m)
{
    const struct peer_running *p = s->to_peer ? &s->to_peer[m->peer] : NULL;
    const struct peer_running *most = &most_to_peer[s->phase];

    return !p || p->messages < most->messages ||
           p->bytes + message_bytes(s, m) <= most->bytes;
}

static void count_running(struct stream *s, const struct message *m, int messages)
{
    size_t bytes = message_bytes(s, m);

    s->bytes_running += messages > 0 ? bytes : -bytes;
    if (!s->to_peer)
        return;
    s->to_peer[m->peer].messages += messages;
    s->to_peer[m->peer].bytes += messages > 0 ? bytes : -bytes;
}

static bool has_room(const struct stream *s, const struct message *m)
{
    if (s->n_running == s->most_running || !peer_has_room(s, m))
        return false;
    return s->n_running < STREAM_LEAST ||
           s->bytes_running + message_bytes(s, m) <= s->traffic->x->options.window_bytes;
}

static void note_start(struct stream *s, const struct message *m)
{
    struct block_op *op = traffic_op(s->traffic, s->phase, m);
    double now_s = trace_is_on() ? clock_s() : 0;

    s->began_s[s->n_running] = now_s;
    if (op->bytes == 0 && !(op->moved_s > 0))
        op->moved_s = now_s;
    op->bytes += message_bytes(s, m);
}

static bool start_messages(struct stream *s)
{
    bool moved = false;

    while (s->next < s->n) {
        const struct message *m = &s->list[s->next];

        if (!has_room(s, m) || !s->may_start(s->traffic, m))
            break;
        s->start(s->traffic, m, &s->requests[s->n_running]);
        note_start(s, m);
        s->running[s->n_running++] = m;
        count_running(s, m, 1);
        s->next++;
        moved = true;
    }
    return moved;
}

/* Takes complete requests out and closes the gaps. */
static void compact(struct stream *s)
{
    int kept = 0;

    for (int i = 0; i < s->n_running; i++) {
        if (s->requests[i] == MPI_REQUEST_NULL)
            continue;
        s->requests[kept] = s->requests[i];
        s->began_s[kept] = s->began_s[i];
        s->running[kept++] = s->running[i];
    }
    s->n_running = kept;
}

static bool test_messages(struct stream *s)
{
    struct traffic *t = s->traffic;
    const struct message *complete[STREAM_MOST];
    double began_s[STREAM_MOST];
    int indices[STREAM_MOST];
    int n = 0;

    if (s->n_running == 0)
        return false;
    mpi_check(t->comm,
              MPI_Testsome(s->n_running, s->requests, &n, indices, MPI_STATUSES_IGNORE),
              "MPI_Testsome");
    if (n <= 0)
        return false;
    for (int i = 0; i < n; i++) {
        complete[i] = s->running[indices[i]];
        began_s[i] = s->began_s[indices[i]];
    }
    compact(s);
    for (int i = 0; i < n; i++) {
        const struct message *m = complete[i];
        struct block_op *op = traffic_op(t, s->phase, m);

        if (s->phase == PHASE_RETURN && s->receives)
            t->arriving[(size_t)m->round * t->x->plan->n_blocks + m->block]--;
        count_running(s, m, -1);
        if (trace_is_on())
            trace_message(s, m, began_s[i], message_bytes(s, m));
        op->left--;
        finish_if_complete(t, op);
    }
    return true;
}

bool traffic_advance(struct traffic *t)
{
    bool moved = advance_agreement(t);

    for (int i = 0; i < t->n_streams; i++) {
        moved |= start_messages(t->streams[i]);
        moved |= test_messages(t->streams[i]);
    }
    return moved;
}

bool traffic_pending(const struct traffic *t)
{
    bool pending = t->agreement != NULL;

    for (int i = 0; i < t->n_streams; i++)
        pending |= t->streams[i]->n_running > 0;
    return pending;
}

bool traffic_has_collectives(const struct traffic *t)
{
    if (t->x->options.engine == EXCHANGE_COLLECTIVE)
        return traffic_pending(t);
    return t->agreement != NULL;
}

static struct block_sum *sum_of(const struct traffic *t, size_t block, int round)
{
    return &t->x->sums[(size_t)round * t->x->plan->n_blocks + block];
}

bool traffic_take_scratch(struct traffic *t, size_t block, int round)
{
    struct block_sum *s = sum_of(t, block, round);

    if (!s->terms && t->scratch[round].n_free > 0)
        s->terms = t->scratch[round].free_slots[--t->scratch[round].n_free];
    return s->terms != NULL;
}

char *traffic_scratch(const struct traffic *t, size_t block, int round)
{
    return sum_of(t, block, round)->terms;
}

enum status traffic_add_stream(struct traffic *t, enum exchange_phase phase,
                               struct stream **out)
{
    struct stream *s;
    enum status st = memory_alloc(1, sizeof *s, "exchange", &s);

    require(t->n_streams < MAX_STREAMS);
    *out = s;
    if (st != ST_OK)
        return st;
    t->streams[t->n_streams++] = s;
    s->traffic = t;
    s->phase = phase;
    s->most_running = STREAM_MOST;
    return memory_alloc(t->x->plan->n_blocks, sizeof *s->of_block, "exchange",
                        &s->of_block);
}

enum status stream_append(struct stream *s, struct message m)
{
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        struct message *grown = realloc(s->list, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for %zu messages", capacity);
        s->list = grown;
        s->capacity = capacity;
    }
    if (s->of_block[m.block].n++ == 0)
        s->of_block[m.block].first = s->n;
    s->list[s->n++] = m;
    return ST_OK;
}

void traffic_count(struct traffic *t, size_t bytes)
{
    atomic_fetch_add(&t->x->bytes_sent, bytes);
    atomic_fetch_add(&t->x->messages, 1);
}

/* ---- attach and detach ---- */

static enum status build_scratch(struct traffic *t, int round)
{
    const struct scratch_size *size = &t->x->size[round];
    enum status st;
    void *map;

    if (size->slots == 0)
        return ST_OK;
    st = memory_alloc(size->slots, sizeof(char *), "exchange",
                      &t->scratch[round].free_slots);
    if (st == ST_OK)
        st = memory_map(size->bytes, "gradients of other ranks", &map);
    if (st != ST_OK)
        return st;
    t->scratch[round].base = map;
    for (size_t i = 0; i < size->slots; i++)
        t->scratch[round].free_slots[i] = (char *)map + i * size->slot_bytes;
    t->scratch[round].n_free = size->slots;
    return ST_OK;
}

/* How many messages complete each operation. */
static enum status count_messages(struct traffic *t)
{
    const struct exchange *x = t->x;
    enum status st = memory_alloc((size_t)x->rounds * x->plan->n_blocks,
                                  sizeof *t->arrivals, "exchange", &t->arrivals);

    if (st == ST_OK)
        st = memory_alloc((size_t)x->rounds * x->plan->n_blocks, sizeof *t->arriving,
                          "exchange", &t->arriving);
    for (int phase = 0; phase < N_PHASES && st == ST_OK; phase++)
        st = memory_alloc(x->n_ops[phase], sizeof(size_t), "exchange",
                          &t->messages[phase]);
    for (int i = 0; i < t->n_streams && st == ST_OK; i++) {
        const struct stream *s = t->streams[i];

        for (size_t j = 0; j < s->n; j++) {
            const struct message *m = &s->list[j];

            t->messages[s->phase][traffic_op(t, s->phase, m) - x->ops[s->phase]]++;
            if (s->phase == PHASE_RETURN && s->receives)
                t->arrivals[(size_t)m->round * x->plan->n_blocks + m->block]++;
        }
    }
    return st;
}

static void build_posts(struct traffic *t)
{
    struct exchange *x = t->x;

    for (int phase = 0; phase < N_PHASES; phase++) {
        t->phases[phase] = (struct traffic_phase){t, (enum exchange_phase)phase};
        t->begin[phase] = (struct post){.run = see_begin, .self = &t->phases[phase]};
        for (size_t i = 0; i < x->n_ops[phase]; i++)
            x->ops[phase][i].post =
                (struct post){.run = see_op, .self = &x->ops[phase][i]};
    }
    for (size_t i = 0; i < x->n_ops[PHASE_REDUCE]; i++)
        x->sums[i].release = (struct post){.run = see_release, .self = &x->sums[i]};
    x->agreement.post = (struct post){.run = see_agree, .self = &x->agreement};
}

static enum status build(struct traffic *t)
{
    struct exchange *x = t->x;
    enum status st = memory_alloc((size_t)x->ranks * EXCHANGE_AGREE_MAX,
                                  sizeof *t->agree_all, "exchange", &t->agree_all);

    if (st == ST_OK)
        st = x->options.engine == EXCHANGE_DIRECT ? direct_build(t) : collective_build(t);
    if (st == ST_OK)
        st = count_messages(t);
    for (int r = 0; r < x->rounds && st == ST_OK; r++)
        st = build_scratch(t, r);
    for (int i = 0; i < t->n_streams; i++)
        t->streams[i]->next = t->streams[i]->n; /* nothing to do before the first begin */
    build_posts(t);
    return st;
}

static void start_attach(struct control *op)
{
    struct traffic *t = op->args;
    int *bound;
    int flag = 0;

    mpi_check(op->comm, MPI_Comm_get_attr(t->reductions, MPI_TAG_UB, &bound, &flag),
              "MPI_Comm_get_attr");
    /* The standard promises 32767. */
    t->tags = flag ? *bound : 32767;
    t->next = op->comm->traffics;
    op->comm->traffics = t;
}

/* Only receives of a round that was opened and never used can still be pending. */
static void cancel_receives(struct traffic *t)
{
    for (int i = 0; i < t->n_streams; i++)
        for (int j = 0; j < t->streams[i]->n_running; j++) {
            MPI_Request *request = &t->streams[i]->requests[j];

            mpi_check(t->comm, MPI_Cancel(request), "MPI_Cancel");
            mpi_check(t->comm, MPI_Wait(request, MPI_STATUS_IGNORE), "MPI_Wait");
        }
}

static void start_detach(struct control *op)
{
    struct traffic *t = op->args;

    require(t->open == 0);
    cancel_receives(t);
    for (struct traffic **at = &op->comm->traffics; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
}

static void free_tables(struct traffic *t)
{
    for (int i = 0; i < t->n_streams; i++) {
        free(t->streams[i]->list);
        free(t->streams[i]->of_block);
        free(t->streams[i]->to_peer);
        free(t->streams[i]);
    }
    for (int r = 0; r < t->x->rounds; r++) {
        memory_unmap(t->scratch[r].base, t->x->size[r].bytes);
        free(t->scratch[r].free_slots);
    }
    for (int phase = 0; phase < N_PHASES; phase++)
        free(t->messages[phase]);
    free(t->arriving);
    free(t->arrivals);
    free(t->counts);
    free(t->places);
    free(t->comms);
    free(t->errands);
    free(t->agree_all);
}

static void detach(struct exchange *x)
{
    struct traffic *t = x->traffic;

    control_run(t->comm, start_detach, t);
    control_free_comm(t->comm, &t->reductions);
    control_free_comm(t->comm, &t->agreements);
    for (int i = 0; i < t->n_comms && t->comms; i++)
        control_free_comm(t->comm, &t->comms[i]);
    free_tables(t);
    free(t);
    x->traffic = NULL;
}

static enum status attach(struct exchange *x)
{
    struct traffic *t;
    enum status st = memory_alloc(1, sizeof *t, "exchange", &t);

    if (st == ST_OK) {
        x->traffic = t;
        t->x = x;
        t->comm = x->comm;
        t->reductions = MPI_COMM_NULL;
        t->agreements = MPI_COMM_NULL;
        st = build(t);
    }
    st = comm_share(x->comm, st);
    if (st != ST_OK)
        return st; /* exchange_free detaches what there is */
    t->reductions = control_new_comm(t->comm);
    t->agreements = control_new_comm(t->comm);
    for (int i = 0; i < t->n_comms; i++)
        t->comms[i] = control_new_comm(t->comm);
    control_run(t->comm, start_attach, t);
    return ST_OK;
}

static void begin(struct exchange *x, enum exchange_phase phase)
{
    comm_post(x->comm, &x->traffic->begin[phase]);
}

static void post(struct block_op *op)
{
    comm_post(op->x->comm, &op->post);
}

static void prepare(struct block_op *op)
{
    if (op->x->options.engine == EXCHANGE_DIRECT)
        direct_prepare(op);
}

static void release(struct block_sum *s)
{
    comm_post(s->x->comm, &s->release);
}

static void agree(struct exchange *x)
{
    comm_post(x->comm, &x->agreement.post);
}

static const struct traffic_ops mpi_traffic = {attach,      detach,    begin, prepare,
                                               post,        release,   agree, rows_attach,
                                               rows_detach, rows_start};

const struct traffic_ops *comm_traffic(const struct comm *c)
{
    return c->size > 1 ? &mpi_traffic : NULL;
}
