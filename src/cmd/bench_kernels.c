/* SPDX-License-Identifier: MIT */
/* weft bench kernels: every kernel for every instruction set, judged by its definition in
 * double and then timed, in a cache and out of it, beside what that place allows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/bench.h"
#include "cmd/bench_kernel_cases.h"
#include "cmd/bench_machine.h"
#include "kernels/ceiling.h"
#include "kernels/kernels.h"
#include "model/tiling.h"
#include "task/task.h"

enum { FORMAT_VERSION = 1, MOST_REPEATS = 100, MOST_ISAS = 3, PLACES = 2 };
static const double span_s = 0.008; /* CPU time of one measurement */
/* Kernels are within a few roundings of their definitions: 1e-6 and less. */
static const double error_limit = 1e-5;

static const char *const isa_names[MOST_ISAS] = {"generic", "avx2", "avx512"};
static const char *const ceiling_names[] = {[CASE_READ] = "read",
                                            [CASE_COPY] = "copy",
                                            [CASE_TRIAD] = "triad",
                                            [CASE_UPDATE] = "update",
                                            [CASE_FMA] = "fma"};

/* Where the data is: one tile in the second-level cache, or many beyond all caches. */
enum place { IN_CACHE, IN_MEMORY };
static const char *const place_names[PLACES] = {"cache", "memory"};

struct row {
    const struct kernel_case *c;
    const char *isa;
    enum place place;
    size_t tile_bytes;
    double ceiling; /* bytes or operations a second */
    double error;
    bool wrong;
    double rates[MOST_REPEATS];
};

struct kernels_bench {
    struct bench_model model;
    const char *isa; /* NULL: all */
    size_t memory_bytes, repeat;
    bool quiet;
    struct machine machine;
    struct row *rows;
    size_t n_rows, n_wrong;
    float *tiles, *streams; /* memory_bytes each */
    enum status st;
};

/* Tiles of one case in one place. */
struct tiles {
    const struct kernel_case *c;
    struct case_sizes sizes;
    size_t rows, elems; /* of a tile */
    size_t n;
    float *base;
};

static struct case_tile tile_at(const struct tiles *t, size_t i)
{
    struct case_tile tile;

    (void)case_place(t->c, &t->sizes, t->rows, t->base + i * t->elems, &tile);
    return tile;
}

/* In the cache attention has one head, packed: a sequence of all heads has no room. */
static struct tiles plan_tiles(const struct kernels_bench *b, const struct kernel_case *c,
                               enum place place)
{
    const struct shape *s = &b->model.shape;
    struct tiling tiling;
    struct case_tile tile;

    tiling_init(&tiling, s, 1, b->model.seq);
    struct tiles t = {
        .c = c,
        .sizes = {s->C, s->H, b->model.seq, min_size(s->V, tiling.vocab_tile)},
        .n = 1,
        .base = b->tiles};

    if (c->sequence && place == IN_CACHE)
        t.sizes = (struct case_sizes){s->C / s->H, 1, b->model.seq, t.sizes.cols};
    t.rows = case_rows(c, &t.sizes, machine_cache_bytes());
    t.elems = case_place(c, &t.sizes, t.rows, NULL, &tile);
    if (place == IN_MEMORY)
        t.n = max_size(1, b->memory_bytes / sizeof(float) / t.elems);
    return t;
}

/* The largest tile may be larger than the memory that was asked for. */
static size_t tile_floats(const struct kernels_bench *b)
{
    size_t most = b->memory_bytes / sizeof(float);

    for (size_t i = 0; i < n_kernel_cases; i++)
        most = max_size(most, plan_tiles(b, &kernel_cases[i], IN_MEMORY).elems);
    return most;
}

static void fill_tiles(const struct tiles *t, const struct kernels *k)
{
    struct case_tile first = tile_at(t, 0);

    case_fill(t->c, &first);
    if (t->c->prepare)
        t->c->prepare(k, &first);
    for (size_t i = 1; i < t->n; i++)
        memcpy(t->base + i * t->elems, t->base, t->elems * sizeof(float));
}

/* ---- judging and timing ---- */

/* On the first of the tiles that are timed. */
static enum status judge(struct row *r, const struct tiles *t, const struct kernels *k)
{
    struct case_tile before, after = tile_at(t, 0);
    struct arena scratch = {0};
    float *copy;
    enum status st = memory_alloc(t->elems, sizeof *copy, "judge", &copy);

    if (st == ST_OK)
        st = arena_init(&scratch, case_scratch_bytes(t->c, &t->sizes, t->rows), "judge");
    if (st == ST_OK) {
        memcpy(copy, t->base, t->elems * sizeof *copy);
        (void)case_place(t->c, &t->sizes, t->rows, copy, &before);
        t->c->run(k, &after);
        r->error = t->c->judge(&before, &after, &scratch);
        r->wrong = !(r->error <= error_limit);
    }
    arena_release(&scratch);
    free(copy);
    return st;
}

/* Tiles in turn for a while; *next is the one to go on with. */
static double measure(const struct tiles *t, const struct kernels *k, size_t *next)
{
    double start_s = clock_thread_cpu_s(), took_s;
    size_t runs = 0;

    do {
        struct case_tile tile = tile_at(t, *next);

        t->c->run(k, &tile);
        *next = (*next + 1) % t->n;
        runs++;
        took_s = clock_thread_cpu_s() - start_s;
    } while (took_s < span_s);
    return (double)runs * case_work(t->c, &t->sizes, t->rows) / took_s;
}

/* The arrays of a pattern take as much memory as the tiles do. */
static double ceiling_of(const struct kernels_bench *b, const struct row *r)
{
    static const struct {
        enum ceiling_pattern pattern;
        size_t arrays;
    } loops[] = {[CASE_READ] = {CEILING_READ, 1},
                 [CASE_COPY] = {CEILING_COPY, 2},
                 [CASE_TRIAD] = {CEILING_TRIAD, 3},
                 [CASE_UPDATE] = {CEILING_UPDATE, 2}};
    size_t bytes = r->place == IN_CACHE ? min_size(b->memory_bytes, machine_cache_bytes())
                                        : b->memory_bytes;
    float *a = b->streams;

    if (r->c->ceiling == CASE_FMA)
        return ceiling_fma(r->isa, span_s);
    size_t n = bytes / sizeof *a / loops[r->c->ceiling].arrays;

    return ceiling_bandwidth(r->isa, loops[r->c->ceiling].pattern, a, a + n, a + 2 * n, n,
                             span_s);
}

static enum status run_row(struct kernels_bench *b, struct row *r)
{
    struct tiles t = plan_tiles(b, r->c, r->place);
    const struct kernels *k;
    size_t next = 0;
    enum status st = kernels_select(r->isa, &k);

    if (st != ST_OK)
        return st;
    r->tile_bytes = t.elems * sizeof(float);
    fill_tiles(&t, k);
    st = judge(r, &t, k);
    if (st != ST_OK || r->wrong)
        return st;
    r->ceiling = ceiling_of(b, r);
    (void)measure(&t, k, &next);
    for (size_t i = 0; i < b->repeat; i++)
        r->rates[i] = measure(&t, k, &next);
    return ST_OK;
}

static enum status map_floats(size_t n, const char *what, float **out)
{
    void *base;
    enum status st = memory_map(n * sizeof **out, what, &base);

    *out = base;
    return st;
}

static void run(void *arg)
{
    struct kernels_bench *b = arg;
    size_t n = tile_floats(b), stream_floats = b->memory_bytes / sizeof(float);
    struct progress bar;

    progress_begin(&bar, "bench kernels", "row", (double)b->n_rows, !b->quiet);
    b->st = machine_measure(1, b->memory_bytes, &b->machine);
    if (b->st == ST_OK)
        b->st = map_floats(n, "tiles", &b->tiles);
    if (b->st == ST_OK)
        b->st = map_floats(stream_floats, "streams", &b->streams);
    /* Memory that nobody wrote is one page of zeros, read from a cache. */
    for (size_t i = 0; b->st == ST_OK && i < stream_floats; i++)
        b->streams[i] = 1;
    for (size_t i = 0; b->st == ST_OK && i < b->n_rows; i++) {
        b->st = run_row(b, &b->rows[i]);
        b->n_wrong += b->rows[i].wrong;
        progress_update(&bar, (double)(i + 1), b->rows[i].c->name);
    }
    if (b->st == ST_OK)
        progress_end(&bar, (double)b->n_rows);
    memory_unmap(b->tiles, n * sizeof(float));
    memory_unmap(b->streams, stream_floats * sizeof(float));
}

/* ---- telling ---- */

static struct bench_spread spread_of(const struct kernels_bench *b, const struct row *r,
                                     double scale)
{
    double values[MOST_REPEATS];

    for (size_t i = 0; i < b->repeat; i++)
        values[i] = scale * r->rates[i];
    return bench_spread_of(values, b->repeat);
}

static void print_row(const struct kernels_bench *b, const struct row *r)
{
    bool fma = r->c->ceiling == CASE_FMA;
    struct bench_spread of_ceiling = spread_of(b, r, 100 / r->ceiling);
    char spread[32];

    printf("%-24s %-8s %-7s %5zu KiB ", r->c->name, r->isa, place_names[r->place],
           r->tile_bytes >> 10);
    if (r->wrong) {
        printf("%47s %.1e WRONG\n", "", r->error);
        return;
    }
    (void)snprintf(spread, sizeof spread, "%.0f..%.0f", of_ceiling.least,
                   of_ceiling.most);
    printf("%7.1f %s %6.1f %-6s %6.1f %-9s %.1e\n", 1e-9 * spread_of(b, r, 1).median,
           fma ? "GF/s" : "GB/s", 1e-9 * r->ceiling, ceiling_names[r->c->ceiling],
           of_ceiling.median, spread, r->error);
}

static void print_table(const struct kernels_bench *b)
{
    char text[96];

    printf("kernels: %s; one worker\n", bench_model_text(&b->model, text, sizeof text));
    machine_print(&b->machine);
    printf("%-24s %-8s %-7s %9s %12s %13s %6s %-9s %s\n", "", "", "data in", "tile",
           "speed", "ceiling", "%", "", "error");
    for (size_t i = 0; i < b->n_rows; i++)
        print_row(b, &b->rows[i]);
    printf("\nspeed: by CPU time, bytes that must be read and written once, or "
           "operations; ceiling:\nof the same instruction set in the same place\n");
}

static json_t *row_json(const struct kernels_bench *b, const struct row *r)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:f, s:b}", "name",
                            r->c->name, "isa", r->isa, "place", place_names[r->place],
                            "bound", ceiling_names[r->c->ceiling], "unit",
                            r->c->ceiling == CASE_FMA ? "flop/s" : "B/s", "tile_bytes",
                            (json_int_t)r->tile_bytes, "error", bench_number(r->error),
                            "limit", error_limit, "ok", !r->wrong);

    if (row && !r->wrong) {
        json_object_set_new(row, "ceiling", bench_number(r->ceiling));
        bench_set_spread(row, "rate", spread_of(b, r, 1));
        bench_set_spread(row, "of_ceiling", spread_of(b, r, 1 / r->ceiling));
    }
    return row;
}

static json_t *figures_json(const struct kernels_bench *b)
{
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:I, s:I, s:o}", "format", "weft-kernels", "version",
                  FORMAT_VERSION, "weft", WEFT_VERSION, "repeat", (json_int_t)b->repeat,
                  "cache_bytes", (json_int_t)machine_cache_bytes(), "machine",
                  machine_json(&b->machine));
    json_t *list = json_array();

    bench_model_json(root, &b->model);
    for (size_t i = 0; i < b->n_rows; i++)
        json_array_append_new(list, row_json(b, &b->rows[i]));
    json_object_set_new(root, "kernels", list);
    return root;
}

/* ---- the command ---- */

/* Every case in both places, for the instruction sets that are asked for and there. */
static enum status plan_rows(struct kernels_bench *b)
{
    const struct kernels *k;
    enum status st = ST_OK;

    if (b->isa)
        st = kernels_select(b->isa, &k);
    if (st == ST_OK)
        st = memory_alloc(n_kernel_cases * PLACES * MOST_ISAS, sizeof *b->rows, "figures",
                          &b->rows);
    for (size_t c = 0; st == ST_OK && c < n_kernel_cases; c++)
        for (int i = 0; i < MOST_ISAS; i++)
            for (enum place place = IN_CACHE; place <= IN_MEMORY; place++)
                if ((!b->isa || !strcmp(b->isa, isa_names[i])) &&
                    kernels_select(isa_names[i], &k) == ST_OK)
                    b->rows[b->n_rows++] = (struct row){
                        .c = &kernel_cases[c], .isa = isa_names[i], .place = place};
    return st;
}

static enum status check(struct kernels_bench *b, bool seq_is_set)
{
    const size_t least = (size_t)1 << 20, most = (size_t)1 << 40;
    enum status st = bench_model_read(&b->model, seq_is_set);

    if (st == ST_OK && (b->repeat < 1 || b->repeat > MOST_REPEATS))
        st =
            fail(ST_USAGE, "--repeat: found %zu, needs 1 to %d", b->repeat, MOST_REPEATS);
    if (st == ST_OK && (b->memory_bytes < least || b->memory_bytes > most))
        st = fail(ST_USAGE, "--memory: found %zu, needs 1M to 1024G", b->memory_bytes);
    return st;
}

static enum status measure_all(struct kernels_bench *b, const char *json)
{
    enum status st = plan_rows(b);

    if (st == ST_OK) {
        task_run(1, run, b);
        st = b->st;
    }
    if (st == ST_OK) {
        print_table(b);
        if (json)
            st = bench_write_json(figures_json(b), json);
    }
    if (st == ST_OK && b->n_wrong > 0)
        st = fail(ST_BUG,
                  "bench kernels: %zu of %zu rows are wrong: see those marked WRONG",
                  b->n_wrong, b->n_rows);
    free(b->rows);
    return st;
}

enum status bench_kernels(int argc, char **argv, int *exit_code)
{
    struct kernels_bench b = {
        .model = {.spec = "gpt2", .batch = 1, .seq = 256, .threads = 1},
        .memory_bytes = machine_memory_bytes(),
        .repeat = 5};
    const char *json = NULL;
    bool help = false, done;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &b.model.spec, "SPEC", "widths, as of train", 0, 0},
        {"seq", OPTION_SIZE, &b.model.seq, "N", "tokens a sequence; 0: the model's T", 0,
         0},
        {"isa", OPTION_TEXT, &b.isa, "NAME", "only these kernels: generic, avx2, avx512",
         0, 0},
        {"memory", OPTION_SIZE, &b.memory_bytes, "N",
         "bytes that are out of the caches, taken twice", 0, 0},
        {"repeat", OPTION_SIZE, &b.repeat, "N", "repetitions of each measurement", 0, 0},
        {"json", OPTION_TEXT, &json, "FILE", "write the figures there as well", 0, 0},
        {"quiet", OPTION_SWITCH, &b.quiet, NULL, "no progress", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0}};
    const struct bench_command command = {
        .name = "kernels",
        .about =
            "usage: weft bench kernels [options]\n\nMeasures every kernel for every "
            "instruction set of this CPU: first whether it is right,\nthen its speed in "
            "the second-level cache and in memory, beside what they allow.\n\n"
            "example: weft bench kernels --json kernels.json\n",
        .table = table,
        .json = &json,
        .help = &help};
    struct comm *comm;
    enum status st = bench_begin(&command, argc, argv, &done);

    if (st == ST_OK && !done)
        st = check(&b, table[1].set);
    if (st != ST_OK || done)
        return st;
    st = bench_start_alone("kernels", &comm, exit_code);
    if (st != ST_OK || !comm)
        return st;
    st = measure_all(&b, json);
    comm_stop(comm);
    return st;
}
