/* SPDX-License-Identifier: MIT */
/* test_gemm_bf16.c - the bf16 products of every instruction set against sums in double of
 * the rounded inputs.
 *
 * Operands lie against pages that cannot be touched, so that a read or write beyond
 * their end stops the test; work space is full of NaN before each call. */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/rng.h"
#include "kernels/gemm_bf16.h"

enum { TABLES = 4 };

static const char *const names[TABLES] = {"generic", "avx2", "avx512", "avx512_bf16"};

/* ---- memory that ends where it ends ---- */

enum { GUARD_BYTES = 4096 };

struct guarded {
    char *map;
    size_t size_bytes;
};

static void *guarded_new(struct guarded *g, size_t bytes)
{
    g->size_bytes = round_up(bytes, GUARD_BYTES) + 2 * (size_t)GUARD_BYTES;
    g->map = mmap(NULL, g->size_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->map != MAP_FAILED);
    assert_int_equal(mprotect(g->map, GUARD_BYTES, PROT_NONE), 0);
    assert_int_equal(
        mprotect(g->map + g->size_bytes - GUARD_BYTES, GUARD_BYTES, PROT_NONE), 0);
    return g->map + g->size_bytes - GUARD_BYTES - bytes;
}

static void guarded_free(struct guarded *g)
{
    munmap(g->map, g->size_bytes);
}

/* ---- one linear layer with everything that its products read and write ---- */

struct shape {
    size_t rows, out, in;
};

struct layer {
    struct shape s;
    size_t ldx, lddy; /* rows lie apart by more than they are long */
    bf16 *x, *dy;
    float *W, *bias, *add, *C, *work;
    bf16 *C_bf16;
    bf16_pair *forward, *backward;
    size_t ldc, work_bytes;
    struct guarded memory[10];
};

static float uniform(uint64_t stream, size_t i)
{
    return (float)(rng_uniform(7, stream, i) * 2 - 1);
}

static bf16 *new_bf16(struct guarded *g, uint64_t stream, size_t n)
{
    bf16 *x = guarded_new(g, n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = bf16_round(uniform(stream, i));
    return x;
}

static float *new_floats(struct guarded *g, uint64_t stream, size_t n)
{
    float *x = guarded_new(g, n * sizeof *x);

    for (size_t i = 0; i < n; i++)
        x[i] = uniform(stream, i);
    return x;
}

static size_t rows_elems(size_t rows, size_t columns, size_t ld)
{
    return rows > 0 ? (rows - 1) * ld + columns : 0;
}

static void layer_init(struct layer *l, struct shape s, size_t extra)
{
    size_t widest = max_size(s.out, s.in), tallest = max_size(s.rows, s.out), i = 0;
    size_t pairs = gemm_bf16_packed_pairs(s.out, s.in);

    *l = (struct layer){.s = s};
    l->ldx = s.in + extra;
    l->lddy = s.out + extra;
    l->ldc = widest + extra;
    l->x = new_bf16(&l->memory[i++], 1, rows_elems(s.rows, s.in, l->ldx));
    l->dy = new_bf16(&l->memory[i++], 2, rows_elems(s.rows, s.out, l->lddy));
    l->W = new_floats(&l->memory[i++], 3, s.out * s.in);
    l->bias = new_floats(&l->memory[i++], 4, widest);
    l->add = new_floats(&l->memory[i++], 5, rows_elems(tallest, widest, l->ldc));
    l->C = guarded_new(&l->memory[i++], tallest * l->ldc * sizeof *l->C);
    l->C_bf16 = guarded_new(&l->memory[i++], s.rows * l->ldc * sizeof *l->C_bf16);
    l->forward = guarded_new(&l->memory[i++], pairs * sizeof *l->forward);
    l->backward = guarded_new(&l->memory[i++], pairs * sizeof *l->backward);
    l->work_bytes = gemm_bf16_work_bytes(tallest, widest, max_size(widest, s.rows), true);
    assert_int_equal(l->work_bytes % CACHE_LINE, 0);
    l->work = guarded_new(&l->memory[i++], l->work_bytes);
}

static void layer_free(struct layer *l)
{
    for (size_t i = 0; i < 10; i++)
        guarded_free(&l->memory[i]);
}

static void poison(struct layer *l)
{
    memset(l->work, 0xff, l->work_bytes);
    memset(l->C, 0xff, max_size(l->s.rows, l->s.out) * l->ldc * sizeof *l->C);
    memset(l->C_bf16, 0xff, l->s.rows * l->ldc * sizeof *l->C_bf16);
}

/* ---- definitions ---- */

/* One product as strides: element (i, k) of A at A[i * a_row + k * a_k], of B alike. */
struct definition {
    size_t rows, columns, depth;
    const bf16 *A;
    size_t a_row, a_k;
    const float *B_float; /* rounded on the way, or */
    const bf16 *B;
    size_t b_k, b_column;
};

/* The sum in double, and what fp32 sums in any order may be away from it. */
static double defined(const struct definition *d, size_t i, size_t j, double *error)
{
    double sum = 0, size = 0;

    for (size_t k = 0; k < d->depth; k++) {
        size_t at = k * d->b_k + j * d->b_column;
        double a = (double)bf16_value(d->A[i * d->a_row + k * d->a_k]);
        double b = (double)bf16_value(d->B_float ? bf16_round(d->B_float[at]) : d->B[at]);

        sum += a * b;
        size += fabs(a * b);
    }
    *error = ((double)d->depth + 4) * 0x1p-24 * (size + 3);
    return sum;
}

struct result {
    const float *bias, *add;
    size_t ldadd;
    const float *C;
    const bf16 *C_bf16;
    size_t ldc;
};

static void check_result(const char *what, const struct definition *d, struct result r)
{
    for (size_t i = 0; i < d->rows; i++)
        for (size_t j = 0; j < r.ldc; j++) {
            double error, want, got;

            if (j >= d->columns) { /* what lies between the rows belongs to others */
                uint32_t bits = 0xffffffff;

                if (r.C ? memcmp(&r.C[i * r.ldc + j], &bits, 4) != 0
                        : r.C_bf16[i * r.ldc + j] != 0xffff)
                    fail_msg("%s: wrote at row %zu column %zu of %zu", what, i, j,
                             d->columns);
                continue;
            }
            want = defined(d, i, j, &error);
            want += r.bias ? (double)r.bias[j] : 0;
            want += r.add ? (double)r.add[i * r.ldadd + j] : 0;
            got = r.C ? (double)r.C[i * r.ldc + j]
                      : (double)bf16_value(r.C_bf16[i * r.ldc + j]);
            if (!r.C)
                error += 0x1p-8 * fabs(want);
            if (!(fabs(got - want) <= error))
                fail_msg(
                    "%s, rows %zu columns %zu depth %zu: row %zu column %zu is %.9g, "
                    "needs %.9g +- %.2g",
                    what, d->rows, d->columns, d->depth, i, j, got, want, error);
        }
}

/* ---- the three products ---- */

enum option { PLAIN, BIAS, BIAS_ADD, IN_PLACE, BF16_OUTPUT, OPTIONS };

static void check_product(const struct gemm_bf16 *g, struct layer *l, bool forward,
                          enum option option)
{
    const struct shape s = l->s;
    const struct definition d = {.rows = s.rows,
                                 .columns = forward ? s.out : s.in,
                                 .depth = forward ? s.in : s.out,
                                 .A = forward ? l->x : l->dy,
                                 .a_row = forward ? l->ldx : l->lddy,
                                 .a_k = 1,
                                 .B_float = l->W,
                                 .b_k = forward ? 1 : s.in,
                                 .b_column = forward ? s.in : 1};
    struct bf16_product p = {.rows = d.rows,
                             .columns = d.columns,
                             .depth = d.depth,
                             .A = d.A,
                             .lda = d.a_row,
                             .B = forward ? l->forward : l->backward,
                             .C = l->C,
                             .ldc = l->ldc};
    struct result r = {.C = l->C, .ldc = l->ldc, .ldadd = l->ldc};

    poison(l);
    if (option == BIAS || option == BIAS_ADD || option == BF16_OUTPUT)
        r.bias = p.bias = l->bias;
    if (option == BIAS_ADD || option == BF16_OUTPUT || option == IN_PLACE) {
        r.add = p.add = l->add;
        p.ldadd = l->ldc;
    }
    if (option == IN_PLACE) {
        for (size_t i = 0; i < d.rows; i++)
            memcpy(l->C + i * l->ldc, l->add + i * l->ldc, d.columns * sizeof *l->C);
        p.add = l->C;
    }
    if (option == BF16_OUTPUT) {
        r.C = p.C = NULL;
        r.C_bf16 = p.C_bf16 = l->C_bf16;
    }
    g->product(&p, l->work);
    check_result(forward ? "forward" : "input gradient", &d, r);
}

static void check_weight_grad(const struct gemm_bf16 *g, struct layer *l, bool accumulate)
{
    const struct shape s = l->s;
    const struct definition d = {.rows = s.out,
                                 .columns = s.in,
                                 .depth = s.rows,
                                 .A = l->dy,
                                 .a_row = 1,
                                 .a_k = l->lddy,
                                 .B = l->x,
                                 .b_k = l->ldx,
                                 .b_column = 1};
    const struct bf16_weight_grad p = {.rows = s.rows,
                                       .out = s.out,
                                       .in = s.in,
                                       .dy = l->dy,
                                       .lddy = l->lddy,
                                       .x = l->x,
                                       .ldx = l->ldx,
                                       .dW = l->C,
                                       .lddw = l->ldc,
                                       .accumulate = accumulate};

    poison(l);
    for (size_t i = 0; accumulate && i < s.out; i++)
        memcpy(l->C + i * l->ldc, l->add + i * l->ldc, s.in * sizeof *l->C);
    g->weight_grad(&p, l->work);
    check_result("weight gradient", &d,
                 (struct result){.C = l->C,
                                 .ldc = l->ldc,
                                 .add = accumulate ? l->add : NULL,
                                 .ldadd = l->ldc});
}

/* A different option for each shape; every option in turn where `all` is set. */
static void check_shape(const struct gemm_bf16 *g, struct shape s, size_t extra, bool all)
{
    static unsigned turn;
    struct layer l;

    layer_init(&l, s, extra);
    g->pack(l.forward, l.backward, l.W, s.out, s.in, 0, s.out);
    for (enum option o = PLAIN; o < OPTIONS; o++)
        if (all || o == turn % OPTIONS) {
            check_product(g, &l, true, o);
            check_product(g, &l, false, o);
        }
    check_weight_grad(g, &l, turn % 2);
    if (all)
        check_weight_grad(g, &l, turn % 2 == 0);
    turn++;
    layer_free(&l);
}

static void every_size(const struct gemm_bf16 *g)
{
    static const size_t sizes[] = {1, 2, 3, 15, 16, 17, 31, 33, 63, 65, 127, 129};
    const size_t n = sizeof sizes / sizeof *sizes;

    for (size_t i = 0; i < n * n * n; i++)
        if (i % 3 == 0 || i % n == i / n % n) {
            struct shape s = {sizes[i % n], sizes[i / n % n], sizes[i / n / n]};

            check_shape(g, s, i % 2 ? 5 : 0, false);
        }
}

/* Depths of several blocks; nothing at all. */
static void special_sizes(const struct gemm_bf16 *g)
{
    static const struct shape shapes[] = {
        {5, 33, 1100},  {29, 37, 2100}, {2, 3100, 7},  {1700, 17, 33}, {15, 64, 768},
        {14, 1024, 32}, {1, 1, 0},      {3, 0, 40},    {0, 5, 40},     {3, 40, 0},
        {4, 3073, 1},   {3, 1, 1537},   {2050, 5, 31}, {28, 96, 128},  {64, 256, 192},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(g, shapes[i], i % 2, true);
}

/* Each table is a test of its own. */
static const struct gemm_bf16 *table_or_skip(void **state)
{
    const struct gemm_bf16 *g;

    if (gemm_bf16_select(*state, &g) != ST_OK) {
        print_message("this CPU has no %s\n", (const char *)*state);
        skip();
    }
    return g;
}

static void matches_definition(void **state)
{
    const struct gemm_bf16 *g = table_or_skip(state);

    every_size(g);
    special_sizes(g);
}

/* ---- bits ---- */

static void product_of_layer(const struct gemm_bf16 *g, struct layer *l, size_t row0,
                             size_t rows, size_t column0, size_t columns, float *C)
{
    const struct bf16_product p = {.rows = rows,
                                   .columns = columns,
                                   .depth = l->s.in,
                                   .A = l->x + row0 * l->ldx,
                                   .lda = l->ldx,
                                   .B = l->forward,
                                   .column0 = column0,
                                   .bias = l->bias + column0,
                                   .C = C + row0 * l->ldc + column0,
                                   .ldc = l->ldc};

    g->product(&p, l->work);
}

static void bits_do_not_depend_on_the_cut(void **state)
{
    const struct gemm_bf16 *g = table_or_skip(state);
    const struct shape s = {101, 200, 900};
    struct layer l;

    layer_init(&l, s, 0);
    float *whole = new_poisoned(s.rows * l.ldc);
    bf16_pair *packed = calloc(gemm_bf16_packed_pairs(s.out, s.in), sizeof *packed);

    assert_non_null(packed);
    g->pack(packed, l.backward, l.W, s.out, s.in, 0, s.out);
    for (size_t r = 0; r < s.out; r += BF16_PANEL)
        g->pack(l.forward, NULL, l.W, s.out, s.in, r, min_size(s.out, r + BF16_PANEL));
    assert_memory_equal(packed, l.forward,
                        gemm_bf16_packed_pairs(s.out, s.in) * sizeof *packed);

    poison(&l);
    memcpy(whole, l.C, s.rows * l.ldc * sizeof *whole);
    product_of_layer(g, &l, 0, s.rows, 0, s.out, whole);
    for (size_t i = 0; i < s.rows; i += 37)
        for (size_t j = 0; j < s.out; j += 96)
            product_of_layer(g, &l, i, min_size(37, s.rows - i), j,
                             min_size(96, s.out - j), l.C);
    assert_memory_equal(whole, l.C, s.rows * l.ldc * sizeof *whole);
    free(whole), free(packed);
    layer_free(&l);
}

enum { CALLERS = 3, REPEATS = 20 };

struct caller {
    pthread_t thread;
    const struct gemm_bf16 *g;
    struct layer l;
    const float *want, *want_grad;
    int wrong;
};

static void run_once(const struct gemm_bf16 *g, struct layer *l, bool grad)
{
    const struct bf16_weight_grad p = {.rows = l->s.rows,
                                       .out = l->s.out,
                                       .in = l->s.in,
                                       .dy = l->dy,
                                       .lddy = l->lddy,
                                       .x = l->x,
                                       .ldx = l->ldx,
                                       .dW = l->C,
                                       .lddw = l->ldc};

    poison(l);
    if (grad) {
        g->weight_grad(&p, l->work);
        return;
    }
    g->pack(l->forward, l->backward, l->W, l->s.out, l->s.in, 0, l->s.out);
    product_of_layer(g, l, 0, l->s.rows, 0, l->s.out, l->C);
}

static void *call_often(void *arg)
{
    struct caller *c = arg;
    const size_t bytes = max_size(c->l.s.rows, c->l.s.out) * c->l.ldc * sizeof(float);

    for (int i = 0; i < REPEATS; i++) {
        run_once(c->g, &c->l, i % 2);
        c->wrong += memcmp(c->l.C, i % 2 ? c->want_grad : c->want, bytes) != 0;
    }
    return NULL;
}

static void callers_do_not_disturb_each_other(void **state)
{
    const struct gemm_bf16 *g = table_or_skip(state);
    const struct shape s = {65, 130, 801};
    struct caller callers[CALLERS];
    struct layer l;

    layer_init(&l, s, 0);
    const size_t elems = max_size(s.rows, s.out) * l.ldc;
    float *want = new_poisoned(elems), *want_grad = new_poisoned(elems);

    run_once(g, &l, false);
    memcpy(want, l.C, elems * sizeof *want);
    run_once(g, &l, true);
    memcpy(want_grad, l.C, elems * sizeof *want);
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.g = g, .want = want, .want_grad = want_grad};
        layer_init(&callers[i].l, s, 0);
        assert_int_equal(
            pthread_create(&callers[i].thread, NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        assert_int_equal(pthread_join(callers[i].thread, NULL), 0);
        assert_int_equal(callers[i].wrong, 0);
        layer_free(&callers[i].l);
    }
    free(want), free(want_grad);
    layer_free(&l);
}

/* A NaN or an infinity spoils its own row (its own column as a weight) and no other, in
 * spite of all padding. */
static void special_values_stay_in_their_row(void **state)
{
    const struct gemm_bf16 *g = table_or_skip(state);
    const struct shape s = {17, 35, 37};
    struct layer l;

    layer_init(&l, s, 0);
    l.x[3 * l.ldx + 36] = bf16_round(NAN);
    l.x[8 * l.ldx + 1] = bf16_round(INFINITY);
    l.W[34 * s.in + 36] = NAN;
    poison(&l);
    g->pack(l.forward, l.backward, l.W, s.out, s.in, 0, s.out);
    product_of_layer(g, &l, 0, s.rows, 0, s.out, l.C);
    for (size_t i = 0; i < s.rows; i++)
        for (size_t j = 0; j < s.out; j++) {
            float c = l.C[i * l.ldc + j];

            assert_int_equal(isnan(c) != 0, i == 3 || j == 34);
            assert_int_equal(isinf(c) != 0, i == 8 && j != 34);
        }
    layer_free(&l);
}

/* ---- rounding ---- */

/* To nearest, ties to even, by the library's arithmetic in double. */
static double rounded(float x)
{
    int exponent;

    frexp((double)x, &exponent);
    exponent = exponent < -125 ? -125 : exponent; /* subnormal: fixed steps */
    return ldexp(nearbyint(ldexp((double)x, 8 - exponent)), exponent - 8);
}

static void rounds_to_nearest_even(void **state)
{
    const struct gemm_bf16 *g = table_or_skip(state);
    enum { N = 4099 };
    float x[N], back[N];
    bf16 y[N];

    for (size_t i = 0; i < N; i++) {
        uint32_t bits = (uint32_t)rng_bits(3, 1, i);

        if (i % 3 == 0) /* ties */
            bits = (bits & 0xffff0000) | 0x8000;
        if (i % 5 == 0) /* subnormal */
            bits &= 0x807fffff;
        memcpy(&x[i], &bits, sizeof bits);
    }
    x[0] = 0.0f, x[1] = -0.0f, x[2] = INFINITY, x[3] = -INFINITY, x[4] = 3.4e38f;
    g->round(y, x, N);
    g->widen(back, y, N);
    for (size_t i = 0; i < N; i++) {
        double want = rounded(x[i]);

        assert_int_equal(y[i], bf16_round(x[i]));
        if (isnan(x[i])) {
            assert_true(isnan(back[i]));
            continue;
        }
        if (fabs(want) >= 0x1p128)
            want = copysign(INFINITY, want);
        if ((double)back[i] != want || signbit(back[i]) != signbit(x[i]))
            fail_msg("%a is rounded to %a, needs %a", (double)x[i], (double)back[i],
                     want);
    }
}

/* ---- selection ---- */

static void chooses_by_name(void **state)
{
    const struct gemm_bf16 *g = NULL, *best = NULL;

    (void)state;
    unsetenv("WEFT_ISA");
    assert_int_equal(gemm_bf16_select(NULL, &best), ST_OK);
    assert_non_null(best);
    for (size_t i = 0; i < TABLES; i++)
        if (gemm_bf16_select(names[i], &g) == ST_OK)
            assert_string_equal(g->name, names[i]);
    assert_int_equal(gemm_bf16_select("vax", &g), ST_USAGE);
    assert_null(g);
    assert_non_null(strstr(fail_text(), "generic"));
    setenv("WEFT_ISA", "generic", 1);
    assert_int_equal(gemm_bf16_select(NULL, &g), ST_OK);
    assert_string_equal(g->name, "generic");
    unsetenv("WEFT_ISA");
    printf("bf16 products: %s\n", best->name);
}

#define FOR_EACH_TABLE(test)                                                             \
    {#test " generic", test, NULL, NULL, (void *)"generic"},                             \
        {#test " avx2", test, NULL, NULL, (void *)"avx2"},                               \
        {#test " avx512", test, NULL, NULL, (void *)"avx512"},                           \
    {                                                                                    \
#        test " avx512_bf16", test, NULL, NULL, (void *)"avx512_bf16"                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_EACH_TABLE(matches_definition),
        FOR_EACH_TABLE(bits_do_not_depend_on_the_cut),
        FOR_EACH_TABLE(callers_do_not_disturb_each_other),
        FOR_EACH_TABLE(special_values_stay_in_their_row),
        FOR_EACH_TABLE(rounds_to_nearest_even),
        cmocka_unit_test(chooses_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
