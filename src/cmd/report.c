/* SPDX-License-Identifier: MIT */
/* weft report: a page of one run or several. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "cmd/cmd.h"
#include "report/page.h"

/* The first run that has a timeline shows it. A file that does not read is told and left
 * out. */
static json_t *find_timeline(const struct run *runs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char path[PATH_MAX];
        json_error_t error;

        if (snprintf(path, sizeof path, "%s/trace/step.json", runs[i].path) >=
                (int)sizeof path ||
            !file_exists(path))
            continue;
        json_t *step = json_load_file(path, 0, &error);

        if (step)
            return step;
        log_warn("%s:%d: the timeline is left out: %s", path, error.line, error.text);
    }
    return NULL;
}

static enum status write_page(const char *out, const struct run *runs, size_t n)
{
    char path[PATH_MAX];
    json_t *timeline = find_timeline(runs, n);
    uint64_t bytes = 0;
    enum status st = ST_OK;

    if (snprintf(path, sizeof path, out ? "%s" : "%s/report.html",
                 out ? out : runs[0].path) >= (int)sizeof path)
        st = fail(ST_IO, "%s: path too long", runs[0].path);
    if (st == ST_OK)
        st = page_write(path, runs, n, timeline);
    json_decref(timeline);
    if (st == ST_OK)
        st = file_size(path, &bytes);
    if (st == ST_OK)
        log_info("%s: %zu run%s, %.0f KB; open it in a browser", path, n,
                 n == 1 ? "" : "s", (double)bytes * 1e-3);
    return st;
}

static enum status report(const char *out, char **paths, size_t n)
{
    struct run *runs;
    size_t read = 0;
    char damaged[128];
    enum status st = memory_alloc(n, sizeof *runs, "report", &runs);

    while (st == ST_OK && read < n) {
        st = run_read(paths[read], &runs[read]);
        if (st == ST_OK && run_tell_damaged(&runs[read], damaged, sizeof damaged))
            log_warn("%s/%s", runs[read].path, damaged);
        read += st == ST_OK;
    }
    if (st == ST_OK)
        st = write_page(out, runs, n);
    for (size_t i = 0; i < read; i++)
        run_release(&runs[i]);
    free(runs);
    return st;
}

enum status cmd_report(int argc, char **argv, int *exit_code)
{
    const char *out = NULL;
    bool help = false;
    struct option_row table[] = {
        {"out", OPTION_TEXT, &out, "FILE",
         "page to write; of one run RUN/report.html when not given", 0, 0},
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
            "usage: weft report [--out FILE] RUN [RUN...]\n\n"
            "Writes one HTML file that needs no network: loss, rate, speed, where the "
            "time went,\nbalance of the ranks, a step of the timeline (train --trace); "
            "several runs overlaid,\nwhich needs --out.\n\n"
            "example: weft report runs/a runs/b --out compare.html\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    if (n_rest < 1 || n_rest > PAGE_MOST_RUNS)
        return fail(ST_USAGE, "report: found %d run folders, needs 1 to %d", n_rest,
                    PAGE_MOST_RUNS);
    if (n_rest > 1 && !out)
        return fail(ST_USAGE,
                    "report: found %d run folders and no --out; needs --out FILE for a "
                    "page of several runs",
                    n_rest);
    return report(out, rest, (size_t)n_rest);
}
