/* memory.h - large buffers, allocated once.
 *
 * First touch of a 4 KiB page costs far more than the arithmetic done on it, so what the
 * training needs is mapped once on 2 MiB boundaries with huge pages asked for, and never
 * given back between steps.
 */
#ifndef WEFT_BASE_MEMORY_H
#define WEFT_BASE_MEMORY_H

#include <stddef.h>

#include "base/status.h"

enum { CACHE_LINE = 64 };

/* Maps `bytes` (rounded up to 2 MiB) of zeroed memory, 2 MiB-aligned; `what` names it in
 * the error. bytes = 0 gives a valid non-NULL pointer.
 * Returns  ST_OK or ST_NOMEM (text says what and how many bytes); *out NULL on failure
 * Memory   the caller frees with memory_unmap(ptr, same bytes) */
MUST_USE enum status memory_map(size_t bytes, const char *what, void **out);
void memory_unmap(void *ptr, size_t bytes); /* NULL is allowed */
/* The same over an open file of memory_mapped_bytes(bytes), shared with whoever else maps
 * it; fd -1: over memory of its own. The descriptor may be closed afterwards. */
MUST_USE enum status memory_map_file(int fd, size_t bytes, const char *what, void **out);
size_t memory_mapped_bytes(size_t bytes);
/* Of this process in memory now, with shared pages; 0 when the system does not tell. */
size_t memory_resident_bytes(void);

/* Bump allocator over one mapping: sized up front, freed as a whole. */
struct arena {
    char *base;
    size_t size_bytes;
    size_t used_bytes;
};

MUST_USE enum status arena_init(struct arena *a, size_t bytes, const char *what);
/* 64-byte-aligned piece of the arena; running out is a bug (the plan was wrong). */
void *arena_take(struct arena *a, size_t bytes);
void arena_release(struct arena *a);

/* calloc that reports ST_NOMEM through fail(); *out NULL on failure. */
MUST_USE enum status memory_alloc(size_t count, size_t elem_bytes, const char *what,
                                  void *out_ptr);

/* Has memory that will be wanted soon brought towards the second cache. */
static inline void memory_fetch(const void *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += CACHE_LINE)
        __builtin_prefetch((const char *)at + i, 0, 2);
}

/* Rounds n up to a multiple of `unit` (unit >= 1). */
static inline size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Number of pieces of at most `unit` that n falls into. */
static inline size_t ceil_div(size_t n, size_t unit)
{
    return (n + unit - 1) / unit;
}

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

#endif
