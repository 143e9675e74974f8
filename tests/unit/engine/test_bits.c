/* SPDX-License-Identifier: MIT */
/* What must not change a single bit: threads, the order in which tasks happen to start,
 * where tensors lie in memory, how they are cut into blocks, whether communication
 * overlaps, and what was computed between two steps. */
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"
#include "task/task.h"

enum { STEPS = 5, L = 3, H = 3, C = 48, T = 40, V = 97, B = 3, ACCUM = 2 };

struct run {
    struct engine_options options;
    void (*between)(struct engine *e, size_t step, void *arg);
    void (*fill)(struct engine *e, size_t step, void *arg); /* NULL: fill */
    float *weights;                                         /* out */
    size_t elems;
    struct step_result results[STEPS];
};

/* Several chunks of rows and tiles of the vocabulary, the last ones cut short. */
enum { MANY_V = 4200, MANY_T = 60, MANY_B = 11 };

static void fill_many(struct engine *e, size_t step, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < (size_t)MANY_B * MANY_T; i++) {
        engine_inputs(e, 0)[i] = (int32_t)(rng_bits(12, step, 2 * i) % MANY_V);
        engine_targets(e, 0)[i] = (int32_t)(rng_bits(12, step, 2 * i + 1) % MANY_V);
    }
}

static void fill(struct engine *e, size_t step, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < ACCUM * B * T; i++) {
        engine_inputs(e, 0)[i] = (int32_t)(rng_bits(11, step, 2 * i) % V);
        /* Some rows have no target. */
        engine_targets(e, 0)[i] = (int32_t)(rng_bits(11, step, 2 * i + 1) % (V + 1)) - 1;
    }
}

static struct engine_options base_options(void)
{
    struct engine_options o = fixture_options(fixture_shape(L, H, C, T, V), B, T, ACCUM);

    o.workers = 2;
    o.clip = 0.5; /* at work: the norm is above 1 at the start */
    return o;
}

static void do_run(struct run *r)
{
    struct engine *e = fixture_engine(&r->options);
    struct trial t = {.engine = e,
                      .seed = 5,
                      .steps = STEPS,
                      .lr = 1e-2,
                      .fill = r->fill ? r->fill : fill,
                      .between = r->between};

    fixture_run(&t);
    memcpy(r->results, t.results, sizeof r->results);
    r->elems = engine_layout(e)->canonical_elems;
    r->weights = canonical_new(engine_layout(e), engine_params(e));
    engine_free(e);
}

static void same_bits(const struct run *a, const struct run *b, const char *what)
{
    for (size_t i = 0; i < STEPS; i++)
        if (memcmp(&a->results[i].loss, &b->results[i].loss, sizeof(double)) != 0)
            fail_msg("%s: loss of step %zu: %.17g and %.17g", what, i + 1,
                     a->results[i].loss, b->results[i].loss);
    for (size_t i = 0; i < a->elems; i++)
        if (memcmp(&a->weights[i], &b->weights[i], sizeof(float)) != 0)
            fail_msg("%s: weight %zu: %.9g and %.9g", what, i, (double)a->weights[i],
                     (double)b->weights[i]);
}

static void check_same(struct run *a, struct run *b, const char *what)
{
    do_run(a);
    do_run(b);
    same_bits(a, b, what);
    free(a->weights);
    free(b->weights);
}

static void training_moves_weights(void **state)
{
    struct run a = {.options = base_options()};
    struct run b = {.options = base_options()};
    size_t moved = 0;

    (void)state;
    b.options.adamw.beta1 = 0.8;
    do_run(&a);
    do_run(&b);
    for (size_t i = 0; i < a.elems; i++)
        moved += a.weights[i] > b.weights[i] || a.weights[i] < b.weights[i];
    /* Padding rows stay what they are; nearly all else depends on beta1. */
    assert_true(moved > (a.elems - (128 - V) * C) * 9 / 10);
    assert_true(a.results[0].grad_norm > a.options.clip);
    free(a.weights);
    free(b.weights);
}

static void workers(void **state)
{
    (void)state;
    /* Nine have a second set of work buffers. */
    static const int counts[] = {1, 2, 3, 9};

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct run a = {.options = base_options()};
        struct run b = {.options = base_options()};

        b.options.workers = counts[i];
        check_same(&a, &b, "workers");
    }
}

static struct engine_options many_options(void)
{
    struct engine_options o =
        fixture_options(fixture_shape(1, 2, 8, MANY_T, MANY_V), MANY_B, MANY_T, 1);

    o.workers = 1;
    return o;
}

/* Products of bf16 matrices go other ways than those of fp32. */
static void half(void **state)
{
    for (uint64_t seed = 0; seed < 2; seed++) {
        struct run a = {.options = base_options()};
        struct run b = {.options = base_options()};
        struct run c = {.options = many_options(), .fill = fill_many};
        struct run d = {.options = many_options(), .fill = fill_many};
        const struct gemm_bf16 *table;

        assert_int_equal(gemm_bf16_select(NULL, &table), ST_OK);
        a.options.half = b.options.half = c.options.half = d.options.half = table;
        b.options.workers = 3;
        b.options.layout = LAYOUT_STORAGE;
        d.options.workers = seed == 0 ? 3 : 9;
        task_shuffle(seed);
        check_same(&a, &b, "bf16");
        check_same(&c, &d, "bf16, many tiles");
        task_shuffle(0);
    }
    (void)state;
}

static void evaluate(struct engine *e, size_t step, void *arg)
{
    float logits[V];
    int32_t tokens[T];

    (void)arg;
    for (size_t i = 0; i < T; i++)
        tokens[i] = (int32_t)((i + step) % V);
    engine_flush(e);
    (void)engine_eval(e);
    engine_logits(e, tokens, T, logits);
    engine_logits(e, tokens, 1 + step, logits);
    engine_flush(e);
}

/* What is computed again has the bits of what was kept, in many tiles of several layers
 * too, with an evaluation in the shared buffers between steps. */
static void recomputing(void **state)
{
    const struct gemm_bf16 *table;

    (void)state;
    assert_int_equal(gemm_bf16_select(NULL, &table), ST_OK);
    for (unsigned i = 0; i < 8; i++) {
        bool many = i & 4;
        struct run a = {.options = many ? many_options() : base_options(),
                        .fill = many ? fill_many : fill};
        struct run b;

        if (many)
            a.options.shape.L = 3;
        if (i & 2)
            a.options.half = table;
        b = a;
        b.options.recompute = i & 1 ? RECOMPUTE_ALL : RECOMPUTE_MLP;
        b.options.workers = i % 3 == 2 ? 9 : 3;
        if (!many)
            b.between = evaluate;
        do_run(&a);
        task_shuffle(i);
        do_run(&b);
        task_shuffle(0);
        same_bits(&a, &b, "computed again");
        free(a.weights);
        free(b.weights);
    }
}

static void order_of_tasks(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct run a = {.options = base_options()};
        struct run b = {.options = base_options()};

        /* Small blocks: no slice arrives by the courtesy of its neighbour. */
        a.options.block_bytes = b.options.block_bytes = 256;
        do_run(&a);
        task_shuffle(seed);
        b.options.workers = 3;
        do_run(&b);
        task_shuffle(0);
        same_bits(&a, &b, "order of tasks");
        free(a.weights);
        free(b.weights);
    }
}

static void many_tiles(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 3; seed++) {
        struct run a = {.options = many_options(), .fill = fill_many};
        struct run b = {.options = many_options(), .fill = fill_many};

        do_run(&a);
        b.options.workers = 3;
        task_shuffle(seed);
        do_run(&b);
        task_shuffle(0);
        same_bits(&a, &b, "many tiles");
        free(a.weights);
        free(b.weights);
    }
}

/* The same batch in micro-batches of one sequence: other tiles, other sums. */
static void many_tiles_split(void **state)
{
    struct run a = {.options = many_options(), .fill = fill_many};
    struct run b = {.options = many_options(), .fill = fill_many};

    (void)state;
    b.options.batch = 1;
    b.options.accum = MANY_B;
    do_run(&a);
    do_run(&b);
    for (size_t i = 0; i < STEPS; i++) {
        assert_true(fabs(a.results[i].loss / b.results[i].loss - 1) < 1e-6);
        assert_true(fabs(a.results[i].grad_norm / b.results[i].grad_norm - 1) < 1e-5);
    }
    free(a.weights);
    free(b.weights);
}

static void layouts(void **state)
{
    struct run a = {.options = base_options()};
    struct run b = {.options = base_options()};

    (void)state;
    b.options.layout = LAYOUT_STORAGE;
    check_same(&a, &b, "layouts");
}

static void engines(void **state)
{
    struct run a = {.options = base_options()};
    struct run b = {.options = base_options()};

    (void)state;
    b.options.exchange = EXCHANGE_COLLECTIVE;
    check_same(&a, &b, "engines");
}

static void overlap(void **state)
{
    struct run a = {.options = base_options()};
    struct run b = {.options = base_options()};

    (void)state;
    b.options.overlap = false;
    check_same(&a, &b, "overlap");
}

/* Without clipping: the norm is a sum over blocks, in double; its last bit may go with
 * their size. */
static void block_sizes(void **state)
{
    const size_t sizes[] = {64, 4160, 65536, 1 << 20, SIZE_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct run a = {.options = base_options()};
        struct run b = {.options = base_options()};

        a.options.one_block = true;
        b.options.block_bytes = sizes[i];
        a.options.clip = b.options.clip = 0;
        check_same(&a, &b, "block size");
    }
}

static void block_sizes_with_clipping(void **state)
{
    struct run a = {.options = base_options()};
    struct run b = {.options = base_options()};

    (void)state;
    a.options.one_block = true;
    b.options.block_bytes = 64;
    do_run(&a);
    do_run(&b);
    for (size_t i = 0; i < STEPS; i++)
        assert_true(fabs(a.results[i].grad_norm / b.results[i].grad_norm - 1) < 1e-12);
    assert_true(distance_of(a.weights, b.weights, a.elems).relative_l2 < 1e-6);
    free(a.weights);
    free(b.weights);
}

static void flush(struct engine *e, size_t step, void *arg)
{
    (void)step;
    (void)arg;
    engine_flush(e);
}

static void dirty_gradients(struct engine *e, size_t step, void *arg)
{
    const struct layout *l = engine_layout(e);
    struct step_result ignored;

    (void)arg;
    if (step > 0)
        return;
    /* Buffers full of another batch, then of no numbers at all. */
    fill(e, 99, NULL);
    engine_gradients(e, &ignored);
    for (size_t i = 0; i < l->n_slices; i++)
        for (size_t j = 0; j < l->slices[i].elems; j++)
            engine_grads(e)[l->slices[i].offset + j] = NAN;
}

static void between_steps(void **state)
{
    static void (*const between[])(struct engine *, size_t, void *) = {evaluate, flush,
                                                                       dirty_gradients};
    static const char *const names[] = {"evaluation", "flush", "dirty gradients"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct run a = {.options = base_options()};
        struct run b = {.options = base_options(), .between = between[i]};

        check_same(&a, &b, names[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_moves_weights),
        cmocka_unit_test(workers),
        cmocka_unit_test(half),
        cmocka_unit_test(recomputing),
        cmocka_unit_test(order_of_tasks),
        cmocka_unit_test(many_tiles),
        cmocka_unit_test(many_tiles_split),
        cmocka_unit_test(layouts),
        cmocka_unit_test(engines),
        cmocka_unit_test(overlap),
        cmocka_unit_test(block_sizes),
        cmocka_unit_test(block_sizes_with_clipping),
        cmocka_unit_test(between_steps),
    };

    return fixture_main(tests, sizeof tests / sizeof *tests);
}
