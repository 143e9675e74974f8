/* SPDX-License-Identifier: MIT */
#include "engine/cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/log.h"

struct seat {
    char host[64];
    cpu_set_t cpus;
};

/* What is wrong with where the workers run, and its remedy. */
static void warn_binding(const struct cores *s, int workers)
{
    int fair = s->host_cores / s->on_host > 1 ? s->host_cores / s->on_host : 1;

    if (workers > s->own)
        log_warn("%d workers on %d core%s: start mpirun with --bind-to none or --map-by "
                 "slot:PE=%d",
                 workers, s->own, s->own == 1 ? "" : "s", workers);
    else if (s->sharers > s->own)
        log_warn("%d ranks share %d core%s: needs at most %d rank%s there", s->sharers,
                 s->own, s->own == 1 ? "" : "s", s->own, s->own == 1 ? "" : "s");
    else if (workers * s->sharers > s->own)
        log_warn("%d ranks with %d workers each share %d core%s: needs --threads %d",
                 s->sharers, workers, s->own, s->own == 1 ? "" : "s",
                 s->own / s->sharers);
    /* Ranks that a launcher has bound one by one, and to less than there is. */
    else if (s->sharers == 1 && s->on_host > 1 && s->own < fair)
        log_warn("the launcher gave this rank %d of %d cores: for all of them start "
                 "mpirun with --bind-to none or --map-by slot:PE=%d",
                 s->own, s->host_cores, fair);
}

int cores_workers(struct comm *c, size_t asked, struct cores *cores)
{
    size_t P = (size_t)comm_size(c);
    struct seat mine = {0};
    struct seat *all = calloc(P, sizeof *all);
    struct cores s = {.host_cores = get_nprocs()};

    (void)snprintf(mine.host, sizeof mine.host, "%s", comm_host(c));
    if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0)
        CPU_SET(0, &mine.cpus);
    require(all);
    comm_gather_all(c, &mine, sizeof mine, all);
    for (size_t r = 0; r < P; r++) {
        s.sharers += !memcmp(&all[r], &mine, sizeof mine);
        s.on_host += !strcmp(all[r].host, mine.host);
    }
    free(all);
    s.own = CPU_COUNT(&mine.cpus);

    int fair = s.own / s.sharers > 1 ? s.own / s.sharers : 1;
    int workers = asked ? (int)asked : fair;

    if (comm_rank(c) == 0)
        warn_binding(&s, workers);
    if (cores)
        *cores = s;
    return workers;
}
