/* SPDX-License-Identifier: MIT */
/* Rates, AdamW's constants and clipping as numbers worked out by hand. */
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void near(double found, double wanted, double relative)
{
    if (!(fabs(found - wanted) <= relative * fabs(wanted)))
        fail_msg("found %.12g, needs %.12g", found, wanted);
}

static void cosine(void **state)
{
    struct schedule s = {SCHEDULE_COSINE, 6e-4, 0, 10, 100};

    (void)state;
    near(schedule_rate(&s, 0), 6e-5, 1e-12);
    near(schedule_rate(&s, 9), 6e-4, 1e-12);
    near(schedule_rate(&s, 10), 6e-4, 1e-12);
    near(schedule_rate(&s, 50), 3.520945e-4, 1e-6);
    near(schedule_rate(&s, 51), 3.417519e-4, 1e-6);
    near(schedule_rate(&s, 55), 3e-4, 1e-12);
    /* Past the end it stays at the end. */
    assert_true(fabs(schedule_rate(&s, 100)) <= 0);
    assert_true(fabs(schedule_rate(&s, 120)) <= 0);
    s.steps = 200;
    near(schedule_rate(&s, 50), 5.3674e-4, 1e-5);
    s.min_lr = 6e-5;
    near(schedule_rate(&s, 200), 6e-5, 1e-12);
    near(schedule_rate(&s, 105), 3.3e-4, 1e-12);
}

static void linear_and_constant(void **state)
{
    struct schedule s = {SCHEDULE_LINEAR, 1, 0.2, 4, 14};

    (void)state;
    near(schedule_rate(&s, 0), 0.25, 1e-12);
    near(schedule_rate(&s, 4), 1, 1e-12);
    near(schedule_rate(&s, 9), 0.6, 1e-12);
    near(schedule_rate(&s, 14), 0.2, 1e-12);
    near(schedule_rate(&s, 1000000), 0.2, 1e-12);
    s.kind = SCHEDULE_CONSTANT;
    near(schedule_rate(&s, 3), 1, 1e-12);
    near(schedule_rate(&s, 14), 1, 1e-12);
}

static void stable_then_decay(void **state)
{
    struct schedule s = {SCHEDULE_WSD, 1, 0, 10, 100};

    (void)state;
    near(schedule_rate(&s, 4), 0.5, 1e-12);
    near(schedule_rate(&s, 10), 1, 1e-12);
    near(schedule_rate(&s, 80), 1, 1e-12);
    near(schedule_rate(&s, 90), 0.5, 1e-12);
    near(schedule_rate(&s, 95), 0.25, 1e-12);
    assert_true(fabs(schedule_rate(&s, 100)) <= 1e-15);
    assert_true(fabs(schedule_rate(&s, 500)) <= 1e-15);
}

static void odd_lengths(void **state)
{
    (void)state;
    for (int kind = SCHEDULE_COSINE; kind <= SCHEDULE_WSD; kind++) {
        const uint64_t lengths[] = {0, 1, 2, 7};

        for (size_t n = 0; n < 4; n++)
            for (uint64_t warmup = 0; warmup < 9; warmup++)
                for (uint64_t k = 0; k < 20; k++) {
                    struct schedule s = {(enum schedule_kind)kind, 1, 0.1, warmup,
                                         lengths[n]};
                    double rate = schedule_rate(&s, k);

                    assert_true(rate > 0 && rate <= 1 + 1e-12);
                }
    }
}

static void adamw_corrections(void **state)
{
    struct adamw_options o = {0.9, 0.95, 1e-8, 0.1};
    struct adamw a = adamw_constants(&o, 3e-4, 1, 0.5);

    (void)state;
    near((double)a.lr, 3e-4, 1e-7);
    near((double)a.beta1, 0.9, 1e-7);
    near((double)a.beta2, 0.95, 1e-7);
    near((double)a.eps, 1e-8, 1e-7);
    near((double)a.weight_decay, 0.1, 1e-7);
    near((double)a.grad_scale, 0.5, 1e-7);
    near((double)a.correction1, 0.1, 1e-7);
    near((double)a.correction2, 0.05, 1e-7);
    a = adamw_constants(&o, 3e-4, 2, 1);
    near((double)a.correction1, 0.19, 1e-7);
    near((double)a.correction2, 0.0975, 1e-7);
    a = adamw_constants(&o, 3e-4, UINT64_C(1) << 40, 1);
    near((double)a.correction1, 1, 1e-7);
    near((double)a.correction2, 1, 1e-7);
    /* A beta2 near 1 does not lose its first digits. */
    o.beta2 = 0.999999;
    a = adamw_constants(&o, 3e-4, 1, 1);
    near((double)a.correction2, 1e-6, 1e-7);
}

static void clipping(void **state)
{
    (void)state;
    near(clip_scale(5, 1), 0.2, 1e-12);
    near(clip_scale(1, 1), 1, 1e-12);
    near(clip_scale(0.5, 1), 1, 1e-12);
    near(clip_scale(0, 1), 1, 1e-12);
    near(clip_scale(5, 0), 1, 1e-12);
    assert_true(fabs(clip_scale(NAN, 1)) <= 0);
    assert_true(fabs(clip_scale(INFINITY, 1)) <= 0);
    assert_true(fabs(clip_scale(NAN, 0)) <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine),
        cmocka_unit_test(linear_and_constant),
        cmocka_unit_test(stable_then_decay),
        cmocka_unit_test(odd_lengths),
        cmocka_unit_test(adamw_corrections),
        cmocka_unit_test(clipping),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
