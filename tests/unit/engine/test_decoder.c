/* SPDX-License-Identifier: MIT */
/* Cached decoding, and what is built on it, judged by training's forward. */
#include "fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "engine/generation.h"
#include "engine/score.h"
#include "task/task.h"

enum { V = 257, PASS_TOKENS = 150 };

/* Weights that make logits of different sizes: of initial ones all are nearly equal. */
static void set_weights(struct engine *e)
{
    const struct layout *l = engine_layout(e);

    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];
        float *p = engine_params(e) + s->offset;
        bool scale = s->kind == LN1W || s->kind == LN2W || s->kind == LNFW;
        size_t elems = s->kind == WTE ? V * s->cols : s->elems;

        for (size_t j = 0; j < elems; j++)
            p[j] = (float)((scale ? 1 : 0) + 0.15 * rng_normal(5, i, j));
    }
}

static int32_t token_at(size_t i)
{
    return (int32_t)(rng_bits(3, 4, i) % V);
}

struct rig {
    struct engine *engine;
    struct decoder *decoder;
    struct tokenizer *tokenizer;
    void *arg;
};

static struct rig make_rig(size_t T, size_t sequences, int workers)
{
    struct engine_options o = fixture_options(fixture_shape(3, 4, 60, T, V), 1, T, 1);
    struct rig r = {0};

    o.train = false;
    o.workers = workers;
    r.engine = fixture_engine(&o);
    set_weights(r.engine);
    struct decoder_options d = {.layout = engine_layout(r.engine),
                                .params = engine_params(r.engine),
                                .kernels = o.kernels,
                                .sequences = sequences,
                                .room = T,
                                .workers = workers};
    assert_int_equal(decoder_new(&d, &r.decoder), ST_OK);
    assert_int_equal(tokenizer_new_bytes(&r.tokenizer), ST_OK);
    return r;
}

static void free_rig(struct rig *r)
{
    decoder_free(r->decoder);
    tokenizer_free(r->tokenizer);
    engine_free(r->engine);
}

/* ---- logits ---- */

struct logits_job {
    size_t step;     /* tokens a pass */
    size_t sequence; /* of the cache; the one before it gets other tokens meanwhile */
    float *cached;   /* [PASS_TOKENS][V] */
    float *training; /* NULL: not wanted */
    size_t row;      /* of the pass at hand */
};

static void keep_logits(void *arg, size_t i, float *logits)
{
    struct logits_job *j = arg;

    /* The rows of the sequence come first, all with output. */
    if (j->row + i < PASS_TOKENS && i < j->step)
        memcpy(j->cached + (j->row + i) * V, logits, V * sizeof *logits);
}

static void decode_all(void *arg)
{
    struct rig *r = arg;
    struct logits_job *j = r->arg;
    int32_t tokens[PASS_TOKENS];

    for (size_t i = 0; i < PASS_TOKENS; i++)
        tokens[i] = token_at(i);
    for (j->row = 0; j->row < PASS_TOKENS; j->row += j->step) {
        struct decode_row rows[DECODE_ROWS];
        size_t n = min_size(j->step, PASS_TOKENS - j->row);
        size_t all = n;

        for (size_t i = 0; i < n; i++)
            rows[i] =
                (struct decode_row){j->sequence, j->row + i, tokens[j->row + i], true};
        for (; j->sequence > 0 && all < DECODE_ROWS && all - n < 5; all++)
            rows[all] = (struct decode_row){j->sequence - 1, (j->row + all - n) % 100,
                                            token_at(1000 + all), all % 2 == 0};
        decoder_pass(r->decoder, rows, all, keep_logits, j);
    }
    if (j->training)
        engine_all_logits(r->engine, tokens, 1, PASS_TOKENS, j->training);
}

static void logits_are_those_of_training(void **state)
{
    static float first[PASS_TOKENS * V], again[PASS_TOKENS * V],
        training[PASS_TOKENS * V];
    const size_t steps[] = {1, 3, 50, 59, 64};

    (void)state;
    for (int workers = 1; workers <= 3; workers++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            struct rig r = make_rig(PASS_TOKENS, 3, workers);
            bool start = workers == 1 && i == 0;
            struct logits_job j = {.step = steps[i],
                                   .sequence = i % 3,
                                   .cached = start ? first : again,
                                   .training = start ? training : NULL};

            memset(j.cached, 0xff, sizeof first);
            r.arg = &j;
            engine_run(r.engine, decode_all, &r);
            if (!start)
                assert_memory_equal(again, first, sizeof first);
            free_rig(&r);
        }
    double distance = distance_of(first, training, PASS_TOKENS * V).relative_l2;

    if (getenv("WEFT_TEST_MEASURE"))
        printf("measured cached logits %.3g\n", distance);
    assert_true(distance <= fixture_limit("engine_logits"));
}

/* ---- generation ---- */

enum { NEW_TOKENS = 200 };

static size_t likeliest(const float *logits)
{
    size_t best = 0;

    for (size_t i = 1; i < V; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void ignore(void *arg, const char *bytes, size_t n)
{
    (void)arg;
    (void)bytes;
    (void)n;
}

static void start_text(struct generation *text, size_t prompt, size_t first)
{
    *text = (struct generation){.sink = ignore};
    text->tokens.ids = malloc(prompt * sizeof *text->tokens.ids);
    assert_non_null(text->tokens.ids);
    text->tokens.count = text->tokens.capacity = prompt;
    for (size_t i = 0; i < prompt; i++)
        text->tokens.ids[i] = (uint32_t)token_at(first + i);
}

struct greedy_job {
    struct generation texts[5];
    size_t n;
    size_t max_tokens;
    uint32_t recomputed[NEW_TOKENS + 300];
    size_t n_recomputed;
    double cached_s, recomputed_s;
    enum status st;
};

static void generate(struct rig *r, struct greedy_job *j)
{
    struct generation_options o = {.tokenizer = r->tokenizer,
                                   .sample = {0, 0, 1},
                                   .repetition_penalty = 1,
                                   .max_tokens = j->max_tokens};
    struct generation_stats stats;
    double start = clock_s();

    j->st = generation_run(r->decoder, &o, j->texts, j->n, &stats);
    j->cached_s = clock_s() - start;
}

/* The same with nothing remembered. `begin` moves as the documentation says. */
static void recompute(struct rig *r, struct greedy_job *j, size_t prompt)
{
    size_t T = decoder_shape(r->decoder)->T;
    size_t begin = prompt > T ? prompt - T : 0;
    float logits[V];
    double start = clock_s();

    for (size_t i = 0; i < prompt; i++)
        j->recomputed[i] = (uint32_t)token_at(i);
    for (j->n_recomputed = prompt; j->n_recomputed < prompt + j->max_tokens;) {
        if (j->n_recomputed - begin > T)
            begin = j->n_recomputed - max_size(1, T / 2);
        engine_logits(r->engine, (const int32_t *)j->recomputed + begin,
                      j->n_recomputed - begin, logits);
        size_t token = likeliest(logits);

        if (token == BYTES_END_OF_TEXT)
            break;
        j->recomputed[j->n_recomputed++] = (uint32_t)token;
    }
    j->recomputed_s = clock_s() - start;
}

static void run_greedy(void *arg)
{
    struct rig *r = arg;
    struct greedy_job *j = r->arg;
    size_t prompt = j->texts[0].tokens.count;

    generate(r, j);
    recompute(r, j, prompt);
}

/* Prompts shorter and longer than the context, texts that stay within it and do not. */
static void greedy_text_is_the_recomputed_one(void **state)
{
    const struct {
        size_t T, prompt;
    } cases[] = {{256, 7}, {250, 50}, {64, 3}, {48, 77}, {33, 33}, {2, 5}, {1, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rig r = make_rig(cases[i].T, 1, 2);
        struct greedy_job j = {.n = 1, .max_tokens = NEW_TOKENS};

        start_text(&j.texts[0], cases[i].prompt, 0);
        r.arg = &j;
        engine_run(r.engine, run_greedy, &r);
        assert_int_equal(j.st, ST_OK);
        assert_true(j.texts[0].done);
        assert_int_equal(j.texts[0].tokens.count, j.n_recomputed);
        assert_memory_equal(j.texts[0].tokens.ids, j.recomputed,
                            j.n_recomputed * sizeof *j.recomputed);
        /* The case is worth its name: not one token over and over, nor none. */
        assert_true(j.texts[0].new_tokens == NEW_TOKENS || cases[i].T < 8);
        token_list_release(&j.texts[0].tokens);
        free_rig(&r);
    }
}

static void run_generate(void *arg)
{
    struct rig *r = arg;

    generate(r, r->arg);
}

/* More texts than places, of different lengths: each is what it is alone. */
static void texts_do_not_depend_on_each_other(void **state)
{
    const size_t prompts[] = {3, 70, 1, 20, 9};

    (void)state;
    struct greedy_job together = {.n = 5, .max_tokens = 40};
    struct rig r = make_rig(80, 2, 2);

    for (size_t i = 0; i < 5; i++)
        start_text(&together.texts[i], prompts[i], 100 * i);
    r.arg = &together;
    engine_run(r.engine, run_generate, &r);
    assert_int_equal(together.st, ST_OK);
    free_rig(&r);
    for (size_t i = 0; i < 5; i++) {
        struct greedy_job alone = {.n = 1, .max_tokens = 40};

        r = make_rig(80, 1, 1);
        start_text(&alone.texts[0], prompts[i], 100 * i);
        r.arg = &alone;
        engine_run(r.engine, run_generate, &r);
        assert_int_equal(alone.texts[0].tokens.count, together.texts[i].tokens.count);
        assert_memory_equal(alone.texts[0].tokens.ids, together.texts[i].tokens.ids,
                            alone.texts[0].tokens.count * sizeof(uint32_t));
        token_list_release(&alone.texts[0].tokens);
        token_list_release(&together.texts[i].tokens);
        free_rig(&r);
    }
}

/* Contract: at least five times as fast at 256 tokens. The best of a few tries, for
 * machines with other work. */
static void cache_is_worth_it(void **state)
{
    double best = 0;

    (void)state;
    for (int i = 0; i < 5 && best < 5; i++) {
        struct rig r = make_rig(320, 1, 1);
        struct greedy_job j = {.n = 1, .max_tokens = 60};

        start_text(&j.texts[0], 256, 0);
        r.arg = &j;
        engine_run(r.engine, run_greedy, &r);
        best = fmax(best, j.recomputed_s / j.cached_s);
        token_list_release(&j.texts[0].tokens);
        free_rig(&r);
    }
    if (getenv("WEFT_TEST_MEASURE"))
        printf("measured %.1f times as fast\n", best);
    assert_true(best >= 5);
}

static void bad_logits_end_it(void **state)
{
    struct rig r = make_rig(16, 1, 1);
    struct greedy_job j = {.n = 1, .max_tokens = 4};
    const struct layout *l = engine_layout(r.engine);

    (void)state;
    engine_params(r.engine)[layout_slice(l, LNFB, 0)->offset] = NAN;
    start_text(&j.texts[0], 3, 0);
    r.arg = &j;
    engine_run(r.engine, run_generate, &r);
    assert_int_equal(j.st, ST_NUMERIC);
    token_list_release(&j.texts[0].tokens);
    free_rig(&r);
}

/* ---- scores ---- */

static void every_token_is_predicted_once(void **state)
{
    (void)state;
    for (uint64_t tokens = 0; tokens < 40; tokens++)
        for (size_t T = 1; T < 12; T++)
            for (size_t stride = 1; stride <= T; stride++) {
                struct score_windows w = {tokens, T, stride};
                uint64_t next = 1;

                for (uint64_t k = 0; k < score_windows_count(&w); k++) {
                    uint64_t begin;
                    size_t n, first;

                    score_window(&w, k, &begin, &n, &first);
                    assert_int_equal(begin + first, next);
                    assert_true(n >= 2 && n <= T + 1 && first < n && first >= 1);
                    /* What comes before it, as promised. */
                    assert_true(k == 0 || first == T - stride + 1);
                    next = begin + n;
                }
                assert_int_equal(next, tokens < 2 ? 1 : tokens);
            }
}

struct score_job {
    int32_t tokens[PASS_TOKENS];
    struct score scores[3];
    double cached, eval;
};

static void run_scores(void *arg)
{
    struct rig *r = arg;
    struct score_job *j = r->arg;

    for (size_t i = 0; i < PASS_TOKENS; i++)
        j->tokens[i] = token_at(i);
    for (size_t i = 0; i < 3; i++)
        j->scores[i] = (struct score){.sequence = 2 - i,
                                      .tokens = j->tokens,
                                      .n = PASS_TOKENS,
                                      .first = i == 0 ? 1 : 60 * i};
    score_all(r->decoder, j->scores, 3);
    /* The end of the same once more, from the cache. */
    struct score rest = j->scores[2];

    rest.cached = rest.first - 1;
    score_all(r->decoder, &rest, 1);
    j->cached = rest.loss;
    memcpy(engine_inputs(r->engine, 0), j->tokens, sizeof j->tokens);
    memcpy(engine_targets(r->engine, 0), j->tokens + 1,
           (PASS_TOKENS - 1) * sizeof *j->tokens);
    engine_targets(r->engine, 0)[PASS_TOKENS - 1] = -1;
    j->eval = engine_eval(r->engine);
}

static void losses_are_those_of_training(void **state)
{
    struct rig r = make_rig(PASS_TOKENS, 3, 2);
    struct score_job j;

    (void)state;
    r.arg = &j;
    engine_run(r.engine, run_scores, &r);
    assert_true(fabs(j.scores[0].loss - j.eval) <= 1e-6 * j.eval);
    assert_true(j.scores[1].loss < j.scores[0].loss && j.scores[2].loss > 0);
    assert_memory_equal(&j.cached, &j.scores[2].loss, sizeof j.cached);
    free_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_training),
        cmocka_unit_test(greedy_text_is_the_recomputed_one),
        cmocka_unit_test(texts_do_not_depend_on_each_other),
        cmocka_unit_test(cache_is_worth_it),
        cmocka_unit_test(bad_logits_end_it),
        cmocka_unit_test(every_token_is_predicted_once),
        cmocka_unit_test(losses_are_those_of_training),
    };

    return fixture_main(tests, sizeof tests / sizeof *tests);
}
