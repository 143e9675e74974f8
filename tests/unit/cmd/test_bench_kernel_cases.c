/* SPDX-License-Identifier: MIT */
/* Every kernel has a case; the kernels pass their judges, and a change of any array that
 * a kernel writes does not. */
#include "cmd/bench_kernel_cases.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const double limit = 1e-5; /* that of the benchmark */

/* One tile, a copy of it from before the run, and one from after. */
struct trial {
    const struct kernel_case *c;
    struct case_sizes sizes;
    size_t rows, elems;
    float *memory, *copy;
    struct case_tile before, after;
    struct arena scratch;
};

static void set_up(struct trial *t, const struct kernel_case *c, const struct kernels *k)
{
    /* H = 1: attention's judge looks at the last head alone. */
    *t = (struct trial){.c = c, .sizes = {.C = 24, .H = 1, .T = 70, .cols = 130}};
    t->rows = case_rows(c, &t->sizes, 9000);
    t->elems = case_place(c, &t->sizes, t->rows, NULL, &t->after);
    t->memory = calloc(t->elems, sizeof *t->memory);
    t->copy = calloc(t->elems, sizeof *t->copy);
    assert_non_null(t->memory);
    assert_non_null(t->copy);
    assert_int_equal(case_place(c, &t->sizes, t->rows, t->memory, &t->after), t->elems);
    (void)case_place(c, &t->sizes, t->rows, t->copy, &t->before);
    assert_int_equal(
        arena_init(&t->scratch, case_scratch_bytes(c, &t->sizes, t->rows), "test"),
        ST_OK);
    case_fill(c, &t->after);
    if (c->prepare)
        c->prepare(k, &t->after);
    memcpy(t->copy, t->memory, t->elems * sizeof *t->copy);
}

static void tear_down(struct trial *t)
{
    free(t->memory);
    free(t->copy);
    arena_release(&t->scratch);
}

static double error_of(struct trial *t)
{
    t->scratch.used_bytes = 0;
    return t->c->judge(&t->before, &t->after, &t->scratch);
}

static bool is_written(enum array_kind kind)
{
    return kind == ARRAY_OUT || kind == ARRAY_INOUT || kind == ARRAY_INOUT_POSITIVE;
}

/* The array at its place, so that a judge that looks at the wrong one is found. */
static void spoil_each_output(struct trial *t)
{
    struct case_array arrays[CASE_ARRAYS];
    size_t n = t->c->arrays(&t->sizes, arrays), written = 0;

    for (size_t i = 0; i < n; i++) {
        size_t elems = arrays[i].fixed + arrays[i].per_row * t->rows;

        written += is_written(arrays[i].kind);
        for (size_t e = 0; is_written(arrays[i].kind) && e < elems; e++) {
            float right = t->after.a[i][e];

            t->after.a[i][e] = right + 0.5f;
            if (error_of(t) <= limit)
                fail_msg("%s: array %zu, element %zu is not looked at", t->c->name, i, e);
            t->after.a[i][e] = right;
            e += elems / 5; /* all of them would take long */
        }
        if (is_written(arrays[i].kind)) {
            float right = t->after.a[i][elems - 1];

            t->after.a[i][elems - 1] = NAN;
            assert_true(isinf(error_of(t)));
            t->after.a[i][elems - 1] = right;
        }
    }
    assert_true(written > 0);
    assert_true(error_of(t) <= limit);
}

static void judges_know_right_from_wrong(void **state)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};

    (void)state;
    for (size_t c = 0; c < n_kernel_cases; c++)
        for (size_t i = 0; i < 3; i++) {
            const struct kernels *k;
            struct trial t;

            if (kernels_select(names[i], &k) != ST_OK)
                continue;
            set_up(&t, &kernel_cases[c], k);
            /* A kernel that does nothing is not right. */
            assert_true(error_of(&t) > limit);
            t.c->run(k, &t.after);
            if (!(error_of(&t) <= limit))
                fail_msg("%s of %s: error %g", t.c->name, names[i], error_of(&t));
            spoil_each_output(&t);
            tear_down(&t);
        }
}

/* Pointers of the table and no others: a new kernel without a case is found here. */
static void every_kernel_has_a_case(void **state)
{
    size_t members = (sizeof(struct kernels) - sizeof(char *)) / sizeof(void (*)(void));

    (void)state;
    assert_int_equal(n_kernel_cases, members);
    for (size_t i = 0; i < n_kernel_cases; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(kernel_cases[i].name, kernel_cases[j].name);
}

static void work_is_counted(void **state)
{
    const struct case_sizes s = {.C = 64, .H = 1, .T = 10, .cols = 100};
    static const struct {
        const char *name;
        double work; /* of 10 rows */
    } expected[] = {
        {"gelu_fwd", 2 * 10 * 64 * 4},
        {"bias_grad", 11 * 64 * 4},
        {"adamw", 7 * 10 * 64 * 4},
        {"softmax_grad", (2 * 100 + 2) * 10 * 4},
        {"attention_fwd", 2 * 2 * (10 * 11 / 2) * 64},
        {"attention_bwd", 5 * 2 * (10 * 11 / 2) * 64},
    };

    (void)state;
    for (size_t e = 0; e < sizeof expected / sizeof *expected; e++) {
        size_t c = 0;

        while (c < n_kernel_cases && strcmp(kernel_cases[c].name, expected[e].name) != 0)
            c++;
        assert_true(c < n_kernel_cases);
        assert_true(case_work(&kernel_cases[c], &s, 10) == expected[e].work);
        if (kernel_cases[c].sequence)
            assert_int_equal(case_rows(&kernel_cases[c], &s, 1), 10);
        else
            assert_int_equal(case_rows(&kernel_cases[c], &s, 1), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_know_right_from_wrong),
        cmocka_unit_test(every_kernel_has_a_case),
        cmocka_unit_test(work_is_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
