/* SPDX-License-Identifier: MIT */
/* Model specs and the figures that follow from a shape. */
#include "model/shape.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct shape parsed(const char *spec, size_t vocab)
{
    struct shape s;
    enum status st = shape_parse(spec, vocab, &s);

    if (st != ST_OK)
        fail_msg("%s: %s", spec, fail_text());
    assert_true(shape_is_spec(spec));
    return s;
}

static void is_shape(struct shape s, size_t L, size_t H, size_t C, size_t T, size_t V,
                     size_t Vp)
{
    assert_int_equal(s.L, L);
    assert_int_equal(s.H, H);
    assert_int_equal(s.C, C);
    assert_int_equal(s.T, T);
    assert_int_equal(s.V, V);
    assert_int_equal(s.Vp, Vp);
}

static void known_names(void **state)
{
    (void)state;
    is_shape(parsed("gpt2", 0), 12, 12, 768, 1024, 50257, 50304);
    is_shape(parsed("gpt2-medium", 0), 24, 16, 1024, 1024, 50257, 50304);
    is_shape(parsed("gpt2-large", 0), 36, 20, 1280, 1024, 50257, 50304);
    is_shape(parsed("gpt2-xl", 0), 48, 25, 1600, 1024, 50257, 50304);
    is_shape(parsed("d12", 0), 12, 12, 768, 1024, 50257, 50304);
    is_shape(parsed("d1", 97), 1, 1, 64, 1024, 97, 128);
    is_shape(parsed("L=3,H=3,C=48,T=40,V=97", 12), 3, 3, 48, 40, 97, 128);
    is_shape(parsed("C=48,H=3,L=3", 128), 3, 3, 48, 1024, 128, 128);
}

static void parameters(void **state)
{
    struct shape s = parsed("gpt2", 0);

    (void)state;
    assert_int_equal(shape_parameters(&s), 124439808);
    s = parsed("gpt2-medium", 0);
    assert_int_equal(shape_parameters(&s), 354823168);
    s = parsed("gpt2-large", 0);
    assert_int_equal(shape_parameters(&s), 774030080);
    s = parsed("gpt2-xl", 0);
    assert_int_equal(shape_parameters(&s), 1557611200);
}

static void operations(void **state)
{
    struct shape s = parsed("gpt2", 0);
    double tokens = 4096;

    (void)state;
    assert_true(fabs(shape_train_flops(&s, 1024, tokens) /
                         ((6.0 * 124439808 + 12.0 * 12 * 768 * 1024) * tokens) -
                     1) < 1e-12);
}

static void specs_and_paths(void **state)
{
    const char *const paths[] = {"model.bin", "runs/a",     "d",     "d0",  "d12x",
                                 "gpt",       "runs/L=3/x", "d9999", "12d", ""};

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (shape_is_spec(paths[i]))
            fail_msg("%s: taken for a spec", paths[i]);
}

static void errors_say_what(void **state)
{
    static const struct {
        const char *spec, *text;
    } bad[] = {
        {"L=3,H=3", "needs a known name"},
        {"L=3,H=5,C=48", "found C=48 and H=5"},
        {"L=0,H=1,C=8", "needs a known name"},
        {"L=3,H=3,C=48,T=0", "at least 1"},
        {"L=3,H=3,C=48,Q=2", "found 'Q=2'"},
        {"L=3,H=3,C=4x8", "found 'C=4x8'"},
        {"L=3,H=3,C=-48", "found 'C=-48'"},
        {"L=3,H=3,C=48,", "needs C=NUMBER"},
        {"L=,H=3,C=48", "needs L=NUMBER"},
        {"L=20000,H=3,C=48", "out of range"},
        {"L=3,H=1,C=99999999999999999999", "needs C=NUMBER"},
        {"L=3,H=1,C=48,V=18446744073709551615", "out of range"},
        {"gpt3", "found 'gpt3'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct shape s;

        assert_int_equal(shape_parse(bad[i].spec, 0, &s), ST_USAGE);
        if (!strstr(fail_text(), bad[i].text) || !strstr(fail_text(), "--model"))
            fail_msg("%s: '%s' lacks '%s'", bad[i].spec, fail_text(), bad[i].text);
    }
}

static void check_names_the_place(void **state)
{
    struct shape s = {2, 2, 8, 4, 100, 99};

    (void)state;
    assert_int_equal(shape_check(&s, "a.bin"), ST_USAGE);
    assert_non_null(strstr(fail_text(), "a.bin: padded vocabulary 99"));
    s.Vp = 100;
    assert_int_equal(shape_check(&s, "a.bin"), ST_OK);
    s.H = 0;
    assert_int_equal(shape_check(&s, "a.bin"), ST_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_names),     cmocka_unit_test(parameters),
        cmocka_unit_test(operations),      cmocka_unit_test(specs_and_paths),
        cmocka_unit_test(errors_say_what), cmocka_unit_test(check_names_the_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
