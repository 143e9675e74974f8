/* SPDX-License-Identifier: MIT */
/* Rows of one tensor to the owners of its parts and back, for random sets of rows, in all
 * strategies, with and without memory that ranks of a host share. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/comm.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Rows begin and end anywhere in blocks and parts; the tensor is not first in memory. */
enum { ROWS = 131, COLS = 24, LONG = 1600, BEFORE = 48, BEHIND = 16 * 40, STEPS = 3 };
enum { MOST_RANKS = 64 };

static struct comm *comm;
static size_t mapped;
static int host_numbers[MOST_RANKS];
static bool hosts_set;

enum status __real_memory_map(size_t bytes, const char *what, void **out);
enum status __wrap_memory_map(size_t bytes, const char *what, void **out);
const int *__real_comm_host_numbers(const struct comm *c);
const int *__wrap_comm_host_numbers(const struct comm *c);

enum status __wrap_memory_map(size_t bytes, const char *what, void **out)
{
    if (!strcmp(what, "rows of the embedding"))
        mapped += bytes;
    return __real_memory_map(bytes, what, out);
}

const int *__wrap_comm_host_numbers(const struct comm *c)
{
    return hosts_set ? host_numbers : __real_comm_host_numbers(c);
}

struct setting {
    enum strategy strategy;
    size_t block_bytes;
    int roots;
    bool first;   /* in production order; else behind the rest */
    int per_host; /* ranks that share one copy of the parameters; 0: none do */
    size_t cols;
    size_t rarity; /* one row in so many is in a set; 1: all are */
};

struct job {
    const struct setting *setting;
    struct grid grid;
    struct plan plan;
    struct comm_memory grads, params;
    struct exchange *x;
    struct exchange_rows *rows;
    int rank, ranks;
    size_t cols, elems;    /* of the tensor */
    size_t tensor, floats; /* with the gap behind it; all */
    int step;
    int32_t ids[ROWS];
    size_t n;
    size_t wrong;
};

static bool differ(float a, float b)
{
    return memcmp(&a, &b, sizeof a) != 0;
}

/* Some steps leave a rank without rows. */
static bool has_row(const struct job *j, int rank, size_t row)
{
    uint64_t key = (uint64_t)j->step * MOST_RANKS + (uint64_t)rank;

    if (j->setting->rarity == 1)
        return true;
    return (rank + j->step) % 4 != 3 && rng_bits(1, key, row) % j->setting->rarity == 0;
}

static float number(const struct job *j, int what, int rank, size_t i)
{
    uint64_t bits = rng_bits((uint64_t)(what + 10 * j->step), (uint64_t)rank, i);

    return ldexpf((float)(int32_t)(uint32_t)bits, -31 - (int)(bits >> 60));
}

enum { DENSE, ROW, PARAMETER };

/* ---- making ---- */

static void must(enum status st)
{
    if (st != ST_OK)
        bug("%s", fail_text());
}

static size_t tensor_begin(const struct setting *s)
{
    return s->first ? 0 : BEFORE + BEHIND;
}

static void make_plan(struct job *j)
{
    const struct setting *s = j->setting;
    const struct plan_slice tensor = {j->tensor, BEFORE};
    const struct plan_slice before = {BEFORE, 0}, behind = {BEHIND, BEFORE + j->tensor};
    const struct plan_slice slices[] = {s->first ? tensor : before,
                                        s->first ? before : behind,
                                        s->first ? behind : tensor};
    struct plan_options o = {.strategy = s->strategy,
                             .grid = &j->grid,
                             .roots = s->roots,
                             .block_bytes = s->block_bytes};

    for (int r = 0; r < j->ranks; r++)
        host_numbers[r] = s->per_host > 0 ? r / s->per_host : r;
    hosts_set = s->per_host > 0;
    must(grid_init(&j->grid, j->ranks, hosts_set ? host_numbers : NULL,
                   SCHEDULE_RECURSIVE));
    must(plan_init(&j->plan, slices, 3, &o));
}

static void make_job(struct job *j)
{
    bool shared = j->grid.host_ranks > 1 && !j->plan.replicated;
    const struct exchange_options exchange = {.engine = EXCHANGE_DIRECT};
    const struct rows_options o = {.begin = tensor_begin(j->setting),
                                   .memory_offset = BEFORE,
                                   .rows = ROWS,
                                   .cols = j->cols,
                                   .most = ROWS,
                                   .fetches = !j->plan.replicated};

    must(comm_memory_map(comm, j->floats * sizeof(float), "gradients", MEMORY_PRIVATE,
                         &j->grads));
    must(comm_memory_map(comm, j->floats * sizeof(float), "parameters",
                         shared ? MEMORY_ONE_A_HOST : MEMORY_PRIVATE, &j->params));
    must(exchange_new(comm, &j->plan, &j->grads, &j->params, &exchange, &j->x));
    mapped = 0;
    must(exchange_rows_new(j->x, &o, &j->rows));
    j->wrong += mapped != exchange_rows_bytes(&j->plan, &o, j->rank);
}

static void release_job(struct job *j)
{
    exchange_rows_free(j->rows);
    exchange_free(j->x);
    comm_memory_unmap(comm, &j->grads);
    comm_memory_unmap(comm, &j->params);
    plan_release(&j->plan);
    grid_release(&j->grid);
    hosts_set = false;
}

/* ---- a step ---- */

static void set_done(void *arg)
{
    atomic_store((atomic_bool *)arg, true);
}

static void wait_until(atomic_bool *done)
{
    while (!atomic_load(done))
        clock_nap_us(20);
}

static void wait_for_all(void)
{
    double nothing = 0;

    comm_max(comm, &nothing, 1);
}

/* The owner of element i of the tensor. */
static int owner_of(const struct job *j, size_t i)
{
    size_t at = tensor_begin(j->setting) + i;
    size_t b = 0;

    while (at >= j->plan.blocks[b].begin + j->plan.blocks[b].elems)
        b++;
    const struct plan_part *part = &j->plan.parts[j->plan.blocks[b].first_part];

    at -= j->plan.blocks[b].begin;
    while (at >= part->at + part->elems)
        part++;
    return part->owner;
}

static void tell(struct job *j)
{
    atomic_bool done = false;

    j->n = 0;
    for (size_t row = 0; row < ROWS; row++)
        if (has_row(j, j->rank, row))
            j->ids[j->n++] = (int32_t)row;
    exchange_rows_tell(j->rows, j->ids, j->n, set_done, &done);
    wait_until(&done);
    exchange_rows_place(j->rows);
}

static bool on_host(const struct job *j, int rank)
{
    return j->params.sharing == MEMORY_ONE_A_HOST &&
           host_numbers[rank] == host_numbers[j->rank];
}

/* A rank of this host told of the row: then it is in the memory they share. */
static bool is_there(const struct job *j, size_t row)
{
    for (int r = 0; r < j->ranks; r++)
        if ((r == j->rank || on_host(j, r)) && has_row(j, r, row))
            return true;
    return false;
}

static void fetch(struct job *j)
{
    float *params = (float *)j->params.base + BEFORE;
    atomic_bool done = false;

    wait_for_all();
    for (size_t i = 0; i < j->elems; i++) {
        int owner = owner_of(j, i);

        if (owner == j->rank)
            params[i] = number(j, PARAMETER, 0, i);
        else if (!on_host(j, owner))
            params[i] = NAN;
    }
    wait_for_all(); /* the ranks of a host have spoilt what they share */
    exchange_rows_fetch(j->rows, set_done, &done);
    wait_until(&done);
    exchange_rows_put(j->rows);
    for (size_t k = 0; k < j->n; k++)
        for (size_t c = 0; c < j->cols; c++) {
            size_t i = (size_t)j->ids[k] * j->cols + c;

            j->wrong += differ(params[i], number(j, PARAMETER, 0, i));
        }
    wait_for_all();
    for (size_t i = 0; i < j->elems; i++)
        if (!is_there(j, i / j->cols) && owner_of(j, i) != j->rank &&
            !on_host(j, owner_of(j, i)))
            j->wrong += isnan(params[i]) ? 0 : 1;
}

static void check_sums(struct job *j)
{
    const float *grads = j->grads.base;

    for (size_t i = 0; i < j->floats; i++) {
        bool inside = i >= BEFORE && i < BEFORE + j->elems;
        size_t at = inside ? i - BEFORE : 0;
        float sum = number(j, DENSE, j->rank, i);

        for (int r = 0; inside && r < j->ranks; r++)
            if (owner_of(j, at) == j->rank && has_row(j, r, at / j->cols))
                sum += number(j, ROW, r, at);
        j->wrong += differ(grads[i], sum);
    }
}

/* What stands at the owners gets the rows of all, in rank order; nothing else changes. */
static void reduce(struct job *j)
{
    static float gradients[ROWS * LONG];
    float *grads = j->grads.base;
    atomic_bool done = false;

    for (size_t i = 0; i < j->floats; i++)
        grads[i] = number(j, DENSE, j->rank, i);
    for (size_t k = 0; k < j->n; k++)
        for (size_t c = 0; c < j->cols; c++)
            gradients[k * j->cols + c] =
                number(j, ROW, j->rank, (size_t)j->ids[k] * j->cols + c);
    exchange_rows_reduce(j->rows, gradients, set_done, &done);
    wait_until(&done);
    for (size_t b = 0; b < j->plan.n_blocks; b++) {
        double squares = exchange_rows_add(j->rows, b);

        j->wrong += fabs(squares - exchange_squares(j->x, b)) > 0;
    }
    check_sums(j);
}

static void run(const struct setting *s)
{
    static struct job j;

    j = (struct job){.setting = s, .rank = comm_rank(comm), .ranks = comm_size(comm)};
    j.cols = s->cols;
    j.elems = ROWS * s->cols;
    j.tensor = round_up(j.elems, PLAN_ALIGN_ELEMS) + PLAN_ALIGN_ELEMS;
    j.floats = BEFORE + j.tensor + BEHIND;
    make_plan(&j);
    make_job(&j);
    for (j.step = 0; j.step < STEPS; j.step++) {
        tell(&j);
        if (!j.plan.replicated)
            fetch(&j);
        reduce(&j);
    }
    double wrong = (double)j.wrong;

    release_job(&j);
    comm_sum(comm, &wrong, 1);
    if (wrong > 0)
        print_error("%s, blocks of %zu bytes, %d roots, %s, %d ranks a host, one row in "
                    "%zu of %zu: %.0f wrong values over all ranks\n",
                    strategy_ops(s->strategy)->name, s->block_bytes, s->roots,
                    s->first ? "first" : "last", s->per_host, s->rarity, s->cols, wrong);
    assert_true(wrong == 0);
}

static void rows_reach_their_owners(void **state)
{
    static const size_t blocks[] = {64, 1000, 5000, (size_t)1 << 20};
    static const size_t rarities[] = {1, 2, 7, 70};

    (void)state;
    if (comm_size(comm) == 1)
        skip();
    for (size_t k = 0; k < 32; k++) {
        struct setting s = {.strategy = (enum strategy)(k % 4 + 1),
                            .block_bytes = blocks[k / 4 % 4],
                            .roots = k % 8 == 1 ? comm_size(comm) : 1,
                            .first = k / 4 % 2 == 0,
                            .per_host = (int)(k / 8) % 3,
                            .cols = COLS,
                            .rarity = rarities[(k + k / 4) % 4]};

        if (s.per_host == 1)
            s.per_host = comm_size(comm);
        if (!comm_shares_memory(comm))
            s.per_host = 0;
        run(&s);
    }
}

/* Many messages to one rank; in the second case as many as there may be. */
static void rows_may_be_long(void **state)
{
    (void)state;
    if (comm_size(comm) == 1)
        skip();
    for (int k = 0; k < 4; k++)
        run(&(struct setting){.strategy =
                                  k % 2 ? STRATEGY_CENTRAL : STRATEGY_REDUCE_SCATTER,
                              .block_bytes = (size_t)1 << 20,
                              .first = k < 2,
                              .cols = LONG,
                              .rarity = k < 2 ? 1 : 2});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_reach_their_owners),
        cmocka_unit_test(rows_may_be_long),
    };

    if (comm_start(&comm) != ST_OK) {
        fprintf(stderr, "%s\n", fail_text());
        return status_exit_code(ST_USAGE);
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    if (failed)
        comm_abort(comm, 1);
    comm_stop(comm);
    return 0;
}
