/* SPDX-License-Identifier: MIT */
#include "base/progress.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

static const double plain_period_s = 10;
static const double live_period_s = 0.1;

static const char redraw[] = "\r\033[K";

/* True while a live line without a final newline stands on the terminal. */
static atomic_bool line_is_open;

/* https://no-color.org: set and not empty. */
static bool wants_no_color(void)
{
    const char *set = getenv("NO_COLOR");

    return set && *set;
}

static bool can_redraw(void)
{
    const char *term = getenv("TERM");

    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

const char *format_duration(double seconds, char *buf, size_t buf_bytes)
{
    const double longest = 1e9; /* thirty years: the clock or the rate is wrong */
    long s = seconds > 0 ? (long)((seconds < longest ? seconds : longest) + 0.5) : 0;
    int n;

    if (s >= 3600)
        n = snprintf(buf, buf_bytes, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else if (s >= 60)
        n = snprintf(buf, buf_bytes, "%ldm%02lds", s / 60, s % 60);
    else
        n = snprintf(buf, buf_bytes, "%lds", s);
    return n > 0 && (size_t)n < buf_bytes ? buf : "?";
}

void progress_clear_line(void)
{
    if (atomic_exchange(&line_is_open, false)) {
        ssize_t ignored = write(STDERR_FILENO, "\r\033[K", 4);
        (void)ignored;
    }
}

/* A wrapped line could not be redrawn in place: fields that do not fit are left out. */
static size_t cut_to_terminal(const char *text, size_t bytes)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return bytes;
    size_t room = size.ws_col - 1;

    if (bytes <= room)
        return bytes;
    for (size_t n = room; n > 0; n--)
        if (text[n] == ' ' && text[n + 1] == ' ')
            return n;
    return room;
}

/* "train 312/850 steps (37 %)  ETA 1m22s  ...", without a final newline. */
static size_t compose(const struct progress *p, double done, const char *extra, bool last,
                      char *line, size_t line_bytes)
{
    double elapsed = clock_s() - p->start_s;
    double rate = elapsed > 0 ? (done - p->first) / elapsed : 0;
    char time[16];
    int n = snprintf(line, line_bytes, "%s %.6g", p->label, done);
    size_t at = (size_t)n;

#define ADD(...)                                                                         \
    do {                                                                                 \
        if (at < line_bytes)                                                             \
            at += (size_t)snprintf(line + at, line_bytes - at, __VA_ARGS__);             \
    } while (0)
    if (p->total > 0)
        ADD("/%.6g %s (%.0f %%)", p->total, p->unit, 100 * done / p->total);
    else
        ADD(" %s", p->unit);
    if (last)
        ADD("  %.3g %s/s, took %s", rate, p->unit,
            format_duration(elapsed, time, sizeof time));
    else if (p->total > 0 && rate > 0)
        ADD("  ETA %s", format_duration((p->total - done) / rate, time, sizeof time));
    if (extra)
        ADD("  %s", extra);
#undef ADD
    return at < line_bytes ? at : line_bytes - 1;
}

static void draw(struct progress *p, double done, const char *extra, bool last)
{
    char text[480];
    char line[sizeof text + 64];
    size_t n = compose(p, done, extra, last, text, sizeof text);
    const char *end = p->live && !last ? "" : "\n";

    if (p->live)
        n = cut_to_terminal(text, n);
    size_t label = strlen(p->label) < n ? strlen(p->label) : n;
    int bytes =
        snprintf(line, sizeof line, "%s%s%.*s%s%.*s%s",
                 p->live ? redraw : "weft: ", p->color ? "\033[1;36m" : "", (int)label,
                 text, p->color ? "\033[0m" : "", (int)(n - label), text + label, end);

    atomic_store(&line_is_open, p->live && !last);
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)bytes);
    (void)ignored;
}

void progress_begin(struct progress *p, const char *label, const char *unit, double total,
                    bool enabled)
{
    *p = (struct progress){.label = label,
                           .unit = unit,
                           .total = total,
                           .start_s = clock_s(),
                           .live = can_redraw(),
                           .enabled = enabled};
    p->color = p->live && !wants_no_color();
    p->last_s = p->start_s;
}

void progress_update(struct progress *p, double done, const char *extra)
{
    double now = clock_s();

    if (!p->enabled || now - p->last_s < (p->live ? live_period_s : plain_period_s))
        return;
    p->last_s = now;
    draw(p, done, extra, false);
}

void progress_end(struct progress *p, double done)
{
    if (p->enabled)
        draw(p, done, NULL, true);
}
