/* SPDX-License-Identifier: MIT */
/* The list of matrix products that benchmarks measure against the calls of real steps:
 * the linker sends this program's calls of gemm() and gemm_linear() through functions
 * here. */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "model/products.h"

enum { MOST_CALLS = 20000 };

struct call {
    bool ta, tb;
    size_t m, n, k, lda, ldb, ldc;
    float beta;
};

/* Written by the one worker while a step runs. */
static struct call calls[MOST_CALLS];
static size_t n_calls;
static bool in_linear; /* whose product may be one of gemm() */

void __real_gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A,
                 size_t lda, const float *B, size_t ldb, float beta, float *C,
                 size_t ldc);
void __wrap_gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A,
                 size_t lda, const float *B, size_t ldb, float beta, float *C,
                 size_t ldc);

void __real_gemm_linear(const struct kernels *k, const struct linear *l);
void __wrap_gemm_linear(const struct kernels *k, const struct linear *l);

static void record(struct call call)
{
    if (n_calls < MOST_CALLS)
        calls[n_calls] = call;
    n_calls++;
}

void __wrap_gemm(bool ta, bool tb, size_t m, size_t n, size_t k, const float *A,
                 size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc)
{
    if (!in_linear)
        record((struct call){ta, tb, m, n, k, lda, ldb, ldc, beta});
    __real_gemm(ta, tb, m, n, k, A, lda, B, ldb, beta, C, ldc);
}

void __wrap_gemm_linear(const struct kernels *k, const struct linear *l)
{
    record((struct call){false, true, l->rows, l->out, l->in, l->ldx, l->ldw, l->ldy, 1});
    in_linear = true;
    __real_gemm_linear(k, l);
    in_linear = false;
}

static bool is_of(const struct call *c, const struct model_product *p)
{
    return c->ta == p->ta && c->tb == p->tb && c->m == p->m && c->n == p->n &&
           c->k == p->k && c->lda == p->lda && c->ldb == p->ldb && c->ldc == p->ldc &&
           c->beta == p->beta;
}

static void fill(struct engine *e, size_t step, void *arg)
{
    const struct engine_options *o = arg;

    for (size_t a = 0; a < o->accum; a++)
        for (size_t i = 0; i < o->batch * o->seq; i++) {
            engine_inputs(e, a)[i] = (int32_t)((i + step) % o->shape.V);
            engine_targets(e, a)[i] = (int32_t)(i * 7 % o->shape.V);
        }
}

static void check(struct shape shape, size_t batch, size_t seq, size_t accum)
{
    struct engine_options o = fixture_options(shape, batch, seq, accum);
    struct trial trial = {.engine = fixture_engine(&o),
                          .seed = 1,
                          .steps = 1,
                          .lr = 1e-3,
                          .fill = fill,
                          .arg = &o};
    struct model_product list[MODEL_PRODUCTS_MOST];
    struct tiling tiling;
    size_t total = 0;

    tiling_init(&tiling, &shape, batch, seq);
    size_t n = model_products(&shape, &tiling, accum, list);

    n_calls = 0;
    fixture_run(&trial);
    engine_free(trial.engine);
    assert_in_range(n_calls, 1, MOST_CALLS);
    for (size_t i = 0; i < n; i++)
        total += list[i].calls;
    assert_int_equal(total, n_calls);
    for (size_t c = 0; c < n_calls; c++) {
        size_t i = 0;

        while (i < n && (list[i].calls == 0 || !is_of(&calls[c], &list[i])))
            i++;
        if (i == n)
            fail_msg("call %zu, %c%c m %zu n %zu k %zu beta %g, is not in the list", c,
                     calls[c].ta ? 'T' : 'N', calls[c].tb ? 'T' : 'N', calls[c].m,
                     calls[c].n, calls[c].k, (double)calls[c].beta);
        list[i].calls--;
    }
}

/* Tiles of rows, columns, weights, vocabulary and chunks that divide, and that do
 * not. */
static void list_is_what_is_called(void **state)
{
    (void)state;
    check(fixture_shape(1, 1, 16, 32, 100), 1, 32, 1);
    check(fixture_shape(2, 3, 48, 64, 97), 3, 50, 2);
    check(fixture_shape(3, 2, 80, 300, 2500), 2, 300, 3);
    check(fixture_shape(1, 4, 64, 128, 4096), 4, 128, 1);
    check(fixture_shape(1, 1, 24, 7, 5), 1, 7, 2);
    check(fixture_shape(1, 2, 416, 64, 50), 2, 64, 2);
}

/* With products and attention apart, operations are those of the formula: 6 a parameter
 * and token, without the embedding of positions, biases and layer-norms. */
static void flops_are_those_of_the_model(void **state)
{
    struct shape s = fixture_shape(4, 4, 256, 512, 1024);
    struct model_product list[MODEL_PRODUCTS_MOST];
    struct tiling t;
    double flops = 0, matrices = (double)(s.Vp * s.C + s.L * 12 * s.C * s.C);

    (void)state;
    tiling_init(&t, &s, 3, 500);
    size_t n = model_products(&s, &t, 2, list);

    for (size_t i = 0; i < n; i++)
        flops += product_flops(&list[i]);
    assert_true(flops == 6 * matrices * 3 * 500 * 2);
    for (enum product_part p = PRODUCT_FORWARD; p <= PRODUCT_WEIGHT_GRAD; p++)
        assert_true(strlen(product_part_name(p)) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_is_what_is_called),
        cmocka_unit_test(flops_are_those_of_the_model),
    };

    return fixture_main(tests, sizeof tests / sizeof *tests);
}
