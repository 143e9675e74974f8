/* SPDX-License-Identifier: MIT */
/* Memory that the ranks of a host see: an anonymous file of one rank (memfd_create) that
 * the others open through /proc/PID/fd. Nothing has a name, so nothing is left behind by
 * a killed job, and no size limit of /dev/shm applies. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/exchange_private.h"

/* Where a rank's file is found by the others of its host. */
struct address {
    int pid;
    int fd; /* -1: none */
};

/* The rank that makes the memory `rank` uses. */
static int maker_of(struct comm *c, enum comm_sharing sharing, int rank)
{
    const int *host = comm_host_numbers(c);
    int maker = rank;

    if (sharing == MEMORY_ONE_A_HOST)
        for (maker = 0; host[maker] != host[rank];)
            maker++;
    return maker;
}

static enum status make_file(size_t bytes, const char *what, int *fd)
{
    *fd = memfd_create("weft", MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, (off_t)memory_mapped_bytes(bytes)) != 0)
        return fail(ST_NOMEM, "%s: no shared memory for %zu bytes", what, bytes);
    return ST_OK;
}

static enum status map_address(struct address a, size_t bytes, const char *what,
                               void **out)
{
    char path[64];
    enum status st;

    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", a.pid, a.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return fail(ST_NOMEM, "%s: memory of process %d cannot be opened", what, a.pid);
    st = memory_map_file(fd, bytes, what, out);
    close(fd);
    return st;
}

/* Maps what this rank uses and, where visible, what the others of its host have. */
static enum status map_all(struct comm *c, const struct address *addresses,
                           const char *what, struct comm_memory *m)
{
    const int *host = comm_host_numbers(c);
    int rank = comm_rank(c);
    enum status st = ST_OK;

    for (int r = 0; r < comm_size(c) && st == ST_OK; r++) {
        void **at = r == rank ? &m->base : m->of_rank ? &m->of_rank[r] : NULL;

        if (host[r] != host[rank] || !at)
            continue;
        st = map_address(addresses[maker_of(c, m->sharing, r)], m->bytes, what, at);
    }
    if (st == ST_OK && m->of_rank)
        m->of_rank[rank] = m->base;
    return st;
}

static enum status map_shared(struct comm *c, const char *what, struct comm_memory *m)
{
    size_t ranks = (size_t)comm_size(c);
    struct address mine = {(int)getpid(), -1};
    struct address *all = NULL;
    enum status st = memory_alloc(ranks, sizeof *all, what, &all);

    if (st == ST_OK && m->sharing == MEMORY_VISIBLE)
        st = memory_alloc(ranks, sizeof *m->of_rank, what, &m->of_rank);
    if (st == ST_OK && maker_of(c, m->sharing, comm_rank(c)) == comm_rank(c))
        st = make_file(m->bytes, what, &mine.fd);
    st = comm_share(c, st);
    if (st == ST_OK) {
        comm_gather_all(c, &mine, sizeof mine, all);
        st = comm_share(c, map_all(c, all, what, m));
    }
    if (mine.fd >= 0)
        close(mine.fd);
    free(all);
    return st;
}

enum status comm_memory_map(struct comm *c, size_t bytes, const char *what,
                            enum comm_sharing sharing, struct comm_memory *out)
{
    enum status st;

    *out = (struct comm_memory){.bytes = bytes, .sharing = sharing};
    if (sharing == MEMORY_PRIVATE)
        return memory_map(bytes, what, &out->base);
    st = map_shared(c, what, out);
    if (st != ST_OK)
        comm_memory_unmap(c, out);
    return st;
}

void comm_memory_unmap(struct comm *c, struct comm_memory *m)
{
    for (int r = 0; m->of_rank && r < comm_size(c); r++)
        if (m->of_rank[r] != m->base)
            memory_unmap(m->of_rank[r], m->bytes);
    free(m->of_rank);
    memory_unmap(m->base, m->bytes);
    *m = (struct comm_memory){0};
}

/* Where each process numbers processes of its own (a container a rank), a number may be
 * another process, or oneself: only what stands in the memory tells. */
static enum status look_at_others(struct comm *c, const struct comm_memory *m)
{
    size_t ranks = (size_t)comm_size(c);
    uint64_t mine = exchange_now_ns() * ranks + (uint64_t)comm_rank(c);
    uint64_t *all;
    enum status st = memory_alloc(ranks, sizeof *all, "memory of a host", &all);

    memcpy(m->base, &mine, sizeof mine);
    st = comm_share(c, st);
    if (st == ST_OK)
        comm_gather_all(c, &mine, sizeof mine, all);
    for (size_t r = 0; r < ranks && st == ST_OK; r++)
        if (m->of_rank[r] && memcmp(m->of_rank[r], &all[r], sizeof *all) != 0)
            st = fail(ST_NOMEM, "memory of rank %zu is not what is found there", r);
    free(all);
    return comm_share(c, st);
}

bool comm_memory_works(struct comm *c)
{
    const int *host = comm_host_numbers(c);
    struct comm_memory try;
    bool company = false;
    bool works;

    for (int r = 1; r < comm_size(c); r++)
        for (int other = 0; other < r; other++)
            company = company || host[r] == host[other];
    if (!company || comm_memory_map(c, sizeof(uint64_t), "memory of a host",
                                    MEMORY_VISIBLE, &try) != ST_OK)
        return false;
    works = look_at_others(c, &try) == ST_OK;
    comm_memory_unmap(c, &try);
    return works;
}
