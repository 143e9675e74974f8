/* SPDX-License-Identifier: MIT */
#include "task/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { CHUNK_BYTES = 256 * 1024 };

struct record_chunk {
    struct record_chunk *next;
    size_t size_bytes;
    size_t used_bytes;
    _Alignas(CACHE_LINE) unsigned char bytes[];
};

static struct record_chunk *chunk_new(size_t bytes)
{
    struct record_chunk *c = NULL;
    size_t size = round_up(max_size(bytes, CHUNK_BYTES), CACHE_LINE);

    c = aligned_alloc(CACHE_LINE, sizeof *c + size);
    if (!c)
        bug("tasks: no memory for %zu bytes of arguments", bytes);
    c->next = NULL;
    c->size_bytes = size;
    c->used_bytes = 0;
    return c;
}

/* The first chunk from the one being filled on that has room; a new one is put behind
 * the one being filled. */
static struct record_chunk *chunk_with_room(struct records *all, size_t bytes)
{
    if (!all->first)
        all->first = all->fill = chunk_new(bytes);
    while (all->fill->size_bytes - all->fill->used_bytes < bytes) {
        struct record_chunk *next = all->fill->next;

        if (!next || next->size_bytes < bytes) {
            struct record_chunk *c = chunk_new(bytes);

            c->next = next;
            all->fill->next = c;
        }
        all->fill = all->fill->next;
    }
    return all->fill;
}

struct record *records_take(struct records *all, const struct task *t)
{
    /* A line of its own: neighbours are written by different workers. */
    size_t bytes = round_up(sizeof(struct record) + t->args_bytes, CACHE_LINE);
    struct record_chunk *c = chunk_with_room(all, bytes);
    struct record *r = (struct record *)(void *)(c->bytes + c->used_bytes);

    c->used_bytes += bytes;
    r->body = t->body;
    r->label = t->label ? t->label : "task";
    r->next = NULL;
    r->handle = 0;
    r->delay_us = 0;
    atomic_init(&r->completed, false);
    if (t->args_bytes > 0)
        memcpy(r->args, t->args, t->args_bytes);
    atomic_store_explicit(&r->parts, t->has_event ? 2 : 1, memory_order_release);
    return r;
}

void records_reset(struct records *all)
{
    for (struct record_chunk *c = all->first; c; c = c->next)
        c->used_bytes = 0;
    all->fill = all->first;
}

void records_release(struct records *all)
{
    while (all->first) {
        struct record_chunk *next = all->first->next;

        free(all->first);
        all->first = next;
    }
    all->fill = NULL;
}
