/* SPDX-License-Identifier: MIT */
#include "base/options.h"

#include <errno.h>
#include <getopt.h>
#include <ini.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

enum { MAX_ROWS = 96, MAX_WORD = 64, MAX_FILE_VALUE = 160 };

static size_t count_rows(const struct option_row *table)
{
    size_t n = 0;

    while (table[n].name)
        n++;
    require(n < MAX_ROWS);
    return n;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[MAX_WORD + 1];
    size_t nb = strnlen(b, MAX_WORD);

    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *nearest_word(const char *typed, const char *words, char *buf,
                         size_t buf_bytes)
{
    size_t best = 3; /* further away is no typing slip */
    bool found = false;
    const char *w = words;

    while (*w) {
        char word[MAX_WORD + 1];
        size_t n = strcspn(w, "|");
        size_t kept = n < MAX_WORD ? n : MAX_WORD;

        memcpy(word, w, kept);
        word[kept] = 0;
        w += n + (w[n] == '|');
        size_t distance = edit_distance(typed, word);
        /* A name typed half ("learn" for "learning") is near as well. */
        bool prefix = typed[0] && typed[1] && !strncmp(word, typed, strlen(typed));
        if (prefix && distance > 1)
            distance = 1;
        if (distance < best && distance < strlen(word)) {
            best = distance;
            found = true;
            (void)snprintf(buf, buf_bytes, "%s", word);
        }
    }
    return found ? buf : NULL;
}

static enum status bad_value(const struct option_row *row, const char *where,
                             const char *text, const char *needed)
{
    return fail(ST_USAGE, "%s%s: found '%s', needs %s", where, row->name, text, needed);
}

static enum status set_size(struct option_row *row, const char *where, const char *text)
{
    const char *needed = "a whole number >= 0 (k, M or G may follow)";
    char *end;
    size_t scale = 1;

    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || errno || strchr(text, '-'))
        return bad_value(row, where, text, needed);
    if (*end == 'k' || *end == 'K')
        scale = (size_t)1 << 10;
    else if (*end == 'M')
        scale = (size_t)1 << 20;
    else if (*end == 'G')
        scale = (size_t)1 << 30;
    if (end[scale > 1] != 0 || v > SIZE_MAX / scale)
        return bad_value(row, where, text, needed);
    *(size_t *)row->value = (size_t)v * scale;
    return ST_OK;
}

static enum status set_choice(struct option_row *row, const char *where, const char *text)
{
    char needed[256];
    int index = 0;

    for (const char *w = row->meta; *w; index++) {
        size_t n = strcspn(w, "|");

        if (strlen(text) == n && !strncmp(w, text, n)) {
            *(int *)row->value = index;
            return ST_OK;
        }
        w += n + (w[n] == '|');
    }
    (void)snprintf(needed, sizeof needed, "one of %s", row->meta);
    return bad_value(row, where, text, needed);
}

static enum status add_text(struct option_row *row, const char *where, const char *text)
{
    struct option_texts *list = row->value;

    if (list->n == OPTION_TEXTS_MOST)
        return fail(ST_USAGE, "%s%s: found more than %d of them", where, row->name,
                    OPTION_TEXTS_MOST);
    list->texts[list->n++] = text;
    return ST_OK;
}

static enum status set_row(struct option_row *row, const char *where, const char *text)
{
    enum status st = ST_OK;
    char *end;
    double number;

    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)row->value = text;
        break;
    case OPTION_SIZE:
        st = set_size(row, where, text);
        break;
    case OPTION_NUMBER:
        number = strtod(text, &end);
        if (end == text || *end || !isfinite(number))
            return bad_value(row, where, text, "a finite number");
        *(double *)row->value = number;
        break;
    case OPTION_SWITCH:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return bad_value(row, where, text, "true or false");
        *(bool *)row->value = !strcmp(text, "true");
        break;
    case OPTION_CHOICE:
        st = set_choice(row, where, text);
        break;
    case OPTION_TEXTS:
        st = add_text(row, where, text);
        break;
    }
    if (st == ST_OK)
        row->set = true;
    return st;
}

static enum status unknown_option(const struct option_row *table, const char *where,
                                  const char *name)
{
    char words[MAX_ROWS * 24] = "";
    char near[MAX_WORD + 1];
    size_t used = 0;

    for (const struct option_row *r = table; r->name && used < sizeof words; r++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s",
                                 r == table ? "" : "|", r->name);
    if (nearest_word(name, words, near, sizeof near))
        return fail(ST_USAGE, "%s%s: no such option; did you mean '%s%s'?", where, name,
                    strcmp(where, "--") ? "" : where, near);
    return fail(ST_USAGE, "%s%s: no such option", where, name);
}

static int find_row(const struct option_row *table, const char *name)
{
    for (int i = 0; table[i].name; i++)
        if (!strcmp(table[i].name, name))
            return i;
    return -1;
}

/* The word on the command line that getopt_long has just read an option from, `value`
 * being what it found for it. */
static const char *typed_word(char **argv, const char *value)
{
    return argv[value && value == argv[optind - 1] ? optind - 2 : optind - 1];
}

static void typed_name(const char *word, char *buf, size_t buf_bytes)
{
    (void)snprintf(buf, buf_bytes, "%.*s", (int)strcspn(word + 2, "="), word + 2);
}

enum status options_parse(struct option_row *table, int argc, char **argv, char ***rest,
                          int *n_rest)
{
    struct option longs[MAX_ROWS + 1];
    size_t n = count_rows(table);
    char name[MAX_WORD + 1];
    int c;
    int index = 0;

    for (size_t i = 0; i < n; i++)
        longs[i] = (struct option){
            .name = table[i].name,
            .has_arg = table[i].kind == OPTION_SWITCH ? no_argument : required_argument,
            .val = 0};
    longs[n] = (struct option){0};
    optind = 0; /* glibc: start afresh, also after another table */
    opterr = 0;
    /* The leading ':' tells a missing value from an unknown option. */
    while ((c = getopt_long(argc, argv, ":h", longs, &index)) != -1) {
        bool help = c == 'h' && (index = find_row(table, "help")) >= 0;

        if (c == 0 || help) {
            struct option_row *row = &table[index];

            /* The library takes the first letters of a name for it; who types another
             * option's name half gets that one. */
            typed_name(typed_word(argv, optarg), name, sizeof name);
            if (!help && strcmp(name, row->name) != 0)
                return unknown_option(table, "--", name);
            enum status st =
                set_row(row, "--", row->kind == OPTION_SWITCH ? "true" : optarg);

            if (st != ST_OK)
                return st;
            row->on_command_line = true;
        } else if (c == ':') {
            return fail(ST_USAGE, "%s: needs a value", argv[optind - 1]);
        } else {
            const char *typed = argv[optind - 1];

            if (strncmp(typed, "--", 2) != 0)
                return fail(ST_USAGE, "%s: no such option; options start with --", typed);
            typed_name(typed, name, sizeof name);
            return unknown_option(table, "--", name);
        }
    }
    *rest = argv + optind;
    *n_rest = argc - optind;
    return ST_OK;
}

struct file_reader {
    struct option_row *table;
    const char *path;
    enum status st;
};

/* Values of files live as long as the process, as argv does. */
static struct path_list kept_values;

/* A value in quotes is what stands between them, blanks and all. Changes the text. */
static char *without_quotes(char *value)
{
    size_t n = strlen(value);

    if (n < 2 || value[0] != '"' || value[n - 1] != '"')
        return value;
    value[n - 1] = 0;
    return value + 1;
}

static int on_pair(void *user, const char *section, const char *name, const char *value)
{
    struct file_reader *reader = user;
    char where[512];

    (void)section;
    if (reader->st != ST_OK)
        return 0;
    (void)snprintf(where, sizeof where, "%s: ", reader->path);
    for (struct option_row *row = reader->table; row->name; row++) {
        if (strcmp(row->name, name) != 0)
            continue;
        if (row->on_command_line)
            return 1;
        reader->st = path_list_add(&kept_values, value);
        if (reader->st == ST_OK)
            reader->st = set_row(
                row, where, without_quotes(kept_values.paths[kept_values.count - 1]));
        return reader->st == ST_OK;
    }
    reader->st = unknown_option(reader->table, where, name);
    return 0;
}

/* The library reads lines of 200 bytes with their ends and takes what is beyond for the
 * next line. */
static enum status check_lines(const char *text, const char *path)
{
    const size_t most = 198;
    size_t number = 1;

    for (const char *line = text; *line; number++) {
        size_t n = strcspn(line, "\n");

        if (n > most)
            return fail(ST_USAGE,
                        "%s:%zu: found a line of %zu bytes, needs at most %zu; longer "
                        "values go on the command line",
                        path, number, n, most);
        line += n + (line[n] == '\n');
    }
    return ST_OK;
}

enum status options_read_text(struct option_row *table, const char *text,
                              const char *name)
{
    struct file_reader reader = {.table = table, .path = name, .st = ST_OK};
    enum status st = check_lines(text, name);

    if (st != ST_OK)
        return st;
    int rc = ini_parse_string(text, on_pair, &reader);

    if (reader.st != ST_OK)
        return reader.st;
    if (rc != 0)
        return fail(ST_USAGE, "%s:%d: not a line of the form key = value", name, rc);
    return ST_OK;
}

enum status options_read_file(struct option_row *table, const char *path)
{
    char *text;
    size_t bytes;
    enum status st = file_read_all(path, &text, &bytes);

    if (st == ST_OK && strlen(text) != bytes)
        st = fail(ST_USAGE, "%s: found a byte 0 at offset %zu, needs text", path,
                  strlen(text));
    if (st == ST_OK)
        st = options_read_text(table, text, path);
    free(text);
    return st;
}

void option_format(const struct option_row *row, char *buf, size_t buf_bytes)
{
    const char *w = row->meta;

    switch (row->kind) {
    case OPTION_TEXT: {
        const char *text = *(const char **)row->value;

        (void)snprintf(buf, buf_bytes, "%s", text ? text : "");
        return;
    }
    case OPTION_SIZE:
        if (*(size_t *)row->value == OPTION_SIZE_UNSET)
            buf[0] = 0;
        else
            (void)snprintf(buf, buf_bytes, "%zu", *(size_t *)row->value);
        return;
    case OPTION_NUMBER:
        if (isnan(*(double *)row->value)) {
            buf[0] = 0;
            return;
        }
        (void)snprintf(buf, buf_bytes, "%.17g", *(double *)row->value);
        /* 0.1, not 0.10000000000000001, wherever fewer digits give the same number. */
        for (int digits = 1; digits < 17; digits++) {
            char shorter[40];

            (void)snprintf(shorter, sizeof shorter, "%.*g", digits,
                           *(double *)row->value);
            if (!(strtod(shorter, NULL) < *(double *)row->value) &&
                !(strtod(shorter, NULL) > *(double *)row->value)) {
                (void)snprintf(buf, buf_bytes, "%s", shorter);
                return;
            }
        }
        return;
    case OPTION_SWITCH:
        (void)snprintf(buf, buf_bytes, "%s", *(bool *)row->value ? "true" : "false");
        return;
    case OPTION_CHOICE:
        for (int i = 0; i < *(int *)row->value; i++)
            w += strcspn(w, "|") + 1;
        (void)snprintf(buf, buf_bytes, "%.*s",
                       *(int *)row->value < 0 ? 0 : (int)strcspn(w, "|"), w);
        return;
    case OPTION_TEXTS: {
        const struct option_texts *list = row->value;

        (void)snprintf(buf, buf_bytes, "%s", list->n > 0 ? list->texts[0] : "");
        return;
    }
    }
}

/* A value that the reader would give back: no comment, no line break, no longer than a
 * line may be. */
static bool survives_file(const char *value)
{
    return strlen(value) <= MAX_FILE_VALUE && !strpbrk(value, "\r\n") &&
           !strstr(value, " ;") && !strstr(value, "\t;");
}

/* One that the reader would change unless it stands in quotes. */
static bool needs_quotes(const char *value)
{
    size_t n = strlen(value);

    return strchr(" \t;\"", value[0]) || strchr(" \t", value[n - 1]);
}

static void write_value(FILE *f, const char *name, const char *value)
{
    /* An unset option has no value to write down. */
    if (!value[0])
        return;
    if (survives_file(value))
        fprintf(f, needs_quotes(value) ? "%s = \"%s\"\n" : "%s = %s\n", name, value);
    else
        fprintf(f, "# %s: its value cannot stand in a file of this form\n", name);
}

enum status options_write_file(const struct option_row *table, const char *path,
                               const char *const *skip)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return fail(ST_NOMEM, "%s: no memory", path);
    for (const struct option_row *row = table; row->name; row++) {
        char value[4096];
        bool skipped = false;

        for (const char *const *s = skip; s && *s; s++)
            skipped = skipped || !strcmp(*s, row->name);
        const struct option_texts *list = row->kind == OPTION_TEXTS ? row->value : NULL;

        if (skipped)
            continue;
        for (size_t i = 0; list && i < list->n; i++)
            write_value(f, row->name, list->texts[i]);
        if (list)
            continue;
        option_format(row, value, sizeof value);
        write_value(f, row->name, value);
    }
    enum status st = fclose(f) == 0 ? ST_OK : fail(ST_NOMEM, "%s: no memory", path);
    if (st == ST_OK)
        st = file_write_all(path, text, bytes);
    free(text);
    return st;
}

static struct {
    void (*call)(void *arg, const struct option_row *table);
    void *arg;
} listener;

void options_listen(void (*call)(void *arg, const struct option_row *table), void *arg)
{
    listener.call = call;
    listener.arg = arg;
}

void options_print_help(const struct option_row *table)
{
    if (listener.call) {
        listener.call(listener.arg, table);
        return;
    }
    for (const struct option_row *row = table; row->name; row++) {
        char left[128];
        char value[256];

        (void)snprintf(left, sizeof left, "--%s%s%s", row->name, row->meta ? " " : "",
                       row->meta ? row->meta : "");
        option_format(row, value, sizeof value);
        printf("  %-28s ", left);
        if (strlen(left) > 28)
            printf("\n  %-28s ", "");
        printf("%s", row->help);
        if (row->kind != OPTION_SWITCH && value[0])
            printf(" (default %s)", value);
        printf("\n");
    }
}
