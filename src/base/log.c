/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/progress.h"

static int own_rank = 0;
static int log_size = 1;
static bool log_quiet = false;

void log_set_rank(int rank, int size)
{
    own_rank = rank;
    log_size = size;
}

int log_rank(void)
{
    return own_rank;
}

void log_set_quiet(bool quiet)
{
    log_quiet = quiet;
}

static void emit(const char *level, bool with_rank, const char *fmt, va_list ap)
{
    char line[2048];
    int n = with_rank && log_size > 1
                ? snprintf(line, sizeof line, "weft: rank %d: %s", own_rank, level)
                : snprintf(line, sizeof line, "weft: %s", level);
    size_t used = (size_t)n;
    int body = vsnprintf(line + used, sizeof line - used - 1, fmt, ap);

    if (body > 0)
        used += (size_t)body;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used++] = '\n';
    progress_clear_line();
    /* A failing stderr leaves nobody to tell. */
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}

void log_info(const char *fmt, ...)
{
    va_list ap;

    if (log_quiet || own_rank != 0)
        return;
    va_start(ap, fmt);
    emit("", false, fmt, ap);
    va_end(ap);
}

void log_warn(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    emit("warning: ", true, fmt, ap);
    va_end(ap);
}

void log_error(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    emit("error: ", true, fmt, ap);
    va_end(ap);
}
