/* SPDX-License-Identifier: MIT */
/* Characters of UTF-8, and any text as a string of JSON. */
#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void characters_are_told_apart(void **state)
{
    const struct {
        const char *bytes;
        size_t character, unfinished;
    } cases[] = {
        {"a", 1, 0},
        {"\xc3\xa9", 2, 0},
        {"\xe2\x82\xac", 3, 0},
        {"\xf0\x9f\x98\x80", 4, 0},
        {"\xc3", 0, 1},
        {"\xe2\x82", 0, 2},
        {"\xf0\x9f\x98", 0, 3},
        {"a\xf0\x9f\x98", 1, 3},
        {"\x80", 0, 0},     /* a continuation of nothing */
        {"\xc0\xaf", 0, 0}, /* overlong */
        {"\xe0\x9f", 0, 0}, /* overlong */
        {"\xed\xa0", 0, 0}, /* a surrogate */
        {"\xf4\x90", 0, 0}, /* above U+10FFFF */
        {"\xf5\x80", 0, 0},
        {"\xff", 0, 0},
        {"\xe2\x28", 0, 0},     /* broken off */
        {"\xe2\x82\xe2", 0, 1}, /* broken off, and begun again */
        {"\xf4\x8f\xbf\xbf", 4, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].bytes);

        if (utf8_character(cases[i].bytes, n) != cases[i].character ||
            utf8_unfinished(cases[i].bytes, n) != cases[i].unfinished)
            fail_msg("case %zu: character %zu, unfinished %zu", i,
                     utf8_character(cases[i].bytes, n),
                     utf8_unfinished(cases[i].bytes, n));
    }
}

/* Every character of Unicode is whole, and no beginning of one is. */
static void every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0x80; c < 0x110000; c++) {
        char b[4];
        size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

        for (size_t i = n; i-- > 1;)
            b[i] = (char)(0x80 | ((c >> (6 * (n - 1 - i))) & 0x3f));
        b[0] = (char)((n == 2 ? 0xc0u : n == 3 ? 0xe0u : 0xf0u) | (c >> (6 * (n - 1))));
        bool surrogate = c >= 0xd800 && c < 0xe000;

        assert_int_equal(utf8_character(b, n), surrogate ? 0 : n);
        for (size_t k = 1; k < n && !surrogate; k++)
            assert_int_equal(utf8_unfinished(b, k), k);
    }
}

#define OTHER "\xef\xbf\xbd"

static void any_text_is_json(void **state)
{
    const struct {
        const char *text;
        size_t bytes;
        const char *json;
    } cases[] = {
        {"", 0, ""},
        {"l\xc3\xa4ufe/\xf0\x9f\x98\x80", 11, "l\xc3\xa4ufe/\xf0\x9f\x98\x80"},
        {"l\xe4ufe", 5, "l" OTHER "ufe"},
        {"\xe2\x82", 2, OTHER OTHER}, /* cut off */
        {"a\0b", 3, "a" OTHER "b"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *json = utf8_json_bytes(cases[i].text, cases[i].bytes);

        assert_non_null(json);
        assert_string_equal(json_string_value(json), cases[i].json);
        assert_int_equal(json_string_length(json), strlen(cases[i].json));
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_are_told_apart),
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(any_text_is_json),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
