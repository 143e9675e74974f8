/* SPDX-License-Identifier: MIT */
#include "engine/stop.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"

static volatile sig_atomic_t signalled;
static double watch_begin_s;

static void on_signal(int number)
{
    signalled = 1;
    if (number == SIGINT)
        (void)signal(SIGINT, SIG_DFL);
}

void stop_watch(void)
{
    static const int numbers[] = {SIGUSR1, SIGTERM, SIGINT};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    watch_begin_s = clock_s();
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &action, NULL);
}

bool stop_signalled(void)
{
    return signalled;
}

double stop_elapsed_s(void)
{
    return clock_s() - watch_begin_s;
}

static enum status bad_limit(const char *option, const char *text)
{
    return fail(ST_USAGE, "--%s: found '%s', needs a time such as 23h50m, 90m, 45s",
                option, text);
}

enum status stop_parse_limit(const char *option, const char *text, double *seconds)
{
    double total = 0;
    const char *p = text;

    do {
        char *end;
        unsigned long n = strtoul(p, &end, 10);

        if (!isdigit((unsigned char)*p) || n > 100000000)
            return bad_limit(option, text);
        if (*end == 'h')
            total += 3600 * (double)n;
        else if (*end == 'm')
            total += 60 * (double)n;
        else if (*end == 's' || (*end == 0 && p == text))
            total += (double)n;
        else
            return bad_limit(option, text);
        p = *end ? end + 1 : end;
    } while (*p);
    *seconds = total;
    return total > 0 ? ST_OK : bad_limit(option, text);
}
