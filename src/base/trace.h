/* trace.h - what each thread of this process did and when: a ring of events a thread.
 *
 * Off until trace_start(), and then cheap: an event is one copy of 80 bytes into memory
 * of the thread's own. When a ring is full its oldest events are lost. Whoever knows what
 * happened records it: the task layer its bodies, the communication its operations and
 * messages, the training loop its steps. Times are those of clock_s().
 */
#ifndef WEFT_BASE_TRACE_H
#define WEFT_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum trace_kind {
    TRACE_STEP,      /* a training step; `place` is its number */
    TRACE_TASK,      /* a task body */
    TRACE_OPERATION, /* of the exchange, from its call to its end; `peer`: the block's
                        root */
    TRACE_SEND,      /* a message; `peer`: the other rank */
    TRACE_RECEIVE
};

/* Which thread: a lane in pictures. */
enum trace_lane { TRACE_COMMUNICATION, TRACE_CREATOR, TRACE_WORKER /* + its number */ };

struct trace_event {
    char label[24];
    double begin_s, end_s;
    double
        called_s; /* operation: a task asked for it; begin_s: its first message moved */
    uint64_t bytes;
    uint64_t place; /* message: its first element in the block */
    uint32_t block;
    uint32_t turn; /* how often the phase has been opened before, the same on all ranks */
    int32_t peer;
    int16_t lane;  /* filled in by trace_add() */
    uint8_t kind;  /* enum trace_kind */
    uint8_t phase; /* operation, message: 0 reduction, 1 return, 2 other */
    int32_t round;
};

/* Begins to record; each thread's ring has room for `events`. From one thread, once. */
void trace_start(size_t events);
/* Ends recording. What other threads are about to record may still come. */
void trace_stop(void);

extern atomic_bool trace_running;
static inline bool trace_is_on(void)
{
    return atomic_load_explicit(&trace_running, memory_order_relaxed);
}

/* The calling thread's lane, for all it records from now on. */
void trace_set_lane(int lane);
/* Records *e with that lane, under the label (cut to its room). Only while trace_is_on();
 * without memory for the ring the event is lost. */
void trace_add(const char *label, const struct trace_event *e);

/* Everything recorded, by begin_s. After trace_stop(), when no thread records any more.
 * Out      *whole_from_s: since then no thread has lost an event
 * Returns  ST_OK, ST_NOMEM
 * Memory   the caller frees *events; the rings are released */
MUST_USE enum status trace_take(struct trace_event **events, size_t *n,
                                double *whole_from_s);

#endif
