/* team.h - private to task: what the back ends with workers share.
 *
 * `unfinished` counts spawned tasks whose body or event is still to come; when it is 0 a
 * window has ended and the records are free. The runtime may still be busy with a task
 * after that (releasing what depends on it), but touches nothing of ours.
 *
 * A seat is a place where one body at a time runs: what it took is written there without
 * a lock and added up by the creator when all is done.
 */
#ifndef WEFT_TASK_TEAM_H
#define WEFT_TASK_TEAM_H

#include "base/memory.h"
#include "task/meter.h"
#include "task/records.h"

struct team {
    int seats;
    int workers;  /* threads that run bodies */
    bool running; /* within task_run() */
    struct records records;
    uint64_t spawned; /* since task_run */
    _Alignas(CACHE_LINE) atomic_long unfinished;
    _Alignas(CACHE_LINE) struct meter meter;
};
extern struct team team;

/* Reads WEFT_TASK_SHUFFLE. */
void team_configure(void);

/* By task_run(), with nothing running. */
void team_open(int seats, int workers);
void team_close(void);

/* By the creator: the record of a task that is now unfinished, and its priority, from 0
 * to TASK_PRIORITY_MAX, shuffled if that is asked for. */
struct record *team_add(const struct task *t, int *priority);
/* By the creator, when `unfinished` is 0. */
void team_window_close(void);

/* Runs the body, records it in the trace and counts it at the seat; the record's part is
 * still to be taken. */
void team_run_body(struct record *r, int seat, struct task_event event);
/* Takes one part of the record and forgets it. True when that was a task's last part;
 * *left is then the number of tasks unfinished. */
bool team_take_part(struct record *r, long *left);

#endif
