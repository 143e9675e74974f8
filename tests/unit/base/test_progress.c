/* SPDX-License-Identifier: MIT */
/* Times as people read them, and what stderr gets to see. */
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "scratch.h"

static void durations(void **state)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {{0, "0s"},          {0.49, "0s"},    {0.5, "1s"},
                {59.4, "59s"},      {59.6, "1m00s"}, {185, "3m05s"},
                {3599.4, "59m59s"}, {3600, "1h00m"}, {3720, "1h02m"},
                {90000, "25h00m"},  {-3, "0s"},      {1e9, "277777h46m"}};
    char buf[16];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *text = format_duration(rows[i].seconds, buf, sizeof buf);

        assert_ptr_equal(text, buf);
        assert_string_equal(text, rows[i].text);
    }
}

/* Runs `what` with stderr in a file and returns what it wrote. */
static char *stderr_of(void (*what)(void))
{
    int kept = dup(STDERR_FILENO);
    int fd = open(scratch("err"), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    char *text;
    size_t bytes;

    assert_true(kept >= 0 && fd >= 0);
    dup2(fd, STDERR_FILENO);
    close(fd);
    what();
    dup2(kept, STDERR_FILENO);
    close(kept);
    assert_int_equal(file_read_all(scratch("err"), &text, &bytes), ST_OK);
    return text;
}

static void a_short_job(void)
{
    struct progress p;

    progress_begin(&p, "tokenize", "MB", 8, true);
    for (int i = 0; i < 100; i++)
        progress_update(&p, i * 0.08, "extra");
    progress_end(&p, 8);
}

static void plain_output_is_rare(void **state)
{
    char *text = stderr_of(a_short_job);

    (void)state;
    /* Not a terminal: one line, at the end. */
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_int_equal(strncmp(text, "weft: tokenize 8/8 MB (100 %)", 29), 0);
    assert_non_null(strstr(text, "took 0s"));
    assert_null(strchr(text, '\r'));
    free(text);
}

static void a_disabled_job(void)
{
    struct progress p;

    progress_begin(&p, "tokenize", "MB", 8, false);
    progress_update(&p, 4, NULL);
    progress_end(&p, 8);
    progress_clear_line();
}

static void disabled_is_silent(void **state)
{
    char *text = stderr_of(a_disabled_job);

    (void)state;
    assert_string_equal(text, "");
    free(text);
}

static void a_long_line(void)
{
    char extra[4096];
    struct progress p;

    memset(extra, 'x', sizeof extra - 1);
    extra[sizeof extra - 1] = 0;
    progress_begin(&p, "train", "steps", 0, true);
    p.last_s -= 100; /* as if nothing had been shown for long */
    progress_update(&p, 3, extra);
    progress_end(&p, 5);
    log_info("%s", extra);
    log_warn("short");
}

static void long_lines_are_cut(void **state)
{
    char *text = stderr_of(a_long_line);
    size_t lines = 0;

    (void)state;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        assert_non_null(strchr(line, '\n'));
        assert_true(strchr(line, '\n') - line < 2048);
        assert_int_equal(strncmp(line, "weft: ", 6), 0);
        lines++;
    }
    assert_int_equal(lines, 4);
    assert_non_null(strstr(text, "train 5 steps"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations),
        cmocka_unit_test(plain_output_is_rare),
        cmocka_unit_test(disabled_is_silent),
        cmocka_unit_test(long_lines_are_cut),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return folder_remove(scratch("")) == ST_OK ? failed : 1;
}
