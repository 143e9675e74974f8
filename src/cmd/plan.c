/* SPDX-License-Identifier: MIT */
/* weft plan: what a training job will take and how long its steps will be, on machines
 * that need not be there. */
#include "cmd/plan.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/options.h"
#include "cmd/cmd.h"
#include "engine/trainer.h"
#include "kernels/ceiling.h"

enum { MOST_RANKS = 4096, MOST_WORKERS = 4096, MOST_SEQUENCES = 1 << 24 };

/* Share of the multiply-add peak that forward and backward reach. */
static const double usual_efficiency = 0.6;
static const double measuring_s = 0.05;

struct plan_arguments {
    const char *model, *network, *block_bytes;
    size_t ranks, hosts, batch, seq, accum, threads, roots, sample_every;
    int strategy, rounds, wire, dtype, recompute, host_memory, split_embedding, layout,
        overlap;
    double compute, flops;
    bool one_root, brief, json, help;
};

/* ---- the job ---- */

static enum status read_model(const struct plan_arguments *a, struct forecast *f)
{
    struct engine_options *o = &f->o;
    enum status st;

    if (!a->model)
        return fail(ST_USAGE, "plan: needs --model SPEC");
    if (!shape_is_spec(a->model))
        return fail(ST_USAGE,
                    "--model %s: needs gpt2, gpt2-medium, gpt2-large, gpt2-xl, a depth "
                    "as d12, or L=,H=,C=[,T=][,V=]",
                    a->model);
    st = shape_parse(a->model, 0, &o->shape);
    if (st != ST_OK)
        return st;
    f->model = a->model;
    o->batch = a->batch;
    o->accum = a->accum;
    o->seq = a->seq ? a->seq : o->shape.T;
    if (o->seq > o->shape.T)
        return fail(ST_USAGE, "--seq: found %zu, needs at most the model's T=%zu", o->seq,
                    o->shape.T);
    if (o->batch < 1 || o->accum < 1 || o->batch > MOST_SEQUENCES ||
        o->accum > MOST_SEQUENCES)
        return fail(ST_USAGE, "--batch %zu --accum %zu: both need 1 to %d", o->batch,
                    o->accum, MOST_SEQUENCES);
    return ST_OK;
}

static size_t cores_here(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
}

static enum status read_machines(const struct plan_arguments *a, struct forecast *f)
{
    size_t hosts = a->hosts ? a->hosts : a->ranks;
    size_t threads = a->threads;
    enum status st = ST_OK;

    if (a->ranks == OPTION_SIZE_UNSET)
        return fail(ST_USAGE, "plan: needs --ranks P; see weft help plan");
    if (a->ranks < 1 || a->ranks > MOST_RANKS)
        return fail(ST_USAGE, "plan: --ranks: found %zu, needs 1 to %d", a->ranks,
                    MOST_RANKS);
    if (hosts > a->ranks)
        return fail(ST_USAGE, "--hosts: found %zu, needs at most the %zu ranks", hosts,
                    a->ranks);
    if (threads > MOST_WORKERS)
        return fail(ST_USAGE, "--threads: found %zu, needs at most %d", threads,
                    MOST_WORKERS);
    if (threads == 0) {
        size_t ranks_a_host = (a->ranks + hosts - 1) / hosts;

        threads = cores_here() / ranks_a_host;
    }
    f->o.workers = threads > 0 ? (int)threads : 1;
    f->cluster = (struct cost_cluster){
        .ranks = (int)a->ranks, .hosts = (int)hosts, .network = network_assumed()};
    f->network_file = a->network;
    if (a->network)
        st = network_read(a->network, &f->cluster.network);
    return st;
}

static enum status read_blocks(const char *text, struct engine_options *o)
{
    struct option_row row[] = {
        {.name = "block-bytes", .kind = OPTION_SIZE, .value = &o->block_bytes}, {0}};
    char arg[64];
    char *argv[] = {(char *)"plan", arg, NULL};
    char **rest;
    int n_rest;
    enum status st;

    o->one_block = !strcmp(text, "one");
    if (o->one_block) {
        o->block_bytes = 64; /* the plan does not look at it */
        return ST_OK;
    }
    if (!strcmp(text, "auto"))
        return ST_OK;
    (void)snprintf(arg, sizeof arg, "--block-bytes=%s", text);
    st = options_parse(row, 2, argv, &rest, &n_rest);
    if (st == ST_OK && o->block_bytes < 64)
        st = fail(ST_USAGE, "--block-bytes: found %s, needs at least 64, auto or one",
                  text);
    return st;
}

static enum status read_exchange(const struct plan_arguments *a, struct forecast *f)
{
    struct engine_options *o = &f->o;

    if (a->dtype == 1 && gemm_bf16_select(NULL, &o->half) != ST_OK)
        return ST_USAGE;
    o->train = true;
    o->recompute = (enum recompute)a->recompute;
    o->strategy = (enum strategy)a->strategy;
    o->schedule = (enum grid_schedule)a->rounds;
    o->wire = (enum exchange_wire)a->wire;
    o->layout = (enum layout_order)a->layout;
    o->host_memory = a->host_memory == 0;
    o->split_embedding = a->split_embedding == 0;
    o->overlap = a->overlap == 0;
    o->one_root = a->one_root;
    if (a->roots < 1 || a->roots > a->ranks)
        return fail(ST_USAGE, "--roots: found %zu, needs 1 to %zu, the ranks", a->roots,
                    a->ranks);
    if ((a->roots > 1 || a->one_root) && o->strategy != STRATEGY_REDUCE_BROADCAST)
        return fail(ST_USAGE, "%s: needs --strategy reduce-broadcast",
                    a->one_root ? "--one-root" : "--roots");
    o->roots = (int)a->roots;
    return read_blocks(a->block_bytes, o);
}

/* How long forward and backward take: as said, or from what this machine could do. */
static enum status read_compute(const struct plan_arguments *a, struct forecast *f)
{
    struct engine_options *o = &f->o;
    double tokens = forecast_tokens(f) / f->cluster.ranks;
    double flops = shape_train_flops(&o->shape, o->seq, tokens) +
                   recompute_flops(o->recompute, &o->shape, o->seq, tokens);

    if (!isnan(a->compute) && !isnan(a->flops))
        return fail(ST_USAGE, "--compute and --flops-per-second: needs one of them");
    if (a->compute < 0 || a->compute > 1e6)
        return fail(ST_USAGE, "--compute: found %g, needs 0 to 1e6 seconds", a->compute);
    if (a->flops < 1e6 || a->flops > 1e18)
        return fail(ST_USAGE, "--flops-per-second: found %g, needs 1e6 to 1e18",
                    a->flops);
    if (!isnan(a->compute)) {
        f->compute_source = COMPUTE_GIVEN;
        o->compute_s = a->compute;
        f->rank_flops = a->compute > 0 ? flops / a->compute : 0;
        return ST_OK;
    }
    f->compute_source = isnan(a->flops) ? COMPUTE_OF_THIS_MACHINE : COMPUTE_RATE_GIVEN;
    f->rank_flops = isnan(a->flops)
                        ? o->workers * usual_efficiency * ceiling_fma(NULL, measuring_s)
                        : a->flops;
    o->compute_s = flops / f->rank_flops;
    return ST_OK;
}

static enum status read_job(const struct plan_arguments *a, struct forecast *f)
{
    enum status st = read_model(a, f);

    if (st == ST_OK)
        st = read_machines(a, f);
    if (st == ST_OK)
        st = read_exchange(a, f);
    if (st == ST_OK && a->sample_every > 0)
        f->texts_bytes = train_sample_bytes(&f->o.shape, f->o.seq, f->o.workers);
    return st == ST_OK ? read_compute(a, f) : st;
}

/* ---- the predictions ---- */

double forecast_tokens(const struct forecast *f)
{
    return (double)f->cluster.ranks * (double)f->o.batch * (double)f->o.seq *
           (double)f->o.accum;
}

/* Every strategy, each with the block size that suits it unless one is given. */
static enum status compare_strategies(struct forecast *f)
{
    enum status st = ST_OK;

    cost_order_strategies(f->cluster.ranks, f->strategies);
    for (size_t i = 0; i < COST_STRATEGIES && st == ST_OK; i++) {
        struct engine_options o = f->o;

        o.strategy = f->strategies[i];
        if (o.strategy != STRATEGY_REDUCE_BROADCAST)
            o.roots = 1;
        o.one_root = o.one_root && o.strategy == STRATEGY_REDUCE_BROADCAST;
        if (f->o.block_bytes > 0 && o.strategy != f->o.strategy &&
            !cost_worth_trying(&o, &f->cluster))
            continue;
        st = cost_choose(&o, &f->cluster, &f->strategy_cost[i]);
        f->strategy_block[i] = o.block_bytes;
    }
    f->best_strategy = cost_best(f->strategy_cost, COST_STRATEGIES);
    return st;
}

static enum status compare_blocks(struct forecast *f)
{
    enum status st;

    if (f->o.one_block)
        return ST_OK;
    st = cost_try_blocks(&f->o, &f->cluster, f->block_cost);
    f->best_block = cost_best(f->block_cost, COST_BLOCK_SIZES);
    return st;
}

/* What was left open is chosen; with the tables by them, so that both say the same. */
static enum status choose(struct forecast *f)
{
    enum status st = f->tables ? compare_strategies(f) : ST_OK;
    size_t chosen = f->best_strategy;

    if (st != ST_OK)
        return st;
    if (!f->tables || (f->o.strategy && f->o.block_bytes > 0))
        return cost_choose(&f->o, &f->cluster, &f->cost);
    for (size_t i = 0; f->o.strategy && i < COST_STRATEGIES; i++)
        if (f->strategies[i] == f->o.strategy)
            chosen = i;
    f->o.strategy = f->strategies[chosen];
    f->o.block_bytes = f->strategy_block[chosen];
    f->cost = f->strategy_cost[chosen];
    return ST_OK;
}

static enum status predict(struct forecast *f)
{
    int *host = NULL;
    enum status st = choose(f);

    if (st == ST_OK && f->tables)
        st = compare_blocks(f);
    if (st == ST_OK)
        st = cost_hosts(&f->cluster, &host);
    if (st == ST_OK)
        st = engine_make_plan(&f->o, 0, f->cluster.ranks, host, &f->plan);
    free(host);
    return st;
}

/* ---- the command ---- */

static void print_help(const struct option_row *table)
{
    printf(
        "usage: weft plan --model SPEC --ranks P [options]\n\n"
        "Says what a training job takes of each machine, how long a step will be, how "
        "much of\nit is spent waiting for messages, and which strategy and block size "
        "suit it best.\nNothing is trained. The figures of the network come from 'weft "
        "bench network --json'.\n\n"
        "example: weft plan --model gpt2 --ranks 16 --batch 4 --flops-per-second 2e12\n"
        "\noptions:\n");
    options_print_help(table);
}

static enum status run(const struct plan_arguments *a)
{
    struct forecast f = {.tables = !a->brief, .program_bytes = memory_resident_bytes()};
    enum status st = read_job(a, &f);

    if (st == ST_OK)
        st = predict(&f);
    if (st != ST_OK)
        return st;
    if (a->json)
        return forecast_print_json(&f);
    forecast_print(&f);
    return ST_OK;
}

enum status cmd_plan(int argc, char **argv, int *exit_code)
{
    struct plan_arguments a = {.block_bytes = "auto",
                               .ranks = OPTION_SIZE_UNSET,
                               .batch = 8,
                               .accum = 1,
                               .roots = 1,
                               .compute = NAN,
                               .flops = NAN};
    struct option_row table[] = {
        {"model", OPTION_TEXT, &a.model, "SPEC",
         "gpt2, gpt2-medium, ..., d12, L=6,H=6,C=384,T=256", 0, 0},
        {"ranks", OPTION_SIZE, &a.ranks, "P", "processes", 0, 0},
        {"hosts", OPTION_SIZE, &a.hosts, "H", "machines; 0: one a rank", 0, 0},
        {"threads", OPTION_SIZE, &a.threads, "N",
         "workers a rank; 0: its share of as many cores a host as this machine has", 0,
         0},
        {"batch", OPTION_SIZE, &a.batch, "N", "sequences a rank and micro-batch", 0, 0},
        {"seq", OPTION_SIZE, &a.seq, "N", "tokens a sequence; 0: the model's T", 0, 0},
        {"accum", OPTION_SIZE, &a.accum, "N", "micro-batches a step", 0, 0},
        {"compute", OPTION_NUMBER, &a.compute, "SECONDS",
         "forward and backward of a step on one rank", 0, 0},
        {"flops-per-second", OPTION_NUMBER, &a.flops, "X",
         "of one rank, instead of --compute; 0.6 of this machine's peak when neither is "
         "given",
         0, 0},
        {"network", OPTION_TEXT, &a.network, "FILE",
         "what 'weft bench network --json' wrote; 10 Gbit/s when not given", 0, 0},
        {"strategy", OPTION_CHOICE, &a.strategy,
         "auto|central|reduce-broadcast|reduce-scatter|allreduce",
         "how gradients are summed and who updates; auto: the usual one if within 1 % of "
         "the best",
         0, 0},
        {"block-bytes", OPTION_TEXT, &a.block_bytes, "N|auto|one",
         "size of a communication block; auto: the largest within 1 % of the best", 0, 0},
        {"rounds", OPTION_CHOICE, &a.rounds, "auto|flat|recursive",
         "all to all in one round, or halving and doubling", 0, 0},
        {"roots", OPTION_SIZE, &a.roots, "N",
         "reduce-broadcast: ranks that share the update of a block", 0, 0},
        {"one-root", OPTION_SWITCH, &a.one_root, NULL,
         "reduce-broadcast: the same for all blocks, for comparison", 0, 0},
        {"dtype", OPTION_CHOICE, &a.dtype, "fp32|bf16",
         "factors of the matrix products; for the memory", 0, 0},
        {"recompute", OPTION_CHOICE, &a.recompute, RECOMPUTE_WORDS,
         "what backward computes again to save memory, as in weft train", 0, 0},
        {"sample-every", OPTION_SIZE, &a.sample_every, "N",
         "texts on the way, as in weft train; for the memory", 0, 0},
        {"wire", OPTION_CHOICE, &a.wire, "fp32|bf16",
         "precision of gradients in messages", 0, 0},
        {"host-memory", OPTION_CHOICE, &a.host_memory, "on|off",
         "ranks of a host read each other's memory", 0, 0},
        {"split-embedding", OPTION_CHOICE, &a.split_embedding, "on|off",
         "the embedding's rows travel by themselves", 0, 0},
        {"layout", OPTION_CHOICE, &a.layout, "production|storage",
         "order of the tensors in memory", 0, 0},
        {"overlap", OPTION_CHOICE, &a.overlap, "on|off", "communicate while computing", 0,
         0},
        {"brief", OPTION_SWITCH, &a.brief, NULL,
         "no tables of other strategies and block sizes", 0, 0},
        {"json", OPTION_SWITCH, &a.json, NULL, "one JSON object instead of the tables", 0,
         0},
        {"help", OPTION_SWITCH, &a.help, NULL, "this text", 0, 0},
        {0}};
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    *exit_code = 0;
    if (st == ST_OK && a.help) {
        print_help(table);
        return ST_OK;
    }
    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "plan: found '%s', needs options only", rest[0]);
    return st == ST_OK ? run(&a) : st;
}
