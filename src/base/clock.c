/* SPDX-License-Identifier: MIT */
#include "base/clock.h"

#include <time.h>

static double read_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_s(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

double clock_thread_cpu_s(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double clock_process_cpu_s(void)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

void clock_nap_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};

    nanosleep(&t, NULL);
}
