/* SPDX-License-Identifier: MIT */
/* weft watch: a run seen from another terminal. Reads what the run writes down and
 * touches nothing of it. */
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/cmd.h"
#include "report/curve.h"
#include "report/run.h"

struct screen {
    size_t columns, rows;
    bool live, unicode;
};

static struct screen look_at_screen(void)
{
    struct winsize size;
    const char *term = getenv("TERM");
    struct screen s = {.columns = 80, .rows = 24};

    s.live = isatty(STDOUT_FILENO) && term && strcmp(term, "dumb") != 0;
    if (s.live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        s.columns = size.ws_col;
        s.rows = size.ws_row;
    }
    s.unicode = !strcmp(nl_langinfo(CODESET), "UTF-8");
    return s;
}

/* The last event of that name, or NULL. */
static const json_t *last_event(const struct run *r, const char *name)
{
    for (size_t i = json_array_size(r->events); i-- > 0;) {
        const json_t *e = json_array_get(r->events, i);
        const char *found = json_string_value(json_object_get(e, "event"));

        if (found && !strcmp(found, name))
            return e;
    }
    return NULL;
}

/* Why the newest process of the run ended; NULL while none is known to have. */
static const char *ended(const struct run *r)
{
    size_t n = json_array_size(r->events);
    const json_t *last = n > 0 ? json_array_get(r->events, n - 1) : NULL;
    const char *name = json_string_value(json_object_get(last, "event"));

    return name && !strcmp(name, "end") ? json_string_value(json_object_get(last, "why"))
                                        : NULL;
}

/* Mean of the newest lines that have the number. */
static double recent(const struct run *r, enum run_column c)
{
    size_t first = r->n > 20 ? r->n - 20 : 0;
    double sum = 0;
    size_t known = 0;

    for (size_t i = first; i < r->n; i++)
        if (isfinite(r->columns[c][i])) {
            sum += r->columns[c][i];
            known++;
        }
    return known ? sum / (double)known : (double)NAN;
}

/* A line of text in the room there is. */
static void put_line(FILE *out, const struct screen *s, const char *text)
{
    fprintf(out, "%.*s\n", (int)s->columns, text);
}

static void put_figures(FILE *out, const struct screen *s, const struct run *r)
{
    size_t last = r->n - 1;
    double steps = json_number_value(json_object_get(last_event(r, "start"), "steps"));
    double step = r->columns[RUN_STEP][last];
    double step_s = recent(r, RUN_STEP_S);
    char eta[16] = "";
    char line[256];

    if (!ended(r))
        (void)format_duration((steps - step) * step_s, eta, sizeof eta);
    (void)snprintf(line, sizeof line, "%s: step %.0f/%.0f  loss %.4f%s%s", r->path, step,
                   steps, recent(r, RUN_LOSS), *eta ? "  ETA " : "", eta);
    put_line(out, s, line);
    (void)snprintf(line, sizeof line,
                   "%.0f tokens/s  exposed %.0f %%  MFU %.0f %%  lr %.3g  norm %.3g",
                   recent(r, RUN_TOKENS_PER_S),
                   100 * recent(r, RUN_COMM_EXPOSED_S) / step_s, 100 * recent(r, RUN_MFU),
                   r->columns[RUN_LR][last], r->columns[RUN_GRAD_NORM][last]);
    put_line(out, s, line);
    if (r->n_evaluations > 0) {
        const struct run_evaluation *e = &r->evaluations[r->n_evaluations - 1];

        (void)snprintf(line, sizeof line, "validation loss %.4f at step %.0f", e->loss,
                       e->step);
        put_line(out, s, line);
    }
}

static void put_end(FILE *out, const struct screen *s, const struct run *r)
{
    const char *why = ended(r);
    char line[256];

    if (!why)
        return;
    (void)snprintf(line, sizeof line, "the run has ended: %s", why);
    put_line(out, s, line);
}

/* One picture in one write, so that it does not flicker. */
static void draw(const struct screen *s, const struct run *r)
{
    char *text = NULL;
    char damaged[128];
    size_t bytes = 0;
    bool told = run_tell_damaged(r, damaged, sizeof damaged);
    FILE *f = open_memstream(&text, &bytes);

    if (!f)
        return;
    if (s->live)
        fputs("\033[H\033[J", f);
    if (r->n > 0) {
        put_figures(f, s, r);
        curve_draw(f, r->columns[RUN_LOSS], r->n, s->columns - 1,
                   s->rows > 8 ? s->rows - 6 - told : 2, s->unicode);
    } else {
        put_line(f, s, "no step yet");
    }
    if (told)
        put_line(f, s, damaged);
    put_end(f, s, r);
    if (fclose(f) == 0)
        fwrite(text, 1, bytes, stdout);
    fflush(stdout);
    free(text);
}

/* Size and time of the file that grows with every step. */
static bool has_changed(const char *path, struct stat *seen)
{
    char name[4096];
    struct stat now;

    if (snprintf(name, sizeof name, "%s/metrics.jsonl", path) >= (int)sizeof name ||
        stat(name, &now) != 0)
        return true;
    bool changed = now.st_size != seen->st_size || now.st_mtime != seen->st_mtime;

    *seen = now;
    return changed;
}

/* Until the run has ended; once when nobody could see a picture change. */
static enum status watch(const char *path)
{
    const long period_us = 500000;
    const double longest_s = 5; /* without a look at the other files */
    struct stat seen = {0};
    double drawn_s = 0;
    size_t columns = 0;
    bool over = false;

    while (!over) {
        struct screen s = look_at_screen();
        struct run r;

        if (!has_changed(path, &seen) && s.columns == columns &&
            clock_s() - drawn_s < longest_s) {
            clock_nap_us(period_us);
            continue;
        }
        enum status st = run_read(path, &r);

        if (st != ST_OK)
            return st;
        draw(&s, &r);
        over = !s.live || ended(&r) != NULL;
        run_release(&r);
        drawn_s = clock_s();
        columns = s.columns;
        if (!over)
            clock_nap_us(period_us);
    }
    return ST_OK;
}

enum status cmd_watch(int argc, char **argv, int *exit_code)
{
    bool help = false;
    struct option_row table[] = {
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0},
    };
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    (void)exit_code;
    if (st != ST_OK)
        return st;
    if (help) {
        printf(
            "usage: weft watch RUN\n\n"
            "Follows a run from another terminal: its figures and its loss as a curve, "
            "until it\nends or Ctrl-C is typed. Where stdout is no terminal: once.\n\n"
            "example: weft watch runs/a\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    if (n_rest != 1)
        return fail(ST_USAGE, "watch: found %d run folders, needs one", n_rest);
    (void)setlocale(LC_CTYPE, "");
    return watch(rest[0]);
}
