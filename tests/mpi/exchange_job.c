/* SPDX-License-Identifier: MIT */
#include "exchange_job.h"

#include <math.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"

enum { SLICES = 9, THREADS = 3 };

static const float gap = -77;

/* ---- what the exchange asks of the machine, as the setting has it ---- */

static const struct setting *current;
static size_t mapped; /* bytes of scratch */
static int host_numbers[64];

enum status __real_memory_map(size_t bytes, const char *what, void **out);
enum status __wrap_memory_map(size_t bytes, const char *what, void **out);
const int *__real_comm_host_numbers(const struct comm *c);
const int *__wrap_comm_host_numbers(const struct comm *c);
int __real_MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *flag);
int __wrap_MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *flag);

enum status __wrap_memory_map(size_t bytes, const char *what, void **out)
{
    if (!strcmp(what, "gradients of other ranks"))
        mapped += bytes;
    return __real_memory_map(bytes, what, out);
}

const int *__wrap_comm_host_numbers(const struct comm *c)
{
    return current ? host_numbers : __real_comm_host_numbers(c);
}

int __wrap_MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *flag)
{
    int code = __real_MPI_Comm_get_attr(comm, key, value, flag);

    if (current && current->tag_bound > 0 && key == MPI_TAG_UB) {
        static int bound;

        bound = current->tag_bound;
        *flag = 1;
        *(int **)value = &bound;
    }
    return code;
}

static int host_of(const struct setting *s, int rank, int ranks)
{
    switch (s->hosts) {
    case HOSTS_APART:
        return rank;
    case HOSTS_PAIRS:
        return rank / 2;
    case HOSTS_CYCLIC:
        return ranks > 1 ? rank % (ranks / 2) : 0;
    case HOSTS_ONE:
        return 0;
    }
    return 0;
}

/* ---- one rank's memory and the work of one step ---- */

enum kind { REDUCE, SUM, RETURN, FINISH };

struct item {
    enum kind kind;
    size_t block;
    int round;
    size_t task;
};

struct job;

struct callback {
    struct job *job;
    struct item item;
};

struct block_state {
    bool sends;        /* this rank, in round 0 */
    size_t tasks_left; /* of the round */
    double squares;
    struct callback reduce, back;
};

struct job {
    struct comm *comm;
    const struct setting *setting;
    struct grid grid;
    struct plan plan;
    int rank, ranks;
    size_t elems, floats;
    size_t *position; /* production position of each float in memory; SIZE_MAX: a gap */
    struct comm_memory grads_memory, params_memory;
    float *grads, *params;
    float *sums[2];        /* [position] expected, of this step and of the one before */
    float *updated[2];     /* [float] by the owner, from those */
    float *partial, *next; /* [rank][position] */
    struct exchange *x;
    struct block_state *blocks;
    int step;
    bool reduces, returns; /* in this step */
    bool sends;            /* this rank, anything in round 0 */
    uint64_t seed;
    atomic_size_t wrong;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item *items; /* under lock, as all below */
    size_t n_items, taken;
    size_t chains; /* blocks still to be reduced or returned */
    bool sent;
};

static void wrong(struct job *j)
{
    atomic_fetch_add(&j->wrong, 1);
}

static bool differ(float a, float b)
{
    return memcmp(&a, &b, sizeof a) != 0;
}

static const struct plan_part *part_of(const struct job *j, size_t block, size_t at)
{
    const struct plan_part *part = &j->plan.parts[j->plan.blocks[block].first_part];

    while (at >= part->at + part->elems)
        part++;
    return part;
}

/* Calls use(job, memory index, production position, part) for each float of a block. */
typedef void visitor(struct job *j, size_t i, size_t at, const struct plan_part *part);

static void for_block(struct job *j, size_t b, visitor *use)
{
    const struct plan_block *block = &j->plan.blocks[b];

    for (size_t p = 0; p < block->n_pieces; p++) {
        const struct plan_piece *piece = &j->plan.pieces[block->first_piece + p];

        for (size_t k = 0; k < piece->elems; k++) {
            size_t i = piece->offset + k;

            use(j, i, j->position[i], part_of(j, b, piece->at + k));
        }
    }
}

/* ---- what must come out ---- */

static float contribution(const struct setting *s, int rank, size_t at, int step)
{
    uint64_t bits = rng_bits((uint64_t)step, (uint64_t)rank, at);

    if (s->whole)
        return (float)(bits % 17) - 8;
    return ldexpf((float)(int32_t)(uint32_t)bits, -31 - (int)(bits >> 60));
}

static float as_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    bits += 0x7fff + ((bits >> 16) & 1);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Ranks of a host add what they read from one another, which is not rounded. */
static bool rounds_terms(const struct job *j, int round)
{
    return j->setting->wire == WIRE_BF16 && !(j->grads_memory.sharing == MEMORY_VISIBLE &&
                                              grid_inside_host(&j->grid, round));
}

/* One round for one rank: its own sums and its partners', in the order of their digits.
 */
static void add_round(const struct job *j, int rank, int round)
{
    float *to = j->next + (size_t)rank * j->elems;
    bool rounds = rounds_terms(j, round);

    for (int d = 0; d < j->grid.radix[round]; d++) {
        int partner = grid_with_digit(&j->grid, rank, round, d);
        const float *from = j->partial + (size_t)partner * j->elems;

        for (size_t at = 0; at < j->elems; at++) {
            float term = rounds && partner != rank ? as_bf16(from[at]) : from[at];

            to[at] = d == 0 ? term : to[at] + term;
        }
    }
}

/* The sums at their owners. With whole numbers any order gives the same. */
static void expect_sums(struct job *j)
{
    float *sums = j->sums[j->step % 2];

    for (int r = 0; r < j->ranks; r++)
        for (size_t at = 0; at < j->elems; at++)
            j->partial[(size_t)r * j->elems + at] =
                contribution(j->setting, r, at, j->step);
    for (int round = 0; round < j->grid.n_digits; round++) {
        for (int r = 0; r < j->ranks; r++)
            add_round(j, r, round);
        float *free_table = j->partial;

        j->partial = j->next;
        j->next = free_table;
    }
    for (size_t i = 0; i < j->plan.n_blocks; i++) {
        const struct plan_block *b = &j->plan.blocks[i];

        for (size_t at = 0; at < b->elems; at++)
            sums[b->begin + at] =
                j->partial[(size_t)part_of(j, i, at)->owner * j->elems + b->begin + at];
    }
}

static float expected_parameter(const struct job *j, size_t at)
{
    return 0.5f * j->sums[(j->step + 1) % 2][at] + (float)(j->step - 1);
}

/* ---- visitors ---- */

static void write_gradient(struct job *j, size_t i, size_t at,
                           const struct plan_part *part)
{
    (void)part;
    j->grads[i] = contribution(j->setting, j->rank, at, j->step);
}

static void check_sum(struct job *j, size_t i, size_t at, const struct plan_part *part)
{
    bool everywhere = j->plan.replicated && j->setting->engine == EXCHANGE_COLLECTIVE;

    if (part->owner != j->rank && !everywhere)
        return;
    if (differ(j->grads[i], j->sums[j->step % 2][at]))
        wrong(j);
    j->updated[j->step % 2][i] = 0.5f * j->grads[i] + (float)j->step;
}

/* Owners write their parameters; what is to arrive is spoilt before. */
static void write_parameter(struct job *j, size_t i, size_t at,
                            const struct plan_part *part)
{
    bool arrives = part->owner != j->rank;

    (void)at;
    if (!arrives)
        j->params[i] = j->updated[(j->step + 1) % 2][i];
    else if (j->params_memory.sharing != MEMORY_ONE_A_HOST)
        j->params[i] = NAN;
}

static void check_parameter(struct job *j, size_t i, size_t at,
                            const struct plan_part *part)
{
    (void)part;
    if (differ(j->params[i], expected_parameter(j, at)))
        wrong(j);
}

static void check_returned_sum(struct job *j, size_t i, size_t at,
                               const struct plan_part *part)
{
    float sum = j->sums[(j->step + 1) % 2][at];

    (void)part;
    if (j->setting->wire == WIRE_BF16 && j->ranks > 1)
        sum = as_bf16(sum);
    if (differ(j->grads[i], sum))
        wrong(j);
}

/* ---- the work ---- */

static void add_item(struct job *j, struct item item)
{
    j->items[j->n_items++] = item;
}

static void end_chain(struct job *j)
{
    j->chains--;
}

/* Under lock: the additions of a round are made. */
static void after_sums(struct job *j, size_t b, int round)
{
    if (round + 1 < exchange_rounds(j->x))
        add_item(j, (struct item){REDUCE, b, round + 1, 0});
    else
        end_chain(j);
}

/* Under lock. */
static void after_reduce(struct job *j, size_t b, int round)
{
    size_t tasks = exchange_sum_tasks(j->x, b, round);

    j->sent = j->sent || j->blocks[b].sends;
    j->blocks[b].tasks_left = tasks;
    for (size_t t = 0; t < tasks; t++)
        add_item(j, (struct item){SUM, b, round, t});
    if (tasks == 0)
        after_sums(j, b, round);
}

static void done(void *arg)
{
    const struct callback *c = arg;
    struct job *j = c->job;

    pthread_mutex_lock(&j->lock);
    if (c->item.kind == REDUCE)
        after_reduce(j, c->item.block, c->item.round);
    else if (j->plan.replicated)
        add_item(j, (struct item){FINISH, c->item.block, 0, 0});
    else
        end_chain(j);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static bool near(const struct setting *s, double found, double needed)
{
    return fabs(found - needed) <= (s->whole ? 0 : 1e-12 * needed);
}

/* Sum of squares of what this rank owns of a block. */
static double owned_squares(const struct job *j, size_t b)
{
    const struct plan_block *block = &j->plan.blocks[b];
    double sum = 0;

    for (size_t at = 0; at < block->elems; at++)
        if (part_of(j, b, at)->owner == j->rank)
            sum += pow((double)j->sums[j->step % 2][block->begin + at], 2);
    return sum;
}

static void check_block(struct job *j, size_t b)
{
    double squares = owned_squares(j, b);

    for_block(j, b, check_sum);
    if (!near(j->setting, j->blocks[b].squares, squares) ||
        !near(j->setting, exchange_squares(j->x, b), squares))
        wrong(j);
}

static void run_sum(struct job *j, struct item item)
{
    struct block_state *s = &j->blocks[item.block];
    double squares = exchange_sum(j->x, item.block, item.round, item.task);

    pthread_mutex_lock(&j->lock);
    s->squares += squares;
    bool last = --s->tasks_left == 0;

    pthread_mutex_unlock(&j->lock);
    if (!last)
        return;
    if (item.round + 1 == exchange_rounds(j->x))
        check_block(j, item.block);
    else if (s->squares != 0)
        wrong(j);
    pthread_mutex_lock(&j->lock);
    after_sums(j, item.block, item.round);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static void run_finish(struct job *j, size_t b)
{
    exchange_finish_sums(j->x, b);
    for_block(j, b, check_returned_sum);
    pthread_mutex_lock(&j->lock);
    if (j->reduces)
        add_item(j, (struct item){REDUCE, b, 0, 0});
    end_chain(j);
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static void run_item(struct job *j, struct item item)
{
    struct block_state *s = &j->blocks[item.block];

    switch (item.kind) {
    case REDUCE:
        s->squares = 0;
        s->reduce = (struct callback){j, item};
        if (item.round == 0)
            for_block(j, item.block, write_gradient);
        exchange_reduce(j->x, item.block, item.round, done, &s->reduce);
        break;
    case SUM:
        run_sum(j, item);
        break;
    case RETURN:
        s->back = (struct callback){j, item};
        if (!j->plan.replicated)
            for_block(j, item.block, write_parameter);
        exchange_return(j->x, item.block, done, &s->back);
        break;
    case FINISH:
        run_finish(j, item.block);
        break;
    }
}

static void *worker(void *arg)
{
    struct job *j = arg;

    for (;;) {
        pthread_mutex_lock(&j->lock);
        while (j->taken == j->n_items && j->chains > 0)
            pthread_cond_wait(&j->changed, &j->lock);
        if (j->taken == j->n_items) {
            pthread_cond_broadcast(&j->changed);
            pthread_mutex_unlock(&j->lock);
            return NULL;
        }
        size_t number = j->taken++;
        struct item item = j->items[number];

        pthread_mutex_unlock(&j->lock);
        uint64_t bits = rng_bits(j->seed, 5, number);

        if (bits % 16 == 0)
            clock_nap_us((long)(bits >> 32) % 300);
        run_item(j, item);
    }
}

/* Fills the list with the step's first calls in an order of this rank's own. */
static void list_items(struct job *j)
{
    size_t n = j->plan.n_blocks;
    bool sums_return = j->plan.replicated && j->returns;

    j->n_items = j->taken = 0;
    j->sent = !j->sends;
    j->chains = (j->reduces ? n : 0) + (j->returns ? n : 0);
    for (size_t i = 0; i < 2 * n; i++) {
        size_t k = rng_permute(j->seed, 1, 2 * n, i);

        /* Where sums return to the gradients, the next ones are written after. */
        if (k < n && j->reduces && !sums_return)
            add_item(j, (struct item){REDUCE, k, 0, 0});
        else if (k >= n && j->returns)
            add_item(j, (struct item){RETURN, k - n, 0, 0});
    }
}

struct agreement {
    double values[3];
    atomic_bool done;
};

static void agreed(void *arg)
{
    atomic_store(&((struct agreement *)arg)->done, true);
}

static void check_agreement(struct job *j, struct agreement *a)
{
    double sum[3] = {0};

    while (!atomic_load(&a->done))
        clock_nap_us(50);
    for (int r = 0; r < j->ranks; r++) {
        sum[0] += r + 1;
        sum[1] += 0.1 * r + 1e-17;
        sum[2] += j->step;
    }
    if (memcmp(sum, a->values, sizeof sum) != 0)
        wrong(j);
}

/* Until a message of this rank has certainly gone, if it has any. */
static void wait_for_reduction(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    while (!j->sent)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

static void check_memory(struct job *j)
{
    for (size_t b = 0; j->returns && !j->plan.replicated && b < j->plan.n_blocks; b++)
        for_block(j, b, check_parameter);
    for (size_t i = 0; i < j->floats; i++)
        if (j->position[i] == SIZE_MAX &&
            (differ(j->grads[i], gap) || differ(j->params[i], gap)))
            wrong(j);
}

/* Memory that others see is written again when all have looked. */
static void wait_for_host(struct job *j)
{
    double nothing = 0;

    if (j->grads_memory.sharing != MEMORY_PRIVATE ||
        j->params_memory.sharing != MEMORY_PRIVATE)
        comm_max(j->comm, &nothing, 1);
}

static void run_step(struct job *j)
{
    pthread_t threads[THREADS];
    struct agreement a = {{j->rank + 1, 0.1 * j->rank + 1e-17, j->step}, false};

    j->seed = rng_bits(17, (uint64_t)j->rank, (uint64_t)j->step);
    j->reduces = j->step < j->setting->steps;
    j->returns = j->step > 0;
    if (j->reduces)
        expect_sums(j);
    exchange_mark(j->x, MARK_STEP_BEGIN);
    if (j->reduces)
        exchange_begin(j->x, PHASE_REDUCE);
    if (j->returns)
        exchange_begin(j->x, PHASE_RETURN);
    list_items(j);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, worker, j);
    if (j->reduces) {
        wait_for_reduction(j);
        exchange_mark(j->x, MARK_BACKWARD_END);
        exchange_agree(j->x, a.values, 3, agreed, &a);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    if (j->reduces)
        check_agreement(j, &a);
    exchange_mark(j->x, MARK_STEP_END);
    wait_for_host(j);
    check_memory(j);
    wait_for_host(j);
}

/* ---- making ---- */

static void must(enum status st)
{
    if (st != ST_OK)
        bug("%s", fail_text());
}

static void *allocate(size_t n, size_t bytes)
{
    void *p;

    must(memory_alloc(n, bytes, "test", &p));
    return p;
}

/* Slices of awkward lengths; in storage layout some adjoin, most do not. */
static void make_plan(struct job *j)
{
    static const size_t sizes[SLICES] = {1, 1, 37, 3, 64, 2, 41, 5, 101};
    static const size_t order[SLICES] = {4, 8, 0, 1, 7, 2, 3, 6, 5};
    const struct setting *s = j->setting;
    struct plan_slice slices[SLICES];
    size_t at = 0;

    for (size_t i = 0; i < SLICES; i++) {
        size_t k = s->storage ? order[i] : i;

        slices[k] =
            (struct plan_slice){PLAN_ALIGN_ELEMS * sizes[k] * s->scale, j->floats};
        j->floats += slices[k].elems;
        if (s->storage && i % 3 != 2)
            j->floats += PLAN_ALIGN_ELEMS;
    }
    j->position = allocate(j->floats, sizeof *j->position);
    for (size_t i = 0; i < j->floats; i++)
        j->position[i] = SIZE_MAX;
    for (size_t k = 0; k < SLICES; k++)
        for (size_t i = 0; i < slices[k].elems; i++)
            j->position[slices[k].memory_offset + i] = at++;
    must(plan_init(&j->plan, slices, SLICES,
                   &(struct plan_options){.strategy = s->strategy,
                                          .grid = &j->grid,
                                          .block_bytes = s->block_bytes,
                                          .roots = s->roots,
                                          .one_block = s->one_block,
                                          .one_root = s->one_root,
                                          .return_first = s->return_first}));
    j->elems = j->plan.elems;
}

static void find_senders(struct job *j)
{
    struct transfers t = {0};

    j->blocks = allocate(j->plan.n_blocks, sizeof *j->blocks);
    for (size_t b = 0; b < j->plan.n_blocks; b++) {
        t.n = 0;
        must(schedule_sends(&j->plan, PHASE_REDUCE, 0, b, j->rank, &t));
        j->blocks[b].sends = t.n > 0;
        j->sends = j->sends || t.n > 0;
    }
    transfers_release(&t);
}

static void make_memory(struct job *j)
{
    bool visible = j->setting->visible;
    bool shared = j->setting->shared && !j->plan.replicated && j->grid.host_ranks > 1;
    size_t bytes = j->floats * sizeof(float);

    must(comm_memory_map(j->comm, bytes, "gradients",
                         visible ? MEMORY_VISIBLE : MEMORY_PRIVATE, &j->grads_memory));
    must(comm_memory_map(j->comm, bytes, "parameters",
                         shared ? MEMORY_ONE_A_HOST : MEMORY_PRIVATE, &j->params_memory));
    j->grads = j->grads_memory.base;
    j->params = j->params_memory.base;
    for (size_t i = 0; i < j->floats; i++)
        j->grads[i] = j->params[i] = gap;
}

static void build_job(struct job *j)
{
    const struct setting *s = j->setting;

    must(grid_init(&j->grid, j->ranks, s->hosts == HOSTS_APART ? NULL : host_numbers,
                   s->schedule));
    make_plan(j);
    make_memory(j);
    for (int k = 0; k < 2; k++) {
        j->sums[k] = allocate(j->elems, sizeof *j->sums[k]);
        j->updated[k] = allocate(j->floats, sizeof *j->updated[k]);
    }
    j->partial = allocate((size_t)j->ranks * j->elems, sizeof *j->partial);
    j->next = allocate((size_t)j->ranks * j->elems, sizeof *j->next);
    find_senders(j);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
}

/* What one step can hold: needs the exchange. */
static void make_items(struct job *j)
{
    size_t most = 2 * j->plan.n_blocks;

    for (int round = 0; round < exchange_rounds(j->x); round++)
        for (size_t b = 0; b < j->plan.n_blocks; b++)
            most += 1 + exchange_sum_tasks(j->x, b, round);
    j->items = allocate(most, sizeof *j->items);
}

static void release_job(struct job *j)
{
    exchange_free(j->x);
    comm_memory_unmap(j->comm, &j->grads_memory);
    comm_memory_unmap(j->comm, &j->params_memory);
    plan_release(&j->plan);
    grid_release(&j->grid);
    free(j->position);
    for (int k = 0; k < 2; k++) {
        free(j->sums[k]);
        free(j->updated[k]);
    }
    free(j->partial);
    free(j->next);
    free(j->blocks);
    free(j->items);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
}

/* ---- figures ---- */

/* A rank's payload in one phase by the collective engine: who owns sends nothing to
 * itself and as many copies as there are others. */
static uint64_t collective_bytes(const struct job *j, enum exchange_phase phase)
{
    uint64_t own = plan_owned_elems(&j->plan, j->rank);
    uint64_t others = (uint64_t)j->ranks - 1;

    if (others == 0)
        return 0;
    if (j->plan.replicated)
        return phase == PHASE_RETURN
                   ? 0
                   : 2 * others * j->elems * sizeof(float) / (uint64_t)j->ranks;
    return sizeof(float) * (phase == PHASE_REDUCE ? j->elems - own : others * own);
}

static uint64_t phase_bytes(struct job *j, const struct exchange_options *o,
                            enum exchange_phase phase)
{
    uint64_t bytes;

    if (j->setting->engine == EXCHANGE_COLLECTIVE)
        return collective_bytes(j, phase);
    bool memory = phase == PHASE_REDUCE ? j->grads_memory.sharing == MEMORY_VISIBLE
                                        : j->params_memory.sharing == MEMORY_ONE_A_HOST;

    must(exchange_wire_bytes(&j->plan, o, memory, phase, j->rank, &bytes));
    return bytes;
}

static void check_figures(struct job *j, const struct exchange_options *o)
{
    struct exchange_stats stats;
    uint64_t steps = (uint64_t)j->setting->steps;
    uint64_t bytes = (steps - 1) * phase_bytes(j, o, PHASE_REDUCE) +
                     steps * phase_bytes(j, o, PHASE_RETURN);
    uint64_t slack = 0;

    exchange_stats_get(j->x, &stats);
    /* Sums at all ranks are counted in whole elements a call. */
    if (j->setting->engine == EXCHANGE_COLLECTIVE && j->plan.replicated)
        slack = sizeof(float) * stats.messages;
    if (stats.bytes_sent > bytes || stats.bytes_sent + slack < bytes)
        wrong(j);
    if (bytes > 0 && !(stats.busy_s > 0 && stats.messages > 0))
        wrong(j);
}

size_t run_setting(struct comm *comm, const struct setting *s, size_t *left_out)
{
    struct job j = {
        .comm = comm, .setting = s, .rank = comm_rank(comm), .ranks = comm_size(comm)};
    struct exchange_options options = {.engine = s->engine,
                                       .wire = s->wire,
                                       .window_bytes = s->window_bytes,
                                       .max_count = s->max_count};

    if ((s->visible || s->shared) && !comm_shares_memory(comm)) {
        ++*left_out;
        return 0;
    }
    require(j.ranks <= (int)(sizeof host_numbers / sizeof host_numbers[0]));
    for (int r = 0; r < j.ranks; r++)
        host_numbers[r] = host_of(s, r, j.ranks);
    current = s;
    build_job(&j);
    mapped = 0;
    must(exchange_new(comm, &j.plan, &j.grads_memory, &j.params_memory, &options, &j.x));
    if (mapped != exchange_scratch_bytes(&j.plan, &options, s->visible, j.rank))
        wrong(&j);
    make_items(&j);
    for (j.step = 0; j.step <= s->steps; j.step++) {
        run_step(&j);
        if (j.step == 0)
            exchange_stats_reset(j.x); /* the first step only reduces */
    }
    check_figures(&j, &options);
    size_t n = atomic_load(&j.wrong);

    release_job(&j);
    current = NULL;
    return n;
}

void describe_setting(const struct setting *s, char *out, size_t bytes)
{
    static const char *const hosts[] = {"apart", "in pairs", "cyclic", "on one host"};

    (void)snprintf(
        out, bytes,
        "%s, %s engine, schedule %d, wire %s, ranks %s%s%s, roots %d%s%s, blocks of %zu "
        "bytes, %s layout, max count %zu, window %zu, tag bound %d, scale %zu",
        strategy_ops(s->strategy)->name,
        s->engine == EXCHANGE_DIRECT ? "direct" : "collective", (int)s->schedule,
        s->wire == WIRE_BF16 ? "bf16" : "fp32", hosts[s->hosts],
        s->visible ? ", gradients visible" : "", s->shared ? ", parameters shared" : "",
        s->roots, s->one_root ? ", one root" : "", s->one_block ? ", one block" : "",
        s->block_bytes, s->storage ? "storage" : "production", s->max_count,
        s->window_bytes, s->tag_bound, s->scale);
}
