/* SPDX-License-Identifier: MIT */
/* The tensor table: where everything lies, in both orders, and what it starts as. */
#include "model/tensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/memory.h"

static struct shape shape_of(size_t L, size_t H, size_t C, size_t T, size_t V)
{
    return (struct shape){L, H, C, T, V, round_up(V, VOCAB_PAD)};
}

static const struct shape shapes[] = {
    {3, 3, 48, 40, 97, 128},
    {1, 1, 1, 1, 1, 128},
    {2, 1, 5, 7, 3, 128},
    {5, 7, 77, 13, 129, 256},
    {12, 12, 768, 1024, 50257, 50304},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Order and sizes of a version 3 model file, written down once more on purpose. */
static size_t file_elems(const struct shape *s, int tensor)
{
    size_t C = s->C, L = s->L;
    const size_t sizes[TENSOR_KINDS] = {
        s->Vp * C,     s->T * C, L * C, L * C, L * 3 * C * C, L * 3 * C,
        L * C * C,     L * C,    L * C, L * C, L * 4 * C * C, L * 4 * C,
        L * C * 4 * C, L * C,    C,     C};

    return sizes[tensor];
}

static void canonical_is_the_file_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct layout l;
        size_t at = 0;

        assert_int_equal(layout_init(&l, &shapes[i], LAYOUT_PRODUCTION), ST_OK);
        for (int k = 0; k < TENSOR_KINDS; k++) {
            size_t layers = tensor_table[k].per_layer ? shapes[i].L : 1;

            for (size_t n = 0; n < layers; n++) {
                const struct slice *s = layout_slice(&l, (enum tensor_kind)k, n);

                assert_int_equal(s->kind, k);
                assert_int_equal(s->layer, n);
                assert_int_equal(s->canonical_offset,
                                 at + n * (file_elems(&shapes[i], k) / layers));
                assert_int_equal(s->elems, file_elems(&shapes[i], k) / layers);
                assert_int_equal(s->elems, s->rows * s->cols);
            }
            at += file_elems(&shapes[i], k);
        }
        assert_int_equal(l.canonical_elems, at);
        assert_int_equal(at - (shapes[i].Vp - shapes[i].V) * shapes[i].C,
                         shape_parameters(&shapes[i]));
        layout_release(&l);
    }
}

/* Every slice begins on 64 bytes, has room, and shares no element with another. */
static void check_places(const struct layout *l, const struct slice *const *by_offset)
{
    size_t at = 0;

    for (size_t i = 0; i < l->n_slices; i++) {
        assert_int_equal(by_offset[i]->offset, at);
        assert_int_equal(by_offset[i]->offset % 16, 0);
        assert_true(by_offset[i]->span >= by_offset[i]->elems);
        assert_true(by_offset[i]->span < by_offset[i]->elems + 16);
        at += by_offset[i]->span;
    }
    assert_int_equal(at, l->elems);
}

static void note(const struct slice *s, void *arg)
{
    const struct slice ***next = arg;

    *(*next)++ = s;
}

static void memory_follows_the_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct layout p, s;
        const struct slice *list[4 + 12 * 12];
        const struct slice **next = list;

        assert_int_equal(layout_init(&p, &shapes[i], LAYOUT_PRODUCTION), ST_OK);
        assert_int_equal(layout_init(&s, &shapes[i], LAYOUT_STORAGE), ST_OK);
        assert_int_equal(p.n_slices, 4 + 12 * shapes[i].L);
        assert_int_equal(s.n_slices, p.n_slices);
        assert_int_equal(s.elems, p.elems);
        layout_each_canonical(&s, note, &next);
        assert_int_equal(next - list, s.n_slices);
        check_places(&s, list);
        for (size_t n = 0; n < p.n_slices; n++) {
            list[n] = &p.slices[n];
            /* Both list production order, wherever the memory is. */
            assert_int_equal(p.slices[n].kind, s.slices[n].kind);
            assert_int_equal(p.slices[n].layer, s.slices[n].layer);
            assert_int_equal(p.slices[n].canonical_offset, s.slices[n].canonical_offset);
        }
        check_places(&p, list);
        layout_release(&p);
        layout_release(&s);
    }
}

static void production_is_backward(void **state)
{
    struct layout l;
    char name[32];
    static const char *const wanted[] = {
        "lnfb",    "lnfw",    "fcprojb[1]",  "fcprojw[1]",  "fcb[1]",  "fcw[1]",
        "ln2b[1]", "ln2w[1]", "attprojb[1]", "attprojw[1]", "qkvb[1]", "qkvw[1]",
        "ln1b[1]", "ln1w[1]", "fcprojb[0]",  "fcprojw[0]",  "fcb[0]",  "fcw[0]",
        "ln2b[0]", "ln2w[0]", "attprojb[0]", "attprojw[0]", "qkvb[0]", "qkvw[0]",
        "ln1b[0]", "ln1w[0]", "wpe",         "wte"};

    (void)state;
    assert_int_equal(layout_init(&l, &(struct shape){2, 1, 5, 7, 3, 128}, 0), ST_OK);
    assert_int_equal(l.n_slices, sizeof wanted / sizeof *wanted);
    for (size_t i = 0; i < l.n_slices; i++)
        assert_string_equal(slice_name(&l.slices[i], name, sizeof name), wanted[i]);
    layout_release(&l);
}

static void decayed_and_not(void **state)
{
    struct shape s = shape_of(12, 12, 768, 1024, 50257);
    struct layout l;
    size_t tensors[2] = {0, 0};
    size_t elems[2] = {0, 0};

    (void)state;
    assert_int_equal(layout_init(&l, &s, LAYOUT_PRODUCTION), ST_OK);
    for (size_t i = 0; i < l.n_slices; i++) {
        bool decays = tensor_table[l.slices[i].kind].decays;

        tensors[decays]++;
        elems[decays] += l.slices[i].elems;
        /* Matrices and nothing else. */
        assert_int_equal(decays, l.slices[i].rows > 1);
    }
    assert_int_equal(tensors[true], 50);
    assert_int_equal(elems[true], 124354560);
    assert_int_equal(elems[true] - (s.Vp - s.V) * s.C, 124318464);
    assert_int_equal(tensors[false], 98);
    assert_int_equal(elems[false], 121344);
    layout_release(&l);
}

/* ---- initial values ---- */

static float *init_slice(const struct layout *l, const struct slice *s, uint64_t seed)
{
    float *x = malloc(s->elems * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < s->elems; i++)
        x[i] = NAN;
    tensor_init_rows(l, s, seed, 0, s->rows, x);
    return x;
}

/* Mean, deviation and fourth moment against N(0, sigma), within 5 standard errors. */
static void check_normal(const float *x, size_t n, double sigma, const char *name)
{
    double sums[4] = {0, 0, 0, 0};
    double count = (double)n;

    for (size_t i = 0; i < n; i++) {
        double z = (double)x[i] / sigma;

        sums[0] += z;
        sums[1] += z * z;
        sums[2] += z * z * z;
        sums[3] += z * z * z * z;
    }
    bool good = fabs(sums[0] / count) < 5 / sqrt(count) &&
                fabs(sums[1] / count - 1) < 5 * sqrt(2 / count) &&
                fabs(sums[2] / count) < 5 * sqrt(15 / count) &&
                fabs(sums[3] / count - 3) < 5 * sqrt(96 / count);
    if (!good)
        fail_msg("%s: moments %g %g %g %g", name, sums[0] / count, sums[1] / count,
                 sums[2] / count, sums[3] / count);
}

static void initial_law(void **state)
{
    struct shape shape = shape_of(3, 2, 80, 41, 300);
    struct layout l;

    (void)state;
    assert_int_equal(layout_init(&l, &shape, LAYOUT_STORAGE), ST_OK);
    for (size_t i = 0; i < l.n_slices; i++) {
        const struct slice *s = &l.slices[i];
        float *x = init_slice(&l, s, 1);
        char name[32];
        bool residual = s->kind == ATTPROJW || s->kind == FCPROJW;
        bool gain = s->kind == LN1W || s->kind == LN2W || s->kind == LNFW;

        slice_name(s, name, sizeof name);
        if (s->rows > 1)
            check_normal(x, s->kind == WTE ? shape.V * s->cols : s->elems,
                         residual ? 0.02 / sqrt(6) : 0.02, name);
        else
            for (size_t j = 0; j < s->elems; j++)
                assert_true(fabsf(x[j] - (gain ? 1.0F : 0.0F)) <= 0);
        free(x);
    }
    layout_release(&l);
}

static void padding_rows_are_zero(void **state)
{
    struct shape shape = shape_of(1, 1, 7, 3, 129);
    struct layout l;

    (void)state;
    assert_int_equal(layout_init(&l, &shape, LAYOUT_PRODUCTION), ST_OK);
    const struct slice *wte = layout_slice(&l, WTE, 0);
    float *x = init_slice(&l, wte, 9);
    assert_int_equal(wte->rows, 256);
    for (size_t i = 0; i < wte->elems; i++)
        assert_int_equal(fabsf(x[i]) > 0, i < shape.V * shape.C);
    free(x);
    layout_release(&l);
}

static void any_split_gives_the_same_bits(void **state)
{
    struct shape shape = shape_of(2, 1, 13, 11, 131);
    struct layout p, s;

    (void)state;
    assert_int_equal(layout_init(&p, &shape, LAYOUT_PRODUCTION), ST_OK);
    assert_int_equal(layout_init(&s, &shape, LAYOUT_STORAGE), ST_OK);
    for (size_t i = 0; i < p.n_slices; i++) {
        const struct slice *slice = &p.slices[i];
        float *whole = init_slice(&p, slice, 4);
        float *parts = calloc(slice->elems, sizeof *parts);

        assert_non_null(parts);
        for (size_t step = 1; step <= 5; step += 2) {
            for (size_t r = slice->rows; r > 0;) {
                size_t first = r > step ? r - step : 0;

                tensor_init_rows(&s, &s.slices[i], 4, first, r, parts);
                r = first;
            }
            assert_memory_equal(parts, whole, slice->elems * sizeof *parts);
        }
        free(whole);
        free(parts);
    }
    layout_release(&p);
    layout_release(&s);
}

static void seeds_layers_and_tensors_differ(void **state)
{
    struct shape shape = shape_of(2, 1, 16, 11, 131);
    struct layout l;

    (void)state;
    assert_int_equal(layout_init(&l, &shape, LAYOUT_PRODUCTION), ST_OK);
    float *base = init_slice(&l, layout_slice(&l, FCW, 0), 1);
    float *seed = init_slice(&l, layout_slice(&l, FCW, 0), 2);
    float *layer = init_slice(&l, layout_slice(&l, FCW, 1), 1);
    float *tensor = init_slice(&l, layout_slice(&l, QKVW, 0), 1);
    size_t equal = 0;

    for (size_t i = 0; i < (size_t)3 * 16 * 16; i++)
        equal += fabsf(base[i] - seed[i]) <= 0 || fabsf(base[i] - layer[i]) <= 0 ||
                 fabsf(base[i] - tensor[i]) <= 0;
    assert_true(equal <= 2);
    free(base);
    free(seed);
    free(layer);
    free(tensor);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_is_the_file_order),
        cmocka_unit_test(memory_follows_the_order),
        cmocka_unit_test(production_is_backward),
        cmocka_unit_test(decayed_and_not),
        cmocka_unit_test(initial_law),
        cmocka_unit_test(padding_rows_are_zero),
        cmocka_unit_test(any_split_gives_the_same_bits),
        cmocka_unit_test(seeds_layers_and_tensors_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
