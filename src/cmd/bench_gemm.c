/* SPDX-License-Identifier: MIT */
/* weft bench gemm: every matrix product of a training step, in the shapes and the order
 * of operands in which the model asks for it, judged and then timed beside the ceiling.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cmd/bench.h"
#include "cmd/bench_check.h"
#include "cmd/bench_machine.h"
#include "engine/peak.h"
#include "kernels/kernels.h"
#include "model/products.h"
#include "task/task.h"

enum {
    FORMAT_VERSION = 1,
    MOST_REPEATS = 100,
    MOST_SETS = 16, /* of operands */
    SET_FLOATS = 16 << 20
};
static const double span_s = 0.02; /* of one measurement, on every worker */
static const double peak_span_s = 0.003;
/* Multiplications to judge a product by. */
static const double check_budget = 5e8;

/* Operands of many calls, one set after another: weights of other layers, rows of other
 * tiles. What a call finds in the caches is then about what it finds in training. */
struct operand {
    float *base;
    size_t elems; /* of a set */
    size_t sets;
    size_t reuse; /* calls in a row that share a set */
};

struct row {
    struct model_product p;
    struct operand a, b, c;
    double share; /* of the step's operations */
    double error, limit;
    bool wrong;
    double rates[MOST_REPEATS]; /* flop/s, all workers */
    double of_peak[MOST_REPEATS];
};

struct gemm_bench {
    struct bench_model model;
    struct tiling tiling;
    size_t repeat;
    bool quiet;
    struct machine machine;
    struct row *rows;
    size_t n_rows, n_wrong;
    float *a, *b, *c; /* memory of the operands; c has a part for each worker */
    size_t a_elems, b_elems, c_elems;
    enum status st;
};

/* ---- operands ---- */

static size_t sets_of(size_t elems)
{
    return max_size(1, min_size(MOST_SETS, SET_FLOATS / elems));
}

static struct operand operand_of(size_t elems, size_t reuse)
{
    return (struct operand){
        .elems = elems, .sets = sets_of(elems), .reuse = max_size(1, reuse)};
}

/* How long an operand stays the same follows from the order in which tasks are made. */
static void plan_operands(const struct gemm_bench *g, struct row *r)
{
    const struct model_product *p = &r->p;
    const struct tiling *t = &g->tiling;
    bool head = !strcmp(p->name, "head");
    size_t a_reuse = 1, b_reuse = 1;

    /* The rows of a chunk stay while tiles of columns and of the vocabulary pass. */
    if (p->part == PRODUCT_FORWARD)
        a_reuse = head ? t->vocab_tiles : ceil_div(p->ldc, p->n);
    else if (p->part == PRODUCT_WEIGHT_GRAD)
        b_reuse = head ? t->vocab_tiles : ceil_div(p->lda, p->m) * ceil_div(p->ldb, p->n);
    else if (!head)
        a_reuse = ceil_div(p->ldc, p->n);
    r->a = operand_of((p->ta ? p->k : p->m) * p->lda, a_reuse);
    r->b = operand_of((p->tb ? p->n : p->k) * p->ldb, b_reuse);
    r->c = operand_of(p->m * p->ldc, 1);
}

static const size_t noise_elems = 1048573; /* a prime: sets differ */

static void fill(float *x, size_t n, uint64_t stream)
{
    for (size_t i = 0; i < n; i++)
        x[i] = i < noise_elems ? (float)(2 * rng_uniform(1, stream, i) - 1)
                               : x[i - noise_elems];
}

static enum status map_floats(size_t n, uint64_t stream, float **out)
{
    void *base;
    enum status st = memory_map(n * sizeof **out, "operands", &base);

    *out = base;
    if (st == ST_OK)
        fill(*out, n, stream);
    return st;
}

static enum status make_operands(struct gemm_bench *g)
{
    for (size_t i = 0; i < g->n_rows; i++) {
        struct row *r = &g->rows[i];

        plan_operands(g, r);
        g->a_elems = max_size(g->a_elems, r->a.elems * r->a.sets);
        g->b_elems = max_size(g->b_elems, r->b.elems * r->b.sets);
        g->c_elems = max_size(g->c_elems, r->c.elems * r->c.sets);
    }
    enum status st = map_floats(g->a_elems, 1, &g->a);

    if (st == ST_OK)
        st = map_floats(g->b_elems, 2, &g->b);
    if (st == ST_OK)
        st = map_floats(g->c_elems * g->model.threads, 3, &g->c);
    for (size_t i = 0; i < g->n_rows; i++) {
        g->rows[i].a.base = g->a;
        g->rows[i].b.base = g->b;
        g->rows[i].c.base = g->c;
    }
    return st;
}

static void release(struct gemm_bench *g)
{
    memory_unmap(g->a, g->a_elems * sizeof(float));
    memory_unmap(g->b, g->b_elems * sizeof(float));
    memory_unmap(g->c, g->c_elems * g->model.threads * sizeof(float));
    free(g->rows);
}

static float *set_of(const struct operand *o, size_t call)
{
    return o->base + call / o->reuse % o->sets * o->elems;
}

static void multiply(const struct model_product *p, const float *A, const float *B,
                     float *C)
{
    gemm(p->ta, p->tb, p->m, p->n, p->k, A, p->lda, B, p->ldb, p->beta, C, p->ldc);
}

/* ---- judging and timing ---- */

/* On the very operands that are timed. Where C is overwritten it holds NaN before. */
static enum status judge(struct row *r)
{
    const struct model_product *p = &r->p;
    float *A = set_of(&r->a, 0), *B = set_of(&r->b, 0), *C = set_of(&r->c, 0);
    float *before;
    enum status st = memory_alloc(r->c.elems, sizeof *before, "judge", &before);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; p->beta == 0 && i < r->c.elems; i++)
        C[i] = NAN;
    memcpy(before, C, r->c.elems * sizeof *C);
    multiply(p, A, B, C);
    st = check_product(p, A, B, before, C, check_budget, &r->error);
    /* What lies between the rows of C was NaN too. */
    if (p->beta == 0)
        fill(C, r->c.elems, 3);
    free(before);
    r->limit = check_product_limit(p->k);
    r->wrong = !(r->error <= r->limit);
    return st;
}

/* What one worker does in one measurement. Its speed is by its own CPU time: what others
 * take of the core meanwhile says nothing about the product. */
struct lane {
    const struct row *row;
    float *c; /* of its own */
    size_t first;
    double rate; /* flop/s */
};

static void do_multiply(void *args, struct task_event event)
{
    struct lane *l = *(struct lane **)args;
    const struct model_product *p = &l->row->p;
    struct operand c = l->row->c;
    double end_s = clock_s() + span_s, cpu_s = clock_thread_cpu_s();
    size_t call = l->first;

    (void)event;
    c.base = l->c;
    do {
        multiply(p, set_of(&l->row->a, call), set_of(&l->row->b, call), set_of(&c, call));
        call++;
    } while (clock_s() < end_s);
    l->rate = 2.0 * (double)p->m * (double)p->n * (double)p->k *
              (double)(call - l->first) / (clock_thread_cpu_s() - cpu_s);
}

/* All workers at the same time, as in training. */
static double measure(const struct gemm_bench *g, const struct row *r, struct lane *lanes)
{
    double rate = 0;

    for (size_t i = 0; i < g->model.threads; i++) {
        struct lane *l = &lanes[i];

        *l = (struct lane){.row = r, .c = g->c + i * g->c_elems, .first = i * MOST_SETS};
        task_spawn(&(struct task){
            .label = "product", .body = do_multiply, .args = &l, .args_bytes = sizeof l});
    }
    task_wait_all();
    for (size_t i = 0; i < g->model.threads; i++)
        rate += lanes[i].rate;
    return rate;
}

static enum status time_rows(struct gemm_bench *g, struct progress *bar)
{
    struct lane *lanes;
    enum status st = memory_alloc(g->model.threads, sizeof *lanes, "lanes", &lanes);

    for (size_t n = 0; st == ST_OK && n < g->repeat; n++)
        for (size_t i = 0; i < g->n_rows; i++) {
            struct row *r = &g->rows[i];
            struct peak peak;

            progress_update(bar, (double)(g->n_rows + n * g->n_rows + i), NULL);
            if (r->wrong)
                continue;
            peak_measure((int)g->model.threads, peak_span_s, false, &peak);
            r->rates[n] = measure(g, r, lanes);
            r->of_peak[n] = r->rates[n] / peak.fma_flops;
        }
    free(lanes);
    return st;
}

static void run(void *arg)
{
    struct gemm_bench *g = arg;
    struct progress bar;

    g->st = machine_measure((int)g->model.threads, machine_memory_bytes(), &g->machine);
    if (g->st == ST_OK)
        g->st = make_operands(g);
    progress_begin(&bar, "bench gemm", "product", (double)(g->n_rows * (g->repeat + 1)),
                   !g->quiet);
    for (size_t i = 0; g->st == ST_OK && i < g->n_rows; i++) {
        g->st = judge(&g->rows[i]);
        g->n_wrong += g->rows[i].wrong;
        progress_update(&bar, (double)(i + 1), NULL);
    }
    if (g->st == ST_OK)
        g->st = time_rows(g, &bar);
    if (g->st == ST_OK)
        progress_end(&bar, (double)(g->n_rows * (g->repeat + 1)));
}

/* ---- telling ---- */

/* Of the whole step, were it products alone: operations over the sum of times. */
static void total(const struct gemm_bench *g, struct bench_spread *rate,
                  struct bench_spread *of_peak)
{
    double rates[MOST_REPEATS], shares[MOST_REPEATS];

    for (size_t n = 0; n < g->repeat; n++) {
        double times = 0, peak_times = 0, done = 0;

        for (size_t i = 0; i < g->n_rows; i++) {
            if (g->rows[i].wrong)
                continue;
            done += g->rows[i].share;
            times += g->rows[i].share / g->rows[i].rates[n];
            peak_times += g->rows[i].share / g->rows[i].of_peak[n];
        }
        rates[n] = done / times;
        shares[n] = done / peak_times;
    }
    *rate = bench_spread_of(rates, g->repeat);
    *of_peak = bench_spread_of(shares, g->repeat);
}

static void print_line(const char *name, const char *part, const char *shape,
                       const char *calls, double share, struct bench_spread rate,
                       struct bench_spread of_peak, const char *error)
{
    char spread[32];

    (void)snprintf(spread, sizeof spread, "%.1f..%.1f", 100 * of_peak.least,
                   100 * of_peak.most);
    printf("%-8s %-15s %-23s %6s %6.1f %8.1f %6.1f %-13s %s\n", name, part, shape, calls,
           100 * share, 1e-9 * rate.median, 100 * of_peak.median, spread, error);
}

static void print_table(struct gemm_bench *g)
{
    struct bench_spread rate, of_peak;
    char text[96];

    printf("matrix products of a training step: %s; %s, %zu worker%s\n",
           bench_model_text(&g->model, text, sizeof text), gemm_library(),
           g->model.threads, g->model.threads == 1 ? "" : "s");
    machine_print(&g->machine);
    printf("%-8s %-15s %-23s %6s %6s %8s %6s %-13s %s\n", "", "", "m x n x k", "calls",
           "% ops", "GF/s", "% peak", "least..most", "error");
    for (size_t i = 0; i < g->n_rows; i++) {
        struct row *r = &g->rows[i];
        const struct model_product *p = &r->p;
        char shape[64], calls[24], error[48];

        (void)snprintf(shape, sizeof shape, "%zu x %zu x %zu%s", p->m, p->n, p->k,
                       p->beta != 0 ? " +" : "");
        (void)snprintf(calls, sizeof calls, "%zu", p->calls);
        (void)snprintf(error, sizeof error, "%.1e%s", r->error, r->wrong ? " WRONG" : "");
        if (r->wrong)
            printf("%-8s %-15s %-23s %6s %6.1f %30s %s\n", p->name,
                   product_part_name(p->part), shape, calls, 100 * r->share, "", error);
        else
            print_line(p->name, product_part_name(p->part), shape, calls, r->share,
                       bench_spread_of(r->rates, g->repeat),
                       bench_spread_of(r->of_peak, g->repeat), error);
    }
    total(g, &rate, &of_peak);
    print_line("all", "", "", "", 1, rate, of_peak, "");
    printf(
        "\n+: added to what is there; speeds are by the CPU time of the workers, all of "
        "them;\n%% peak: of multiply-adds measured beside each repetition; all: "
        "operations over the\nsum of the times\n");
}

static json_t *row_json(struct gemm_bench *g, struct row *r)
{
    const struct model_product *p = &r->p;
    json_t *row = json_pack(
        "{s:s, s:s, s:b, s:b, s:I, s:I, s:I, s:f, s:I, s:f, s:o, s:f, s:b}", "name",
        p->name, "part", product_part_name(p->part), "transpose_a", p->ta, "transpose_b",
        p->tb, "m", (json_int_t)p->m, "n", (json_int_t)p->n, "k", (json_int_t)p->k,
        "beta", (double)p->beta, "calls", (json_int_t)p->calls, "share", r->share,
        "error", bench_number(r->error), "limit", r->limit, "ok", !r->wrong);

    if (row && !r->wrong) {
        bench_set_spread(row, "flops", bench_spread_of(r->rates, g->repeat));
        bench_set_spread(row, "of_peak", bench_spread_of(r->of_peak, g->repeat));
    }
    return row;
}

static json_t *figures_json(struct gemm_bench *g)
{
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:o}", "format", "weft-gemm", "version",
                  FORMAT_VERSION, "weft", WEFT_VERSION, "library", gemm_library(),
                  "repeat", (json_int_t)g->repeat, "machine", machine_json(&g->machine));
    json_t *list = json_array();
    struct bench_spread rate, of_peak;

    bench_model_json(root, &g->model);
    for (size_t i = 0; i < g->n_rows; i++)
        json_array_append_new(list, row_json(g, &g->rows[i]));
    json_object_set_new(root, "products", list);
    total(g, &rate, &of_peak);
    bench_set_spread(root, "flops", rate);
    bench_set_spread(root, "of_peak", of_peak);
    return root;
}

static enum status plan_rows(struct gemm_bench *g)
{
    struct model_product list[MODEL_PRODUCTS_MOST];
    double flops = 0;

    tiling_init(&g->tiling, &g->model.shape, g->model.batch, g->model.seq);
    g->n_rows = model_products(&g->model.shape, &g->tiling, 1, list);
    enum status st = memory_alloc(g->n_rows, sizeof *g->rows, "figures", &g->rows);

    for (size_t i = 0; i < g->n_rows; i++)
        flops += product_flops(&list[i]);
    for (size_t i = 0; st == ST_OK && i < g->n_rows; i++) {
        g->rows[i].p = list[i];
        g->rows[i].share = product_flops(&list[i]) / flops;
    }
    return st;
}

static enum status tell(struct gemm_bench *g, const char *json)
{
    enum status st = ST_OK;

    print_table(g);
    if (json)
        st = bench_write_json(figures_json(g), json);
    if (st == ST_OK && g->n_wrong > 0)
        st = fail(ST_BUG,
                  "bench gemm: %zu of %zu products by %s are wrong: see the rows marked "
                  "WRONG",
                  g->n_wrong, g->n_rows, gemm_library());
    return st;
}

enum status bench_gemm(int argc, char **argv, int *exit_code)
{
    struct gemm_bench g = {.model = {.spec = "gpt2", .batch = 4, .seq = 256},
                           .repeat = 5};
    const char *json = NULL;
    bool help = false, done;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &g.model.spec, "SPEC", "as of train", 0, 0},
        {"batch", OPTION_SIZE, &g.model.batch, "N", "sequences of a micro-batch", 0, 0},
        {"seq", OPTION_SIZE, &g.model.seq, "N", "tokens a sequence; 0: the model's T", 0,
         0},
        {"threads", OPTION_SIZE, &g.model.threads, "N",
         "workers that multiply at the same time; 0: the cores", 0, 0},
        {"repeat", OPTION_SIZE, &g.repeat, "N", "repetitions of each measurement", 0, 0},
        {"json", OPTION_TEXT, &json, "FILE", "write the figures there as well", 0, 0},
        {"quiet", OPTION_SWITCH, &g.quiet, NULL, "no progress", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0}};
    const struct bench_command command = {
        .name = "gemm",
        .about =
            "usage: weft bench gemm [options]\n\nMeasures each matrix product of a "
            "training step in the tiles that training uses:\nfirst whether it is right, "
            "then its speed beside the machine's multiply-adds.\n\n"
            "example: weft bench gemm --model gpt2 --batch 4 --seq 256\n",
        .table = table,
        .json = &json,
        .help = &help};
    struct comm *comm;
    enum status st = bench_begin(&command, argc, argv, &done);

    if (st != ST_OK || done)
        return st;
    st = bench_model_read(&g.model, table[2].set);
    if (st == ST_OK && (g.repeat < 1 || g.repeat > MOST_REPEATS))
        st = fail(ST_USAGE, "--repeat: found %zu, needs 1 to %d", g.repeat, MOST_REPEATS);
    if (st == ST_OK)
        st = bench_start_alone("gemm", &comm, exit_code);
    if (st != ST_OK || !comm)
        return st;
    gemm_init();
    st = plan_rows(&g);
    if (st == ST_OK) {
        task_run((int)g.model.threads, run, &g);
        st = g.st;
    }
    if (st == ST_OK)
        st = tell(&g, json);
    release(&g);
    comm_stop(comm);
    return st;
}
