/* SPDX-License-Identifier: MIT */
/* test_attention.c - blockwise attention of every instruction set against the full
 * matrix of probabilities. */
#include "support.h"

#include <math.h>

static const size_t head_widths[] = {1, 3, 16, 17, 24, 64, 80, 128};
static const size_t lengths[] = {1, 2, 7, 63, 64, 65, 131};

struct attention {
    size_t T, C, H;
    float *qkv, *dout;
    double *out_d, *lse_d, *dqkv_d;
};

static struct attention make_case(size_t T, size_t D, size_t H, double size)
{
    struct attention a = {.T = T, .C = D * H, .H = H};
    double *qkv, *dout, *p, *dp;

    a.qkv = new_uniform(T * 131 + D, T * 3 * a.C, size);
    a.dout = new_uniform(7, T * a.C, 1);
    a.out_d = new_doubles(T * a.C);
    a.lse_d = new_doubles(H * T);
    a.dqkv_d = new_doubles(T * 3 * a.C);
    qkv = doubles_of(a.qkv, T * 3 * a.C);
    dout = doubles_of(a.dout, T * a.C);
    p = new_doubles(H * T * T);
    dp = new_doubles(T);
    ref_attention_fwd_d(a.out_d, a.lse_d, p, qkv, T, a.C, H);
    ref_attention_bwd_d(a.dqkv_d, dout, qkv, p, dp, T, a.C, H);
    free(qkv), free(dout), free(p), free(dp);
    return a;
}

static void free_case(struct attention *a)
{
    free(a->qkv), free(a->dout), free(a->out_d), free(a->lse_d), free(a->dqkv_d);
}

/* Every head in turn, outputs and workspace poisoned, the workspace as small as allowed
 * and not aligned. Runs twice: the bits must be the same. */
static void check_case(const struct kernels *k, const struct attention *a)
{
    size_t T = a->T, C = a->C, H = a->H, elems = attention_work_elems(T, C / H);
    float *out[2], *lse[2], *dqkv[2];

    for (int run = 0; run < 2; run++) {
        float *work = new_poisoned(elems);

        out[run] = new_poisoned(T * C);
        lse[run] = new_poisoned(H * T);
        dqkv[run] = new_poisoned(T * 3 * C);
        for (size_t h = 0; h < H; h++)
            k->attention_fwd(out[run], lse[run] + h * T, a->qkv, T, C, H, h, work);
        for (size_t i = 0; i < elems; i++)
            work[i] = NAN;
        for (size_t h = 0; h < H; h++)
            k->attention_bwd(dqkv[run], a->dout, a->qkv, out[run], lse[run] + h * T, T, C,
                             H, h, work);
        free(work);
    }
    check_close("attention_fwd", out[0], a->out_d, T * C);
    check_close("attention_lse", lse[0], a->lse_d, H * T);
    check_close("attention_bwd", dqkv[0], a->dqkv_d, T * 3 * C);
    assert_memory_equal(out[0], out[1], T * C * sizeof(float));
    assert_memory_equal(dqkv[0], dqkv[1], T * 3 * C * sizeof(float));
    for (int run = 0; run < 2; run++)
        free(out[run]), free(lse[run]), free(dqkv[run]);
}

static void matches_definition(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof head_widths / sizeof *head_widths; i++)
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++) {
            struct attention a = make_case(lengths[j], head_widths[i], 1 + i % 3, 1.5);

            for (const struct kernels *const *k = usable_kernels(); *k; k++)
                check_case(*k, &a);
            free_case(&a);
        }
}

/* Scores of several hundred: each row is nearly one-hot and exp would overflow if the
 * running maximum were wrong. */
static void large_scores_do_not_overflow(void **state)
{
    struct attention a = make_case(131, 64, 1, 16);

    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++) {
        size_t T = a.T, C = a.C;
        float *out = new_poisoned(T * C), *lse = new_poisoned(T);
        float *work = new_poisoned(attention_work_elems(T, C));

        (*k)->attention_fwd(out, lse, a.qkv, T, C, 1, 0, work);
        check_close("attention_large_scores", out, a.out_d, T * C);
        check_close("attention_lse", lse, a.lse_d, T);
        free(out), free(lse), free(work);
    }
    free_case(&a);
}

/* Causal: what stands after row t changes no bit up to row t, in other rows' tiles or the
 * same. */
static void later_rows_have_no_influence(void **state)
{
    enum { T = 130, D = 24, SPLIT = 77 };

    (void)state;
    for (const struct kernels *const *k = usable_kernels(); *k; k++) {
        float *qkv = new_uniform(5, T * 3 * D, 1), *other = new_uniform(6, T * 3 * D, 5);
        float *out = new_poisoned(T * D), *again = new_poisoned(T * D);
        float *lse = new_poisoned(T), *work = new_poisoned(attention_work_elems(T, D));

        (*k)->attention_fwd(out, lse, qkv, T, D, 1, 0, work);
        memcpy(qkv + SPLIT * 3 * D, other + SPLIT * 3 * D,
               (T - SPLIT) * 3 * D * sizeof *qkv);
        (*k)->attention_fwd(again, lse, qkv, T, D, 1, 0, work);
        assert_memory_equal(out, again, SPLIT * D * sizeof *out);
        assert_memory_not_equal(out + SPLIT * D, again + SPLIT * D,
                                (T - SPLIT) * D * sizeof *out);
        free(qkv), free(other), free(out), free(again), free(lse), free(work);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_definition),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(later_rows_have_no_influence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
