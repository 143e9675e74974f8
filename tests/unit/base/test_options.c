/* SPDX-License-Identifier: MIT */
/* One table of options: command line, file, what is saved, what is said when wrong. */
#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/files.h"
#include "scratch.h"

struct values {
    const char *data;
    size_t batch;
    double lr;
    bool quiet;
    int engine;
};

enum { DATA, BATCH, LR, QUIET, ENGINE, ROWS };

static void make_table(struct option_row *table, struct values *v)
{
    *v = (struct values){.batch = 4, .lr = 0.1};
    const struct option_row rows[ROWS + 1] = {
        [DATA] = {"data", OPTION_TEXT, &v->data, "DIR", "where the data is", 0, 0},
        [BATCH] = {"batch", OPTION_SIZE, &v->batch, "N", "sequences a rank", 0, 0},
        [LR] = {"lr", OPTION_NUMBER, &v->lr, "X", "learning rate", 0, 0},
        [QUIET] = {"quiet", OPTION_SWITCH, &v->quiet, NULL, "say less", 0, 0},
        [ENGINE] = {"engine", OPTION_CHOICE, &v->engine, "direct|collective|other", "how",
                    0, 0},
    };
    memcpy(table, rows, sizeof rows);
}

/* Parses a command line of at most 9 words, split at spaces. */
static enum status parse(struct option_row *table, const char *line, char ***rest,
                         int *n_rest)
{
    static char text[512];
    static char *argv[16];
    int argc = 0;

    (void)snprintf(text, sizeof text, "weft %s", line);
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    return options_parse(table, argc, argv, rest, n_rest);
}

static void command_line(void **state)
{
    struct option_row table[ROWS + 1];
    struct values v;
    char **rest;
    int n_rest;

    (void)state;
    make_table(table, &v);
    assert_int_equal(parse(table, "a --batch 12 b --lr=2.5e-3 --quiet --engine other c",
                           &rest, &n_rest),
                     ST_OK);
    assert_int_equal(n_rest, 3);
    assert_string_equal(rest[0], "a");
    assert_string_equal(rest[1], "b");
    assert_string_equal(rest[2], "c");
    assert_int_equal(v.batch, 12);
    assert_true(v.lr > 0.0024 && v.lr < 0.0026 && v.quiet);
    assert_int_equal(v.engine, 2);
    assert_null(v.data);
    assert_false(table[DATA].set);
    assert_true(table[BATCH].set && table[BATCH].on_command_line);
    /* The same process may parse again. */
    make_table(table, &v);
    assert_int_equal(parse(table, "--data x -- --batch", &rest, &n_rest), ST_OK);
    assert_string_equal(v.data, "x");
    assert_int_equal(n_rest, 1);
    assert_int_equal(v.batch, 4);
}

static void sizes(void **state)
{
    static const struct {
        const char *text;
        size_t value;
    } good[] = {{"0", 0},        {"7", 7},
                {"3k", 3072},    {"2M", (size_t)2 << 20},
                {"1G", 1 << 30}, {"18446744073709551615", SIZE_MAX},
                {"5K", 5 << 10}};
    static const char *const bad[] = {"-1",
                                      "1.5",
                                      "k",
                                      "3kk",
                                      "3kB",
                                      "0x10",
                                      "",
                                      "3 k",
                                      "18446744073709551616",
                                      "17179869184G",
                                      "1T",
                                      "nan"};
    struct option_row table[ROWS + 1];
    struct values v;
    char **rest;
    int n_rest;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char word[64];
        char *argv[] = {(char *)"weft", word, NULL};

        make_table(table, &v);
        (void)snprintf(word, sizeof word, "--batch=%s", good[i].text);
        assert_int_equal(options_parse(table, 2, argv, &rest, &n_rest), ST_OK);
        assert_int_equal(v.batch, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char word[64];
        char found[64];
        char *argv[] = {(char *)"weft", word, NULL};

        make_table(table, &v);
        (void)snprintf(word, sizeof word, "--batch=%s", bad[i]);
        (void)snprintf(found, sizeof found, "--batch: found '%s'", bad[i]);
        if (options_parse(table, 2, argv, &rest, &n_rest) != ST_USAGE)
            fail_msg("%s: accepted", word);
        assert_non_null(strstr(fail_text(), found));
        assert_int_equal(v.batch, 4);
    }
}

static void errors(void **state)
{
    static const struct {
        const char *line, *text;
    } bad[] = {
        {"--bacth 3", "--bacth: no such option; did you mean '--batch'"},
        {"--xyzzy", "--xyzzy: no such option"},
        {"--batc 3", "--batc: no such option; did you mean '--batch'"},
        {"--batc=3", "--batc: no such option; did you mean '--batch'"},
        {"--qui", "--qui: no such option"},
        {"--xyzzy=3", "--xyzzy: no such option"},
        {"-b 3", "options start with --"},
        {"--batch", "--batch: needs a value"},
        {"--lr nan", "--lr: found 'nan', needs a finite number"},
        {"--lr inf", "found 'inf'"},
        {"--lr 1e999", "found '1e999'"},
        {"--lr 3x", "found '3x'"},
        {"--engine dire", "--engine: found 'dire', needs one of direct|collective|other"},
        {"--engine direct|other", "found 'direct|other'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct option_row table[ROWS + 1];
        struct values v;
        char **rest;
        int n_rest;

        make_table(table, &v);
        assert_int_equal(parse(table, bad[i].line, &rest, &n_rest), ST_USAGE);
        if (!strstr(fail_text(), bad[i].text))
            fail_msg("%s: '%s' lacks '%s'", bad[i].line, fail_text(), bad[i].text);
    }
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(file_write_all(path, text, strlen(text)), ST_OK);
}

/* An option that may be given more than once, from the command line and through a file.
 */
static void several_texts(void **state)
{
    struct option_texts stops = {.n = 0};
    struct option_texts again = {.n = 0};
    struct option_row table[] = {{"stop", OPTION_TEXTS, &stops, "TEXT", "end here", 0, 0},
                                 {0}};
    const char *path = scratch("texts.ini");
    char **rest;
    int n_rest;

    (void)state;
    assert_int_equal(parse(table, "--stop one --stop two,three x", &rest, &n_rest),
                     ST_OK);
    assert_int_equal(stops.n, 2);
    assert_string_equal(stops.texts[1], "two,three");
    assert_int_equal(n_rest, 1);
    assert_int_equal(options_write_file(table, path, NULL), ST_OK);
    table[0] =
        (struct option_row){"stop", OPTION_TEXTS, &again, "TEXT", "end here", 0, 0};
    assert_int_equal(options_read_file(table, path), ST_OK);
    assert_int_equal(again.n, 2);
    assert_string_equal(again.texts[0], "one");
    assert_string_equal(again.texts[1], "two,three");
    while (again.n < OPTION_TEXTS_MOST)
        assert_int_equal(parse(table, "--stop more", &rest, &n_rest), ST_OK);
    assert_int_equal(parse(table, "--stop more", &rest, &n_rest), ST_USAGE);
    assert_non_null(strstr(fail_text(), "more than 16"));
}

static void command_line_wins_over_file(void **state)
{
    struct option_row table[ROWS + 1];
    struct values v;
    char **rest;
    int n_rest;
    const char *path = scratch("config.ini");

    (void)state;
    write_text(path, "# a comment\nbatch = 16\nlr = 0.5\ndata = some where\n"
                     "quiet = true\nengine = collective\n");
    make_table(table, &v);
    assert_int_equal(parse(table, "--batch 2", &rest, &n_rest), ST_OK);
    assert_int_equal(options_read_file(table, path), ST_OK);
    assert_int_equal(v.batch, 2);
    assert_true(v.lr > 0.49 && v.lr < 0.51 && v.quiet);
    assert_string_equal(v.data, "some where");
    assert_int_equal(v.engine, 1);
    assert_true(table[LR].set && !table[LR].on_command_line);
}

static void bad_files(void **state)
{
    static const struct {
        const char *content, *text;
    } bad[] = {{"batsh = 3\n", "batsh: no such option; did you mean 'batch'"},
               {"batch = three\n", "batch: found 'three'"},
               {"quiet = yes\n", "quiet: found 'yes', needs true or false"},
               {"batch = 3\nwhat is this\n", ":2: not a line"}};
    struct option_row table[ROWS + 1];
    struct values v;
    const char *path = scratch("bad.ini");

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_text(path, bad[i].content);
        make_table(table, &v);
        assert_int_equal(options_read_file(table, path), ST_USAGE);
        if (!strstr(fail_text(), bad[i].text) || !strstr(fail_text(), "bad.ini"))
            fail_msg("'%s' lacks '%s'", fail_text(), bad[i].text);
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite("batch = 2\0 5\n", 1, 13, f), 13);
    fclose(f);
    make_table(table, &v);
    assert_int_equal(options_read_file(table, path), ST_USAGE);
    assert_non_null(strstr(fail_text(), "a byte 0 at offset 9"));
    make_table(table, &v);
    assert_int_equal(options_read_file(table, scratch("none.ini")), ST_IO);
    assert_non_null(strstr(fail_text(), "none.ini"));
}

static void what_is_saved_reads_back(void **state)
{
    struct option_row table[ROWS + 1], again[ROWS + 1];
    struct values v, w;
    char **rest;
    int n_rest;
    const char *const skip[] = {"quiet", NULL};
    const char *path = scratch("saved.ini");
    char *text;
    size_t bytes;

    (void)state;
    make_table(table, &v);
    make_table(again, &w);
    assert_int_equal(
        parse(table, "--lr 0.0006 --batch 3k --engine other --quiet", &rest, &n_rest),
        ST_OK);
    assert_int_equal(options_write_file(table, path, skip), ST_OK);
    assert_int_equal(file_read_all(path, &text, &bytes), ST_OK);
    assert_string_equal(text, "batch = 3072\nlr = 0.0006\nengine = other\n");
    free(text);
    assert_int_equal(options_read_file(again, path), ST_OK);
    assert_memory_equal(&v.lr, &w.lr, sizeof v.lr);
    assert_int_equal(w.batch, 3072);
    assert_int_equal(w.engine, 2);
    assert_false(w.quiet);
}

/* A prompt may end in a blank. */
static void blanks_and_quotes_read_back(void **state)
{
    static const char *const texts[] = {"The ", " x",          "\"said\"",
                                        "\"",   ";no comment", "a \"b\""};
    const char *const skip[] = {NULL};
    const char *path = scratch("quoted.ini");

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct option_row table[ROWS + 1];
        struct values v;

        make_table(table, &v);
        v.data = texts[i];
        assert_int_equal(options_write_file(table, path, skip), ST_OK);
        v.data = NULL;
        assert_int_equal(options_read_file(table, path), ST_OK);
        assert_string_equal(v.data, texts[i]);
    }
}

static void numbers_keep_their_bits(void **state)
{
    const double numbers[] = {0.1,
                              1.0 / 3,
                              6e-4,
                              1e-8,
                              123456789.123456789,
                              0,
                              -2.5,
                              5e-324,
                              1.7976931348623157e308};

    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double value = numbers[i];
        struct option_row row = {.name = "x", .kind = OPTION_NUMBER, .value = &value};
        char text[64];

        option_format(&row, text, sizeof text);
        double back = strtod(text, NULL);
        assert_memory_equal(&back, &value, sizeof back);
    }
}

static void near_words(void **state)
{
    char buf[65];

    (void)state;
    assert_string_equal(nearest_word("trian", "train|tokenize", buf, sizeof buf),
                        "train");
    assert_string_equal(nearest_word("tok", "train|tokenize", buf, sizeof buf),
                        "tokenize");
    assert_null(nearest_word("xyz", "train|tokenize", buf, sizeof buf));
    assert_null(nearest_word("ab", "x|y", buf, sizeof buf));
    assert_null(nearest_word("", "train", buf, sizeof buf));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_line),
        cmocka_unit_test(sizes),
        cmocka_unit_test(errors),
        cmocka_unit_test(several_texts),
        cmocka_unit_test(command_line_wins_over_file),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(what_is_saved_reads_back),
        cmocka_unit_test(blanks_and_quotes_read_back),
        cmocka_unit_test(numbers_keep_their_bits),
        cmocka_unit_test(near_words),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    return folder_remove(scratch("")) == ST_OK ? failed : 1;
}
