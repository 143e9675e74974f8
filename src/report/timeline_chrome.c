/* SPDX-License-Identifier: MIT */
/* Chrome's trace events, one a line, by time. Slices of a thread nest; what overlaps is
 * an asynchronous event with an id of its own. */
#include "report/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/files.h"

struct chrome {
    struct timeline_lines lines;
    double origin_s;
    unsigned long long ids;
};

static long long since(const struct chrome *c, double s)
{
    return llround((s - c->origin_s) * 1e9);
}

static void name_threads(struct chrome *c, const struct timeline *t)
{
    for (size_t r = 0; r < t->n_ranks; r++) {
        timeline_add_line(&c->lines, 0,
                          "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%zu,\"tid\":0,"
                          "\"ts\":0,\"args\":{\"name\":\"rank %zu (host %d)\"}}",
                          r, r, t->ranks[r].host);
        for (int lane = 0; lane < TRACE_WORKER + t->workers; lane++) {
            char name[32];

            (void)snprintf(name, sizeof name, "worker %d", lane - TRACE_WORKER);
            timeline_add_line(&c->lines, 0,
                              "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%zu,"
                              "\"tid\":%d,\"ts\":0,\"args\":{\"name\":\"%s\"}}",
                              r, lane,
                              lane == TRACE_COMMUNICATION ? "communication"
                              : lane == TRACE_CREATOR     ? "training loop"
                                                          : name);
        }
    }
}

static void add_slice(struct chrome *c, size_t rank, const struct trace_event *e)
{
    char name[48];
    long long begin = since(c, e->begin_s);
    long long length = since(c, e->end_s) - begin;

    if (e->kind == TRACE_STEP)
        (void)snprintf(name, sizeof name, "step %llu", (unsigned long long)e->place);
    else
        (void)snprintf(name, sizeof name, "%s", e->label);
    timeline_add_line(&c->lines, begin,
                      "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%zu,"
                      "\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
                      name, e->kind == TRACE_STEP ? "step" : "task", rank, e->lane,
                      1e-3 * (double)begin, 1e-3 * (double)length);
}

/* One of the points of an asynchronous event: 'b' its begin, 'n' on its way, 'e' its end.
 */
static void add_point(struct chrome *c, size_t rank, char point, unsigned long long id,
                      const char *cat, const char *name, double s, const char *args)
{
    long long ns = since(c, s);

    timeline_add_line(&c->lines, ns,
                      "{\"ph\":\"%c\",\"id\":%llu,\"cat\":\"%s\",\"name\":\"%s\","
                      "\"pid\":%zu,\"tid\":0,\"ts\":%.3f,\"args\":{%s}}",
                      point, id, cat, name, rank, 1e-3 * (double)ns, args);
}

static void add_operation(struct chrome *c, size_t rank, const struct trace_event *e)
{
    unsigned long long id = ++c->ids;
    char args[128];

    if (e->phase < 2)
        (void)snprintf(args, sizeof args,
                       "\"block\":%u,\"round\":%d,\"root\":%d,\"bytes\":%llu", e->block,
                       e->round, e->peer, (unsigned long long)e->bytes);
    else
        (void)snprintf(args, sizeof args, "\"bytes\":%llu", (unsigned long long)e->bytes);
    add_point(c, rank, 'b', id, "operation", e->label, e->called_s, args);
    add_point(c, rank, 'n', id, "operation", e->label, e->begin_s, "\"moves\":true");
    add_point(c, rank, 'e', id, "operation", e->label, e->end_s, "");
}

static void add_message(struct chrome *c, size_t rank, const struct trace_event *e)
{
    unsigned long long id = ++c->ids;
    char name[48];
    char args[128];

    (void)snprintf(name, sizeof name, "%s %s %d", e->label,
                   e->kind == TRACE_SEND ? "to" : "from", e->peer);
    (void)snprintf(args, sizeof args,
                   "\"block\":%u,\"round\":%d,\"peer\":%d,\"bytes\":%llu", e->block,
                   e->round, e->peer, (unsigned long long)e->bytes);
    add_point(c, rank, 'b', id, "message", name, e->begin_s, args);
    add_point(c, rank, 'e', id, "message", name, e->end_s, "");
}

static void add_rank(struct chrome *c, size_t rank, const struct timeline_rank *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct trace_event *e = &r->events[i];

        if (e->kind == TRACE_STEP || e->kind == TRACE_TASK)
            add_slice(c, rank, e);
        else if (e->kind == TRACE_OPERATION)
            add_operation(c, rank, e);
        else
            add_message(c, rank, e);
    }
}

static enum status write_lines(const char *path, const struct timeline_lines *l)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = l->no_memory ? NULL : open_memstream(&text, &bytes);
    enum status st;

    if (!f)
        return fail(ST_NOMEM, "%s: no memory for the timeline", path);
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", f);
    for (size_t i = 0; i < l->n; i++)
        fprintf(f, "%s%s", i ? ",\n" : "", l->text + l->lines[i].at);
    fputs("\n]}\n", f);
    st = fclose(f) == 0 ? file_write_all(path, text, bytes)
                        : fail(ST_NOMEM, "%s: no memory for the timeline", path);
    free(text);
    return st;
}

enum status timeline_write_chrome(const char *path, const struct timeline *t)
{
    struct chrome c = {.origin_s = 0};
    double end_s;

    if (!timeline_extent(t, &c.origin_s, &end_s))
        c.origin_s = 0;
    name_threads(&c, t);
    for (size_t r = 0; r < t->n_ranks; r++)
        add_rank(&c, r, &t->ranks[r]);
    timeline_sort(&c.lines);
    enum status st = write_lines(path, &c.lines);

    timeline_release(&c.lines);
    return st;
}
