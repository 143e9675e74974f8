/* SPDX-License-Identifier: MIT */
/* weft bench step: training steps of the real engine on random tokens: how fast, beside
 * what the machine could do, with how much memory, beside the plan, and where the time
 * of the workers goes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cmd/bench.h"
#include "cmd/bench_machine.h"
#include "engine/engine.h"
#include "engine/peak.h"
#include "kernels/kernels.h"
#include "model/products.h"
#include "task/task.h"

enum {
    FORMAT_VERSION = 1,
    MOST_STEPS = 1000,
    MOST_LABELS = 64,
    /* The first touches its memory, the second that of the optimizer. */
    WARM_UP = 2
};
static const double peak_span_s = 0.004;

struct step_bench {
    struct bench_model model;
    size_t accum, steps;
    const char *isa;
    int dtype; /* 1: bf16 */
    int recompute;
    bool quiet;
    struct comm *comm;
    struct engine_options eo;
    struct engine_plan plan;
    struct engine *engine;
    struct machine machine;
    double step_s[MOST_STEPS], cpu_s[MOST_STEPS], peak[MOST_STEPS];
    double first_loss, last_loss;
    double tasks;                   /* a step */
    size_t start_bytes, peak_bytes; /* resident: before the engine was made, at most */
    struct task_label labels[MOST_LABELS];
    size_t n_labels;
    enum status st;
};

/* ---- running ---- */

static size_t most_resident_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

static void fill_tokens(struct step_bench *s, size_t step)
{
    size_t N = s->eo.batch * s->eo.seq;

    for (size_t a = 0; a < s->accum; a++)
        for (size_t i = 0; i < N; i++) {
            uint64_t bits = rng_bits(step, a, i);

            engine_inputs(s->engine, a)[i] = (int32_t)(bits % s->eo.shape.V);
            engine_targets(s->engine, a)[i] = (int32_t)((bits >> 32) % s->eo.shape.V);
        }
}

static void one_step(struct step_bench *s, size_t step, struct step_result *r)
{
    fill_tokens(s, step);
    engine_step(s->engine, 1e-4, step + 1, false, r);
    if (step == 0)
        s->first_loss = r->loss;
    s->last_loss = r->loss;
    if (s->st == ST_OK && !r->finite)
        s->st = fail(ST_NUMERIC, "bench step: step %zu: loss %g, gradient norm %g", step,
                     r->loss, r->grad_norm);
}

/* The peak is measured before every step: they are told beside each other. */
static void timed_step(struct step_bench *s, size_t i)
{
    struct step_result r;
    struct peak peak;

    peak_measure(s->eo.workers, peak_span_s, false, &peak);
    double cpu_s = clock_process_cpu_s(), start_s = clock_s();

    one_step(s, WARM_UP + i, &r);
    s->step_s[i] = clock_s() - start_s;
    s->cpu_s[i] = clock_process_cpu_s() - cpu_s;
    s->peak[i] = peak.fma_flops;
    s->tasks += (double)r.tasks / (double)s->steps;
}

/* Without what was done between the steps; all numbers are of a mean step. */
static void read_labels(struct step_bench *s)
{
    struct task_label all[MOST_LABELS];
    size_t n = min_size(task_profile_get(all, MOST_LABELS), MOST_LABELS);

    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].label, "peak") != 0) {
            all[i].busy_s /= (double)s->steps;
            all[i].cpu_s /= (double)s->steps;
            s->labels[s->n_labels++] = all[i];
        }
}

static void run(void *arg)
{
    struct step_bench *s = arg;
    struct progress bar;
    struct step_result r;

    progress_begin(&bar, "bench step", "step", (double)(WARM_UP + s->steps), !s->quiet);
    engine_init_weights(s->engine, 1);
    for (size_t i = 0; i < WARM_UP && s->st == ST_OK; i++) {
        one_step(s, i, &r);
        progress_update(&bar, (double)(i + 1), NULL);
    }
    task_profile_start();
    for (size_t i = 0; i < s->steps && s->st == ST_OK; i++) {
        timed_step(s, i);
        progress_update(&bar, (double)(WARM_UP + i + 1), NULL);
    }
    task_profile_stop();
    s->peak_bytes = most_resident_bytes();
    if (s->st != ST_OK)
        return;
    progress_end(&bar, (double)(WARM_UP + s->steps));
    read_labels(s);
    s->st = machine_measure(s->eo.workers, machine_memory_bytes(), &s->machine);
}

/* ---- floors ---- */

/* What one label has to do in a step: operations of products, bytes from memory. */
struct amount {
    double flops, bytes;
};

/* The task in which a product is asked for is named after it. */
static bool is_asked_for_in(const struct model_product *p, const char *label)
{
    char own[32];

    if (!strcmp(p->name, "head"))
        return !strcmp(label, p->part == PRODUCT_FORWARD ? "logits" : "head gradient");
    if (p->part == PRODUCT_WEIGHT_GRAD)
        return !strcmp(label, "weight gradient");
    snprintf(own, sizeof own, "%s%s", p->name,
             p->part == PRODUCT_FORWARD ? "" : " backward");
    return !strcmp(label, own);
}

static struct amount amount_of(const struct step_bench *s, const char *label)
{
    const struct shape *shape = &s->eo.shape;
    struct model_product list[MODEL_PRODUCTS_MOST];
    struct amount a = {0};
    struct tiling t;

    tiling_init(&t, shape, s->eo.batch, s->eo.seq);
    size_t n = model_products(shape, &t, s->accum, list);
    /* Products of T x T scores with a head's width, one half of them. */
    double attention = (double)(t.T * (t.T + 1) / 2) *
                       (double)(2 * shape->C * shape->L * t.B * s->accum);

    for (size_t i = 0; i < n; i++)
        if (is_asked_for_in(&list[i], label))
            a.flops += product_flops(&list[i]);
    if (!strcmp(label, "attention"))
        a.flops = 2 * attention;
    if (!strcmp(label, "attention backward"))
        a.flops = 5 * attention;
    if (!strcmp(label, "update")) /* AdamW reads 16 bytes and writes 12 */
        a.bytes = 28 * (double)(s->plan.params / sizeof(float));
    return a;
}

/* The least time of workers for it; NaN where nothing is known. */
static double floor_s(const struct step_bench *s, const char *label)
{
    struct amount a = amount_of(s, label);
    double workers = (double)s->machine.workers;
    double compute_s = a.flops / (s->machine.fma_flops / workers);
    double memory_s = a.bytes / (s->machine.update_Bps / workers);
    double least_s = fmax(compute_s, memory_s);

    return least_s > 0 ? least_s : (double)NAN;
}

/* ---- telling ---- */

struct figures {
    struct bench_spread step_s, tokens_per_s, of_peak, cpu_s;
    struct bench_spread cpu_of_peak; /* had the step lasted as long as its CPU time */
    double flops;                    /* a step */
    double mean_s;                   /* of the steps */
    double busy_s, label_cpu_s, mean_cpu_s;
    double idle;     /* share of the workers' time outside task bodies */
    double overhead; /* share of the CPU time outside task bodies */
};

static struct figures figures_of(const struct step_bench *s)
{
    double tokens = (double)(s->eo.batch * s->eo.seq * s->accum);
    double step_s[MOST_STEPS], rate[MOST_STEPS], share[MOST_STEPS], cpu_s[MOST_STEPS];
    double cpu_share[MOST_STEPS];
    struct figures f = {.flops = shape_train_flops(&s->eo.shape, s->eo.seq, tokens)};

    for (size_t i = 0; i < s->steps; i++) {
        step_s[i] = s->step_s[i];
        cpu_s[i] = s->cpu_s[i];
        rate[i] = tokens / step_s[i];
        share[i] = f.flops / step_s[i] / s->peak[i];
        cpu_share[i] = f.flops * (double)s->machine.workers / cpu_s[i] / s->peak[i];
        f.mean_s += step_s[i] / (double)s->steps;
        f.mean_cpu_s += cpu_s[i] / (double)s->steps;
    }
    for (size_t i = 0; i < s->n_labels; i++) {
        f.busy_s += s->labels[i].busy_s;
        f.label_cpu_s += s->labels[i].cpu_s;
    }
    f.idle = 1 - f.busy_s / ((double)s->machine.workers * f.mean_s);
    f.overhead = 1 - f.label_cpu_s / f.mean_cpu_s;
    f.step_s = bench_spread_of(step_s, s->steps);
    f.tokens_per_s = bench_spread_of(rate, s->steps);
    f.of_peak = bench_spread_of(share, s->steps);
    f.cpu_s = bench_spread_of(cpu_s, s->steps);
    f.cpu_of_peak = bench_spread_of(cpu_share, s->steps);
    return f;
}

static void print_spread(const char *what, struct bench_spread x, double scale,
                         const char *unit)
{
    printf("%-20s %10.4g %-9s (%.4g .. %.4g)\n", what, scale * x.median, unit,
           scale * x.least, scale * x.most);
}

static void print_memory(const struct step_bench *s)
{
    const struct engine_plan *p = &s->plan;

    printf("%-20s %10.4g MB        (%.4g before the engine was made)\n", "peak memory",
           1e-6 * (double)s->peak_bytes, 1e-6 * (double)s->start_bytes);
    printf("%-20s %10.4g MB        = parameters %.4g + gradients %.4g + moments %.4g + "
           "activations\n%44s%.4g + scratch %.4g\n",
           "plan", 1e-6 * (double)p->total, 1e-6 * (double)p->params,
           1e-6 * (double)p->grads, 1e-6 * (double)p->moments, "",
           1e-6 * (double)p->activations, 1e-6 * (double)p->scratch);
}

static void print_labels(const struct step_bench *s, const struct figures *f)
{
    double worker_s = (double)s->machine.workers * f->mean_s;

    printf("\n%-22s %8s %10s %10s %8s %10s %10s\n", "tasks of a step", "number", "ms",
           "CPU ms", "% step", "floor ms", "floor %");
    for (size_t i = 0; i < s->n_labels; i++) {
        const struct task_label *l = &s->labels[i];
        double least_s = floor_s(s, l->label);

        printf("%-22s %8.4g %10.4g %10.4g %8.2f", l->label,
               (double)l->count / (double)s->steps, 1e3 * l->busy_s, 1e3 * l->cpu_s,
               100 * l->busy_s / worker_s);
        if (isfinite(least_s))
            printf(" %10.4g %10.1f", 1e3 * least_s, 100 * least_s / l->cpu_s);
        printf("\n");
    }
    printf("%-22s %8s %10.4g %10.4g %8.2f\n", "outside of tasks", "",
           1e3 * (worker_s - f->busy_s), 1e3 * (f->mean_cpu_s - f->label_cpu_s),
           100 * f->idle);
    printf(
        "\nms: of all workers, in a mean step; floor: matrix products at the peak, the "
        "update\nat the memory's speed; floor %%: of the CPU time\n");
}

static void print_table(const struct step_bench *s)
{
    struct figures f = figures_of(s);
    char text[96];

    printf("training step: %s, %zu micro-batch%s; %.1f M parameters\n%zu worker%s; "
           "kernels %s, products %s, tasks %s\n",
           bench_model_text(&s->model, text, sizeof text), s->accum,
           s->accum == 1 ? "" : "es", 1e-6 * (double)shape_parameters(&s->eo.shape),
           s->model.threads, s->model.threads == 1 ? "" : "s", s->eo.kernels->isa,
           gemm_library(), task_backend());
    machine_print(&s->machine);
    print_spread("step", f.step_s, 1, "s");
    print_spread("speed", f.tokens_per_s, 1, "tokens/s");
    print_spread("of the peak", f.of_peak, 100, "%");
    print_spread("CPU time a step", f.cpu_s, 1, "s");
    print_spread("of the peak, by that", f.cpu_of_peak, 100, "%");
    printf("%-20s %10.4g %9s (first: %.4g)\n", "loss of the last step", s->last_loss, "",
           s->first_loss);
    print_memory(s);
    printf("%-20s %10.4g a step    (%.2f %% of the CPU time is outside of them)\n",
           "tasks", s->tasks, 100 * f.overhead);
    print_labels(s, &f);
}

static json_t *plan_json(const struct engine_plan *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "params", (json_int_t)p->params,
                     "grads", (json_int_t)p->grads, "moments", (json_int_t)p->moments,
                     "activations", (json_int_t)p->activations, "scratch",
                     (json_int_t)p->scratch, "total", (json_int_t)p->total);
}

static json_t *labels_json(const struct step_bench *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_labels; i++) {
        const struct task_label *l = &s->labels[i];

        json_array_append_new(list,
                              json_pack("{s:s, s:f, s:f, s:f, s:o}", "label", l->label,
                                        "tasks", (double)l->count / (double)s->steps,
                                        "busy_s", l->busy_s, "cpu_s", l->cpu_s, "floor_s",
                                        bench_number(floor_s(s, l->label))));
    }
    return list;
}

static json_t *step_list_json(const double *values, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, bench_number(values[i]));
    return list;
}

static json_t *figures_json(const struct step_bench *s)
{
    struct figures f = figures_of(s);
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, "
        "s:f, s:f, "
        "s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}",
        "format", "weft-step", "version", FORMAT_VERSION, "weft", WEFT_VERSION, "library",
        gemm_library(), "isa", s->eo.kernels->isa, "task_backend", task_backend(),
        "dtype", s->dtype == 1 ? "bf16" : "fp32", "recompute",
        recompute_name(s->eo.recompute), "accum", (json_int_t)s->accum, "steps",
        (json_int_t)s->steps, "flops", f.flops, "first_loss", s->first_loss, "last_loss",
        s->last_loss, "tasks", s->tasks, "busy_s", f.busy_s, "idle_share", f.idle,
        "overhead_share", f.overhead, "start_bytes", (json_int_t)s->start_bytes,
        "peak_bytes", (json_int_t)s->peak_bytes, "plan", plan_json(&s->plan), "machine",
        machine_json(&s->machine), "labels", labels_json(s), "all_step_s",
        step_list_json(s->step_s, s->steps), "all_cpu_s",
        step_list_json(s->cpu_s, s->steps), "all_peak_flops",
        step_list_json(s->peak, s->steps));

    if (!root)
        return NULL;
    bench_model_json(root, &s->model);
    bench_set_spread(root, "step_s", f.step_s);
    bench_set_spread(root, "tokens_per_s", f.tokens_per_s);
    bench_set_spread(root, "of_peak", f.of_peak);
    bench_set_spread(root, "cpu_s", f.cpu_s);
    bench_set_spread(root, "cpu_of_peak", f.cpu_of_peak);
    return root;
}

/* ---- the command ---- */

static enum status check(struct step_bench *s, bool seq_is_set)
{
    enum status st = bench_model_read(&s->model, seq_is_set);

    if (st == ST_OK && (s->steps < 1 || s->steps > MOST_STEPS))
        st = fail(ST_USAGE, "--steps: found %zu, needs 1 to %d", s->steps, MOST_STEPS);
    if (st == ST_OK && (s->accum < 1 || s->accum > 4096))
        st = fail(ST_USAGE, "--accum: found %zu, needs 1 to 4096", s->accum);
    return st;
}

static enum status check_memory(double bytes)
{
    double there = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    if (bytes > there)
        return fail(ST_NOMEM, "bench step: needs %.1f GB, this machine has %.1f GB",
                    1e-9 * bytes, 1e-9 * there);
    return ST_OK;
}

/* Parameters, gradients and moments of the large matrices alone: planning blocks for a
 * model beyond all bounds would itself take long. */
static double least_bytes(const struct shape *s)
{
    double C = (double)s->C;

    return 16 * (12 * (double)s->L * C * C + (double)s->Vp * C);
}

static enum status prepare(struct step_bench *s)
{
    s->eo = (struct engine_options){.shape = s->model.shape,
                                    .batch = s->model.batch,
                                    .seq = s->model.seq,
                                    .accum = s->accum,
                                    .workers = (int)s->model.threads,
                                    .train = true,
                                    .recompute = (enum recompute)s->recompute,
                                    .overlap = true,
                                    .adamw = {0.9, 0.95, 1e-8, 0.1},
                                    .clip = 1};
    gemm_init();
    enum status st = kernels_select(s->isa, &s->eo.kernels);

    if (st == ST_OK && s->dtype == 1)
        st = gemm_bf16_select(s->isa, &s->eo.half);
    if (st == ST_OK)
        st = check_memory(least_bytes(&s->eo.shape));
    if (st == ST_OK)
        st = engine_make_plan(&s->eo, 0, 1, NULL, &s->plan);
    return st == ST_OK ? check_memory((double)s->plan.total) : st;
}

static enum status measure(struct step_bench *s, const char *json)
{
    s->st = prepare(s);
    s->start_bytes = memory_resident_bytes();
    if (s->st == ST_OK)
        s->st = engine_new(s->comm, &s->eo, &s->engine);
    if (s->st == ST_OK)
        engine_run(s->engine, run, s);
    engine_free(s->engine);
    if (s->st != ST_OK)
        return s->st;
    print_table(s);
    return json ? bench_write_json(figures_json(s), json) : ST_OK;
}

enum status bench_step(int argc, char **argv, int *exit_code)
{
    static struct step_bench s = {
        .model = {.spec = "gpt2", .batch = 4, .seq = 256}, .accum = 1, .steps = 10};
    const char *json = NULL;
    bool help = false, done;
    struct option_row table[] = {
        {"model", OPTION_TEXT, &s.model.spec, "SPEC", "as of train", 0, 0},
        {"batch", OPTION_SIZE, &s.model.batch, "N", "sequences of a micro-batch", 0, 0},
        {"seq", OPTION_SIZE, &s.model.seq, "N", "tokens a sequence; 0: the model's T", 0,
         0},
        {"accum", OPTION_SIZE, &s.accum, "N", "micro-batches a step", 0, 0},
        {"threads", OPTION_SIZE, &s.model.threads, "N", "workers; 0: the cores", 0, 0},
        {"steps", OPTION_SIZE, &s.steps, "N", "steps that are timed, after two others", 0,
         0},
        {"isa", OPTION_TEXT, &s.isa, "NAME", "force kernels: generic, avx2, avx512", 0,
         0},
        {"dtype", OPTION_CHOICE, &s.dtype, "fp32|bf16", "factors of the matrix products",
         0, 0},
        {"recompute", OPTION_CHOICE, &s.recompute, RECOMPUTE_WORDS,
         "what backward computes again to save memory", 0, 0},
        {"json", OPTION_TEXT, &json, "FILE", "write the figures there as well", 0, 0},
        {"quiet", OPTION_SWITCH, &s.quiet, NULL, "no progress", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0}};
    const struct bench_command command = {
        .name = "step",
        .about =
            "usage: weft bench step [options]\n\nTrains on random tokens for a few steps "
            "and tells their speed beside the machine's\nmultiply-adds, their memory "
            "beside the plan, and where the time of the workers\ngoes.\n\n"
            "example: weft bench step --model gpt2 --batch 4 --seq 256\n",
        .table = table,
        .json = &json,
        .help = &help};
    enum status st = bench_begin(&command, argc, argv, &done);

    if (st == ST_OK && !done)
        st = check(&s, table[2].set);
    if (st == ST_OK && !done)
        st = bench_start_alone("step", &s.comm, exit_code);
    if (st != ST_OK || done || !s.comm)
        return st;
    st = measure(&s, json);
    comm_stop(s.comm);
    return st;
}
