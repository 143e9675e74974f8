/* SPDX-License-Identifier: MIT */
/* Paraver's three files. Ranks are its tasks, hosts its nodes; each thread has a
 * processor of its own, since threads of ours are not bound. All numbers of objects begin
 * with 1. */
#include "report/timeline.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/files.h"

/* Types of events. */
enum {
    TYPE_TASK = 90000001,
    TYPE_STEP = 90000002,
    TYPE_IN_FLIGHT = 90000010, /* + phase */
    PHASES = 3
};
enum { STATE_IDLE = 0, STATE_RUNNING = 1 };
enum { MOST_LABELS = 256 };

struct paraver {
    const struct timeline *t;
    struct timeline_lines lines;
    double origin_s;
    long long length_ns;
    int lanes; /* threads of a rank */
    const char *labels[MOST_LABELS];
    int n_labels;
};

static long long since(const struct paraver *p, double s)
{
    return llround((s - p->origin_s) * 1e9);
}

/* From 1; what is beyond the room shares the last number. */
static int number_of_label(struct paraver *p, const char *label)
{
    for (int i = 0; i < p->n_labels; i++)
        if (!strcmp(p->labels[i], label))
            return i + 1;
    if (p->n_labels < MOST_LABELS)
        p->labels[p->n_labels++] = label;
    return p->n_labels;
}

/* "cpu:application:task:thread" */
static const char *object(const struct paraver *p, size_t rank, int lane, char buf[48])
{
    (void)snprintf(buf, 48, "%zu:1:%zu:%d", rank * (size_t)p->lanes + (size_t)lane + 1,
                   rank + 1, lane + 1);
    return buf;
}

static void add_value(struct paraver *p, size_t rank, int lane, double s, int type,
                      long long value)
{
    char who[48];
    long long ns = since(p, s);

    timeline_add_line(&p->lines, ns, "2:%s:%lld:%d:%lld", object(p, rank, lane, who), ns,
                      type, value);
}

static void add_state(struct paraver *p, size_t rank, int lane, long long from,
                      long long to, int state)
{
    char who[48];

    if (to > from)
        timeline_add_line(&p->lines, from, "1:%s:%lld:%lld:%d",
                          object(p, rank, lane, who), from, to, state);
}

/* A worker runs or is idle, all the time. */
static void add_worker(struct paraver *p, size_t rank, int lane)
{
    const struct timeline_rank *r = &p->t->ranks[rank];
    long long at = 0;

    for (size_t i = 0; i < r->n; i++) {
        const struct trace_event *e = &r->events[i];

        if (e->kind != TRACE_TASK || e->lane != lane)
            continue;
        long long begin = since(p, e->begin_s);
        long long end = since(p, e->end_s);

        add_state(p, rank, lane, at, begin, STATE_IDLE);
        add_state(p, rank, lane, begin, end, STATE_RUNNING);
        add_value(p, rank, lane, e->begin_s, TYPE_TASK, number_of_label(p, e->label));
        add_value(p, rank, lane, e->end_s, TYPE_TASK, 0);
        at = end;
    }
    add_state(p, rank, lane, at, p->length_ns, STATE_IDLE);
}

static void add_steps(struct paraver *p, size_t rank)
{
    const struct timeline_rank *r = &p->t->ranks[rank];

    for (size_t i = 0; i < r->n; i++)
        if (r->events[i].kind == TRACE_STEP) {
            add_value(p, rank, TRACE_CREATOR, r->events[i].begin_s, TYPE_STEP,
                      (long long)r->events[i].place);
            add_value(p, rank, TRACE_CREATOR, r->events[i].end_s, TYPE_STEP, 0);
        }
}

struct change {
    double s;
    int by;
};

static int by_time(const void *a, const void *b)
{
    double x = ((const struct change *)a)->s;
    double y = ((const struct change *)b)->s;

    return x < y ? -1 : x > y;
}

/* Operations overlap: Paraver gets how many of a phase are under way. */
static void add_in_flight(struct paraver *p, size_t rank, int phase)
{
    const struct timeline_rank *r = &p->t->ranks[rank];
    struct change *changes = malloc((2 * r->n + 1) * sizeof *changes);
    long long open = 0;
    size_t n = 0;

    if (!changes) {
        p->lines.no_memory = true;
        return;
    }
    for (size_t i = 0; i < r->n; i++) {
        const struct trace_event *e = &r->events[i];

        if (e->kind != TRACE_OPERATION || e->phase != phase)
            continue;
        changes[n++] = (struct change){e->called_s, 1};
        changes[n++] = (struct change){e->end_s, -1};
    }
    qsort(changes, n, sizeof *changes, by_time);
    for (size_t i = 0; i < n; i++) {
        open += changes[i].by;
        add_value(p, rank, TRACE_COMMUNICATION, changes[i].s, TYPE_IN_FLIGHT + phase,
                  open);
    }
    free(changes);
}

static enum status add_messages(struct paraver *p)
{
    struct timeline_message *messages;
    size_t n;
    enum status st = timeline_match(p->t, &messages, &n);

    for (size_t i = 0; st == ST_OK && i < n; i++) {
        const struct timeline_message *m = &messages[i];
        char from[48], to[48];
        long long sent = since(p, m->send->begin_s);
        long long posted = since(p, m->receive->begin_s);
        long long received = since(p, m->receive->end_s);

        /* No message arrives before it leaves: clocks are known to some microseconds. */
        if (received < sent)
            received = sent;
        timeline_add_line(&p->lines, sent, "3:%s:%lld:%lld:%s:%lld:%lld:%llu:%u",
                          object(p, m->from, TRACE_COMMUNICATION, from), sent, sent,
                          object(p, m->to, TRACE_COMMUNICATION, to), posted, received,
                          (unsigned long long)m->send->bytes, m->send->block);
    }
    free(messages);
    return st;
}

static int count_hosts(const struct timeline *t)
{
    int hosts = 0;

    for (size_t r = 0; r < t->n_ranks; r++)
        hosts = t->ranks[r].host >= hosts ? t->ranks[r].host + 1 : hosts;
    return hosts;
}

static void put_header(FILE *f, const struct paraver *p)
{
    int hosts = count_hosts(p->t);
    char date[32];
    time_t now = time(NULL);
    struct tm tm;

    localtime_r(&now, &tm);
    (void)strftime(date, sizeof date, "%d/%m/%y at %H:%M", &tm);
    fprintf(f, "#Paraver (%s):%lld_ns:%d(", date, p->length_ns, hosts);
    for (int h = 0; h < hosts; h++) {
        int threads = 0;

        for (size_t r = 0; r < p->t->n_ranks; r++)
            threads += p->t->ranks[r].host == h ? p->lanes : 0;
        fprintf(f, "%s%d", h ? "," : "", threads);
    }
    fprintf(f, "):1:%zu(", p->t->n_ranks);
    for (size_t r = 0; r < p->t->n_ranks; r++)
        fprintf(f, "%s%d:%d", r ? "," : "", p->lanes, p->t->ranks[r].host + 1);
    fputs(")\n", f);
}

static void put_prv(FILE *f, const struct paraver *p)
{
    put_header(f, p);
    for (size_t i = 0; i < p->lines.n; i++)
        fprintf(f, "%s\n", p->lines.text + p->lines.lines[i].at);
}

static void put_pcf(FILE *f, const struct paraver *p)
{
    static const char *const phases[PHASES] = {"Reductions", "Returns",
                                               "Other operations"};

    fputs("DEFAULT_OPTIONS\n\nLEVEL               THREAD\nUNITS               NANOSEC\n\n"
          "DEFAULT_SEMANTIC\n\nTHREAD_FUNC         State As Is\n\n"
          "STATES\n0    Idle\n1    Running\n\n"
          "STATES_COLOR\n0    {117,195,255}\n1    {0,0,255}\n\n",
          f);
    fprintf(f, "EVENT_TYPE\n0    %d    Task\nVALUES\n0    End\n", TYPE_TASK);
    for (int i = 0; i < p->n_labels; i++)
        fprintf(f, "%d    %s\n", i + 1, p->labels[i]);
    fprintf(f, "\nEVENT_TYPE\n0    %d    Step\n", TYPE_STEP);
    for (int i = 0; i < PHASES; i++)
        fprintf(f, "\nEVENT_TYPE\n0    %d    %s in flight\n", TYPE_IN_FLIGHT + i,
                phases[i]);
}

static void put_row(FILE *f, const struct paraver *p)
{
    size_t n = p->t->n_ranks * (size_t)p->lanes;
    int hosts = count_hosts(p->t);

    fprintf(f, "LEVEL NODE SIZE %d\n", hosts);
    for (int h = 0; h < hosts; h++)
        fprintf(f, "host %d\n", h);
    fprintf(f, "\nLEVEL THREAD SIZE %zu\n", n);
    for (size_t r = 0; r < p->t->n_ranks; r++)
        for (int lane = 0; lane < p->lanes; lane++)
            if (lane < TRACE_WORKER)
                fprintf(f, "rank %zu %s\n", r,
                        lane == TRACE_COMMUNICATION ? "communication" : "training loop");
            else
                fprintf(f, "rank %zu worker %d\n", r, lane - TRACE_WORKER);
}

static enum status write_file(const char *base, const char *end, const struct paraver *p,
                              void (*put)(FILE *f, const struct paraver *p))
{
    char path[PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    enum status st;

    if (!f)
        return fail(ST_NOMEM, "%s%s: no memory for the timeline", base, end);
    put(f, p);
    st = fclose(f) == 0 ? ST_OK : fail(ST_NOMEM, "%s%s: no memory", base, end);
    if (st == ST_OK && snprintf(path, sizeof path, "%s%s", base, end) >= (int)sizeof path)
        st = fail(ST_IO, "%s: path too long", base);
    if (st == ST_OK)
        st = file_write_all(path, text, bytes);
    free(text);
    return st;
}

enum status timeline_write_paraver(const char *base, const struct timeline *t)
{
    struct paraver p = {.t = t, .lanes = TRACE_WORKER + t->workers};
    double end_s;

    if (timeline_extent(t, &p.origin_s, &end_s))
        p.length_ns = since(&p, end_s);
    for (size_t r = 0; r < t->n_ranks; r++) {
        for (int w = 0; w < t->workers; w++)
            add_worker(&p, r, TRACE_WORKER + w);
        add_steps(&p, r);
        for (int phase = 0; phase < PHASES; phase++)
            add_in_flight(&p, r, phase);
    }
    enum status st = add_messages(&p);

    timeline_sort(&p.lines);
    if (st == ST_OK && p.lines.no_memory)
        st = fail(ST_NOMEM, "%s: no memory for the timeline", base);
    if (st == ST_OK)
        st = write_file(base, ".prv", &p, put_prv);
    if (st == ST_OK)
        st = write_file(base, ".pcf", &p, put_pcf);
    if (st == ST_OK)
        st = write_file(base, ".row", &p, put_row);
    timeline_release(&p.lines);
    return st;
}
