/* SPDX-License-Identifier: MIT */
/* What an engine takes under each strategy is what its plan says, to the byte; and the
 * optimizer's state is in equal shares where it is shared. Mappings are counted where
 * they are asked for. */
#include "engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/memory.h"
#include "kernels/kernels.h"

#undef fail /* this program's fail(), not cmocka's */

static struct comm *comm;

static const char *const purposes[] = {
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "work of the workers",
    "gradients of other ranks",
    "rows of the embedding",
    "gradients of embedding rows",
};
enum purpose {
    PARAMS,
    GRADS,
    MOMENTS,
    ACTIVATIONS,
    ATTENTION,
    OTHERS,
    ROWS,
    ROW_GRADS,
    N_PURPOSES
};
static size_t taken[N_PURPOSES];

static void count(const char *what, size_t bytes)
{
    for (int i = 0; i < N_PURPOSES; i++)
        if (!strcmp(what, purposes[i]))
            taken[i] += bytes;
}

enum status __real_memory_map(size_t bytes, const char *what, void **out);
enum status __wrap_memory_map(size_t bytes, const char *what, void **out);
enum status __real_arena_init(struct arena *a, size_t bytes, const char *what);
enum status __wrap_arena_init(struct arena *a, size_t bytes, const char *what);

enum status __wrap_memory_map(size_t bytes, const char *what, void **out)
{
    count(what, bytes);
    return __real_memory_map(bytes, what, out);
}

enum status __wrap_arena_init(struct arena *a, size_t bytes, const char *what)
{
    count(what, bytes);
    return __real_arena_init(a, bytes, what);
}

static struct engine_options options_of(enum strategy strategy, bool host_memory)
{
    struct engine_options o = {.shape = {2, 4, 256, 64, 97, 128},
                               .batch = 2,
                               .seq = 64,
                               .accum = 2,
                               .workers = 1,
                               .train = true,
                               .strategy = strategy,
                               .block_bytes = (size_t)1 << 18,
                               .split_embedding = true,
                               .host_memory = host_memory,
                               .overlap = true};

    assert_int_equal(kernels_select(NULL, &o.kernels), ST_OK);
    return o;
}

static struct engine_plan plan_of(const struct engine_options *o)
{
    const int *hosts = comm_shares_memory(comm) ? comm_host_numbers(comm) : NULL;
    struct engine_plan p;

    assert_int_equal(engine_make_plan(o, comm_rank(comm), comm_size(comm), hosts, &p),
                     ST_OK);
    return p;
}

/* Gradients and parameters that ranks share are no mappings of one rank. */
static void compare(const struct engine_plan *p, bool host_memory)
{
    enum { SLACK = 4 * CACHE_LINE };

    assert_int_equal(taken[MOMENTS], p->moments);
    assert_int_equal(taken[ATTENTION] + taken[OTHERS] + taken[ROWS] + taken[ROW_GRADS],
                     p->scratch);
    assert_true(taken[ACTIVATIONS] >= p->activations &&
                taken[ACTIVATIONS] <= p->activations + SLACK);
    if (host_memory && comm_shares_memory(comm))
        return;
    assert_int_equal(taken[PARAMS], p->params);
    assert_int_equal(taken[GRADS], p->grads);
}

static void check_shares(enum strategy strategy, double whole)
{
    double mine = (double)taken[MOMENTS];
    double share = whole / comm_size(comm);
    double sum = mine;

    comm_sum(comm, &sum, 1);
    if (comm_rank(comm) == 0)
        print_message("%s: %.0f bytes of state on rank 0, an equal share is %.0f\n",
                      strategy_ops(strategy)->name, mine, share);
    if (strategy == STRATEGY_ALLREDUCE)
        assert_true(mine == whole);
    else
        assert_true(sum == whole);
    if (strategy == STRATEGY_CENTRAL)
        assert_true(mine == (comm_rank(comm) == 0 ? whole : 0));
    if (strategy == STRATEGY_REDUCE_BROADCAST || strategy == STRATEGY_REDUCE_SCATTER)
        assert_true(fabs(mine - share) <= 0.01 * share);
}

static void take(enum strategy strategy, bool host_memory)
{
    struct engine_options o = options_of(strategy, host_memory);
    struct engine_plan plan = plan_of(&o);
    struct engine *e;

    memset(taken, 0, sizeof taken);
    assert_int_equal(engine_new(comm, &o, &e), ST_OK);
    compare(&plan, host_memory);
    check_shares(strategy, 2.0 * (double)engine_layout(e)->elems * sizeof(float));
    engine_free(e);
}

static void what_is_taken_is_what_the_plan_says(void **state)
{
    (void)state;
    for (int s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++) {
        take((enum strategy)s, true);
        take((enum strategy)s, false);
    }
}

/* The same for models and jobs that no test can afford: plans only. */
static void the_state_of_large_jobs_is_in_equal_shares(void **state)
{
    static const int ranks[] = {2, 3, 7, 8, 16, 60, 64, 128};
    static const char *const models[] = {"gpt2", "gpt2-medium"};

    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
            for (int s = STRATEGY_REDUCE_BROADCAST; s <= STRATEGY_REDUCE_SCATTER; s++) {
                struct engine_options o = options_of((enum strategy)s, false);
                struct engine_plan p;

                o.block_bytes = 0;
                assert_int_equal(shape_parse(models[m], 0, &o.shape), ST_OK);
                o.seq = 64;
                assert_int_equal(engine_make_plan(&o, ranks[i] / 2, ranks[i], NULL, &p),
                                 ST_OK);
                double share = 2.0 * (double)p.grads / ranks[i];

                assert_true(fabs((double)p.moments - share) <= 0.01 * share);
                assert_true(p.imbalance <= 1.01);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_is_what_the_plan_says),
        cmocka_unit_test(the_state_of_large_jobs_is_in_equal_shares),
    };

    if (comm_start(&comm) != ST_OK) {
        fprintf(stderr, "refused: %s\n", fail_text());
        return 1;
    }
    if (cmocka_run_group_tests(tests, NULL, NULL) != 0)
        comm_abort(comm, 1);
    comm_stop(comm);
    return 0;
}
