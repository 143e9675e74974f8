/* SPDX-License-Identifier: MIT */
#include "task/meter.h"

/* The low bits of the word count running bodies, up to 8191: a rank has at most 4096
 * workers. The rest holds nanoseconds since the origin: 26 days. */
enum { COUNT_BITS = 13 };
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)

static uint64_t ticks(const struct meter *m, double now_s)
{
    double ns = (now_s - m->origin_s) * 1e9;

    return ns > 0 ? (uint64_t)ns : 0;
}

void meter_reset(struct meter *m, double now_s)
{
    m->origin_s = now_s;
    atomic_store(&m->word, 0);
    atomic_store(&m->idle_ns, 0);
    atomic_store(&m->finish_ns, 0);
}

void meter_window_open(struct meter *m, double now_s)
{
    uint64_t now = ticks(m, now_s);

    atomic_store(&m->finish_ns, now);
    atomic_store(&m->word, now << COUNT_BITS);
}

void meter_window_close(struct meter *m)
{
    uint64_t since = atomic_load(&m->word) >> COUNT_BITS;
    uint64_t finish = atomic_load(&m->finish_ns);

    /* Between the last body's end and the last event nothing ran. Counted once: the first
     * spawn of the next window closes this one again. */
    if (finish > since)
        atomic_fetch_add(&m->idle_ns, finish - since);
    atomic_store(&m->finish_ns, 0);
}

void meter_body_begin(struct meter *m, double now_s)
{
    uint64_t old = atomic_fetch_add_explicit(&m->word, 1, memory_order_relaxed);

    if ((old & COUNT_MASK) == 0) {
        uint64_t since = old >> COUNT_BITS;
        uint64_t now = ticks(m, now_s);

        if (now > since)
            atomic_fetch_add_explicit(&m->idle_ns, now - since, memory_order_relaxed);
    }
}

void meter_body_end(struct meter *m, double now_s)
{
    uint64_t old = atomic_load_explicit(&m->word, memory_order_relaxed);
    uint64_t next;

    do {
        next = (old & COUNT_MASK) == 1 ? ticks(m, now_s) << COUNT_BITS : old - 1;
    } while (!atomic_compare_exchange_weak_explicit(
        &m->word, &old, next, memory_order_relaxed, memory_order_relaxed));
}

void meter_event_finish(struct meter *m, double now_s)
{
    atomic_store(&m->finish_ns, ticks(m, now_s));
}

unsigned meter_running(const struct meter *m)
{
    return (unsigned)(atomic_load_explicit(&m->word, memory_order_relaxed) & COUNT_MASK);
}

double meter_idle_s(const struct meter *m)
{
    return 1e-9 * (double)atomic_load(&m->idle_ns);
}
