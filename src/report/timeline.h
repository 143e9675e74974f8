/* timeline.h - what the ranks recorded (base/trace.h), for those who look at pictures of
 * it. Three forms, in one folder:
 *
 *   trace.json                   Chrome's trace events: Perfetto, chrome://tracing,
 *                                speedscope. Tasks and steps are slices of their threads;
 *                                operations and messages, which overlap, are asynchronous
 *   trace.prv, .pcf, .row        Paraver
 *   step.json                    the newest step, thinned out, for weft report
 */
#ifndef WEFT_REPORT_TIMELINE_H
#define WEFT_REPORT_TIMELINE_H

#include <stddef.h>

#include "base/status.h"
#include "base/trace.h"

struct timeline_rank {
    const struct trace_event *events; /* by begin_s, on one clock with the other ranks */
    size_t n;
    int host; /* number of its host, from 0 */
};

struct timeline {
    const struct timeline_rank *ranks;
    size_t n_ranks;
    int workers; /* of each rank */
};

/* Writes all of them, each whole or not at all. The folder exists. */
MUST_USE enum status timeline_write(const char *folder, const struct timeline *t);

/* ---- for the forms' files ---- */

/* When the first thing began, and the last ended [s]; false when there is nothing. */
bool timeline_extent(const struct timeline *t, double *begin_s, double *end_s);

/* A line of text to be written at its time. */
struct timeline_line {
    long long ns;
    size_t at; /* into the text */
};
struct timeline_lines {
    char *text;
    size_t bytes, capacity;
    struct timeline_line *lines;
    size_t n, most;
    bool no_memory;
};
void timeline_add_line(struct timeline_lines *l, long long ns, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
/* By time, in the order of adding where that is equal. */
void timeline_sort(struct timeline_lines *l);
void timeline_release(struct timeline_lines *l);

struct timeline_message {
    const struct trace_event *send, *receive;
    size_t from, to; /* ranks */
};
/* Pairs the two ends of messages; ends without the other one are left out. The caller
 * frees *out. */
MUST_USE enum status timeline_match(const struct timeline *t,
                                    struct timeline_message **out, size_t *n);

MUST_USE enum status timeline_write_chrome(const char *path, const struct timeline *t);
/* base: path without .prv. */
MUST_USE enum status timeline_write_paraver(const char *base, const struct timeline *t);
MUST_USE enum status timeline_write_step(const char *path, const struct timeline *t);

#endif
