/* SPDX-License-Identifier: MIT */
/* The measurements of `weft bench update`.
 *
 * Engines are made anew for each visit: all of them together would not fit. A visit warms
 * up, in the first round is checked, and times its steps. Rounds go through the setups
 * forwards and backwards in turn, so that a machine that slows down slows all alike. */
#include "cmd/bench_update.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/rng.h"
#include "comm/comm_bench.h"
#include "comm/schedule.h"
#include "task/task.h"

enum { SEED = 1, TOKEN_STREAM = 77 };

static const double learning_rate = 1e-4;

struct engine_options update_engine_options(const struct update_bench *b,
                                            const struct update_setup *s)
{
    return (struct engine_options){
        .shape = b->shape,
        .batch = b->batch,
        .seq = b->seq,
        .accum = b->accum,
        .workers = b->workers,
        .train = true,
        .layout = s->layout,
        .strategy = s->strategy,
        .schedule = s->schedule,
        .block_bytes = s->block_bytes,
        .one_block = s->one_block,
        .roots = s->roots,
        .one_root = s->one_root,
        .exchange = s->engine,
        .wire = s->wire,
        .host_memory = s->host_memory,
        .split_embedding = s->split_embedding,
        .overlap = s->overlap,
        .compute_s = b->compute_s,
        .adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1},
        .clip = 1,
        .kernels = b->kernels};
}

/* Random tokens, others on each rank and in each micro-batch. */
static void fill_tokens(const struct update_bench *b, struct engine *e)
{
    size_t n = b->batch * b->seq;

    for (size_t a = 0; a < b->accum; a++) {
        uint64_t stream = TOKEN_STREAM + (uint64_t)comm_rank(b->comm) * b->accum + a;

        for (size_t i = 0; i < n; i++) {
            engine_inputs(e, a)[i] =
                (int32_t)(rng_bits(SEED, stream, 2 * i) % b->shape.V);
            engine_targets(e, a)[i] =
                (int32_t)(rng_bits(SEED, stream, 2 * i + 1) % b->shape.V);
        }
    }
}

/* What happens inside one engine_run. */
struct visit {
    struct update_bench *bench;
    struct update_row *row;     /* either of them, */
    struct update_alone *alone; /* the other NULL */
    struct engine *engine;
    uint64_t adam_step;
    bool check;
    enum status status;
};

static struct step_result take_step(struct visit *v)
{
    struct step_result r;

    engine_step(v->engine, learning_rate, ++v->adam_step, false, &r);
    return r;
}

/* ---- is it right? ---- */

static bool is_simulated(const struct update_bench *b)
{
    return b->compute_s > 0;
}

static enum status check_same(struct visit *v)
{
    size_t bytes = engine_layout(v->engine)->elems * sizeof(float);
    uint64_t hash = XXH3_64bits(engine_params(v->engine), bytes);
    char name[160], what[224];

    (void)snprintf(what, sizeof what, "parameters after %llu steps of %s",
                   (unsigned long long)v->adam_step,
                   update_name(&v->row->setup, name, sizeof name));
    return comm_same(v->bench->comm, &hash, sizeof hash, what);
}

/* Setups differ in the order of their sums only, and by what a narrow wire rounds. */
static enum status check_figure(const struct visit *v, const char *what, double found,
                                double needed)
{
    double limit = v->row->setup.wire == WIRE_BF16 ? 2e-2 : 1e-3;
    char name[160];

    if (isfinite(found) && fabs(found - needed) <= limit * fabs(needed))
        return ST_OK;
    return fail(ST_BUG, "%s: found %s %.6f after %llu steps, needs %.6f",
                update_name(&v->row->setup, name, sizeof name), what, found,
                (unsigned long long)v->adam_step, needed);
}

static void fill(float *x, size_t n, float value)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

/* Simulated compute leaves gradients alone: constants stand for them, another one on each
 * rank, and for the parameters, another one on each host where they are to return. What
 * then is the same everywhere has been sent. */
static void start_simulated(struct visit *v)
{
    struct update_bench *b = v->bench;
    size_t n = engine_layout(v->engine)->elems;
    int rank = comm_rank(b->comm);
    bool returns = !engine_block_plan(v->engine)->replicated;
    int host = returns ? comm_host_numbers(b->comm)[rank] : 0;

    fill(engine_params(v->engine), n, 0.01f * (float)(1 + host));
    fill(engine_grads(v->engine), n, v->check ? 1e-3f * (float)(1 + rank) : 0);
}

static void start_values(struct visit *v)
{
    if (is_simulated(v->bench))
        start_simulated(v);
    else
        engine_init_weights(v->engine, SEED);
    fill_tokens(v->bench, v->engine);
}

/* Norm of the sum of all ranks' gradients that start_simulated() has made. */
static double filled_norm(const struct visit *v)
{
    double ranks = comm_size(v->bench->comm);

    return 1e-3 * ranks * (ranks + 1) / 2 *
           sqrt((double)engine_block_plan(v->engine)->elems);
}

static void check(struct visit *v, const struct step_result *r)
{
    struct update_row *row = v->row;
    const struct update_row *first = &v->bench->rows[0];

    row->loss = r->loss;
    row->norm = is_simulated(v->bench) ? filled_norm(v) : r->grad_norm;
    engine_flush(v->engine);
    v->status = check_same(v);
    if (v->status == ST_OK)
        v->status = check_figure(v, "loss", row->loss, first->loss);
    if (v->status == ST_OK)
        v->status = check_figure(v, "gradient norm", r->grad_norm, first->norm);
}

static void warm_up(struct visit *v)
{
    size_t steps = v->bench->warmup;

    if (v->check) {
        size_t before = is_simulated(v->bench) ? 0 : steps - 1;

        for (size_t i = 0; i < before; i++)
            (void)take_step(v);
        struct step_result r = take_step(v);

        check(v, &r);
        if (is_simulated(v->bench)) /* sums would grow from step to step */
            fill(engine_grads(v->engine), engine_layout(v->engine)->elems, 0);
        /* The first step after a flush has no returns to wait for. */
        steps = is_simulated(v->bench) ? steps : 1;
    }
    for (size_t i = 0; i < steps; i++)
        (void)take_step(v);
}

/* ---- timed steps ---- */

static void keep_step(struct update_row *row, const struct step_result *r)
{
    size_t n = row->n++;

    row->figures[UPDATE_STEP][n] = r->step_s;
    row->figures[UPDATE_EXPOSED][n] = r->comm_exposed_s;
    row->figures[UPDATE_HIDDEN][n] = r->comm_busy_s - r->comm_exposed_s;
    row->figures[UPDATE_IDLE][n] = r->idle_s;
    row->figures[UPDATE_COMM_CPU][n] = r->comm_cpu_s;
}

/* Ranks come to one figure a step; in one go, not between steps. */
static void join_figures(struct update_bench *b, struct update_row *row, size_t first)
{
    size_t n = row->n - first;

    comm_max(b->comm, row->figures[UPDATE_STEP] + first, n);
    for (int f = UPDATE_STEP + 1; f < UPDATE_FIGURES; f++) {
        comm_sum(b->comm, row->figures[f] + first, n);
        for (size_t i = first; i < row->n; i++)
            row->figures[f][i] /= comm_size(b->comm);
    }
}

static void count_traffic(struct update_bench *b, struct update_row *row,
                          const struct step_result *last)
{
    double sums[2] = {(double)last->comm_bytes, (double)last->comm_messages};

    row->most_bytes = sums[0];
    comm_max(b->comm, &row->most_bytes, 1);
    comm_sum(b->comm, sums, 2);
    row->bytes = sums[0] / comm_size(b->comm);
    row->messages = sums[1] / comm_size(b->comm);
}

static void do_visit(void *arg)
{
    struct visit *v = arg;
    struct update_bench *b = v->bench;
    size_t first = v->row->n;
    struct step_result r = {0};

    start_values(v);
    warm_up(v);
    if (v->status == ST_OK) {
        for (size_t i = 0; i < b->steps; i++) {
            r = take_step(v);
            keep_step(v->row, &r);
        }
        join_figures(b, v->row, first);
        count_traffic(b, v->row, &r);
    }
    engine_flush(v->engine);
}

/* ---- alone ---- */

static void do_alone(void *arg)
{
    struct visit *v = arg;
    struct update_bench *b = v->bench;
    struct update_alone *alone = v->alone;
    size_t first = alone->n;
    struct step_result r;

    start_values(v);
    for (size_t i = 0; i < b->warmup; i++)
        (void)take_step(v);
    engine_flush(v->engine);
    require(comm_agree(b->comm, ST_OK) == ST_OK); /* all compute at the same time */
    for (size_t i = 0; i < b->steps; i++) {
        engine_gradients(v->engine, &r);
        alone->gradients_s[first + i] = r.step_s;
    }
    (void)take_step(v); /* the first has no update of one before */
    for (size_t i = 0; i < b->steps; i++)
        alone->step_s[first + i] = take_step(v).step_s;
    alone->n += b->steps;
    engine_flush(v->engine);
    comm_max(b->comm, alone->gradients_s + first, b->steps);
    comm_max(b->comm, alone->step_s + first, b->steps);
}

static enum status visit_alone(struct update_bench *b, struct update_alone *alone)
{
    struct update_setup setup = {
        .strategy = STRATEGY_REDUCE_BROADCAST, .layout = alone->layout, .overlap = true};
    struct engine_options o = update_engine_options(b, &setup);
    struct visit v = {.bench = b, .alone = alone};
    struct comm *self = NULL;
    enum status st = comm_alone_new(b->comm, &self);

    if (st == ST_OK)
        st = engine_new(self, &o, &v.engine);
    st = comm_agree(b->comm, st);
    if (st == ST_OK)
        engine_run(v.engine, do_alone, &v);
    engine_free(v.engine);
    comm_alone_free(b->comm, self);
    return st;
}

/* ---- what the plan says ---- */

/* Whose link a rank is behind: its host's, or its own where all ranks share one host. */
static int node_of(const struct update_bench *b, int rank)
{
    const int *host = comm_host_numbers(b->comm);

    return b->hosts > 1 ? host[rank] : rank;
}

/* Partners of a round see each other's memory: nothing is sent. */
static bool in_memory(const struct plan *plan, enum exchange_phase phase, int round)
{
    return grid_inside_host(&plan->grid, schedule_digit(plan, phase, round)) &&
           (phase == PHASE_REDUCE || !plan->replicated);
}

/* Adds what this rank sends to other nodes in a phase: out of its own, into theirs. */
static enum status add_link_bytes(const struct update_bench *b, const struct plan *plan,
                                  enum exchange_phase phase, double elem_bytes,
                                  double *out, double *in)
{
    int rank = comm_rank(b->comm);
    int from = node_of(b, rank);
    struct transfers sent = {0};
    enum status st = ST_OK;

    for (int round = 0; round < schedule_rounds(plan) && st == ST_OK; round++) {
        if (in_memory(plan, phase, round))
            continue;
        sent.n = 0;
        for (size_t block = 0; block < plan->n_blocks && st == ST_OK; block++)
            st = schedule_sends(plan, phase, round, block, rank, &sent);
        for (size_t i = 0; i < sent.n; i++) {
            int to = node_of(b, sent.list[i].to);
            double bytes = to != from ? (double)sent.list[i].elems * elem_bytes : 0;

            out[from] += bytes;
            in[to] += bytes;
        }
    }
    transfers_release(&sent);
    return st;
}

/* Bytes through the busiest link and direction in a step. COLLECTIVE. */
static enum status find_link_bytes(struct update_bench *b, struct update_row *row,
                                   const struct plan *plan)
{
    size_t n = (size_t)comm_size(b->comm);
    double *links = NULL; /* [2 * n]: out of each node, then into it */
    bool narrow = row->setup.wire == WIRE_BF16;
    enum status st = memory_alloc(2 * n, sizeof *links, "links", &links);

    if (st == ST_OK)
        st = add_link_bytes(b, plan, PHASE_REDUCE, narrow ? 2 : 4, links, links + n);
    if (st == ST_OK)
        st = add_link_bytes(b, plan, PHASE_RETURN, narrow && plan->replicated ? 2 : 4,
                            links, links + n);
    st = comm_agree(b->comm, st);
    if (st == ST_OK)
        comm_sum(b->comm, links, 2 * n);
    for (size_t i = 0; st == ST_OK && i < 2 * n; i++)
        row->busiest_link_bytes = fmax(row->busiest_link_bytes, links[i]);
    free(links);
    return st;
}

static enum status describe_row(struct update_bench *b, struct update_row *row,
                                const struct engine_options *o, struct engine *e)
{
    const struct plan *plan = engine_block_plan(e);
    struct engine_plan p;
    int ranks = comm_size(b->comm);
    enum status st = comm_agree(
        b->comm,
        engine_make_plan(o, comm_rank(b->comm), ranks,
                         comm_shares_memory(b->comm) ? comm_host_numbers(b->comm) : NULL,
                         &p));

    if (st != ST_OK)
        return st;
    row->blocks = p.blocks;
    row->block_bytes = p.block_bytes;
    row->rounds = p.rounds;
    for (int r = 0; r < ranks; r++)
        row->update_share = fmax(row->update_share, (double)plan_updated_elems(plan, r) /
                                                        (double)plan->elems);
    row->predicted_bytes = (double)(p.reduce_bytes + p.return_bytes);
    comm_sum(b->comm, &row->predicted_bytes, 1);
    row->predicted_bytes /= ranks;
    return find_link_bytes(b, row, plan);
}

/* ---- rounds ---- */

static enum status visit_row(struct update_bench *b, struct update_row *row, bool first)
{
    struct engine_options o = update_engine_options(b, &row->setup);
    struct visit v = {.bench = b, .row = row, .check = first};
    enum status st = engine_new(b->comm, &o, &v.engine);

    if (st == ST_OK && first)
        st = describe_row(b, row, &o, v.engine);
    if (st == ST_OK) {
        comm_set_longest_nap(b->comm, row->setup.longest_nap_us);
        engine_run(v.engine, do_visit, &v);
        comm_set_longest_nap(b->comm, COMM_LONGEST_NAP_US);
        st = comm_agree(b->comm, v.status);
    }
    engine_free(v.engine);
    return st;
}

static void tell(struct update_bench *b, const struct update_setup *s)
{
    char name[160] = "alone";

    b->visits++;
    progress_update(&b->progress, b->visits,
                    s ? update_name(s, name, sizeof name) : name);
}

static enum status measure_round(struct update_bench *b, size_t round)
{
    enum status st = ST_OK;

    for (size_t i = 0; i < b->n_alone && st == ST_OK; i++) {
        st = visit_alone(b, &b->alone[i]);
        tell(b, NULL);
    }
    for (size_t i = 0; i < b->n_rows && st == ST_OK; i++) {
        struct update_row *row = &b->rows[round % 2 ? b->n_rows - 1 - i : i];

        st = visit_row(b, row, round == 0);
        tell(b, &row->setup);
    }
    return st;
}

static enum status allocate(struct update_bench *b)
{
    size_t n = b->steps * b->rounds;
    enum status st = ST_OK;

    for (size_t i = 0; i < b->n_rows; i++)
        for (int f = 0; f < UPDATE_FIGURES && st == ST_OK; f++)
            st = memory_alloc(n, sizeof(double), "figures", &b->rows[i].figures[f]);
    for (size_t i = 0; i < b->n_alone && st == ST_OK; i++) {
        st = memory_alloc(n, sizeof(double), "figures", &b->alone[i].gradients_s);
        if (st == ST_OK)
            st = memory_alloc(n, sizeof(double), "figures", &b->alone[i].step_s);
    }
    return st;
}

enum status update_measure(struct update_bench *b)
{
    double visits = (double)(b->rounds * (b->n_rows + b->n_alone));
    enum status st = comm_agree(b->comm, allocate(b));

    if (st != ST_OK)
        return st;
    progress_begin(&b->progress, "bench update", "visit", visits, b->progress.enabled);
    for (size_t round = 0; round < b->rounds && st == ST_OK; round++) {
        st = measure_round(b, round);
        /* After every round, so that an interrupted run leaves what it has. */
        if (st == ST_OK && b->json)
            st = comm_agree(b->comm, comm_rank(b->comm) == 0
                                         ? bench_write_json(update_json(b), b->json)
                                         : ST_OK);
    }
    if (st == ST_OK)
        progress_end(&b->progress, visits);
    return st;
}

void update_release(struct update_bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++)
        for (int f = 0; f < UPDATE_FIGURES; f++)
            free(b->rows[i].figures[f]);
    for (size_t i = 0; i < b->n_alone; i++) {
        free(b->alone[i].gradients_s);
        free(b->alone[i].step_s);
    }
    free(b->rows);
}
