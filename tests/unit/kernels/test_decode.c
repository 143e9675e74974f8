/* SPDX-License-Identifier: MIT */
/* test_decode.c - products and attention of single rows. */
#include "support.h"

#include <math.h>

#include "base/memory.h"

static const size_t depths[] = {1, 3, 15, 16, 17, 31, 48, 64, 97, 768};

static void products_match_the_definition(void **state)
{
    enum { ROWS = 9, N = 13 };

    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
            size_t K = depths[i], ldx = K + 3, ldy = N + 2;
            float *x = new_uniform(1, ROWS * ldx, 1), *w = new_uniform(2, N * K, 1);
            float *y = new_poisoned(ROWS * ldy), *packed = new_poisoned(ROWS * N);
            double *xd = doubles_of(x, ROWS * ldx), *wd = doubles_of(w, N * K);
            double *want = new_doubles(ROWS * N);

            ref_matmul_d(false, true, ROWS, N, K, xd, ldx, wd, K, 0, want, N);
            (*k)->dot_rows(y, ldy, x, ldx, ROWS, w, N, K);
            for (size_t r = 0; r < ROWS; r++) {
                memcpy(packed + r * N, y + r * ldy, N * sizeof *y);
                assert_true(isnan(y[r * ldy + N]));
            }
            check_close("dot_rows", packed, want, ROWS * N);
            free(x), free(w), free(y), free(packed), free(xd), free(wd), free(want);
        }
}

/* The bits of a product do not depend on what is computed beside it. */
static void products_are_alone(void **state)
{
    enum { ROWS = 11, N = 23, K = 83 };
    float *x = new_uniform(1, ROWS * K, 1), *w = new_uniform(2, N * K, 1);

    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++) {
        float *all = new_poisoned(ROWS * N), one;

        (*k)->dot_rows(all, N, x, K, ROWS, w, N, K);
        for (size_t r = 0; r < ROWS; r++)
            for (size_t j = 0; j < N; j++) {
                (*k)->dot_rows(&one, 1, x + r * K, K, 1, w + j * K, 1, K);
                assert_memory_equal(&one, &all[r * N + j], sizeof one);
            }
        free(all);
    }
    free(x), free(w);
}

/* The cache of one head of qkv [T][3C]; what is not filled is NaN. */
static void fill_cache(float *keys, float *values, const float *qkv, size_t T, size_t C,
                       size_t H, size_t h)
{
    size_t D = C / H;

    for (size_t t = 0; t < T; t++)
        for (size_t d = 0; d < D; d++) {
            keys[(t / CACHE_TILE * D + d) * CACHE_TILE + t % CACHE_TILE] =
                qkv[t * 3 * C + C + h * D + d];
            values[t * cache_width(D) + d] = qkv[t * 3 * C + 2 * C + h * D + d];
        }
}

static void check_head(const struct kernels *k, size_t T, size_t D)
{
    enum { H = 2 };
    size_t C = H * D, room = round_up(T, CACHE_TILE);
    float *qkv = new_uniform(T + D, T * 3 * C, 2), *keys = new_poisoned(room * D);
    float *values = new_poisoned(room * cache_width(D)), *work = new_poisoned(room);
    float *got = new_poisoned(T * C);
    double *in = doubles_of(qkv, T * 3 * C), *want = new_doubles(T * C);
    double *lse = new_doubles(H * T), *p = new_doubles(H * T * T);

    ref_attention_fwd_d(want, lse, p, in, T, C, H);
    for (size_t h = 0; h < H; h++) {
        fill_cache(keys, values, qkv, T, C, H, h);
        for (size_t t = 0; t < T; t++)
            k->attention_row(got + t * C + h * D, qkv + t * 3 * C + h * D, keys, values,
                             t + 1, D, work);
    }
    check_close("attention_row", got, want, T * C);
    free(qkv), free(keys), free(values), free(work), free(got), free(in), free(want);
    free(lse), free(p);
}

static void attention_matches_the_definition(void **state)
{
    const size_t lengths[] = {1, 2, 63, 64, 65, 131}, widths[] = {1, 5, 16, 64, 80, 128};

    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (size_t j = 0; j < sizeof widths / sizeof *widths; j++)
                check_head(*k, lengths[i], widths[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_the_definition),
        cmocka_unit_test(products_are_alone),
        cmocka_unit_test(attention_matches_the_definition),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
