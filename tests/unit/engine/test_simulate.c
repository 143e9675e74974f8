/* SPDX-License-Identifier: MIT */
/* Steps whose compute only takes its time: how long they are, and that all but the
 * computing is done. */
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* cmocka compares floats only. */
static void assert_near(double found, double needed, double tolerance)
{
    if (!(fabs(found - needed) <= tolerance))
        fail_msg("found %.17g, needs %.17g +- %g", found, needed, tolerance);
}

#include "base/rng.h"
#include "task/task.h"

enum { L = 4, H = 4, C = 64, B = 2, T = 32, V = 300, STEPS = 5 };

static void fill(struct engine *e, size_t step, void *arg)
{
    const size_t *accum = arg;

    for (size_t a = 0; a < *accum; a++)
        for (size_t i = 0; i < B * T; i++) {
            engine_inputs(e, a)[i] = (int32_t)(rng_bits(8, step, 2 * i) % V);
            engine_targets(e, a)[i] = (int32_t)(rng_bits(8, step, 2 * i + 1) % V);
        }
}

static struct engine_options options(int workers, size_t accum, double compute_s)
{
    struct engine_options o = fixture_options(fixture_shape(L, H, C, T, V), B, T, accum);

    o.workers = workers;
    o.compute_s = compute_s;
    return o;
}

/* The shortest of a few steps: other programs on the machine only add. */
static double shortest_step(int workers, size_t accum, double compute_s)
{
    struct engine_options o = options(workers, accum, compute_s);
    struct trial t = {.engine = fixture_engine(&o),
                      .seed = 5,
                      .steps = STEPS,
                      .lr = 1e-3,
                      .fill = fill,
                      .arg = &accum};
    double shortest = (double)INFINITY;

    fixture_run(&t);
    for (size_t i = 0; i < STEPS; i++)
        shortest = fmin(shortest, t.results[i].step_s);
    engine_free(t.engine);
    return shortest;
}

static void check_duration(int workers, size_t accum)
{
    const double compute_s = 0.15;
    double found = shortest_step(workers, accum, compute_s);

    if (found < 0.85 * compute_s || found > 1.25 * compute_s)
        fail_msg("%d workers, %zu micro-batches: found steps of %.3f s, needs %.3f",
                 workers, accum, found, compute_s);
}

/* However many workers share the tasks, and whether they divide evenly among them. */
static void test_duration(void **state)
{
    (void)state;
    check_duration(1, 1);
    check_duration(1, 3);
    if (!strcmp(task_backend(), "serial"))
        return; /* one task at a time */
    check_duration(2, 1);
    check_duration(2, 3);
    check_duration(5, 1);
}

/* Gradients are zero, so that the update is decay alone; and it happens. */
static void test_update(void **state)
{
    struct engine_options o = options(1, 1, 0.001);
    size_t accum = 1;
    struct trial t = {.engine = fixture_engine(&o),
                      .seed = 5,
                      .steps = 1,
                      .lr = 0.01,
                      .fill = fill,
                      .arg = &accum};
    const struct layout *l = engine_layout(t.engine);
    float *before, *after;

    (void)state;
    fixture_run(&t);
    before = canonical_new(l, engine_params(t.engine));
    t.steps = 2;
    t.start = before;
    fixture_run(&t);
    after = canonical_new(l, engine_params(t.engine));
    for (size_t i = 0; i < t.steps; i++) {
        assert_true(t.results[i].finite);
        assert_true(t.results[i].loss == 0 && t.results[i].grad_norm == 0);
    }
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];
        double kept = tensor_table[s->kind].decays ? pow(1 - 0.01 * 0.1, 2) : 1;

        for (size_t j = 0; j < s->elems; j++) {
            double expected = (double)before[s->canonical_offset + j] * kept;

            assert_near(after[s->canonical_offset + j], expected,
                        1e-6 * fabs(expected) + 1e-12);
        }
    }
    free(before);
    free(after);
    engine_free(t.engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_duration),
                                       cmocka_unit_test(test_update)};

    return fixture_main(tests, sizeof tests / sizeof *tests);
}
