/* fault.h - failures on demand, for tests. Built in with -DWEFT_FAULTS=ON only.
 *
 * WEFT_FAULT=POINT:RANK:NTH[:ACTION] lets one rank fail when it passes a named point for
 * the NTH time (from 1). Actions:
 *   kill   the process gets SIGKILL (without an action)
 *   stop   it gets SIGSTOP
 *   exit   it exits with 0, as a program that has lost its way
 *   wait   it sleeps FAULT_WAIT_S seconds
 *   fail   the point fails as if the system had refused it
 *   spoil  a number is spoiled there
 * A setting that cannot be read ends the program: a test must not pass because of it.
 */
#ifndef WEFT_BASE_FAULT_H
#define WEFT_BASE_FAULT_H

#include "base/status.h"

/* Every point there is, in about the order in which a run passes them. */
#define FAULT_POINTS                                                                     \
    "prepare", "start", "load", "data", "forward", "backward", "reduce", "agree",        \
        "update", "return", "weights", "evaluate", "save-begin", "save-copy",            \
        "save-write", "save-sync", "save-manifest", "save-rename", "save-latest",        \
        "prune", "sample", "end", "tokenize"

enum { FAULT_WAIT_S = 4 };

enum fault { FAULT_NONE, FAULT_FAIL, FAULT_SPOIL };

#ifdef WEFT_FAULTS
/* What the caller shall do about it; killed, stopped or asleep it is in here. From any
 * thread; `point` is one of FAULT_POINTS. */
enum fault fault_at(const char *point);
#else
static inline enum fault fault_at(const char *point)
{
    (void)point;
    return FAULT_NONE;
}
#endif

/* ST_IO when the point shall fail, naming it and `path`. */
MUST_USE enum status fault_status(const char *point, const char *path);

#endif
