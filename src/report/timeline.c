/* SPDX-License-Identifier: MIT */
#include "report/timeline.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static double begin_of(const struct trace_event *e)
{
    return e->kind == TRACE_OPERATION ? e->called_s : e->begin_s;
}

bool timeline_extent(const struct timeline *t, double *begin_s, double *end_s)
{
    *begin_s = (double)INFINITY;
    *end_s = -(double)INFINITY;
    for (size_t r = 0; r < t->n_ranks; r++)
        for (size_t i = 0; i < t->ranks[r].n; i++) {
            *begin_s = fmin(*begin_s, begin_of(&t->ranks[r].events[i]));
            *end_s = fmax(*end_s, t->ranks[r].events[i].end_s);
        }
    return *begin_s <= *end_s;
}

/* ---- lines ---- */

/* Makes room for one more line of so many bytes. */
static bool make_room(struct timeline_lines *l, size_t bytes)
{
    if (l->bytes + bytes > l->capacity) {
        size_t capacity = max_size(2 * l->capacity, l->bytes + bytes + 65536);
        char *grown = realloc(l->text, capacity);

        if (!grown)
            return false;
        l->text = grown;
        l->capacity = capacity;
    }
    if (l->n == l->most) {
        size_t most = l->most ? 2 * l->most : 4096;
        struct timeline_line *grown = realloc(l->lines, most * sizeof *grown);

        if (!grown)
            return false;
        l->lines = grown;
        l->most = most;
    }
    return true;
}

void timeline_add_line(struct timeline_lines *l, long long ns, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    require(n >= 0 && (size_t)n < sizeof line);
    if (l->no_memory || !make_room(l, (size_t)n + 1)) {
        l->no_memory = true;
        return;
    }
    memcpy(l->text + l->bytes, line, (size_t)n + 1);
    l->lines[l->n++] = (struct timeline_line){ns, l->bytes};
    l->bytes += (size_t)n + 1;
}

static int by_time(const void *a, const void *b)
{
    const struct timeline_line *x = a;
    const struct timeline_line *y = b;

    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

void timeline_sort(struct timeline_lines *l)
{
    if (l->n > 0)
        qsort(l->lines, l->n, sizeof *l->lines, by_time);
}

void timeline_release(struct timeline_lines *l)
{
    free(l->text);
    free(l->lines);
    *l = (struct timeline_lines){0};
}

/* ---- messages ---- */

struct end {
    const struct trace_event *e;
    int from, to;
};

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* What is the same at both ends. */
static int by_message(const void *a, const void *b)
{
    const struct end *x = a;
    const struct end *y = b;
    int c = compare((uint64_t)x->from, (uint64_t)y->from);

    c = c ? c : compare((uint64_t)x->to, (uint64_t)y->to);
    c = c ? c : compare(x->e->phase, y->e->phase);
    c = c ? c : compare(x->e->turn, y->e->turn);
    c = c ? c : compare(x->e->block, y->e->block);
    c = c ? c : compare((uint64_t)x->e->round, (uint64_t)y->e->round);
    return c ? c : compare(x->e->place, y->e->place);
}

static size_t collect(const struct timeline *t, enum trace_kind kind, struct end *out)
{
    size_t n = 0;

    for (size_t r = 0; r < t->n_ranks; r++)
        for (size_t i = 0; i < t->ranks[r].n; i++) {
            const struct trace_event *e = &t->ranks[r].events[i];

            if (e->kind != kind)
                continue;
            if (out)
                out[n] = kind == TRACE_SEND ? (struct end){e, (int)r, e->peer}
                                            : (struct end){e, e->peer, (int)r};
            n++;
        }
    if (out)
        qsort(out, n, sizeof *out, by_message);
    return n;
}

enum status timeline_match(const struct timeline *t, struct timeline_message **out,
                           size_t *n)
{
    size_t sends = collect(t, TRACE_SEND, NULL);
    size_t receives = collect(t, TRACE_RECEIVE, NULL);
    struct end *sent = NULL, *received = NULL;
    enum status st = memory_alloc(sends + 1, sizeof *sent, "timeline", &sent);

    *n = 0;
    *out = NULL;
    if (st == ST_OK)
        st = memory_alloc(receives + 1, sizeof *received, "timeline", &received);
    if (st == ST_OK)
        st = memory_alloc(min_size(sends, receives) + 1, sizeof **out, "timeline", out);
    if (st == ST_OK) {
        collect(t, TRACE_SEND, sent);
        collect(t, TRACE_RECEIVE, received);
        for (size_t i = 0, j = 0; i < sends && j < receives;) {
            int c = by_message(&sent[i], &received[j]);

            if (c == 0)
                (*out)[(*n)++] = (struct timeline_message){
                    sent[i].e, received[j].e, (size_t)sent[i].from, (size_t)sent[i].to};
            i += c <= 0;
            j += c >= 0;
        }
    }
    free(sent);
    free(received);
    return st;
}

/* ---- the folder ---- */

enum status timeline_write(const char *folder, const struct timeline *t)
{
    char path[PATH_MAX];
    enum status st = ST_OK;

    if (snprintf(path, sizeof path, "%s/trace.json", folder) >= (int)sizeof path)
        return fail(ST_IO, "%s: path too long", folder);
    st = timeline_write_chrome(path, t);
    (void)snprintf(path, sizeof path, "%s/trace", folder);
    if (st == ST_OK)
        st = timeline_write_paraver(path, t);
    (void)snprintf(path, sizeof path, "%s/step.json", folder);
    return st == ST_OK ? timeline_write_step(path, t) : st;
}
