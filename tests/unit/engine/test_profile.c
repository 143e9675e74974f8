/* SPDX-License-Identifier: MIT */
/* Costs of tasks beside the operations of the whole step, and the order of what becomes
 * needed and ready. */
#include "engine/profile.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* cmocka compares floats only. */
static void assert_near(double found, double needed, double tolerance)
{
    if (!(fabs(found - needed) <= tolerance))
        fail_msg("found %.17g, needs %.17g +- %g", found, needed, tolerance);
}

static struct shape shape_of(const char *spec)
{
    struct shape s;

    assert_int_equal(shape_parse(spec, 0, &s), ST_OK);
    return s;
}

static struct profile profile_of(const struct layout *l, size_t B, size_t T, size_t accum,
                                 int workers)
{
    struct profile p;

    assert_int_equal(profile_init(&p, l, B, T, accum, RECOMPUTE_NONE, workers), ST_OK);
    return p;
}

static const struct profile_slice *at(const struct profile *p, const struct layout *l,
                                      enum tensor_kind kind, size_t layer)
{
    return &p->slices[layout_slice(l, kind, layer) - l->slices];
}

/* What is computed again lengthens backward by its operations and a little. */
static void test_recomputing(void **state)
{
    struct shape s = shape_of("gpt2");
    const size_t B = 4, T = 256;
    struct layout l;

    (void)state;
    assert_int_equal(layout_init(&l, &s, LAYOUT_PRODUCTION), ST_OK);
    struct profile none = profile_of(&l, B, T, 1, 1);

    for (enum recompute r = RECOMPUTE_MLP; r <= RECOMPUTE_ALL; r++) {
        double flops = recompute_flops(r, &s, T, (double)(B * T));
        struct profile p;

        assert_int_equal(profile_init(&p, &l, B, T, 1, r, 1), ST_OK);
        assert_true(p.length - none.length > flops);
        assert_true(p.length - none.length < 1.1 * flops);
        assert_near(p.forward * p.length, none.forward * none.length, 1e-6 * none.length);
        assert_near(p.head * p.length, none.head * none.length, 1e-6 * none.length);
        profile_release(&p);
    }
    profile_release(&none);
    layout_release(&l);
}

/* With one worker the length is the sum of the costs, and that is the operations of the
 * step and a little for what is no product. */
static void test_operations(void **state)
{
    struct shape s = shape_of("gpt2");
    const size_t B = 4, T = 256;
    double flops = shape_train_flops(&s, T, (double)(B * T));
    struct layout l;

    (void)state;
    assert_int_equal(layout_init_split(&l, &s, LAYOUT_PRODUCTION), ST_OK);
    struct profile p = profile_of(&l, B, T, 1, 1);

    assert_true(p.length > flops && p.length < 1.1 * flops);
    assert_near(p.busy, 1, 1e-9);
    /* Head: 38.6M of the 124.4M parameters that have products, all three of them. */
    assert_true(p.head > 0.28 && p.head < 0.36);
    assert_true(p.forward > 0.2 && p.forward < 0.27);
    profile_release(&p);
    layout_release(&l);
}

static double columns_of(const struct shape *s, const struct tiling *t, enum work work,
                         const struct column_cut *cut)
{
    double sum = 0;

    for (size_t c = 0; c < t->chunks; c++)
        for (size_t j = 0; j < cut->tiles; j++)
            sum += work_cost(s, t, work, c, j);
    return sum;
}

/* Tiles of an uneven shape add up to whole tensors. */
static void test_tiles(void **state)
{
    struct shape s = shape_of("L=2,H=3,C=240,T=140,V=1003");
    const double C = 240, T = 140, N = 3 * T;
    struct tiling t;
    double rows = 0, heads = 0, head = 0, weights = 0;

    (void)state;
    tiling_init(&t, &s, 3, 140);
    assert_true(t.chunks > 1 && t.forward[FCW].tiles > 1 && t.vocab_tiles > 1);
    for (size_t r = 0; r < t.row_tiles; r++)
        rows += work_cost(&s, &t, WORK_FINAL_NORM, 0, r);
    for (size_t b = 0; b < t.B; b++)
        for (size_t g = 0; g < t.head_groups; g++)
            heads += work_cost(&s, &t, WORK_ATTENTION, b, g);
    for (size_t c = 0; c < t.chunks; c++)
        for (size_t v = 0; v < t.vocab_tiles; v++)
            head += work_cost(&s, &t, WORK_HEAD_GRAD, c, v) -
                    work_cost(&s, &t, WORK_LOGITS, c, v);
    for (size_t o = 0; o < tiling_grad_tiles(&t, &s, FCW); o++)
        weights += work_cost(&s, &t, WORK_WEIGHT_GRAD, o, FCW);
    double qkv = columns_of(&s, &t, WORK_QKV, &t.forward[QKVW]);
    double fc = columns_of(&s, &t, WORK_FC_BWD, &t.backward[FCW]);

    assert_near(rows,
                N * work_cost(&s, &t, WORK_FINAL_NORM, 0, 0) /
                    (double)tiling_rows(&t, 0).size,
                1e-6 * rows);
    assert_near(heads, 3 * 4 * T * T * C, 1e-6 * heads);
    assert_near(head, 2 * N * 1024 * C, 1e-6 * head);
    assert_near(weights, 2 * N * C * 4 * C, 1e-6 * weights);
    assert_near(qkv, 2 * N * C * 3 * C, 1e-6 * qkv);
    assert_near(fc, 2 * N * C * 4 * C, 1e-6 * fc);
    assert_true(work_cost(&s, &t, WORK_NONE, 0, 0) == 0);
}

static void check_order(const struct layout *l, size_t accum, int workers)
{
    struct profile p = profile_of(l, 2, 64, accum, workers);
    double before = 0;

    for (size_t i = 0; i < l->n_slices; i++) {
        const struct profile_slice *s = &p.slices[i];

        assert_true(s->need >= 0 && s->need < 1.0 / (double)accum);
        assert_true(s->ready_begin <= s->ready_end && s->ready_end <= 1 + 1e-12);
        assert_true(s->need < s->ready_end);
        /* The layout's order is that of production, but for what is made at one time. */
        assert_true(s->ready_end >= before - 0.02);
        before = fmax(before, s->ready_end);
    }
    assert_true(before > 0.97);
    /* All micro-batches but the last are over before anything is final. */
    assert_true(p.slices[0].ready_end > 1 - 1.0 / (double)accum);
    profile_release(&p);
}

static void test_order(void **state)
{
    struct shape s = shape_of("L=5,H=4,C=128,T=64,V=3000");
    struct layout whole, split;

    (void)state;
    assert_int_equal(layout_init(&whole, &s, LAYOUT_PRODUCTION), ST_OK);
    assert_int_equal(layout_init_split(&split, &s, LAYOUT_STORAGE), ST_OK);
    for (int workers = 1; workers <= 9; workers += 4) {
        check_order(&whole, 1, workers);
        check_order(&whole, 3, workers);
        check_order(&split, 1, workers);
        check_order(&split, 2, workers);
    }
    struct profile a = profile_of(&whole, 2, 64, 1, 1);
    struct profile b = profile_of(&split, 2, 64, 1, 1);

    /* wte: last and first; or made by the head and read by it. */
    assert_true(at(&a, &whole, WTE, 0)->need == 0);
    assert_near(at(&a, &whole, WTE, 0)->ready_end, 1, 1e-9);
    assert_near(at(&b, &split, WTE, 0)->need, b.forward, 1e-9);
    assert_true(at(&b, &split, WTE, 0)->ready_end <= b.forward + b.head + 1e-9);
    assert_true(at(&a, &whole, QKVW, 0)->need < at(&a, &whole, QKVW, 4)->need);
    assert_true(at(&a, &whole, QKVW, 0)->ready_end > at(&a, &whole, QKVW, 4)->ready_end);
    profile_release(&a);
    profile_release(&b);
    layout_release(&whole);
    layout_release(&split);
}

/* Workers beyond the tiles of a stage have nothing to do. */
static void test_workers(void **state)
{
    enum { POWERS = 8 };
    struct shape s = shape_of("L=4,H=4,C=384,T=128,V=3000");
    struct layout l;
    double length[POWERS], cost = 0;

    (void)state;
    assert_int_equal(layout_init(&l, &s, LAYOUT_PRODUCTION), ST_OK);
    for (int i = 0; i < POWERS; i++) {
        struct profile p = profile_of(&l, 2, 128, 1, 1 << i);

        length[i] = p.length;
        cost = i == 0 ? p.length : cost;
        assert_near(p.busy * p.length * (1 << i), cost, 1e-6 * cost);
        assert_true(i == 0 || p.length <= length[i - 1] * (1 + 1e-9));
        profile_release(&p);
    }
    assert_true(length[1] < 0.6 * length[0]);
    assert_true(length[2] < 0.7 * length[1]);
    assert_true(length[POWERS - 1] > 0.9 * length[POWERS - 2]);
    layout_release(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_recomputing),
        cmocka_unit_test(test_tiles), cmocka_unit_test(test_order),
        cmocka_unit_test(test_workers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
