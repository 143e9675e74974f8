/* SPDX-License-Identifier: MIT */
#include "engine/text_out.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/utf8.h"

static enum status append(struct text_out *t, const char *bytes, size_t n)
{
    if (t->n + n > t->capacity) {
        size_t capacity = 2 * (t->n + n) + 64;
        char *held = realloc(t->held, capacity);

        if (!held)
            return fail(ST_NOMEM, "generate: no memory for %zu bytes of text", capacity);
        t->held = held;
        t->capacity = capacity;
    }
    memcpy(t->held + t->n, bytes, n);
    t->n += n;
    return ST_OK;
}

/* Where the first complete stop string begins; t->n: nowhere. */
static size_t find_stop(const struct text_out *t, const char *const *stops,
                        size_t n_stops)
{
    size_t first = t->n;

    for (size_t i = 0; i < n_stops; i++) {
        const char *at = memmem(t->held, t->n, stops[i], strlen(stops[i]));

        if (at)
            first = min_size(first, (size_t)(at - t->held));
    }
    return first;
}

/* Longest end of the held bytes with which a stop string begins. */
static size_t begun_stop(const struct text_out *t, const char *const *stops,
                         size_t n_stops)
{
    size_t longest = 0;

    for (size_t i = 0; i < n_stops; i++)
        for (size_t k = min_size(t->n, strlen(stops[i]) - 1); k > longest; k--)
            if (!memcmp(t->held + t->n - k, stops[i], k))
                longest = k;
    return longest;
}

static void pass_on(struct text_out *t, size_t n, text_sink sink, void *arg)
{
    if (n == 0)
        return;
    sink(arg, t->held, n);
    t->n -= n;
    memmove(t->held, t->held + n, t->n);
}

enum status text_out_add(struct text_out *t, const char *bytes, size_t n,
                         const char *const *stops, size_t n_stops, text_sink sink,
                         void *arg, bool *stopped)
{
    enum status st = n > 0 ? append(t, bytes, n) : ST_OK;

    *stopped = false;
    if (st != ST_OK || t->n == 0)
        return st;
    size_t stop = find_stop(t, stops, n_stops);

    if (stop < t->n) {
        *stopped = true;
        pass_on(t, stop, sink, arg);
        t->n = 0;
        return ST_OK;
    }
    size_t kept = t->n - begun_stop(t, stops, n_stops);
    pass_on(t, kept - utf8_unfinished(t->held, kept), sink, arg);
    return ST_OK;
}

void text_out_end(struct text_out *t, text_sink sink, void *arg)
{
    pass_on(t, t->n, sink, arg);
}

void text_out_release(struct text_out *t)
{
    free(t->held);
    *t = (struct text_out){0};
}
