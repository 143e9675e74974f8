/* SPDX-License-Identifier: MIT */
/* Rounds of reductions and broadcasts as a training run makes them: the broadcasts of one
 * step beside the reductions of the next, called by several threads in an order of each
 * rank's own, with random delays. Every sum is compared bit for bit with the sum in rank
 * order, every parameter with the root's.
 *
 * With the argument "logged" a single case runs with the marks of a step, for
 * pmpi_check.py. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/comm.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SLICES = 9, THREADS = 3 };

static struct comm *comm;

/* Every mapping passes through here; `mapped` counts those of scratch. */
static size_t mapped;

enum status __real_memory_map(size_t bytes, const char *what, void **out);
enum status __wrap_memory_map(size_t bytes, const char *what, void **out);

enum status __wrap_memory_map(size_t bytes, const char *what, void **out)
{
    if (!strcmp(what, "gradients of other ranks"))
        mapped += bytes;
    return __real_memory_map(bytes, what, out);
}

struct setting {
    const char *name;
    enum exchange_engine engine;
    size_t block_bytes;
    bool one_block;
    bool storage; /* pieces apart in memory, in another order */
    bool reals;   /* values whose sum depends on the order */
    size_t max_count;
    size_t window_bytes;
    size_t scale; /* of the slices' sizes */
    int rounds;
};

enum kind { REDUCE, SUM, BROADCAST };

struct item {
    enum kind kind;
    size_t block;
};

struct job;

struct callback {
    struct job *job;
    struct item item;
};

/* One rank's memory and the work of one round. */
struct job {
    const struct setting *setting;
    struct plan plan;
    size_t *position; /* production position of each float in memory; SIZE_MAX: a gap */
    size_t floats;
    float *grads, *params;
    float *updated[2]; /* by the root, from this round's sums and from those before */
    struct exchange *x;
    struct callback *callbacks[2];
    int round;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct item *items;
    size_t n_items, taken, expected; /* under lock */
    size_t done, expected_done;      /* under lock */
    size_t reduced;                  /* under lock; blocks with another root */
    uint64_t seed;
    atomic_size_t wrong;
};

static int rank(void)
{
    return comm_rank(comm);
}

static int root_of(const struct plan *p, size_t b)
{
    return p->parts[p->blocks[b].first_part].owner;
}

static enum status make_plan(struct plan *p, const struct plan_slice *slices, size_t n,
                             size_t block_bytes, bool one_block)
{
    struct grid grid;
    enum status st;

    assert_int_equal(grid_init(&grid, comm_size(comm), NULL, SCHEDULE_FLAT), ST_OK);
    st = plan_init(p, slices, n,
                   &(struct plan_options){.strategy = STRATEGY_REDUCE_BROADCAST,
                                          .grid = &grid,
                                          .block_bytes = block_bytes,
                                          .one_block = one_block});
    grid_release(&grid);
    return st;
}

static float contribution(const struct setting *s, int r, size_t at, int round)
{
    if (s->reals)
        return (float)rng_normal((uint64_t)round, (uint64_t)r, at);
    return (float)((at * 7 + (size_t)r * 13 + (size_t)round * 5) % 17) - 8;
}

static float expected_sum(const struct setting *s, size_t at, int round)
{
    float sum = contribution(s, 0, at, round);

    for (int r = 1; r < comm_size(comm); r++)
        sum += contribution(s, r, at, round);
    return sum;
}

static float expected_parameter(const struct setting *s, size_t at, int round)
{
    return 0.5f * expected_sum(s, at, round) + (float)round;
}

static bool differ(float a, float b)
{
    return memcmp(&a, &b, sizeof a) != 0;
}

/* Calls use(job, memory index, production position) for each element of a block. */
static void for_block(struct job *j, size_t b, void (*use)(struct job *, size_t, size_t))
{
    const struct plan_block *block = &j->plan.blocks[b];

    for (size_t p = 0; p < block->n_pieces; p++) {
        const struct plan_piece *piece = &j->plan.pieces[block->first_piece + p];

        for (size_t i = piece->offset; i < piece->offset + piece->elems; i++)
            use(j, i, j->position[i]);
    }
}

static void write_gradient(struct job *j, size_t i, size_t at)
{
    j->grads[i] = contribution(j->setting, rank(), at, j->round);
}

static void check_gradient(struct job *j, size_t i, size_t at)
{
    if (differ(j->grads[i], contribution(j->setting, rank(), at, j->round)))
        atomic_fetch_add(&j->wrong, 1);
}

static void check_sum(struct job *j, size_t i, size_t at)
{
    if (differ(j->grads[i], expected_sum(j->setting, at, j->round)))
        atomic_fetch_add(&j->wrong, 1);
    j->updated[j->round % 2][i] = 0.5f * j->grads[i] + (float)j->round;
}

static void spoil_parameter(struct job *j, size_t i, size_t at)
{
    (void)at;
    j->params[i] = NAN;
}

static void set_parameter(struct job *j, size_t i, size_t at)
{
    (void)at;
    j->params[i] = j->updated[(j->round + 1) % 2][i];
}

/* Parameters of this round come from the sums of the round before. */
static void check_parameter(struct job *j, size_t i, size_t at)
{
    if (differ(j->params[i], expected_parameter(j->setting, at, j->round - 1)))
        atomic_fetch_add(&j->wrong, 1);
}

static void add_item(struct job *j, struct item item)
{
    j->items[j->n_items++] = item;
}

static void done(void *arg)
{
    struct callback *c = arg;
    struct job *j = c->job;

    pthread_mutex_lock(&j->lock);
    j->done++;
    if (c->item.kind == REDUCE && root_of(&j->plan, c->item.block) == rank())
        add_item(j, (struct item){SUM, c->item.block});
    else
        j->reduced += c->item.kind == REDUCE;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static void sum_block(struct job *j, size_t b)
{
    double squares = 0;
    double exact = 0;

    for (size_t i = 0; i < exchange_sum_tasks(j->x, b, 0); i++)
        squares += exchange_sum(j->x, b, 0, i);
    for_block(j, b, check_sum);
    const struct plan_block *block = &j->plan.blocks[b];

    for (size_t at = block->begin; at < block->begin + block->elems; at++)
        exact += pow((double)expected_sum(j->setting, at, j->round), 2);
    if (fabs(squares - exact) > (j->setting->reals ? 1e-12 * exact : 0))
        atomic_fetch_add(&j->wrong, 1);
}

static void run_item(struct job *j, struct item item)
{
    struct callback *c = &j->callbacks[item.kind == BROADCAST][item.block];

    switch (item.kind) {
    case REDUCE:
        for_block(j, item.block, write_gradient);
        exchange_reduce(j->x, item.block, 0, done, c);
        break;
    case SUM:
        sum_block(j, item.block);
        break;
    case BROADCAST:
        for_block(j, item.block,
                  root_of(&j->plan, item.block) == rank() ? set_parameter
                                                          : spoil_parameter);
        exchange_return(j->x, item.block, done, c);
        break;
    }
}

static void *worker(void *arg)
{
    struct job *j = arg;

    for (;;) {
        pthread_mutex_lock(&j->lock);
        while (j->taken == j->n_items && j->taken < j->expected)
            pthread_cond_wait(&j->changed, &j->lock);
        if (j->taken == j->expected) {
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

/* Until this rank has certainly sent something, if it has anything to send. */
static void wait_for_reduction(struct job *j)
{
    bool sends = plan_owned_elems(&j->plan, rank()) < j->plan.elems;

    pthread_mutex_lock(&j->lock);
    while (sends && j->reduced == 0)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
}

/* Fills the list with the round's calls in an order of this rank's own. */
static void list_items(struct job *j, bool reduce, bool broadcast)
{
    size_t n = j->plan.n_blocks;
    size_t own = 0;

    j->n_items = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        size_t k = rng_permute(j->seed, 1, 2 * n, i);

        if (k < n && reduce) {
            add_item(j, (struct item){REDUCE, k});
            own += root_of(&j->plan, k) == rank();
        } else if (k >= n && broadcast) {
            add_item(j, (struct item){BROADCAST, k - n});
        }
    }
    j->taken = 0;
    j->done = 0;
    j->reduced = 0;
    j->expected_done = j->n_items;
    j->expected = j->n_items + own;
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
    for (int r = 0; r < comm_size(comm); r++) {
        sum[0] += r + 1;
        sum[1] += 0.1 * r + 1e-17;
        sum[2] += j->round;
    }
    if (memcmp(sum, a->values, sizeof sum) != 0)
        atomic_fetch_add(&j->wrong, 1);
}

static void run_round(struct job *j, bool reduce, bool broadcast)
{
    pthread_t threads[THREADS];
    struct agreement a = {{rank() + 1, 0.1 * rank() + 1e-17, j->round}, false};

    j->seed = rng_bits(17, (uint64_t)rank(), (uint64_t)j->round);
    exchange_mark(j->x, MARK_STEP_BEGIN);
    if (reduce)
        exchange_begin(j->x, PHASE_REDUCE);
    if (broadcast)
        exchange_begin(j->x, PHASE_RETURN);
    list_items(j, reduce, broadcast);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, worker, j);
    if (reduce) {
        wait_for_reduction(j);
        exchange_mark(j->x, MARK_BACKWARD_END);
        exchange_agree(j->x, a.values, 3, agreed, &a);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_mutex_lock(&j->lock);
    while (j->done < j->expected_done)
        pthread_cond_wait(&j->changed, &j->lock);
    pthread_mutex_unlock(&j->lock);
    if (reduce)
        check_agreement(j, &a);
    exchange_mark(j->x, MARK_STEP_END);
    for (size_t b = 0; b < j->plan.n_blocks; b++) {
        if (reduce && root_of(&j->plan, b) != rank())
            for_block(j, b, check_gradient);
        if (broadcast)
            for_block(j, b, check_parameter);
    }
    for (size_t i = 0; i < j->floats; i++)
        if (j->position[i] == SIZE_MAX && (j->grads[i] != -77 || j->params[i] != -77))
            atomic_fetch_add(&j->wrong, 1);
}

/* Slices of awkward lengths; in storage layout some adjoin, most do not. */
static void build_job(struct job *j)
{
    static const size_t sizes[SLICES] = {1, 1, 37, 3, 64, 2, 41, 5, 101};
    static const size_t order[SLICES] = {4, 8, 0, 1, 7, 2, 3, 6, 5};
    const struct setting *s = j->setting;
    struct plan_slice slices[SLICES];
    size_t offset = 0;
    size_t at = 0;

    for (size_t i = 0; i < SLICES; i++) {
        size_t k = s->storage ? order[i] : i;

        slices[k] = (struct plan_slice){PLAN_ALIGN_ELEMS * sizes[k] * s->scale, offset};
        offset += slices[k].elems;
        if (s->storage && i % 3 != 2)
            offset += PLAN_ALIGN_ELEMS;
    }
    j->floats = offset;
    j->position = malloc(offset * sizeof *j->position);
    j->grads = malloc(offset * sizeof *j->grads);
    j->params = malloc(offset * sizeof *j->params);
    for (int k = 0; k < 2; k++)
        j->updated[k] = malloc(offset * sizeof *j->updated[k]);
    for (size_t i = 0; i < offset; i++) {
        j->position[i] = SIZE_MAX;
        j->grads[i] = j->params[i] = -77;
    }
    for (size_t k = 0; k < SLICES; k++)
        for (size_t i = 0; i < slices[k].elems; i++)
            j->position[slices[k].memory_offset + i] = at++;
    assert_int_equal(make_plan(&j->plan, slices, SLICES, s->block_bytes, s->one_block),
                     ST_OK);
    size_t n = j->plan.n_blocks;

    j->items = malloc((3 * n + 1) * sizeof *j->items);
    for (int k = 0; k < 2; k++) {
        j->callbacks[k] = malloc((n + 1) * sizeof **j->callbacks);
        for (size_t b = 0; b < n; b++)
            j->callbacks[k][b] = (struct callback){j, {k == 0 ? REDUCE : BROADCAST, b}};
    }
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->changed, NULL);
}

static void release_job(struct job *j)
{
    plan_release(&j->plan);
    free(j->position);
    free(j->grads);
    free(j->params);
    free(j->updated[0]);
    free(j->updated[1]);
    free(j->items);
    free(j->callbacks[0]);
    free(j->callbacks[1]);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
}

/* Every rank's payload in one round, from the plan alone. */
static uint64_t expected_bytes(const struct job *j)
{
    uint64_t own = plan_owned_elems(&j->plan, rank());
    uint64_t peers = (uint64_t)comm_size(comm) - 1;

    return sizeof(float) * (peers ? j->plan.elems - own + peers * own : 0);
}

static size_t run_setting(const struct setting *s)
{
    struct job j = {.setting = s};
    struct exchange_options options = {
        .engine = s->engine, .window_bytes = s->window_bytes, .max_count = s->max_count};
    struct comm_memory grads, params;
    struct exchange_stats stats;

    build_job(&j);
    mapped = 0;
    grads = (struct comm_memory){.base = j.grads, .bytes = j.floats * sizeof(float)};
    params = (struct comm_memory){.base = j.params, .bytes = j.floats * sizeof(float)};
    if (exchange_new(comm, &j.plan, &grads, &params, &options, &j.x) != ST_OK) {
        release_job(&j);
        return 1;
    }
    if (mapped != exchange_scratch_bytes(&j.plan, &options, false, rank()))
        atomic_fetch_add(&j.wrong, 1);
    for (j.round = 0; j.round <= s->rounds; j.round++) {
        run_round(&j, j.round<s->rounds, j.round> 0);
        if (j.round == 0)
            exchange_stats_reset(j.x);
    }
    exchange_stats_get(j.x, &stats);
    /* The first round only reduced and was not counted, the last only broadcast. */
    uint64_t bytes = (uint64_t)(s->rounds - 1) * expected_bytes(&j) +
                     sizeof(float) * plan_owned_elems(&j.plan, rank()) *
                         ((uint64_t)comm_size(comm) - 1);

    if (stats.bytes_sent != bytes || (bytes > 0 && !(stats.busy_s > 0)))
        atomic_fetch_add(&j.wrong, 1);
    size_t wrong = atomic_load(&j.wrong);

    exchange_free(j.x);
    release_job(&j);
    return wrong;
}

static void run_all(const struct setting *settings, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double wrong = (double)run_setting(&settings[i]);

        /* Ranks go on or stop together. */
        comm_sum(comm, &wrong, 1);
        if (wrong > 0)
            print_error("%s: %.0f wrong values over all ranks\n", settings[i].name,
                        wrong);
        assert_true(wrong == 0);
    }
}

static void direct_engine_sums_in_rank_order(void **state)
{
    static const struct setting settings[] = {
        {.name = "smallest blocks",
         .block_bytes = 64,
         .reals = true,
         .scale = 1,
         .rounds = 2},
        {.name = "storage",
         .block_bytes = 1000,
         .storage = true,
         .reals = true,
         .scale = 3,
         .rounds = 4},
        {.name = "usual", .block_bytes = 65536, .reals = true, .scale = 40, .rounds = 4},
        {.name = "whole numbers", .block_bytes = 16384, .scale = 10, .rounds = 3},
        {.name = "one block a rank",
         .block_bytes = SIZE_MAX,
         .storage = true,
         .reals = true,
         .scale = 7,
         .rounds = 3},
        {.name = "one block", .one_block = true, .reals = true, .scale = 40, .rounds = 3},
        {.name = "narrow window",
         .block_bytes = 4096,
         .storage = true,
         .reals = true,
         .window_bytes = 64,
         .scale = 5,
         .rounds = 4},
        {.name = "low count limit",
         .block_bytes = 30000,
         .reals = true,
         .max_count = 1000,
         .scale = 10,
         .rounds = 3},
    };

    (void)state;
    run_all(settings, sizeof settings / sizeof settings[0]);
}

static void collective_engine_sums(void **state)
{
    static const struct setting settings[] = {
        {.name = "smallest blocks", .block_bytes = 64, .scale = 1, .rounds = 2},
        {.name = "storage",
         .block_bytes = 1000,
         .storage = true,
         .scale = 3,
         .rounds = 4},
        {.name = "usual", .block_bytes = 65536, .scale = 40, .rounds = 4},
        {.name = "one block",
         .one_block = true,
         .storage = true,
         .scale = 40,
         .rounds = 3},
        {.name = "narrow window",
         .block_bytes = 4096,
         .window_bytes = 64,
         .scale = 5,
         .rounds = 3},
        {.name = "low count limit",
         .block_bytes = 30000,
         .max_count = 1000,
         .scale = 10,
         .rounds = 3},
    };
    struct setting changed[sizeof settings / sizeof settings[0]];

    (void)state;
    memcpy(changed, settings, sizeof changed);
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        changed[i].engine = EXCHANGE_COLLECTIVE;
    run_all(changed, sizeof settings / sizeof settings[0]);
}

static void logged_steps(void **state)
{
    static const struct setting settings[] = {
        {.name = "direct", .block_bytes = 8000, .storage = true, .scale = 4, .rounds = 4},
        {.name = "collective",
         .engine = EXCHANGE_COLLECTIVE,
         .block_bytes = 8000,
         .scale = 4,
         .rounds = 4},
    };

    (void)state;
    run_all(settings, 2);
}

/* A round that was opened and never used leaves nothing behind. */
static void an_unused_round_can_be_freed(void **state)
{
    const struct plan_slice slice = {16 * 99, 0};
    struct exchange_options options = {.engine = EXCHANGE_DIRECT};
    static float floats[16 * 99];
    const struct comm_memory memory = {.base = floats, .bytes = sizeof floats};
    struct exchange *x;
    struct plan plan;

    (void)state;
    assert_int_equal(make_plan(&plan, &slice, 1, 640, false), ST_OK);
    assert_int_equal(exchange_new(comm, &plan, &memory, &memory, &options, &x), ST_OK);
    exchange_begin(x, PHASE_REDUCE);
    exchange_free(x);
    plan_release(&plan);
}

static void different_plans_are_refused(void **state)
{
    const struct plan_slice slice = {16 * 99, 0};
    struct exchange_options options = {.engine = EXCHANGE_DIRECT};
    static float floats[16 * 99];
    const struct comm_memory memory = {.base = floats, .bytes = sizeof floats};
    struct exchange *x;
    struct plan plan;
    size_t block_bytes = rank() == comm_size(comm) - 1 ? 64 : 128;

    (void)state;
    if (comm_size(comm) == 1)
        skip();
    assert_int_equal(make_plan(&plan, &slice, 1, block_bytes, false), ST_OK);
    assert_int_equal(exchange_new(comm, &plan, &memory, &memory, &options, &x), ST_BUG);
    assert_null(x);
    char text[32];

    snprintf(text, sizeof text, "rank %d", comm_size(comm) - 1);
    assert_non_null(strstr(fail_text(), text));
    plan_release(&plan);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(direct_engine_sums_in_rank_order),
        cmocka_unit_test(collective_engine_sums),
        cmocka_unit_test(an_unused_round_can_be_freed),
        cmocka_unit_test(different_plans_are_refused),
    };
    const struct CMUnitTest logged[] = {cmocka_unit_test(logged_steps)};

    if (comm_start(&comm) != ST_OK) {
        fprintf(stderr, "%s\n", fail_text());
        return status_exit_code(ST_USAGE);
    }
    int failed = argc > 1 && !strcmp(argv[1], "logged")
                     ? cmocka_run_group_tests(logged, NULL, NULL)
                     : cmocka_run_group_tests(all, NULL, NULL);

    if (failed)
        comm_abort(comm, 1);
    comm_stop(comm);
    return 0;
}
