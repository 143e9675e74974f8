/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const size_t huge_page_bytes = (size_t)2 << 20;

enum status memory_map(size_t bytes, const char *what, void **out)
{
    return memory_map_file(-1, bytes, what, out);
}

size_t memory_mapped_bytes(size_t bytes)
{
    return round_up(bytes ? bytes : 1, huge_page_bytes);
}

/* Replaces a reserved range by the file's pages; its address stays. */
static bool map_over(void *base, size_t size, int fd)
{
    return mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
           base;
}

enum status memory_map_file(int fd, size_t bytes, const char *what, void **out)
{
    size_t size = round_up(bytes ? bytes : 1, huge_page_bytes);

    *out = NULL;
    if (size < bytes || size + huge_page_bytes < size)
        return fail(ST_NOMEM, "%s: %zu bytes cannot be addressed", what, bytes);
    /* mmap aligns to 4 KiB only: map one huge page more and trim both ends. */
    char *raw = mmap(NULL, size + huge_page_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return fail(ST_NOMEM, "%s: no memory for %zu bytes", what, bytes);

    size_t head = (huge_page_bytes - (uintptr_t)raw % huge_page_bytes) % huge_page_bytes;
    char *aligned = raw + head;

    if (head)
        munmap(raw, head);
    if (huge_page_bytes - head)
        munmap(aligned + size, huge_page_bytes - head);
    if (fd >= 0 && !map_over(aligned, size, fd)) {
        munmap(aligned, size);
        return fail(ST_NOMEM, "%s: no memory for %zu bytes", what, bytes);
    }
    /* A kernel without huge pages still gives correct memory, only slower. */
    (void)madvise(aligned, size, MADV_HUGEPAGE);
    *out = aligned;
    return ST_OK;
}

void memory_unmap(void *ptr, size_t bytes)
{
    if (ptr)
        munmap(ptr, round_up(bytes ? bytes : 1, huge_page_bytes));
}

enum status arena_init(struct arena *a, size_t bytes, const char *what)
{
    void *base;
    enum status st = memory_map(bytes, what, &base);

    *a = (struct arena){.base = base, .size_bytes = st == ST_OK ? bytes : 0};
    return st;
}

size_t memory_resident_bytes(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (!file || fscanf(file, "%*s %zu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

void *arena_take(struct arena *a, size_t bytes)
{
    size_t begin = round_up(a->used_bytes, CACHE_LINE);

    require(begin + bytes <= a->size_bytes && begin + bytes >= begin);
    a->used_bytes = begin + bytes;
    return a->base + begin;
}

void arena_release(struct arena *a)
{
    memory_unmap(a->base, a->size_bytes);
    *a = (struct arena){0};
}

enum status memory_alloc(size_t count, size_t elem_bytes, const char *what, void *out_ptr)
{
    void *p = calloc(count ? count : 1, elem_bytes);

    memcpy(out_ptr, &p, sizeof p);
    if (!p)
        return fail(ST_NOMEM, "%s: no memory for %zu x %zu bytes", what, count,
                    elem_bytes);
    return ST_OK;
}
