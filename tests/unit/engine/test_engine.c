/* SPDX-License-Identifier: MIT */
/* Derivatives against differences, decay where it belongs, steps that are dropped, and
 * the sums an evaluation makes. */
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/rng.h"

enum { L = 2, H = 3, C = 24, T = 17, V = 61, B = 2, TOKEN = 7 };

static struct engine_options options(void)
{
    return fixture_options(fixture_shape(L, H, C, T, V), B, T, 1);
}

/* Random weights in which every tensor matters. */
static float *random_weights(const struct layout *l)
{
    float *w = calloc(l->canonical_elems, sizeof *w);

    assert_non_null(w);
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];
        bool gain = tensor_table[s->kind].init == INIT_ONE;
        size_t n = s->kind == WTE ? l->shape.V * s->cols : s->elems;

        for (size_t j = 0; j < n; j++)
            w[s->canonical_offset + j] =
                (float)((gain ? 1 : 0) + 0.2 * rng_normal(3, i, j));
    }
    return w;
}

/* TOKEN is an input in every sequence and a target in every sequence. */
static void fill(struct engine *e, size_t step, void *arg)
{
    (void)arg;
    for (size_t i = 0; i < B * T; i++) {
        engine_inputs(e, 0)[i] = (int32_t)(rng_bits(8, step, 2 * i) % V);
        engine_targets(e, 0)[i] = (int32_t)(rng_bits(8, step, 2 * i + 1) % V);
    }
    for (size_t b = 0; b < B; b++) {
        engine_inputs(e, 0)[b * T + 3 + b] = TOKEN;
        engine_targets(e, 0)[b * T + 9 + b] = TOKEN;
    }
}

/* ---- differences ---- */

struct difference {
    struct engine *e;
    const float *weights;
    const double *direction; /* of row TOKEN of wte, length 1 */
    double slope;            /* out */
};

static double loss_at(struct difference *d, double h)
{
    const struct layout *l = engine_layout(d->e);
    float *row = engine_params(d->e) + layout_slice(l, WTE, 0)->offset + TOKEN * C;

    canonical_put(l, d->weights, engine_params(d->e));
    for (size_t c = 0; c < C; c++)
        row[c] = (float)((double)row[c] + h * d->direction[c]);
    return engine_eval(d->e) / (B * T);
}

/* Two central differences, from which the error in h^2 drops out. */
static void take_difference(void *arg)
{
    struct difference *d = arg;
    const double h = 0.04;

    fill(d->e, 0, NULL);
    double wide = (loss_at(d, h) - loss_at(d, -h)) / (2 * h);
    double narrow = (loss_at(d, h / 2) - loss_at(d, -h / 2)) / h;
    d->slope = (4 * narrow - wide) / 3;
}

static void normalise(double *x)
{
    double squares = 0;

    for (size_t c = 0; c < C; c++)
        squares += x[c] * x[c];
    for (size_t c = 0; c < C; c++)
        x[c] /= sqrt(squares);
}

static void tied_embedding_has_both_parts(void **state)
{
    struct engine_options o = options();
    struct engine *e = fixture_engine(&o);
    const struct layout *l = engine_layout(e);
    float *weights = random_weights(l);
    struct trial t = {
        .engine = e, .start = weights, .steps = 1, .fill = fill, .gradients_only = true};
    double length = 0;

    (void)state;
    fixture_run(&t);
    float *grads = canonical_new(l, engine_grads(e));
    const float *g = grads + TOKEN * C; /* wte is first */
    for (size_t c = 0; c < C; c++)
        length += (double)g[c] * (double)g[c];
    length = sqrt(length);
    assert_true(length > 1e-3);
    for (uint64_t k = 0; k < 6; k++) {
        double direction[C];
        double expected = 0;

        for (size_t c = 0; c < C; c++)
            direction[c] = k == 0 ? (double)g[c] : rng_normal(21, k, c);
        normalise(direction);
        for (size_t c = 0; c < C; c++)
            expected += direction[c] * (double)g[c];
        struct difference d = {.e = e, .weights = weights, .direction = direction};
        engine_run(e, take_difference, &d);
        if (!(fabs(d.slope - expected) <= 1e-3 * length))
            fail_msg("direction %d: difference %.7g, gradient %.7g", (int)k, d.slope,
                     expected);
    }
    free(grads);
    free(weights);
    engine_free(e);
}

/* ---- decay ---- */

static void fill_without_targets(struct engine *e, size_t step, void *arg)
{
    fill(e, step, arg);
    for (size_t i = 0; i < B * T; i++)
        engine_targets(e, 0)[i] = -1;
}

static void only_matrices_decay(void **state)
{
    struct engine_options o = options();
    struct engine *e = fixture_engine(&o);
    const struct layout *l = engine_layout(e);
    float *before = random_weights(l);
    struct trial t = {.engine = e,
                      .start = before,
                      .steps = 1,
                      .lr = 1e-3,
                      .fill = fill_without_targets};

    (void)state;
    fixture_run(&t);
    assert_true(t.results[0].finite);
    assert_true(fabs(t.results[0].loss) <= 0 && fabs(t.results[0].grad_norm) <= 0);
    float *after = canonical_new(l, engine_params(e));
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];

        for (size_t j = s->canonical_offset; j < s->canonical_offset + s->elems; j++) {
            double factor = tensor_table[s->kind].decays ? 0.9999 : 1;
            double wanted = (double)before[j] * factor;

            if (!(fabs((double)after[j] - wanted) <= 1e-7 * fabs(wanted)))
                fail_msg("%s: %.9g became %.9g", tensor_table[s->kind].name,
                         (double)before[j], (double)after[j]);
            if (!tensor_table[s->kind].decays)
                assert_memory_equal(&after[j], &before[j], sizeof(float));
        }
    }
    free(after);
    free(before);
    engine_free(e);
}

/* ---- dropped steps ---- */

struct dropping {
    struct engine *e;
    float *weights;
    bool not_finite; /* else a local failure */
    struct step_result result, next;
};

static void drop_a_step(void *arg)
{
    struct dropping *d = arg;
    const struct layout *l = engine_layout(d->e);
    float *spoilt = engine_params(d->e) + layout_slice(l, LN1W, 1)->offset;

    canonical_put(l, d->weights, engine_params(d->e));
    fill(d->e, 0, NULL);
    float good = *spoilt;
    if (d->not_finite)
        *spoilt = INFINITY;
    engine_step(d->e, 0.1, 1, !d->not_finite, &d->result);
    *spoilt = good;
    engine_flush(d->e);
    /* The next step finds everything as it was. */
    engine_step(d->e, 0.1, 1, false, &d->next);
}

static void bad_steps_touch_nothing(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct engine_options o = options();
        struct engine *e = fixture_engine(&o);
        struct dropping d = {
            .e = e, .weights = random_weights(engine_layout(e)), .not_finite = k == 1};
        float *m, *v;

        engine_run(e, drop_a_step, &d);
        assert_int_equal(d.result.finite, k == 0);
        assert_int_equal(d.result.failed_ranks, k == 0);
        assert_true(d.next.finite);
        float *after = canonical_new(engine_layout(e), engine_params(e));
        assert_memory_equal(after, d.weights,
                            engine_layout(e)->canonical_elems * sizeof *after);
        engine_moments(e, &m, &v);
        for (size_t i = 0; i < plan_owned_elems(engine_block_plan(e), 0); i++)
            assert_true(fabsf(m[i]) <= 0 && fabsf(v[i]) <= 0);
        free(after);
        free(d.weights);
        engine_free(e);
    }
}

/* ---- evaluation and logits ---- */

struct evaluation {
    struct engine *e;
    float *weights;
    double all, first_half, second_half;
    float *last, *every;
};

static void evaluate_parts(void *arg)
{
    struct evaluation *v = arg;
    int32_t *y = engine_targets(v->e, 0);

    canonical_put(engine_layout(v->e), v->weights, engine_params(v->e));
    fill(v->e, 0, NULL);
    v->all = engine_eval(v->e);
    for (size_t i = 0; i < B * T / 2; i++)
        y[i] = -1;
    v->second_half = engine_eval(v->e);
    fill(v->e, 0, NULL);
    for (size_t i = B * T / 2; i < B * T; i++)
        y[i] = -1;
    v->first_half = engine_eval(v->e);
    int32_t tokens[T];
    for (size_t i = 0; i < T; i++)
        tokens[i] = (int32_t)(i * 3 % V);
    for (size_t n = 1; n <= T; n++)
        engine_logits(v->e, tokens, n, v->last + (n - 1) * V);
    engine_all_logits(v->e, tokens, 1, T, v->every);
}

static void rows_without_target_have_no_loss(void **state)
{
    (void)state;
    for (int train = 0; train < 2; train++) {
        struct engine_options o = options();
        float last[T * V], every[T * V];

        o.train = train;
        struct engine *e = fixture_engine(&o);
        struct evaluation v = {.e = e,
                               .weights = random_weights(engine_layout(e)),
                               .last = last,
                               .every = every};
        engine_run(e, evaluate_parts, &v);
        assert_true(v.first_half > 0 && v.second_half > 0);
        assert_true(fabs(v.first_half + v.second_half - v.all) <= 1e-9 * v.all);
        /* Later tokens change nothing: attention looks back only. */
        assert_true(distance_of(last, every, T * V).relative_l2 <= 1e-6);
        free(v.weights);
        engine_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tied_embedding_has_both_parts),
        cmocka_unit_test(only_matrices_decay),
        cmocka_unit_test(bad_steps_touch_nothing),
        cmocka_unit_test(rows_without_target_have_no_loss),
    };

    return fixture_main(tests, sizeof tests / sizeof *tests);
}
