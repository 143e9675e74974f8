/* SPDX-License-Identifier: MIT */
/* Number types, and weights that travel through every format and come back. */
#include "fixture.h" /* before cmocka.h, which has a fail() of its own */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "checkpoint/dtype.h"
#include "checkpoint/weights.h"

static char scratch[PATH_BYTES];

/* ---- number types ---- */

/* The value by the definition of the format, in double. */
static double fp16_by_definition(uint16_t h)
{
    int exponent = h >> 10 & 31;
    double mantissa = h & 0x3ff;
    double x = exponent == 0    ? ldexp(mantissa, -24)
               : exponent == 31 ? (mantissa != 0 ? (double)NAN : (double)INFINITY)
                                : ldexp(1024 + mantissa, exponent - 25);

    return h & 0x8000 ? -x : x;
}

static void every_half_is_read_and_comes_back(void **arg)
{
    (void)arg;
    for (int t = DTYPE_BF16; t <= DTYPE_FP16; t++)
        for (uint32_t i = 0; i <= 0xffff; i++) {
            uint16_t h = (uint16_t)i, back;
            float x;

            dtype_load((enum dtype)t, &h, 1, &x);
            if (t == DTYPE_FP16 && !isnan(x))
                assert_true((double)x == fp16_by_definition(h) &&
                            !!signbit(x) == h >> 15);
            if (t == DTYPE_FP16 && isnan(x))
                assert_true(isnan(fp16_by_definition(h)));
            (void)dtype_store((enum dtype)t, &x, 1, &back);
            if (isnan(x) && t == DTYPE_BF16)
                h |= 0x40; /* NaN is made a quiet one */
            assert_int_equal(back, h);
        }
}

/* Between two neighbours: below the middle, the middle, above it. */
static void halves_are_rounded_to_the_nearest(void **arg)
{
    (void)arg;
    for (uint32_t i = 0; i < 0x7bff; i++) {
        uint16_t h[2] = {(uint16_t)i, (uint16_t)(i + 1)}, found[3];
        float ends[2];

        dtype_load(DTYPE_FP16, h, 2, ends);
        float middle = (ends[0] + ends[1]) / 2; /* exact: fp32 has bits to spare */
        float x[3] = {nextafterf(middle, 0), middle, nextafterf(middle, 1e9F)};
        assert_int_equal(dtype_store(DTYPE_FP16, x, 3, found), 3);
        assert_int_equal(found[0], h[0]);
        assert_int_equal(found[1], h[i & 1]); /* to the even one */
        assert_int_equal(found[2], h[1]);
    }
}

static void too_large_is_told(void **arg)
{
    const float x[] = {1, INFINITY, 65519.9F, -65520.0F, 1e9F};
    const float y[] = {NAN, -INFINITY, 3.38e38F, 3.4e38F};
    uint16_t h[5];

    (void)arg;
    assert_int_equal(dtype_store(DTYPE_FP16, x, 5, h), 3);
    assert_int_equal(h[1], 0x7c00);
    assert_int_equal(h[2], 0x7bff);
    assert_int_equal(h[3], 0xfc00);
    assert_int_equal(dtype_store(DTYPE_FP16, x, 3, h), 3);
    assert_int_equal(dtype_store(DTYPE_BF16, y, 4, h), 3);
    assert_int_equal(dtype_store(DTYPE_BF16, y, 3, h), 3);
}

/* ---- round trips ---- */

/* All bits, NaN and subnormal numbers too; padding rows of wte are 0. */
static void fill_bits(const struct layout *l, float *params)
{
    const struct slice *wte = layout_slice(l, WTE, 0);

    for (size_t i = 0; i < l->elems; i++) {
        uint32_t bits = (uint32_t)rng_bits(11, 0, i);

        memcpy(params + i, &bits, sizeof bits);
    }
    memset(params + wte->offset + l->shape.V * wte->cols, 0,
           (wte->elems - l->shape.V * wte->cols) * sizeof *params);
}

static void convert(const char *from, enum model_kind to, const char *out)
{
    struct model_file f;

    if (model_open(from, &f) != ST_OK ||
        model_convert(&f, to, out, &(struct model_write_options){.dtype = DTYPE_FP32}) !=
            ST_OK)
        fail_msg("%s", fail_text());
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

/* Vocabularies that are padded, not padded, of one id, of characters, GPT-2's. */
static void every_bit_survives_all_formats(void **arg)
{
    static const char *const specs[] = {
        "L=1,H=1,C=1,T=1,V=1",    "L=2,H=2,C=10,T=5,V=65",    "L=3,H=3,C=48,T=11,V=128",
        "L=1,H=3,C=48,T=7,V=129", "L=11,H=1,C=2,T=3,V=50257", "L=1,H=2,C=272,T=9,V=300"};
    static const enum model_kind ways[] = {MODEL_NATIVE, MODEL_SAFETENSORS, MODEL_NATIVE,
                                           MODEL_GGUF,   MODEL_NATIVE,      MODEL_LLMC};
    enum { WAYS = sizeof ways / sizeof *ways };

    (void)arg;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        const char *folder = text("%s/trip%zu", scratch, k);
        struct shape shape;
        struct layout layout;
        float *params;
        void *p;

        assert_int_equal(folder_make(folder), ST_OK);
        assert_int_equal(shape_parse(specs[k], 0, &shape), ST_OK);
        assert_int_equal(layout_init(&layout, &shape, LAYOUT_PRODUCTION), ST_OK);
        assert_int_equal(memory_map(layout.elems * sizeof *params, "model", &p), ST_OK);
        params = p;
        fill_bits(&layout, params);
        assert_int_equal(model_write(&layout, params, MODEL_LLMC, text("%s/0", folder),
                                     &(struct model_write_options){.dtype = DTYPE_FP32}),
                         ST_OK);
        for (int i = 0; i < WAYS; i++)
            convert(text("%s/%d", folder, i), ways[i], text("%s/%d", folder, i + 1));
        same_file(text("%s/0", folder), text("%s/%d", folder, WAYS));

        /* And into memory, whose padding and gaps were not 0. */
        for (int i = 0; i <= WAYS; i++) {
            struct model_file f;
            float *back = calloc(layout.elems, sizeof *back);

            assert_non_null(back);
            memset(back, 0x55, layout.elems * sizeof *back);
            params_zero_gaps(&layout, params);
            assert_int_equal(model_open(text("%s/%d", folder, i), &f), ST_OK);
            assert_int_equal(f.kind, i == 0 ? MODEL_LLMC : ways[i - 1]);
            assert_memory_equal(&f.shape, &shape, sizeof shape);
            assert_int_equal(model_read(&f, &layout, back), ST_OK);
            assert_memory_equal(back, params, layout.elems * sizeof *back);
            free(back);
        }
        memory_unmap(params, layout.elems * sizeof *params);
        layout_release(&layout);
        assert_int_equal(folder_remove(folder), ST_OK);
    }
}

static void not_finite_numbers_are_counted(void **arg)
{
    const char *path = text("%s/nan", scratch);
    struct shape shape;
    struct layout layout;
    struct model_numbers n;
    struct model_file f;
    float *params;

    (void)arg;
    assert_int_equal(shape_parse("L=2,H=1,C=4,T=3,V=5", 0, &shape), ST_OK);
    assert_int_equal(layout_init(&layout, &shape, LAYOUT_STORAGE), ST_OK);
    params = calloc(layout.elems, sizeof *params);
    assert_non_null(params);
    params[layout_slice(&layout, LN2B, 1)->offset + 3] = NAN;
    params[layout_slice(&layout, LNFB, 0)->offset] = -INFINITY;
    assert_int_equal(model_write(&layout, params, MODEL_GGUF, path,
                                 &(struct model_write_options){.dtype = DTYPE_BF16}),
                     ST_OK);
    assert_int_equal(model_open(path, &f), ST_OK);
    assert_int_equal(model_check_numbers(&f, &n), ST_OK);
    assert_int_equal(n.not_finite, 2);
    assert_string_equal(n.first, "ln2b[1]");
    assert_int_equal(n.tensors[DTYPE_BF16], 1 + 2 * 4);
    assert_int_equal(n.tensors[DTYPE_FP32], 28 - 9);
    free(params);
    layout_release(&layout);
}

/* ---- extents ---- */

static void holes_and_overlaps_are_found(void **arg)
{
    static const struct {
        struct extent list[3];
        uint64_t align, bytes;
        const char *words; /* NULL: right */
    } cases[] = {
        {{{0, 4, "a"}, {4, 8, "b"}, {8, 8, "c"}}, 1, 8, NULL},
        {{{8, 12, "a"}, {0, 4, "b"}, {4, 8, "c"}}, 1, 12, NULL},
        {{{0, 4, "a"}, {32, 36, "b"}, {64, 96, "c"}}, 32, 96, NULL},
        {{{0, 4, "a"}, {32, 64, "b"}, {64, 65, "c"}}, 32, 65, NULL},
        {{{0, 4, "a"}, {32, 64, "b"}, {64, 65, "c"}}, 32, 96, NULL},
        {{{0, 4, "a"}, {32, 64, "b"}, {64, 65, "c"}}, 32, 97, "found 97 bytes"},
        {{{0, 4, "a"}, {5, 8, "b"}, {8, 9, "c"}},
         1,
         9,
         "tensor b: found its data at byte 5, "
         "needs it at 4: there is a hole"},
        {{{0, 4, "a"}, {3, 8, "b"}, {8, 9, "c"}}, 1, 9, "tensors overlap"},
        {{{1, 4, "a"}, {4, 8, "b"}, {8, 9, "c"}}, 1, 9, "tensor a"},
        {{{0, 4, "a"}, {4, 8, "b"}, {8, 9, "c"}}, 1, 8, "tensor c: found 8 bytes"},
        {{{0, 4, "a"}, {4, 8, "b"}, {8, 9, "c"}},
         1,
         10,
         "found 10 bytes of data, needs 9"},
        {{{0, 4, "a"}, {4, 8, "b"}, {8, 9, "c"}}, 32, 9, "tensor b"},
        {{{0, UINT64_MAX, "a"}, {4, 8, "b"}, {8, 9, "c"}},
         32,
         9,
         "tensor a: found 9 bytes"},
    };

    (void)arg;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct extent list[3];

        memcpy(list, cases[i].list, sizeof list);
        enum status st = extents_check(list, 3, cases[i].align, cases[i].bytes, "file");
        assert_int_equal(st, cases[i].words ? ST_FORMAT : ST_OK);
        if (cases[i].words && !strstr(fail_text(), cases[i].words))
            fail_msg("'%s' lacks '%s'", fail_text(), cases[i].words);
    }
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
        cmocka_unit_test(every_half_is_read_and_comes_back),
        cmocka_unit_test(halves_are_rounded_to_the_nearest),
        cmocka_unit_test(too_large_is_told),
        cmocka_unit_test(every_bit_survives_all_formats),
        cmocka_unit_test(not_finite_numbers_are_counted),
        cmocka_unit_test(holes_and_overlaps_are_found),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
