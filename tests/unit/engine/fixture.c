/* SPDX-License-Identifier: MIT */
/* fixture.c - see fixture.h. */
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/files.h"
#include "base/memory.h"
#include "task/task.h"

struct comm *fixture_comm;
static const struct kernels *kernels;

int fixture_main(const struct CMUnitTest *tests, size_t n)
{
    task_configure_runtime();
    gemm_init();
    if (kernels_select(NULL, &kernels) != ST_OK) {
        printf("skipped: %s\n", fail_text());
        return 77;
    }
    if (comm_start(&fixture_comm) != ST_OK)
        return 1;
    int failed = _cmocka_run_group_tests("engine", tests, n, NULL, NULL);

    comm_stop(fixture_comm);
    return failed;
}

struct shape fixture_shape(size_t L, size_t H, size_t C, size_t T, size_t V)
{
    return (struct shape){L, H, C, T, V, round_up(V, VOCAB_PAD)};
}

struct engine_options fixture_options(struct shape shape, size_t batch, size_t seq,
                                      size_t accum)
{
    return (struct engine_options){.shape = shape,
                                   .batch = batch,
                                   .seq = seq,
                                   .accum = accum,
                                   .workers = 1,
                                   .train = true,
                                   .block_bytes = 4096,
                                   .overlap = true,
                                   .adamw = {0.9, 0.95, 1e-8, 0.1},
                                   .kernels = kernels};
}

struct engine *fixture_engine(const struct engine_options *o)
{
    struct engine *e;

    assert_int_equal(engine_new(fixture_comm, o, &e), ST_OK);
    return e;
}

static void run_trial(void *arg)
{
    struct trial *t = arg;

    if (t->start)
        canonical_put(engine_layout(t->engine), t->start, engine_params(t->engine));
    else
        engine_init_weights(t->engine, t->seed);
    for (size_t i = 0; i < t->steps; i++) {
        if (t->between)
            t->between(t->engine, i, t->arg);
        t->fill(t->engine, i, t->arg);
        if (t->gradients_only)
            engine_gradients(t->engine, &t->results[i]);
        else
            engine_step(t->engine, t->lr, i + 1, false, &t->results[i]);
    }
    engine_flush(t->engine);
}

void fixture_run(struct trial *t)
{
    assert_true(t->steps <= FIXTURE_MAX_STEPS);
    engine_run(t->engine, run_trial, t);
}

float *canonical_new(const struct layout *l, const float *memory)
{
    float *out = malloc(l->canonical_elems * sizeof *out);

    assert_non_null(out);
    for (size_t i = 0; i < l->n_slices; i++)
        memcpy(out + l->slices[i].canonical_offset, memory + l->slices[i].offset,
               l->slices[i].elems * sizeof *out);
    return out;
}

void canonical_put(const struct layout *l, const float *canonical, float *memory)
{
    for (size_t i = 0; i < l->n_slices; i++)
        memcpy(memory + l->slices[i].offset, canonical + l->slices[i].canonical_offset,
               l->slices[i].elems * sizeof *memory);
}

double fixture_limit(const char *name)
{
    char *text;
    size_t bytes;
    size_t length = strlen(name);
    double limit = -1;

    assert_int_equal(file_read_all(GOLDEN_FOLDER "/tolerances.csv", &text, &bytes),
                     ST_OK);
    for (char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, name, length) && line[length] == ',')
            (void)sscanf(line + length, ",%*[^,],%lf", &limit);
    }
    free(text);
    if (limit < 0)
        fail_msg("tolerances.csv has no row %s", name);
    return limit;
}

struct distance distance_of(const float *found, const float *expected, size_t n)
{
    struct distance d = {0, 0};
    double most = -1;
    double difference = 0;
    double norm = 0;

    for (size_t i = 0; i < n; i++) {
        double off = (double)found[i] - (double)expected[i];

        /* Written so that a NaN is the worst of all. */
        if (!(fabs(off) <= most)) {
            most = fabs(off);
            d.worst = i;
        }
        difference += off * off;
        norm += (double)expected[i] * (double)expected[i];
    }
    d.relative_l2 = sqrt(difference) / (norm > 0 ? sqrt(norm) : 1);
    return d;
}
