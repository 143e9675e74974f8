/* SPDX-License-Identifier: MIT */
/* Time limits as people write them, and signals as the system sends them. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/stop.h"

#include <cmocka.h>

static void limits_are_read(void **state)
{
    static const struct {
        const char *text;
        double seconds;
    } rows[] = {{"23h50m", 85800},  {"90m", 5400},  {"45s", 45},
                {"1h30m15s", 5415}, {"3600", 3600}, {"24h", 86400}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double seconds = -1;

        assert_int_equal(stop_parse_limit("time-limit", rows[i].text, &seconds), ST_OK);
        assert_true(seconds > rows[i].seconds - 0.5 && seconds < rows[i].seconds + 0.5);
    }
}

static void nonsense_is_refused(void **state)
{
    static const char *const rows[] = {"",  "h",    "soon", "-5m",          "5x",
                                       "0", "0h0m", "1h30", "99999999999s", "1.5h"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double seconds;

        assert_int_equal(stop_parse_limit("time-limit", rows[i], &seconds), ST_USAGE);
        assert_non_null(strstr(fail_text(), "--time-limit"));
    }
}

static void a_signal_is_noted(void **state)
{
    (void)state;
    stop_watch();
    assert_false(stop_signalled());
    raise(SIGUSR1);
    assert_true(stop_signalled());
    assert_true(stop_elapsed_s() >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_read),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(a_signal_is_noted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
