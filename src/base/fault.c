/* SPDX-License-Identifier: MIT */
#include "base/fault.h"

#ifdef WEFT_FAULTS

#    include <signal.h>
#    include <stdatomic.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <unistd.h>

#    include "base/clock.h"
#    include "base/log.h"

static const char *const points[] = {FAULT_POINTS, NULL};
static const char *const actions[] = {"kill", "stop",  "exit", "wait",
                                      "fail", "spoil", NULL};

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list && strcmp(word, *list) != 0)
        list++;
    return *list != NULL;
}

static enum fault act(const char *action)
{
    if (!strcmp(action, "kill"))
        raise(SIGKILL);
    else if (!strcmp(action, "stop"))
        kill(getpid(), SIGSTOP); /* all threads */
    else if (!strcmp(action, "exit"))
        _exit(0);
    else if (!strcmp(action, "wait"))
        clock_nap_us(1000000L * FAULT_WAIT_S);
    return !strcmp(action, "fail")    ? FAULT_FAIL
           : !strcmp(action, "spoil") ? FAULT_SPOIL
                                      : FAULT_NONE;
}

enum fault fault_at(const char *point)
{
    static atomic_long passed;
    const char *setting = getenv("WEFT_FAULT");
    char name[32], action[16] = "kill";
    int rank;
    long nth;

    if (!is_one_of(point, points))
        bug("no fault point '%s'", point);
    if (!setting)
        return FAULT_NONE;
    if (sscanf(setting, "%31[^:]:%d:%ld:%15s", name, &rank, &nth, action) < 3 ||
        !is_one_of(name, points) || !is_one_of(action, actions))
        bug("WEFT_FAULT: found '%s', needs POINT:RANK:NTH[:ACTION]", setting);
    if (strcmp(name, point) != 0 || rank != log_rank())
        return FAULT_NONE;
    return atomic_fetch_add(&passed, 1) + 1 == nth ? act(action) : FAULT_NONE;
}

#endif

enum status fault_status(const char *point, const char *path)
{
    return fault_at(point) == FAULT_FAIL
               ? fail(ST_IO, "%s: Input/output error (a test's fault at %s)", path, point)
               : ST_OK;
}
