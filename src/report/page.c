/* SPDX-License-Identifier: MIT */
#include "report/page.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "report/embedded.h"

enum { MOST_POINTS = 2000, ALL_POINTS = 9000, MOST_EVALUATIONS = 400, MOST_MARKS = 300 };

/* ---- thinning ---- */

/* Points of `each` lines: the mean of what is known; the last line's step and tokens. */
static double point(const struct run *r, enum run_column c, size_t first, size_t last)
{
    double sum = 0;
    size_t known = 0;

    if (c == RUN_STEP || c == RUN_TOKENS)
        return r->columns[c][last - 1];
    for (size_t i = first; i < last; i++)
        if (isfinite(r->columns[c][i])) {
            sum += r->columns[c][i];
            known++;
        }
    return known > 0 ? sum / (double)known : (double)NAN;
}

static json_t *json_number(double x)
{
    if (!isfinite(x))
        return json_null();
    return fabs(x) < 9e15 && !(x > floor(x)) ? json_integer((json_int_t)x) : json_real(x);
}

static json_t *column(const struct run *r, enum run_column c, size_t most)
{
    size_t each = r->n > most ? ceil_div(r->n, most) : 1;
    json_t *out = json_array();

    for (size_t i = 0; i < r->n; i += each)
        (void)json_array_append_new(
            out, json_number(point(r, c, i, min_size(r->n, i + each))));
    return out;
}

static json_t *evaluations(const struct run *r)
{
    size_t n = r->n_evaluations;
    size_t each = n > MOST_EVALUATIONS ? ceil_div(n, MOST_EVALUATIONS) : 1;
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++)
        if (i % each == 0 || i + 1 == n)
            (void)json_array_append_new(
                out, json_pack("[o, o]", json_number(r->evaluations[i].step),
                               json_number(r->evaluations[i].loss)));
    return out;
}

static bool is_event(const json_t *e, const char *name)
{
    const char *found = json_string_value(json_object_get(e, "event"));

    return found && !strcmp(found, name);
}

/* All but the accounts; of very many checkpoints some. */
static json_t *marks(const struct run *r)
{
    size_t n = json_array_size(r->events), checkpoints = 0, seen = 0;
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++)
        checkpoints += is_event(json_array_get(r->events, i), "checkpoint");
    size_t each = checkpoints > MOST_MARKS ? ceil_div(checkpoints, MOST_MARKS) : 1;

    for (size_t i = 0; i < n; i++) {
        json_t *e = json_array_get(r->events, i);

        if (is_event(e, "ranks") || (is_event(e, "checkpoint") && seen++ % each != 0))
            continue;
        (void)json_array_append(out, e);
    }
    return out;
}

/* ---- balance of the ranks ---- */

static const char *const account_names[] = {"compute_s", "exposed_s", "idle_s",
                                            "hidden_s", "wall_s"};
enum { ACCOUNT_NAMES = sizeof account_names / sizeof *account_names };

/* Adds array `more` to array `sum`, element by element; a longer one ends the old sum
 * (the run went on with other ranks). */
static json_t *add_up(json_t *sum, const json_t *more)
{
    json_t *out = json_array();

    for (size_t i = 0; i < json_array_size(more); i++) {
        double x = json_number_value(json_array_get(more, i));

        if (json_array_size(sum) == json_array_size(more))
            x += json_number_value(json_array_get(sum, i));
        (void)json_array_append_new(out, json_real(x));
    }
    return out;
}

/* Sums of every rank since the number of ranks last changed; NULL when none are known. */
static json_t *rank_sums(const struct run *r)
{
    json_t *out = NULL;
    size_t ranks = 0;

    for (size_t i = 0; i < json_array_size(r->events); i++) {
        const json_t *e = json_array_get(r->events, i);
        size_t n = json_array_size(json_object_get(e, "wall_s"));

        if (!is_event(e, "ranks") || n == 0)
            continue;
        if (n != ranks) {
            json_decref(out);
            out = json_object();
            ranks = n;
        }
        for (size_t k = 0; k < ACCOUNT_NAMES; k++)
            (void)json_object_set_new(out, account_names[k],
                                      add_up(json_object_get(out, account_names[k]),
                                             json_object_get(e, account_names[k])));
        json_int_t steps = json_integer_value(json_object_get(out, "steps")) +
                           json_integer_value(json_object_get(e, "n"));
        (void)json_object_set_new(out, "steps", json_integer(steps));
    }
    return out;
}

/* ---- of the whole run ---- */

/* Means over time, not over steps: what a long step counts more. Sums of all lines,
 * before any are thinned out. */
static json_t *totals(const struct run *r)
{
    double step_s = 0, exposed_s = 0, tokens = 0, of_peak_s = 0;

    for (size_t i = 0; i < r->n; i++) {
        double s = r->columns[RUN_STEP_S][i];

        if (!isfinite(s))
            continue;
        step_s += s;
        exposed_s += r->columns[RUN_COMM_EXPOSED_S][i];
        tokens += s * r->columns[RUN_TOKENS_PER_S][i];
        of_peak_s += s * r->columns[RUN_MFU][i];
    }
    return json_pack("{s:I, s:o, s:o, s:o, s:o}", "steps", (json_int_t)r->n, "step_s",
                     json_number(step_s), "exposed", json_number(exposed_s / step_s),
                     "tokens_per_s", json_number(tokens / step_s), "mfu",
                     json_number(of_peak_s / step_s));
}

/* ---- the page ---- */

static json_t *describe(const struct run *r, const char *name, size_t most)
{
    json_t *out = json_pack("{s:o, s:O, s:o, s:o, s:o}", "name", utf8_json(name),
                            "options", r->options, "val", evaluations(r), "events",
                            marks(r), "totals", totals(r));
    json_t *ranks = rank_sums(r);

    for (int c = 0; c < RUN_COLUMNS; c++)
        (void)json_object_set_new(out, run_column_names[c],
                                  column(r, (enum run_column)c, most));
    if (ranks)
        (void)json_object_set_new(out, "ranks", ranks);
    return out;
}

/* The folders' own names, or the paths where two have the same. */
static const char *name_of(const struct run *runs, size_t n, size_t i)
{
    const char *slash = strrchr(runs[i].path, '/');
    const char *name = slash && slash[1] ? slash + 1 : runs[i].path;

    for (size_t j = 0; j < n; j++) {
        const char *other = strrchr(runs[j].path, '/');

        other = other && other[1] ? other + 1 : runs[j].path;
        if (j != i && !strcmp(name, other))
            return runs[i].path;
    }
    return name;
}

static json_t *gather(const struct run *runs, size_t n, json_t *timeline)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        (void)json_array_append_new(all, describe(&runs[i], name_of(runs, n, i),
                                                  min_size(MOST_POINTS, ALL_POINTS / n)));
    json_t *out = json_pack("{s:o}", "runs", all);
    if (timeline)
        (void)json_object_set(out, "timeline", timeline);
    return out;
}

/* Text in a page: no tag may begin in it. */
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", f);
        else if (*text == '&')
            fputs("&amp;", f);
        else
            fputc(*text, f);
    }
}

static void put_names(FILE *f, const struct run *runs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *name = utf8_json(name_of(runs, n, i));

        put_text(f, i ? ", " : "");
        put_text(f, name ? json_string_value(name) : "?");
        json_decref(name);
    }
}

/* JSON in a script: the only way out of it is a '<'. */
static void put_json(FILE *f, const char *json)
{
    for (; *json; json++)
        if (*json == '<')
            fputs("\\u003c", f);
        else
            fputc(*json, f);
}

static void put_page(FILE *f, const struct run *runs, size_t n, const char *json)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          f);
    put_names(f, runs, n);
    fputs(" - weft report</title>\n<style>\n", f);
    fwrite(embedded_page_css, 1, embedded_page_css_bytes, f);
    fputs("</style></head>\n<body><header id=\"head\"><h1>", f);
    put_names(f, runs, n);
    fputs(
        "</h1><noscript>This page draws its charts with a script of its own; the browser "
        "does not run it.</noscript></header>\n<main id=\"page\"></main>\n"
        "<footer><main class=\"soft small\">weft " WEFT_VERSION "</main></footer>\n"
        "<script type=\"application/json\" id=\"data\">",
        f);
    put_json(f, json);
    fputs("</script>\n<script>\n", f);
    fwrite(embedded_page_js, 1, embedded_page_js_bytes, f);
    fputs("</script></body></html>\n", f);
}

enum status page_write(const char *path, const struct run *runs, size_t n,
                       json_t *timeline)
{
    json_t *data = gather(runs, n, timeline);
    char *json =
        json_dumps(data, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6));
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = json ? open_memstream(&text, &bytes) : NULL;
    enum status st = f ? ST_OK : fail(ST_NOMEM, "%s: no memory for the report", path);

    json_decref(data);
    if (f) {
        put_page(f, runs, n, json);
        if (fclose(f) != 0)
            st = fail(ST_NOMEM, "%s: no memory for the report", path);
    }
    if (st == ST_OK)
        st = file_write_all(path, text, bytes);
    free(text);
    free(json);
    return st;
}
