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

/* A wrapped line could not be redrawn in place. The escape at its head takes no room. */
static size_t cut_to_terminal(size_t bytes)
{
    struct winsize size;
    size_t room;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return bytes;
    room = strlen(redraw) + size.ws_col - 1;
    return bytes < room ? bytes : room;
}

static void draw(struct progress *p, double done, const char *extra, bool last)
{
    char line[512];
    char eta[16];
    double elapsed = clock_s() - p->start_s;
    double rate = elapsed > 0 ? (done - p->first) / elapsed : 0;
    size_t n = 0;

    n += (size_t)snprintf(line, sizeof line, "%s%s ",
                          p->live ? redraw : "weft: ", p->label);
    if (p->total > 0)
        n += (size_t)snprintf(line + n, sizeof line - n, "%.6g/%.6g %s (%.0f %%)", done,
                              p->total, p->unit, 100 * done / p->total);
    else
        n += (size_t)snprintf(line + n, sizeof line - n, "%.6g %s", done, p->unit);
    if (extra && n < sizeof line)
        n += (size_t)snprintf(line + n, sizeof line - n, "  %s", extra);
    if (n >= sizeof line)
        n = sizeof line - 1;
    if (last)
        n += (size_t)snprintf(line + n, sizeof line - n, "  %.3g %s/s, took %s", rate,
                              p->unit, format_duration(elapsed, eta, sizeof eta));
    else if (p->total > 0 && rate > 0)
        n += (size_t)snprintf(line + n, sizeof line - n, "  ETA %s",
                              format_duration((p->total - done) / rate, eta, sizeof eta));
    if (n >= sizeof line - 1)
        n = sizeof line - 2;
    if (p->live)
        n = cut_to_terminal(n);
    if (!p->live || last)
        line[n++] = '\n';
    atomic_store(&line_is_open, p->live && !last);
    ssize_t ignored = write(STDERR_FILENO, line, n);
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
