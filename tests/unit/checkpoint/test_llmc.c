/* SPDX-License-Identifier: MIT */
/* llm.c model files, and what model_open makes of a path. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char scratch[PATH_BYTES];

static const char *const specs[] = {"L=1,H=1,C=1,T=1,V=1", "L=1,H=3,C=48,T=7,V=61",
                                    "L=2,H=2,C=10,T=5,V=129", "L=3,H=3,C=48,T=11,V=128"};
enum { SPECS = sizeof specs / sizeof *specs };

static enum status llmc_write(const char *path, const struct layout *layout,
                              const float *params)
{
    return model_write(layout, params, MODEL_LLMC, path,
                       &(struct model_write_options){.dtype = DTYPE_FP32});
}

static struct holding production(const char *spec)
{
    return (struct holding){
        .spec = spec, .order = LAYOUT_PRODUCTION, .ranks = 1, .block_bytes = 4096};
}

/* Known values, with the padding rows at 0 as the format has them. */
static void fill_model(struct fixture *f, uint64_t salt)
{
    const struct slice *wte = layout_slice(&f->layout, WTE, 0);
    size_t used = f->layout.shape.V * wte->cols;

    fixture_fill(f, salt);
    memset(f->view.params + wte->offset + used, 0, (wte->elems - used) * sizeof(float));
}

static void same_file(const char *a, const char *b)
{
    char *x, *y;
    size_t nx, ny;

    assert_int_equal(file_read_all(a, &x, &nx), ST_OK);
    assert_int_equal(file_read_all(b, &y, &ny), ST_OK);
    assert_int_equal(nx, ny);
    assert_memory_equal(x, y, nx);
    free(x);
    free(y);
}

static void round_trip_bit_for_bit(void **arg)
{
    const char *a = text("%s/a.bin", scratch), *b = text("%s/b.bin", scratch);

    (void)arg;
    for (int k = 0; k < SPECS; k++)
        for (int order = 0; order < 2; order++) {
            struct holding h = production(specs[k]);
            struct model_file model;
            struct fixture f;

            fixture_init(&f, &h, 0);
            fill_model(&f, 7);
            assert_int_equal(llmc_write(a, &f.layout, f.view.params), ST_OK);
            fixture_release(&f);

            h.order = order ? LAYOUT_STORAGE : LAYOUT_PRODUCTION;
            fixture_init(&f, &h, 0);
            fixture_poison(&f);
            assert_int_equal(model_open(a, &model), ST_OK);
            assert_int_equal(model.kind, MODEL_LLMC);
            assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_OK);
            assert_int_equal(llmc_write(b, &f.layout, f.view.params), ST_OK);
            same_file(a, b);
            params_zero_gaps(&f.layout, f.view.params); /* writes 0 over 0 */
            assert_int_equal(fixture_wrong_params(&f, 7),
                             (f.layout.shape.Vp - f.layout.shape.V) * f.layout.shape.C);
            fixture_release(&f);
            assert_false(file_exists(text("%s.tmp", a)));
        }
}

/* Header and places of the tensors, spelled out for one small shape. */
static void bytes_are_where_the_format_has_them(void **arg)
{
    const struct holding h = production("L=2,H=1,C=2,T=3,V=5");
    const char *path = text("%s/known.bin", scratch);
    struct fixture f;
    int32_t *words;
    char *data;
    size_t bytes;

    (void)arg;
    fixture_init(&f, &h, 0);
    fill_model(&f, 3);
    assert_int_equal(llmc_write(path, &f.layout, f.view.params), ST_OK);
    assert_int_equal(file_read_all(path, &data, &bytes), ST_OK);
    words = (int32_t *)(void *)data;
    const int32_t head[] = {20240326, 3, 3, 5, 2, 1, 2, 128, 0};
    assert_memory_equal(words, head, sizeof head);
    const float *floats = (const float *)(const void *)(data + 1024);
    size_t at = 0;
    for (int k = 0; k < TENSOR_KINDS; k++) /* the order of enum tensor_kind */
        for (size_t layer = 0; layer < (tensor_table[k].per_layer ? 2U : 1U); layer++) {
            const struct slice *s = layout_slice(&f.layout, (enum tensor_kind)k, layer);

            assert_memory_equal(floats + at, f.view.params + s->offset,
                                s->elems * sizeof(float));
            at += s->elems;
        }
    assert_int_equal(bytes, 1024 + 4 * at);
    free(data);
    fixture_release(&f);
}

/* Models written by another program (see tests/golden), which are read and come back. */
static void golden_models_come_back(void **arg)
{
    static const char *const names[] = {"tiny_a_model", "tiny_b_model", "tiny_c_model"};
    const char *copy = text("%s/golden.bin", scratch);

    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *golden = text("%s/%s.bin", GOLDEN_FOLDER, names[i]);
        struct model_file model;
        struct layout layout;
        float *params;

        assert_int_equal(model_open(golden, &model), ST_OK);
        assert_int_equal(layout_init(&layout, &model.shape, LAYOUT_PRODUCTION), ST_OK);
        params = calloc(layout.elems, sizeof *params);
        assert_non_null(params);
        assert_int_equal(model_read(&model, &layout, params), ST_OK);
        /* Layer norms near 1 and weights near 0 stand where they should. */
        assert_true(params[layout_slice(&layout, LNFW, 0)->offset] > 0.5F);
        assert_true(params[layout_slice(&layout, WTE, 0)->offset] < 0.5F);
        assert_int_equal(llmc_write(copy, &layout, params), ST_OK);
        same_file(copy, golden);
        free(params);
        layout_release(&layout);
    }
}

/* A header and zeros (a sparse file). */
static void write_header(const char *path, const int32_t *head, size_t n, long bytes)
{
    int32_t words[256] = {0};

    memcpy(words, head, n * sizeof *head);
    assert_int_equal(file_write_all(path, words, sizeof words), ST_OK);
    assert_int_equal(truncate(path, bytes), 0);
}

static void gpt2_size_is_accepted_unread(void **arg)
{
    const int32_t head[] = {20240326, 3, 1024, 50257, 12, 12, 768, 50304};
    const char *path = text("%s/gpt2.bin", scratch);
    struct model_file model;

    (void)arg;
    write_header(path, head, 8, 497904640);
    assert_int_equal(model_open(path, &model), ST_OK);
    assert_int_equal(shape_parameters(&model.shape), 124439808);
    assert_int_equal(model.shape.Vp, 50304);
    assert_int_equal(model.state.step, 0);
    assert_string_equal(model.tokens_json, "");
    assert_int_equal(truncate(path, 497904639), 0);
    assert_int_equal(model_open(path, &model), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "found 497904639 bytes, needs 497904640"));
    unlink(path);
}

/* Writers that do not pad, or pad to something else. */
static void other_padding_is_read(void **arg)
{
    const struct holding h = production("L=1,H=1,C=2,T=3,V=5");
    const char *path = text("%s/odd.bin", scratch), *padded = text("%s/p.bin", scratch);
    struct fixture f;
    size_t rest;

    (void)arg;
    fixture_init(&f, &h, 0);
    fill_model(&f, 3);
    assert_int_equal(llmc_write(padded, &f.layout, f.view.params), ST_OK);
    rest = f.layout.canonical_elems - 128 * 2;
    fixture_release(&f);
    for (int32_t Vp = 5; Vp <= 300; Vp += Vp == 5 ? 2 : 293) {
        const size_t bytes = 1024 + 4 * ((size_t)Vp * 2 + rest);
        char *data, *odd = calloc(1, bytes);
        struct model_file model;
        size_t n;

        assert_non_null(odd);
        assert_int_equal(file_read_all(padded, &data, &n), ST_OK);
        memcpy(odd, data, 1024);
        memcpy(odd + 28, &Vp, sizeof Vp);
        memset(odd + 1024, 0x55, (size_t)Vp * 8); /* padding that is not 0 */
        memcpy(odd + 1024, data + 1024, 5 * 8);
        memcpy(odd + 1024 + Vp * 8, data + 1024 + 128 * 8, 4 * rest);
        assert_int_equal(file_write_all(path, odd, bytes), ST_OK);
        free(data);
        free(odd);

        fixture_init(&f, &h, 0);
        fixture_poison(&f);
        assert_int_equal(model_open(path, &model), ST_OK);
        assert_int_equal(model.shape.Vp, 128);
        assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_OK);
        assert_int_equal(llmc_write(path, &f.layout, f.view.params), ST_OK);
        same_file(path, padded);
        fixture_release(&f);
    }
}

struct bad_file {
    int32_t head[8];
    long bytes;
    const char *words;
};

static void bad_files_are_refused(void **arg)
{
    static const struct bad_file files[] = {
        {{20240326, 5, 3, 5, 1, 1, 2, 128}, 2000, "found 2000 bytes, needs "},
        {{20240326, 1, 3, 5, 1, 1, 2, 128}, 2000, "version 1, needs 3 (fp32) or 5"},
        {{20240326, 3, 3, 5, 1, 1, 2, 128}, 2000, "found 2000 bytes, needs "},
        {{20240326, 3, -3, 5, 1, 1, 2, 128}, 2000, "word 2 is -3"},
        {{20240326, 3, 0, 5, 1, 1, 2, 128}, 2000, "at least 1"},
        {{20240326, 3, 3, 5, 1, 3, 2, 128}, 2000, "H divides"},
        {{20240326, 3, 3, 5, 1, 1, 2, 4}, 2000, "below the vocabulary"},
        {{20240326, 3, 3, 5, 10000, 1, 1 << 24, 128}, 2000, "out of range"},
        {{20240326, 3, 3, 5, 1, 1, 2, 128}, 500, "bytes, needs "},
        {{20240326}, 4, "version 0, needs 3"},
        {{20240520, 1, 100}, 1224, "found a token shard, needs a run folder"},
        {{0x04034b50}, 2000, "starts with 50 4b 03 04"},
        {{0}, 0, "starts with nothing, no known magic"},
    };
    const char *path = text("%s/bad.bin", scratch);
    struct model_file model;

    (void)arg;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_header(path, files[i].head, 8, files[i].bytes);
        assert_int_equal(model_open(path, &model), ST_FORMAT);
        if (!strstr(fail_text(), files[i].words) || !strstr(fail_text(), path))
            fail_msg("'%s' lacks '%s'", fail_text(), files[i].words);
    }
    assert_int_equal(model_open(text("%s/none", scratch), &model), ST_IO);
    assert_non_null(strstr(fail_text(), "No such file"));
    assert_int_equal(model_open(scratch, &model), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "neither manifest.json, checkpoints/ nor "));
}

static void read_into_another_shape_is_usage(void **arg)
{
    const char *path = text("%s/shape.bin", scratch);
    struct holding h = production(specs[1]);
    struct model_file model;
    struct fixture f;

    (void)arg;
    fixture_init(&f, &h, 0);
    fill_model(&f, 1);
    assert_int_equal(llmc_write(path, &f.layout, f.view.params), ST_OK);
    fixture_release(&f);
    h.spec = specs[2];
    fixture_init(&f, &h, 0);
    assert_int_equal(model_open(path, &model), ST_OK);
    assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_USAGE);
    assert_non_null(strstr(fail_text(), "found L=1,H=3,C=48,T=7,V=61, needs"));
    fixture_release(&f);
}

static void run_and_checkpoint_folders_are_models(void **arg)
{
    const char *run = text("%s/run", scratch);
    struct holding writer = {
        .spec = specs[2], .order = LAYOUT_STORAGE, .ranks = 3, .block_bytes = 640};
    struct holding reader = production(specs[2]);
    struct run_state state = fixture_state(8);
    struct model_file model;
    struct fixture f;

    (void)arg;
    assert_int_equal(folder_make(text("%s/checkpoints", run)), ST_OK);
    assert_int_equal(model_open(run, &model), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "no complete checkpoint"));
    assert_int_equal(file_write_all(text("%s/config.ini", run), "", 0), ST_OK);
    assert_int_equal(model_open(run, &model), ST_FORMAT);
    assert_non_null(strstr(fail_text(), "run: no checkpoint yet"));
    simulate_save(text("%s/checkpoints/step-000007", run), &writer, &state, 7);
    simulate_save(text("%s/checkpoints/step-000008", run), &writer, &state, 8);
    assert_int_equal(
        file_write_all(text("%s/checkpoints/step-000008/tokens.json", run), "{}", 2),
        ST_OK);

    fixture_init(&f, &reader, 0);
    for (int i = 0; i < 2; i++) {
        fixture_poison(&f);
        assert_int_equal(
            model_open(i ? run : text("%s/checkpoints/step-000007/", run), &model),
            ST_OK);
        assert_int_equal(model.kind, MODEL_NATIVE);
        assert_int_equal(model.state.step, 8);
        assert_int_equal(model_read(&model, &f.layout, f.view.params), ST_OK);
        assert_int_equal(fixture_wrong_params(&f, i ? 8 : 7),
                         (f.layout.shape.Vp - f.layout.shape.V) * f.layout.shape.C);
    }
    assert_string_equal(model.path, text("%s/checkpoints/step-000008", run));
    assert_string_equal(model.tokens_json,
                        text("%s/checkpoints/step-000008/tokens.json", run));
    fixture_release(&f);
}

static void write_failure_leaves_nothing(void **arg)
{
    const struct holding h = production(specs[0]);
    struct fixture f;

    (void)arg;
    fixture_init(&f, &h, 0);
    fill_model(&f, 1);
    assert_int_equal(
        llmc_write(text("%s/no/such/folder.bin", scratch), &f.layout, f.view.params),
        ST_IO);
    assert_int_equal(folder_make(text("%s/taken.bin/x", scratch)), ST_OK);
    assert_int_equal(llmc_write(text("%s/taken.bin", scratch), &f.layout, f.view.params),
                     ST_IO);
    assert_false(file_exists(text("%s/taken.bin.tmp", scratch)));
    fixture_release(&f);
}

static int setup(void **arg)
{
    (void)arg;
    scratch_make(scratch);
    return 0;
}

static int teardown(void **arg)
{
    (void)arg;
    scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_bit_for_bit),
        cmocka_unit_test(bytes_are_where_the_format_has_them),
        cmocka_unit_test(golden_models_come_back),
        cmocka_unit_test(gpt2_size_is_accepted_unread),
        cmocka_unit_test(other_padding_is_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(read_into_another_shape_is_usage),
        cmocka_unit_test(run_and_checkpoint_folders_are_models),
        cmocka_unit_test(write_failure_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
