/* SPDX-License-Identifier: MIT */
/* Curves as text: size, scale, and where the dots are. */
#include "report/curve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static char *drawn(const double *v, size_t n, size_t columns, size_t rows, bool unicode)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    assert_non_null(f);
    curve_draw(f, v, n, columns, rows, unicode);
    assert_int_equal(fclose(f), 0);
    return text;
}

static void a_falling_line(void **state)
{
    double v[20];

    (void)state;
    for (size_t i = 0; i < 20; i++)
        v[i] = 8 - (double)i / 4;
    char *text = drawn(v, 20, 29, 5, false);
    size_t before = 0;
    size_t lines = 0;

    assert_int_equal(strncmp(text, "       8 *", 10), 0);
    for (char *line = text; *line; line = strchr(line, '\n') + 1, lines++) {
        size_t length = strcspn(line, "\n");
        char *star = memchr(line, '*', length);

        assert_int_equal(length, 29);
        assert_non_null(star);
        /* It falls: each line's stars begin behind the ones above. */
        assert_true((size_t)(star - line) >= before);
        before = (size_t)(star - line);
    }
    assert_int_equal(lines, 5);
    free(text);
}

static void dots_of_braille(void **state)
{
    const double v[] = {1, 0};
    /* Two columns of dots: from the top dot of the left one down to the lowest right. */
    char *text = drawn(v, 2, 12, 2, true);

    (void)state;
    assert_non_null(strstr(text, "\xe2"));
    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        assert_int_equal(strcspn(line, "\n"), 9 + 3 * 3);
    free(text);
}

static void what_cannot_be_drawn(void **state)
{
    const double none[] = {(double)NAN, (double)INFINITY};
    const double same[] = {2, 2, 2};
    const double gap[] = {1, (double)NAN, 3, 2};
    char *text = drawn(none, 2, 40, 5, true);

    (void)state;
    assert_string_equal(text, "");
    free(text);
    text = drawn(same, 0, 40, 5, true);
    assert_string_equal(text, "");
    free(text);
    text = drawn(same, 3, 8, 5, false);
    assert_string_equal(text, "");
    free(text);
    text = drawn(same, 3, 40, 5, false);
    assert_non_null(strchr(text, '*'));
    free(text);
    text = drawn(gap, 4, 13, 3, false);
    assert_non_null(strchr(text, '*'));
    free(text);
}

/* Damaged files hold such numbers; the range between them is no number, or nothing. */
static void ranges_without_a_size(void **state)
{
    const double far[] = {1e308, -1e308, 5};
    const double near[] = {1e17, 1e17, 1e17};
    char *text = drawn(far, 3, 40, 5, true);

    (void)state;
    free(text);
    text = drawn(near, 3, 40, 5, false);
    assert_non_null(strchr(text, '*'));
    free(text);
}

static void sizes_beyond_the_limits(void **state)
{
    double v[3000];
    (void)state;

    for (size_t i = 0; i < 3000; i++)
        v[i] = sin((double)i / 100);
    char *text = drawn(v, 3000, 5000, 500, true);
    size_t lines = 0;

    for (char *line = text; *line; line = strchr(line, '\n') + 1)
        lines++;
    assert_int_equal(lines, CURVE_MOST_ROWS);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_falling_line),
        cmocka_unit_test(dots_of_braille),
        cmocka_unit_test(what_cannot_be_drawn),
        cmocka_unit_test(ranges_without_a_size),
        cmocka_unit_test(sizes_beyond_the_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
