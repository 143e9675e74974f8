/* SPDX-License-Identifier: MIT */
#include "engine/text_out.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Bytes that a first byte announces, and the range of the second one: tighter after a few
 * first bytes, which keeps out overlong forms, surrogates and what is above U+10FFFF. */
static size_t announced(unsigned char first, unsigned char *least, unsigned char *most)
{
    *least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    *most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Like utf8_character; `whole` false: the bytes go on well as far as they go. */
static size_t character(const char *text, size_t n, bool *whole)
{
    unsigned char least, most;
    size_t length = announced((unsigned char)text[0], &least, &most);

    for (size_t i = 1; i < min_size(n, length); i++) {
        unsigned char byte = (unsigned char)text[i];

        if (byte < least || byte > most)
            return 0;
        least = 0x80;
        most = 0xbf;
    }
    *whole = length <= n;
    return length;
}

size_t utf8_character(const char *text, size_t n)
{
    bool whole = false;
    size_t length = character(text, n, &whole);

    return whole ? length : 0;
}

size_t utf8_unfinished(const char *text, size_t n)
{
    for (size_t back = 1; back <= min_size(n, 3); back++) {
        bool whole = false;

        if (character(text + n - back, back, &whole) > 0)
            return whole ? 0 : back;
    }
    return 0;
}

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
