/* SPDX-License-Identifier: MIT */
#include "engine/cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

struct seat {
    char host[64];
    cpu_set_t cpus;
};

int cores_workers(struct comm *c, size_t asked)
{
    size_t P = (size_t)comm_size(c);
    struct seat mine = {0};
    struct seat *all = calloc(P, sizeof *all);
    int sharers = 0;

    (void)snprintf(mine.host, sizeof mine.host, "%s", comm_host(c));
    if (sched_getaffinity(0, sizeof mine.cpus, &mine.cpus) != 0)
        CPU_SET(0, &mine.cpus);
    require(all);
    comm_gather_all(c, &mine, sizeof mine, all);
    for (size_t r = 0; r < P; r++)
        sharers += !memcmp(&all[r], &mine, sizeof mine);
    free(all);

    int cores = CPU_COUNT(&mine.cpus);
    int fair = cores / sharers > 1 ? cores / sharers : 1;

    if (asked > (size_t)cores && comm_rank(c) == 0)
        log_warn("%zu workers on %d core%s: start mpirun with --bind-to none or --map-by "
                 "slot:PE=%zu",
                 asked, cores, cores == 1 ? "" : "s", asked);
    return asked ? (int)asked : fair;
}
