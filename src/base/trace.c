/* SPDX-License-Identifier: MIT */
#include "base/trace.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct ring {
    struct ring *next;
    size_t added; /* ever; the newest `capacity` of them are there */
    struct trace_event events[];
};

atomic_bool trace_running;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct ring *rings;
static size_t capacity;
static _Atomic unsigned generation; /* of rings: those of an earlier one are gone */

static _Thread_local struct {
    int lane;
    unsigned generation;
    struct ring *ring; /* NULL: none yet, or no memory for it */
} own = {.lane = TRACE_CREATOR};

void trace_start(size_t events)
{
    require(!trace_is_on() && events > 0);
    capacity = events;
    atomic_fetch_add(&generation, 1);
    atomic_store(&trace_running, true);
}

void trace_stop(void)
{
    atomic_store(&trace_running, false);
}

void trace_set_lane(int lane)
{
    own.lane = lane;
}

static struct ring *own_ring(void)
{
    if (own.generation == atomic_load_explicit(&generation, memory_order_relaxed))
        return own.ring;
    own.generation = atomic_load(&generation);
    own.ring = calloc(1, sizeof *own.ring + capacity * sizeof own.ring->events[0]);
    if (!own.ring)
        return NULL;
    pthread_mutex_lock(&lock);
    own.ring->next = rings;
    rings = own.ring;
    pthread_mutex_unlock(&lock);
    return own.ring;
}

void trace_add(const char *label, const struct trace_event *e)
{
    struct ring *r = own_ring();

    if (!r)
        return;
    struct trace_event *to = &r->events[r->added % capacity];

    *to = *e;
    to->lane = (int16_t)(e->kind == TRACE_STEP ? TRACE_CREATOR : own.lane);
    size_t length = strnlen(label, sizeof to->label - 1);

    memcpy(to->label, label, length);
    memset(to->label + length, 0, sizeof to->label - length);
    r->added++;
}

static int by_begin(const void *a, const void *b)
{
    double x = ((const struct trace_event *)a)->begin_s;
    double y = ((const struct trace_event *)b)->begin_s;

    return x < y ? -1 : x > y;
}

/* Copies a ring's events; returns their number. Its oldest one tells what was lost. */
static size_t take_ring(const struct ring *r, struct trace_event *out,
                        double *whole_from_s)
{
    size_t n = min_size(r->added, capacity);

    memcpy(out, r->events, n * sizeof *out);
    if (r->added > capacity)
        *whole_from_s = fmax(*whole_from_s, r->events[r->added % capacity].end_s);
    return n;
}

enum status trace_take(struct trace_event **events, size_t *n, double *whole_from_s)
{
    size_t most = 0;
    enum status st;

    require(!trace_is_on());
    *n = 0;
    *whole_from_s = -(double)INFINITY;
    for (const struct ring *r = rings; r; r = r->next)
        most += min_size(r->added, capacity);
    st = memory_alloc(most, sizeof **events, "trace", events);
    for (struct ring *next; rings; rings = next) {
        next = rings->next;
        if (st == ST_OK)
            *n += take_ring(rings, *events + *n, whole_from_s);
        free(rings);
    }
    atomic_fetch_add(&generation, 1);
    own.generation = atomic_load(&generation);
    own.ring = NULL;
    if (st == ST_OK)
        qsort(*events, *n, sizeof **events, by_begin);
    return st;
}
