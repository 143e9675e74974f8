/* SPDX-License-Identifier: MIT */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

static _Thread_local char last_error[1024];
static void (*exit_hook)(int exit_code);

enum status fail(enum status code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(last_error, sizeof last_error, fmt, ap);
    va_end(ap);
    return code;
}

const char *fail_text(void)
{
    return last_error;
}

int status_exit_code(enum status st)
{
    switch (st) {
    case ST_OK:
        return 0;
    case ST_STOPPED:
        return 4;
    case ST_USAGE:
        return 2;
    case ST_IO:
    case ST_FORMAT:
    case ST_NOMEM:
        return 1;
    case ST_NUMERIC:
        return 3;
    case ST_BUG:
        break;
    }
    return 70;
}

void bug_on_exit(void (*hook)(int exit_code))
{
    exit_hook = hook;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_error("bug at %s:%d: %s", file, line, text);
    if (exit_hook)
        exit_hook(70);
    _Exit(70);
}
