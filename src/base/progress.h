/* progress.h - one live line on stderr for long work.
 *
 * On a terminal the line is redrawn in place at most ten times a second, in the width the
 * terminal has then: what does not fit is left out, field by field from the end. With
 * NO_COLOR set it has no colours. Elsewhere (and with TERM=dumb) a plain line is written
 * at most every 10 seconds and once at the end.
 * Only the thread that began a progress updates it; only one is alive at a time.
 */
#ifndef WEFT_BASE_PROGRESS_H
#define WEFT_BASE_PROGRESS_H

#include <stddef.h>
#include <stdbool.h>

struct progress {
    const char *label; /* borrowed: "tokenize" */
    const char *unit;  /* borrowed: "MB", "step" */
    double total;      /* in units; 0 when unknown */
    double first; /* units done before progress_begin (a resumed run); set by the owner */
    double start_s;
    double last_s;
    bool live;    /* stderr is a terminal that can redraw */
    bool color;   /* and shows colours, unless NO_COLOR is set */
    bool enabled; /* false: every call is a no-op (other ranks, --quiet) */
};

void progress_begin(struct progress *p, const char *label, const char *unit, double total,
                    bool enabled);
/* Shows `done` of total and the time left; `extra` (may be NULL) follows: fields with two
 * blanks between them, the most important first. */
void progress_update(struct progress *p, double done, const char *extra);
/* Last line: 100 %, total time and mean rate. */
void progress_end(struct progress *p, double done);

/* Wipes a live line so that a log line can take its place; used by log.c. */
void progress_clear_line(void);

/* "1h02m", "3m05s", "12s": time as people read it. buf >= 16 bytes. */
const char *format_duration(double seconds, char *buf, size_t buf_bytes);

#endif
