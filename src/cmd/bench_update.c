/* SPDX-License-Identifier: MIT */
/* weft bench update: the whole training step with one way of updating after the other,
 * side by side on random tokens. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "cmd/bench_update.h"

enum { MOST_ROWS = 4096, MOST_VISITS = 100000 };

#define STRATEGY_WORDS "central|reduce-broadcast|reduce-scatter|allreduce"

/* As typed. */
struct update_options {
    const char *model, *strategies, *engines, *layouts, *block_bytes, *overlap, *split;
    const char *wire, *schedules, *roots, *memory, *naps, *isa;
    size_t threads;
    double compute_s;
    bool one_root, quiet, help;
};

/* ---- lists ---- */

/* Values of one option; sizes for blocks and roots, indices of words for the others. */
struct list {
    int word[BENCH_LIST_MOST];
    size_t size[BENCH_LIST_MOST];
    size_t n;
};

enum which {
    STRATEGIES,
    ENGINES,
    LAYOUTS,
    BLOCKS,
    OVERLAP,
    SPLIT,
    WIRE,
    SCHEDULES,
    ROOTS,
    MEMORY,
    NAPS,
    N_LISTS
};

static const size_t auto_block = 0, one_block = SIZE_MAX;

/* "auto", "one" and sizes, in any mixture. */
static enum status read_blocks(const char *text, struct list *l)
{
    const size_t least = 64;
    const size_t greatest = (size_t)1 << 40;
    enum status st = ST_OK;

    for (const char *p = text; st == ST_OK; p++) {
        size_t length = strcspn(p, ",");
        size_t n = 1;
        char word[64];

        (void)snprintf(word, sizeof word, "%.*s", (int)length, p);
        if (l->n == BENCH_LIST_MOST)
            return fail(ST_USAGE, "--block-bytes: found more than %d values",
                        BENCH_LIST_MOST);
        if (!strcmp(word, "auto") || !strcmp(word, "one")) {
            l->size[l->n] = word[0] == 'a' ? auto_block : one_block;
        } else {
            size_t sizes[BENCH_LIST_MOST];

            st = bench_read_sizes("block-bytes", word, least, greatest, sizes, &n);
            for (size_t i = 0; st == ST_OK && i < n && l->n + i < BENCH_LIST_MOST; i++)
                l->size[l->n + i] = sizes[i];
            n = min_size(n, BENCH_LIST_MOST - l->n);
        }
        l->n += st == ST_OK ? n : 0;
        p += length;
        if (!*p)
            break;
    }
    return st;
}

static enum status read_lists(const struct update_options *o, size_t ranks,
                              struct list lists[N_LISTS])
{
    const struct {
        enum which which;
        const char *name, *text, *words;
    } table[] = {
        /* Strategies have numbers as well: enum strategy. */
        {STRATEGIES, "strategies", o->strategies, STRATEGY_WORDS "|1|2|3|4"},
        {ENGINES, "engines", o->engines, "direct|collective"},
        {LAYOUTS, "layouts", o->layouts, "production|storage"},
        {OVERLAP, "overlap", o->overlap, "off|on"},
        {SPLIT, "split-embedding", o->split, "off|on"},
        {WIRE, "wire", o->wire, "fp32|bf16"},
        {SCHEDULES, "schedules", o->schedules, "auto|flat|recursive"},
        {MEMORY, "host-memory", o->memory, "off|on"},
    };
    enum status st = ST_OK;

    for (size_t i = 0; i < sizeof table / sizeof *table && st == ST_OK; i++)
        st = bench_read_words(table[i].name, table[i].text, table[i].words,
                              lists[table[i].which].word, &lists[table[i].which].n);
    if (st == ST_OK)
        st = read_blocks(o->block_bytes, &lists[BLOCKS]);
    if (st == ST_OK)
        st = bench_read_sizes("roots", o->roots, 1, ranks, lists[ROOTS].size,
                              &lists[ROOTS].n);
    if (st == ST_OK)
        st = bench_read_sizes("longest-nap", o->naps, 0, 1000000, lists[NAPS].size,
                              &lists[NAPS].n);
    return st;
}

/* ---- rows ---- */

/* Takes away what means nothing for this setup, so that it is measured once; false where
 * it cannot be. */
static bool settle(const struct comm *c, struct update_setup *s)
{
    bool direct = s->engine == EXCHANGE_DIRECT;

    if (!direct && s->wire == WIRE_BF16)
        return false; /* MPI cannot add it */
    if (s->strategy != STRATEGY_REDUCE_BROADCAST) {
        s->roots = 1;
        s->one_root = false;
    }
    if (s->one_root && s->roots > 1)
        return false;
    if (!direct)
        s->schedule = SCHEDULE_AUTO;
    if (!direct || !comm_shares_memory(c))
        s->host_memory = false;
    if (comm_size(c) == 1) {
        s->wire = WIRE_FP32;
        s->schedule = SCHEDULE_AUTO;
        s->split_embedding = s->one_root = false;
        s->longest_nap_us = COMM_LONGEST_NAP_US;
    }
    return true;
}

static enum status add_row(struct update_bench *b, const struct update_setup *s)
{
    for (size_t i = 0; i < b->n_rows; i++)
        if (!memcmp(&b->rows[i].setup, s, sizeof *s))
            return ST_OK;
    if (b->n_rows == MOST_ROWS)
        return fail(ST_USAGE, "bench update: needs at most %d rows; shorten the lists",
                    MOST_ROWS);
    b->rows[b->n_rows++].setup = *s;
    return ST_OK;
}

/* The setup that takes entry at[i] of each list. */
static struct update_setup setup_at(const struct list lists[N_LISTS],
                                    const size_t at[N_LISTS], bool one_root)
{
    size_t block = lists[BLOCKS].size[at[BLOCKS]];
    struct update_setup s;

    memset(&s, 0, sizeof s);
    s.strategy = (enum strategy)(1 + lists[STRATEGIES].word[at[STRATEGIES]] % 4);
    s.engine = (enum exchange_engine)lists[ENGINES].word[at[ENGINES]];
    s.layout = (enum layout_order)lists[LAYOUTS].word[at[LAYOUTS]];
    s.one_block = block == one_block;
    s.block_bytes = s.one_block ? 0 : block;
    s.overlap = lists[OVERLAP].word[at[OVERLAP]];
    s.split_embedding = lists[SPLIT].word[at[SPLIT]];
    s.wire = (enum exchange_wire)lists[WIRE].word[at[WIRE]];
    s.schedule = (enum grid_schedule)lists[SCHEDULES].word[at[SCHEDULES]];
    s.roots = (int)lists[ROOTS].size[at[ROOTS]];
    s.host_memory = lists[MEMORY].word[at[MEMORY]];
    s.longest_nap_us = (int)lists[NAPS].size[at[NAPS]];
    s.one_root = one_root;
    return s;
}

/* Every combination of the lists, the last one counting fastest. */
static enum status list_rows(struct update_bench *b, const struct list lists[N_LISTS],
                             bool with_one_root)
{
    size_t at[N_LISTS] = {0};
    enum status st = memory_alloc(MOST_ROWS, sizeof *b->rows, "rows", &b->rows);
    int digit = 0;

    while (st == ST_OK && digit >= 0) {
        for (int one = 0; one <= (with_one_root ? 1 : 0) && st == ST_OK; one++) {
            struct update_setup s = setup_at(lists, at, one);

            if (settle(b->comm, &s))
                st = add_row(b, &s);
        }
        for (digit = N_LISTS - 1; digit >= 0 && ++at[digit] == lists[digit].n; digit--)
            at[digit] = 0;
    }
    if (st == ST_OK && b->n_rows == 0)
        st = fail(ST_USAGE, "bench update: nothing to measure: --wire bf16 needs the "
                            "direct engine");
    return st;
}

static void list_alone(struct update_bench *b, const struct list *layouts)
{
    for (size_t i = 0; i < layouts->n; i++)
        b->alone[b->n_alone++].layout = (enum layout_order)layouts->word[i];
}

/* ---- other options ---- */

/* This rank's part of the cores it may use. */
static int fair_workers(struct comm *c)
{
    const int *host = comm_host_numbers(c);
    size_t ranks = (size_t)comm_size(c);
    cpu_set_t mine, *all = NULL;
    int sharers = 0;

    CPU_ZERO(&mine);
    if (sched_getaffinity(0, sizeof mine, &mine) != 0 ||
        memory_alloc(ranks, sizeof *all, "cores", &all) != ST_OK)
        CPU_SET(0, &mine);
    if (comm_agree(c, all ? ST_OK : ST_NOMEM) != ST_OK) {
        free(all);
        return 1;
    }
    comm_gather_all(c, &mine, sizeof mine, all);
    for (size_t r = 0; r < ranks; r++)
        sharers += host[r] == host[comm_rank(c)] && CPU_EQUAL(&all[r], &mine);
    free(all);
    double fewest = -fmax(1, CPU_COUNT(&mine) / sharers);

    comm_max(c, &fewest, 1);
    return (int)-fewest;
}

static int count_hosts(struct comm *c)
{
    const int *host = comm_host_numbers(c);
    int most = 0;

    for (int r = 0; r < comm_size(c); r++)
        most = host[r] > most ? host[r] : most;
    return most + 1;
}

static enum status check_counts(struct update_bench *b)
{
    const struct {
        const char *name;
        size_t value, greatest;
    } table[] = {{"batch", b->batch, (size_t)1 << 20}, {"accum", b->accum, 4096},
                 {"steps", b->steps, 100000},          {"warmup", b->warmup, 1000},
                 {"rounds", b->rounds, 1000},          {"seq", b->seq, b->shape.T}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].value < 1 || table[i].value > table[i].greatest)
            return fail(ST_USAGE, "--%s: found %zu, needs 1 to %zu", table[i].name,
                        table[i].value, table[i].greatest);
    return ST_OK;
}

static enum status read_network(struct update_bench *b)
{
    struct network *n = &b->cluster.network;
    enum status st;

    if (!b->network)
        return ST_OK;
    b->cluster.ranks = comm_size(b->comm);
    b->cluster.hosts = b->hosts;
    st = network_read(b->network, n);
    if (st == ST_OK)
        b->link_Bps =
            b->hosts > 1 || n->hosts == 1 ? n->bandwidth_Bps : n->host_bandwidth_Bps;
    return st;
}

static enum status prepare(struct update_bench *b, const struct update_options *o)
{
    struct list lists[N_LISTS] = {0};
    enum status st = ST_OK;

    if (!o->model)
        return fail(ST_USAGE, "bench update: needs --model SPEC");
    if (!shape_is_spec(o->model))
        return fail(ST_USAGE, "--model: found '%s', needs a size (gpt2, d12) or a shape",
                    o->model);
    st = shape_parse(o->model, 0, &b->shape);
    if (st == ST_OK && b->seq == 0)
        b->seq = b->shape.T;
    if (st == ST_OK)
        st = check_counts(b);
    if (st == ST_OK && !(o->compute_s >= 0 && o->compute_s <= 3600))
        st = fail(ST_USAGE, "--compute: found %g, needs 0 to 3600 seconds", o->compute_s);
    if (st == ST_OK && o->threads > 4096)
        st = fail(ST_USAGE, "--threads: found %zu, needs at most 4096", o->threads);
    if (st == ST_OK)
        st = kernels_select(o->isa, &b->kernels);
    if (st == ST_OK)
        st = read_lists(o, (size_t)comm_size(b->comm), lists);
    if (st == ST_OK)
        st = list_rows(b, lists, o->one_root);
    if (st == ST_OK)
        list_alone(b, &lists[LAYOUTS]);
    if (st == ST_OK)
        st = read_network(b);
    if (st == ST_OK && b->json && comm_rank(b->comm) == 0)
        st = bench_check_output(b->json);
    return st;
}

/* Ranks that were started with other options would wait for each other for ever. */
static enum status check_alike(struct update_bench *b)
{
    double alike[] = {(double)b->n_rows, (double)b->steps,   (double)b->warmup,
                      (double)b->rounds, (double)b->accum,   (double)b->batch,
                      (double)b->seq,    (double)b->n_alone, b->compute_s};
    enum status st = comm_same(b->comm, alike, sizeof alike, "options of bench update");

    for (size_t i = 0; st == ST_OK && i < b->n_rows; i++)
        st = comm_same(b->comm, &b->rows[i].setup, sizeof b->rows[i].setup,
                       "options of bench update");
    return comm_agree(b->comm, st);
}

static enum status run(struct update_bench *b, const struct update_options *o)
{
    enum status st;

    b->hosts = count_hosts(b->comm);
    st = comm_agree(b->comm, prepare(b, o));
    if (st != ST_OK)
        return st;
    int fair = fair_workers(b->comm);

    b->workers = o->threads ? (int)o->threads : fair;
    b->progress.enabled = !o->quiet && comm_rank(b->comm) == 0;
    st = check_alike(b);
    if (st == ST_OK)
        st = update_measure(b);
    if (st == ST_OK && comm_rank(b->comm) == 0)
        update_print(b);
    return st;
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: mpirun -n P weft bench update --model SPEC [options]\n\n"
        "Times the training step on random tokens for every combination of the lists, in "
        "rounds\nthat visit each in turn. Before a row is timed all ranks must hold the "
        "same parameters\nand come to the first row's loss. Figures of a row:\n\n"
        "  step     wall time of a step: median, least and most of all rounds\n"
        "  exposed  in it, time in which a rank had messages in flight and no task to "
        "run\n"
        "  hidden   time with messages in flight, without the exposed\n"
        "  idle     time without a task to run, for whatever reason\n"
        "  comm CPU processor time of a rank's communication thread\n"
        "  MB/rank  sent by a rank in a step; planned: as the block plan says (without "
        "the "
        "rows\n           of a split embedding); balance: the most of any rank over the "
        "mean\n"
        "  compute  the step without exchange: median time of forward and backward while "
        "each\n           rank works alone, all at once, and of the time of the update "
        "the "
        "share of\n           the busiest rank; or --compute\n"
        "  wire     bytes through the busiest link in one direction / its bandwidth "
        "(--network)\n"
        "  model    the step as the cost model predicts it from compute and --network\n\n"
        "example: mpirun -n 4 weft bench update --model d4 --batch 1 --seq 64\n\n"
        "options:\n");
    options_print_help(table);
}

enum status bench_update(int argc, char **argv, int *exit_code)
{
    struct update_options o = {.strategies =
                                   "central,reduce-broadcast,reduce-scatter,allreduce",
                               .engines = "direct",
                               .layouts = "production",
                               .block_bytes = "auto",
                               .overlap = "on",
                               .split = "on",
                               .wire = "fp32",
                               .schedules = "auto",
                               .roots = "1",
                               .memory = "on",
                               .naps = "500"};
    struct update_bench b = {
        .batch = 1, .accum = 1, .steps = 3, .warmup = 2, .rounds = 3};
    struct option_row table[] = {
        {"model", OPTION_TEXT, &o.model, "SPEC",
         "gpt2, gpt2-medium, ..., d12, or L=6,H=6,C=384,T=256,V=50257", 0, 0},
        {"batch", OPTION_SIZE, &b.batch, "N", "sequences a rank and micro-batch", 0, 0},
        {"seq", OPTION_SIZE, &b.seq, "N", "tokens a sequence; 0: the model's T", 0, 0},
        {"accum", OPTION_SIZE, &b.accum, "N", "micro-batches a step", 0, 0},
        {"threads", OPTION_SIZE, &o.threads, "N",
         "workers a rank; 0: this rank's share of the cores", 0, 0},
        {"isa", OPTION_TEXT, &o.isa, "NAME", "force kernels: generic, avx2, avx512", 0,
         0},
        {"compute", OPTION_NUMBER, &o.compute_s, "SECONDS",
         "simulate the compute of a step by naps, so that one machine can stand for "
         "many; "
         "0: compute",
         0, 0},
        {"steps", OPTION_SIZE, &b.steps, "N", "timed steps of each visit", 0, 0},
        {"warmup", OPTION_SIZE, &b.warmup, "N", "steps before them", 0, 0},
        {"rounds", OPTION_SIZE, &b.rounds, "N", "visits of each row", 0, 0},
        {"strategies", OPTION_TEXT, &o.strategies, "LIST",
         "of central, reduce-broadcast, reduce-scatter, allreduce, or 1 to 4", 0, 0},
        {"engines", OPTION_TEXT, &o.engines, "LIST", "of direct, collective", 0, 0},
        {"layouts", OPTION_TEXT, &o.layouts, "LIST", "of production, storage", 0, 0},
        {"block-bytes", OPTION_TEXT, &o.block_bytes, "LIST",
         "of sizes, auto, one; 64k..32M is 64k, 256k, 1M, ...", 0, 0},
        {"overlap", OPTION_TEXT, &o.overlap, "LIST", "of on, off", 0, 0},
        {"split-embedding", OPTION_TEXT, &o.split, "LIST", "of on, off", 0, 0},
        {"wire", OPTION_TEXT, &o.wire, "LIST", "of fp32, bf16", 0, 0},
        {"schedules", OPTION_TEXT, &o.schedules, "LIST",
         "of auto, flat, recursive: rounds of the direct engine", 0, 0},
        {"roots", OPTION_TEXT, &o.roots, "LIST",
         "reduce-broadcast: numbers of ranks that share the update of a block", 0, 0},
        {"one-root", OPTION_SWITCH, &o.one_root, NULL,
         "beside each row of reduce-broadcast one with rank 0 as the only root", 0, 0},
        {"host-memory", OPTION_TEXT, &o.memory, "LIST", "of on, off", 0, 0},
        {"longest-nap", OPTION_TEXT, &o.naps, "LIST",
         "microseconds that the communication thread may nap while nothing moves; 0: it "
         "polls without pause",
         0, 0},
        {"network", OPTION_TEXT, &b.network, "FILE",
         "figures of bench network, for the bound of the wire", 0, 0},
        {"json", OPTION_TEXT, &b.json, "FILE", "write the rows there as well", 0, 0},
        {"quiet", OPTION_SWITCH, &o.quiet, NULL, "no progress", 0, 0},
        {"help", OPTION_SWITCH, &o.help, NULL, "this text", 0, 0},
        {0}};
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "bench update: found '%s', needs options only", rest[0]);
    if (st == ST_OK && o.help) {
        print_help(table);
        return ST_OK;
    }
    enum status started = comm_start(&b.comm);
    if (started != ST_OK)
        return started;
    gemm_init();
    b.model = o.model;
    b.compute_s = o.compute_s;
    st = comm_agree(b.comm, st);
    if (st == ST_OK)
        st = run(&b, &o);
    update_release(&b);
    comm_stop(b.comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
