/* SPDX-License-Identifier: MIT */
/* test_dispatch.c - choosing the instruction set by name, by environment, by itself. */
#include "support.h"

static void chooses_by_name(void **state)
{
    const struct kernels *k = NULL;

    (void)state;
    for (const struct kernels *const *at = usable_kernels(); *at; at++) {
        assert_int_equal(kernels_select((*at)->isa, &k), ST_OK);
        assert_ptr_equal(k, *at);
    }
    assert_int_equal(kernels_select("sparc", &k), ST_USAGE);
    assert_null(k);
    assert_non_null(strstr(fail_text(), "sparc"));
    assert_non_null(strstr(fail_text(), "generic"));
}

static void environment_is_the_default(void **state)
{
    const struct kernels *k = NULL, *best = NULL;

    (void)state;
    for (const struct kernels *const *at = usable_kernels(); *at; at++)
        best = *at;
    unsetenv("WEFT_ISA");
    assert_int_equal(kernels_select(NULL, &k), ST_OK);
    assert_ptr_equal(k, best);
    setenv("WEFT_ISA", "generic", 1);
    assert_int_equal(kernels_select(NULL, &k), ST_OK);
    assert_string_equal(k->isa, "generic");
    assert_int_equal(kernels_select(best->isa, &k), ST_OK);
    assert_ptr_equal(k, best);
    setenv("WEFT_ISA", "vax", 1);
    assert_int_equal(kernels_select(NULL, &k), ST_USAGE);
    assert_non_null(strstr(fail_text(), "WEFT_ISA"));
    unsetenv("WEFT_ISA");
}

static void no_entry_is_missing(void **state)
{
    (void)state;
    for (const struct kernels *const *at = usable_kernels(); *at; at++) {
        const void *entries[sizeof(struct kernels) / sizeof(void *)];

        memcpy(entries, *at, sizeof entries);
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
            assert_non_null(entries[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_by_name),
        cmocka_unit_test(environment_is_the_default),
        cmocka_unit_test(no_entry_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
