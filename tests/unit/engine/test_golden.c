/* SPDX-License-Identifier: MIT */
/* The engine against PyTorch: logits, loss, every gradient tensor, and the weights after
 * three AdamW steps with and without clipping, for every way to run a step that one rank
 * knows. Limits stand in tests/golden/tolerances.csv. */
#include "fixture.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/files.h"
#include "checkpoint/checkpoint.h"

enum { STEPS = 3, HEADER_BYTES = 1024 };

struct after {
    double limit; /* of the norm; 0: no clipping */
    double losses[STEPS], norms[STEPS];
    float *weights;
};

struct golden {
    const char *name;
    struct layout layout; /* canonical places of the tensors */
    size_t B, T;
    char *state; /* the debug state file, which the next five point into */
    const int32_t *x, *y;
    const float *logits, *loss, *grads;
    float *start;
    struct adamw_options adamw;
    double lr;
    struct after after[2];
};

/* ---- reading the files ---- */

static const char *path_of(const char *name, const char *end)
{
    static char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s%s", GOLDEN_FOLDER, name, end);
    return path;
}

/* The weights of a model file as a canonical vector. */
static float *read_weights(struct golden *g, const char *end)
{
    struct model_file file;
    enum status st = model_open(path_of(g->name, end), &file);

    if (st != ST_OK)
        fail_msg("%s", fail_text());
    if (!g->layout.slices)
        assert_int_equal(layout_init(&g->layout, &file.shape, LAYOUT_STORAGE), ST_OK);
    float *memory = calloc(g->layout.elems, sizeof *memory);
    assert_non_null(memory);
    if (model_read(&file, &g->layout, memory) != ST_OK)
        fail_msg("%s", fail_text());
    float *canonical = canonical_new(&g->layout, memory);
    free(memory);
    return canonical;
}

static void read_state(struct golden *g)
{
    size_t bytes;

    assert_int_equal(
        file_read_all(path_of(g->name, "_debug_state.bin"), &g->state, &bytes), ST_OK);
    const int32_t *head = (const int32_t *)(void *)g->state;
    assert_int_equal(head[0], 20240327);
    assert_int_equal(head[1], 2);
    g->B = (size_t)head[2];
    g->T = (size_t)head[3];
    g->x = head + HEADER_BYTES / 4;
    g->y = g->x + g->B * g->T;
    g->logits = (const float *)(g->y + g->B * g->T);
    g->loss = g->logits + g->B * g->T * g->layout.shape.V;
    g->grads = g->loss + 1;
    assert_int_equal((const char *)(g->grads + g->layout.canonical_elems) - g->state,
                     bytes);
}

static void read_after(struct golden *g, const json_t *about, const char *key,
                       struct after *a)
{
    const json_t *o = json_object_get(about, key);
    const json_t *limit = json_object_get(o, "limit");
    char end[32];

    a->limit = limit ? json_number_value(limit) : 0;
    for (size_t i = 0; i < STEPS; i++) {
        a->losses[i] = json_number_value(json_array_get(json_object_get(o, "losses"), i));
        a->norms[i] =
            json_number_value(json_array_get(json_object_get(o, "grad_norms"), i));
        assert_true(a->losses[i] > 0 && a->norms[i] > 0);
    }
    (void)snprintf(end, sizeof end, "_%s.bin", key);
    a->weights = read_weights(g, end);
}

static void read_golden(struct golden *g, const char *name)
{
    json_error_t error;

    *g = (struct golden){.name = name};
    g->start = read_weights(g, "_model.bin");
    read_state(g);
    json_t *about = json_load_file(path_of(name, ".json"), 0, &error);
    assert_non_null(about);
    const json_t *o = json_object_get(about, "optimizer");
    assert_int_equal(json_integer_value(json_object_get(o, "steps")), STEPS);
    const json_t *betas = json_object_get(o, "betas");
    g->lr = json_number_value(json_object_get(o, "lr"));
    g->adamw = (struct adamw_options){json_number_value(json_array_get(betas, 0)),
                                      json_number_value(json_array_get(betas, 1)),
                                      json_number_value(json_object_get(o, "eps")),
                                      json_number_value(json_object_get(o, "decay"))};
    read_after(g, about, "after3", &g->after[0]);
    read_after(g, about, "clip", &g->after[1]);
    json_decref(about);
}

static void release_golden(struct golden *g)
{
    free(g->state);
    free(g->start);
    free(g->after[0].weights);
    free(g->after[1].weights);
    layout_release(&g->layout);
}

/* ---- ways to run a step ---- */

struct way {
    enum layout_order layout;
    int workers;
    size_t block_bytes; /* 0: one block */
    bool overlap;
    bool split; /* the batch as micro-batches of one sequence */
    bool half;  /* bf16 products */
};

static struct engine_options options_of(const struct golden *g, const struct way *w)
{
    struct engine_options o =
        fixture_options(g->layout.shape, w->split ? 1 : g->B, g->T, w->split ? g->B : 1);

    o.layout = w->layout;
    o.workers = w->workers;
    o.overlap = w->overlap;
    o.one_block = w->block_bytes == 0;
    o.block_bytes = w->block_bytes ? w->block_bytes : 64;
    o.adamw = g->adamw;
    if (w->half)
        assert_int_equal(gemm_bf16_select(NULL, &o.half), ST_OK);
    return o;
}

static const char *describe(const struct golden *g, const struct way *w)
{
    static char text[160];

    (void)snprintf(text, sizeof text, "%s, %s, %d workers, blocks of %zu, %s, %s%s",
                   g->name, w->layout == LAYOUT_STORAGE ? "storage" : "production",
                   w->workers, w->block_bytes, w->overlap ? "overlap" : "turns",
                   w->split ? "split" : "whole", w->half ? ", bf16" : "");
    return text;
}

static void each_way(void (*check)(const struct golden *g, const struct way *w))
{
    static const char *const names[] = {"tiny_a", "tiny_b", "tiny_c"};

    for (size_t n = 0; n < 3; n++) {
        struct golden g;

        read_golden(&g, names[n]);
        for (unsigned i = 0; i < 4 * 16; i++)
            check(&g, &(struct way){.layout = i & 1 ? LAYOUT_STORAGE : LAYOUT_PRODUCTION,
                                    .block_bytes = i & 2 ? 64 : 0,
                                    .split = i & 4,
                                    .overlap = i & 8,
                                    .half = i / 16 == 3,
                                    .workers = (int)(i / 16 % 3 + 1)});
        release_golden(&g);
    }
}

static void fill(struct engine *e, size_t step, void *arg)
{
    const struct golden *g = arg;
    size_t bytes = g->B * g->T * sizeof *g->x;

    (void)step;
    /* Buffers of micro-batches follow each other. */
    memcpy(engine_inputs(e, 0), g->x, bytes);
    memcpy(engine_targets(e, 0), g->y, bytes);
}

/* ---- comparisons; the worst of each kind is printed at the end ---- */

static struct {
    double distance;
    char where[256];
} worst[8];
enum { LOGITS, LOSS, GRADIENT, WEIGHTS, HALF };
static const char *const limit_names[] = {"engine_logits",        "engine_loss",
                                          "engine_gradient",      "engine_weights",
                                          "engine_logits_bf16",   "engine_loss_bf16",
                                          "engine_gradient_bf16", "engine_weights_bf16"};

static void judge(int kind, double distance, const char *where)
{
    if (distance > worst[kind].distance) {
        worst[kind].distance = distance;
        (void)snprintf(worst[kind].where, sizeof worst[kind].where, "%s", where);
    }
}

static void compare(int kind, const float *found, const float *expected, size_t n,
                    const char *tensor, const struct golden *g, const struct way *w)
{
    struct distance d = distance_of(found, expected, n);
    int row = kind + (w->half ? HALF : 0);
    double limit = fixture_limit(limit_names[row]);
    char where[256];

    (void)snprintf(where, sizeof where, "%s (%s)", tensor, describe(g, w));
    judge(row, d.relative_l2, where);
    if (!(d.relative_l2 <= limit))
        fail_msg("%s: relative L2 %.3e, limit %.1e; [%zu]: found %.9g, needs %.9g", where,
                 d.relative_l2, limit, d.worst, (double)found[d.worst],
                 (double)expected[d.worst]);
}

static void compare_number(double found, double expected, const char *what,
                           const struct golden *g, const struct way *w)
{
    double distance = fabs(found - expected) / fabs(expected);

    int row = LOSS + (w->half ? HALF : 0);

    judge(row, distance, what);
    if (!(distance <= fixture_limit(limit_names[row])))
        fail_msg("%s (%s): found %.9g, needs %.9g", what, describe(g, w), found,
                 expected);
}

static void compare_slices(int kind, const float *found, const float *expected,
                           const struct golden *g, const struct way *w)
{
    const struct layout *l = &g->layout;

    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];
        const float *f = found + s->canonical_offset;
        const float *x = expected + s->canonical_offset;
        char name[32];

        slice_name(s, name, sizeof name);
        if (kind == WEIGHTS && s->kind == QKVB) {
            /* The key bias has a true gradient of 0: rounding alone moves it. */
            size_t C = l->shape.C;

            compare(kind, f, x, C, name, g, w);
            compare(kind, f + 2 * C, x + 2 * C, C, name, g, w);
        } else {
            compare(kind, f, x, s->elems, name, g, w);
        }
    }
}

static void padding_is_zero(const struct layout *l, const float *canonical,
                            const char *what)
{
    const struct slice *wte = layout_slice(l, WTE, 0);

    for (size_t i = l->shape.V * l->shape.C; i < wte->elems; i++)
        if (!(fabsf(canonical[wte->canonical_offset + i]) <= 0))
            fail_msg("%s of padding: wte[%zu] is %g, needs 0", what, i,
                     (double)canonical[wte->canonical_offset + i]);
}

/* ---- tests ---- */

struct logits_job {
    struct engine *e;
    const struct golden *g;
    size_t batch;
    float *logits;
};

static void compute_logits(void *arg)
{
    struct logits_job *j = arg;
    const struct golden *g = j->g;
    size_t rows = j->batch * g->T;

    canonical_put(engine_layout(j->e), g->start, engine_params(j->e));
    for (size_t n = 0; n < g->B * g->T; n += rows)
        engine_all_logits(j->e, g->x + n, j->batch, g->T,
                          j->logits + n * g->layout.shape.V);
}

static void check_logits(const struct golden *g, const struct way *w)
{
    for (int train = 0; train < 2; train++) {
        struct engine_options o = options_of(g, w);
        size_t n = g->B * g->T * o.shape.V;

        o.train = train;
        struct engine *e = fixture_engine(&o);
        struct logits_job j = {e, g, o.batch, calloc(n, sizeof(float))};
        assert_non_null(j.logits);
        engine_run(e, compute_logits, &j);
        compare(LOGITS, j.logits, g->logits, n, train ? "logits" : "logits, no training",
                g, w);
        free(j.logits);
        engine_free(e);
    }
}

static void poison_gradients(struct engine *e, size_t step, void *arg)
{
    const struct layout *l = engine_layout(e);

    (void)step;
    (void)arg;
    for (size_t i = 0; i < l->n_slices; i++)
        for (size_t j = 0; j < l->slices[i].elems; j++)
            engine_grads(e)[l->slices[i].offset + j] = NAN;
}

static void check_gradients(const struct golden *g, const struct way *w)
{
    struct engine_options o = options_of(g, w);
    struct engine *e = fixture_engine(&o);
    struct trial t = {.engine = e,
                      .start = g->start,
                      .steps = 2,
                      .fill = fill,
                      .between = poison_gradients,
                      .arg = (void *)(uintptr_t)g,
                      .gradients_only = true};
    double squares = 0;

    fixture_run(&t);
    float *grads = canonical_new(engine_layout(e), engine_grads(e));
    float *weights = canonical_new(engine_layout(e), engine_params(e));
    compare_number(t.results[1].loss, (double)*g->loss, "loss", g, w);
    compare_number(t.results[1].grad_norm, g->after[0].norms[0], "norm", g, w);
    compare_slices(GRADIENT, grads, g->grads, g, w);
    padding_is_zero(&g->layout, grads, "gradient");
    /* The tied wte is one tensor in the norm. */
    for (size_t i = 0; i < g->layout.canonical_elems; i++)
        squares += (double)grads[i] * (double)grads[i];
    compare_number(t.results[1].grad_norm, sqrt(squares), "norm of the tensors", g, w);
    assert_memory_equal(weights, g->start, g->layout.canonical_elems * sizeof *weights);
    free(weights);
    free(grads);
    engine_free(e);
}

static void check_steps(const struct golden *g, const struct way *w)
{
    for (size_t k = 0; k < 2; k++) {
        const struct after *a = &g->after[k];
        struct engine_options o = options_of(g, w);

        o.clip = a->limit;
        struct engine *e = fixture_engine(&o);
        struct trial t = {.engine = e,
                          .start = g->start,
                          .steps = STEPS,
                          .lr = g->lr,
                          .fill = fill,
                          .arg = (void *)(uintptr_t)g};
        fixture_run(&t);
        float *weights = canonical_new(engine_layout(e), engine_params(e));
        for (size_t i = 0; i < STEPS; i++) {
            compare_number(t.results[i].loss, a->losses[i], "loss of a step", g, w);
            compare_number(t.results[i].grad_norm, a->norms[i], "norm of a step", g, w);
        }
        compare_slices(WEIGHTS, weights, a->weights, g, w);
        padding_is_zero(&g->layout, weights, "weight");
        free(weights);
        engine_free(e);
    }
}

static void logits(void **state)
{
    (void)state;
    each_way(check_logits);
}

static void gradients(void **state)
{
    (void)state;
    each_way(check_gradients);
}

static void three_steps(void **state)
{
    (void)state;
    each_way(check_steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits),
        cmocka_unit_test(gradients),
        cmocka_unit_test(three_steps),
    };
    int failed = fixture_main(tests, 3);

    for (int k = 0; k < 2 * HALF; k++)
        printf("largest distance: %-20s %.2e  %s\n", limit_names[k], worst[k].distance,
               worst[k].where);
    return failed;
}
