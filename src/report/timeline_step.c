/* SPDX-License-Identifier: MIT */
/* The newest step as page.js draws it: tasks of a kind that follow each other are joined,
 * operations are laid out in rows, and what a picture cannot hold is left out. */
#include "report/timeline.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

enum { MOST_RANKS = 4, MOST_WORKERS = 8, MOST_OPERATIONS = 500, MOST_ROWS = 30 };

/* In the order of PHASES in page.js. */
enum phase { FORWARD, HEAD, BACKWARD, GRADIENT, UPDATE, OTHER };

static bool begins(const char *label, const char *with)
{
    return !strncmp(label, with, strlen(with));
}

static enum phase phase_of(const char *label)
{
    static const struct {
        const char *begin;
        enum phase phase;
    } table[] = {{"head", HEAD},     {"logits", HEAD},      {"loss", HEAD},
                 {"softmax", HEAD},  {"final norm ", HEAD}, {"update", UPDATE},
                 {"sum", UPDATE},    {"rows", UPDATE},      {"reduce", UPDATE},
                 {"return", UPDATE}, {"agree", UPDATE}};
    static const char *const forward[] = {"embedding", "ln1", "qkv", "attention",
                                          "attproj",   "ln2", "fc",  "final norm"};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (begins(label, table[i].begin))
            return table[i].phase;
    if (strstr(label, "gradient"))
        return GRADIENT;
    if (strstr(label, "backward"))
        return BACKWARD;
    for (size_t i = 0; i < sizeof forward / sizeof *forward; i++)
        if (begins(label, forward[i]))
            return FORWARD;
    return OTHER;
}

/* The part of a rank's events that is looked at. */
struct window {
    const struct timeline_rank *rank;
    double begin_s, end_s;
};

static double rounded(double s)
{
    return round(s * 1e7) / 1e7;
}

static void append_task(json_t *to, const struct window *w, enum phase phase,
                        double begin, double end)
{
    if (end > begin)
        (void)json_array_append_new(to, json_pack("[i, f, f]", (int)phase,
                                                  rounded(begin - w->begin_s),
                                                  rounded(end - w->begin_s)));
}

static json_t *worker_tasks(const struct window *w, int lane)
{
    const double join_s = (w->end_s - w->begin_s) / 600;
    json_t *out = json_array();
    enum phase phase = OTHER;
    double begin = 0, end = 0;

    for (size_t i = 0; i < w->rank->n; i++) {
        const struct trace_event *e = &w->rank->events[i];

        if (e->kind != TRACE_TASK || e->lane != lane || e->begin_s < w->begin_s ||
            e->begin_s > w->end_s)
            continue;
        enum phase next = phase_of(e->label);
        /* A short one of another kind takes the colour of what is there. */
        bool joins = e->begin_s - end < join_s &&
                     (next == phase || e->end_s - e->begin_s < join_s / 2);

        if (end > 0 && joins) {
            end = e->end_s;
            continue;
        }
        append_task(out, w, phase, begin, end);
        phase = next;
        begin = e->begin_s;
        end = e->end_s;
    }
    append_task(out, w, phase, begin, end);
    return out;
}

/* In the order of OPERATIONS in page.js. */
static int kind_of(const struct trace_event *e)
{
    if (e->phase < 2)
        return e->phase;
    return begins(e->label, "rows") ? 2 : 3;
}

static json_t *describe(const struct window *w, const struct trace_event *e)
{
    char text[128];

    if (e->phase < 2)
        (void)snprintf(text, sizeof text,
                       "%s block %u round %d, root %d, %.3g MB, %.3g ms", e->label,
                       e->block, e->round, e->peer, 1e-6 * (double)e->bytes,
                       1e3 * (e->end_s - e->called_s));
    else
        (void)snprintf(text, sizeof text, "%s, %.3g MB, %.3g ms", e->label,
                       1e-6 * (double)e->bytes, 1e3 * (e->end_s - e->called_s));
    return json_pack("[i, f, f, f, s]", kind_of(e), rounded(e->called_s - w->begin_s),
                     rounded(e->begin_s - w->begin_s), rounded(e->end_s - w->begin_s),
                     text);
}

static bool shows(const struct window *w, const struct trace_event *e)
{
    return e->kind == TRACE_OPERATION && e->called_s >= w->begin_s &&
           e->end_s <= w->end_s;
}

static int by_call(const void *a, const void *b)
{
    double x = (*(const struct trace_event *const *)a)->called_s;
    double y = (*(const struct trace_event *const *)b)->called_s;

    return x < y ? -1 : x > y;
}

/* Each in the first row that is free; later ones than there is room for are left out. */
static json_t *operation_rows(const struct window *w)
{
    const struct trace_event *list[MOST_OPERATIONS];
    double free_from[MOST_ROWS];
    json_t *out = json_array();
    size_t n = 0;

    for (size_t i = 0; i < w->rank->n && n < MOST_OPERATIONS; i++)
        if (shows(w, &w->rank->events[i]))
            list[n++] = &w->rank->events[i];
    qsort(list, n, sizeof *list, by_call);
    for (size_t i = 0; i < n; i++) {
        size_t row = 0;

        while (row < json_array_size(out) && free_from[row] > list[i]->called_s)
            row++;
        if (row == MOST_ROWS)
            continue;
        if (row == json_array_size(out))
            (void)json_array_append_new(out, json_array());
        (void)json_array_append_new(json_array_get(out, row), describe(w, list[i]));
        free_from[row] = list[i]->end_s;
    }
    return out;
}

static json_t *rank_json(const struct timeline *t, size_t rank, struct window w)
{
    json_t *workers = json_array();

    w.rank = &t->ranks[rank];
    for (int i = 0; i < t->workers && i < MOST_WORKERS; i++)
        (void)json_array_append_new(workers, worker_tasks(&w, TRACE_WORKER + i));
    return json_pack("{s:i, s:o, s:o}", "rank", (int)rank, "workers", workers,
                     "operations", operation_rows(&w));
}

/* The newest step, from its first begin on any rank to its last end. */
static uint64_t find_step(const struct timeline *t, struct window *w)
{
    uint64_t step = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t r = 0; r < t->n_ranks; r++)
            for (size_t i = 0; i < t->ranks[r].n; i++) {
                const struct trace_event *e = &t->ranks[r].events[i];

                if (e->kind != TRACE_STEP)
                    continue;
                if (pass == 0 && e->place > step)
                    step = e->place;
                if (pass == 1 && e->place == step) {
                    w->begin_s = fmin(w->begin_s, e->begin_s);
                    w->end_s = fmax(w->end_s, e->end_s);
                }
            }
    return step;
}

enum status timeline_write_step(const char *path, const struct timeline *t)
{
    struct window w = {.begin_s = (double)INFINITY, .end_s = 0};
    uint64_t step = find_step(t, &w);
    json_t *ranks = json_array();
    enum status st;

    for (size_t r = 0; r < t->n_ranks && r < MOST_RANKS; r++)
        (void)json_array_append_new(ranks, rank_json(t, r, w));
    json_t *root =
        json_pack("{s:I, s:f, s:o}", "step", (json_int_t)step, "length_s",
                  w.end_s > w.begin_s ? w.end_s - w.begin_s : 0.0, "ranks", ranks);
    char *text = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;

    json_decref(root);
    st = text ? file_write_all(path, text, strlen(text))
              : fail(ST_NOMEM, "%s: no memory for the timeline", path);
    free(text);
    return st;
}
