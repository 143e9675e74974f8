/* SPDX-License-Identifier: MIT */
/* Whether the run fits the memory of each host, before any of it is taken: pages are
 * promised freely and a job that touches too many is killed without a word. */
#include "engine/trainer_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number on a line of a file, behind `key` (scanf); infinity when there is none. */
static double number_in(const char *path, const char *key)
{
    char line[128];
    double found = (double)INFINITY;
    FILE *f = fopen(path, "re");

    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, key, &found) == 1)
            break;
    if (f)
        fclose(f);
    return found;
}

/* Of this host or of the container on it. */
static double available_memory(void)
{
    double host = 1024 * number_in("/proc/meminfo", "MemAvailable: %lf");
    double group = fmin(number_in("/sys/fs/cgroup/memory.max", "%lf"),
                        number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", "%lf"));

    return fmin(host, group);
}

double trainer_least_bytes(const struct trainer *t)
{
    const struct engine_options *e = &t->eo;
    double P = (double)comm_size(t->comm);
    double C = (double)e->shape.C;
    double params = (double)e->shape.V * C + 12 * C * C * (double)e->shape.L;
    double rows = (double)e->batch * (double)e->seq;

    double kept = (double)(e->shape.L * recompute_kept(e->recompute)) * C;

    /* Weights, gradients, a share of the moments; what layers keep for backward. */
    return sizeof(float) * (params * (2 + 2 / P) + rows * kept);
}

struct need {
    char host[64];
    double bytes;
};

enum status trainer_check_memory(struct trainer *t, double bytes)
{
    size_t P = (size_t)comm_size(t->comm);
    struct need mine = {.bytes = bytes};
    struct need *all = calloc(P, sizeof *all);
    double needed = 0;
    double available = available_memory();
    int sharers = 0;
    enum status st = ST_OK;

    require(all);
    (void)snprintf(mine.host, sizeof mine.host, "%s", comm_host(t->comm));
    comm_gather_all(t->comm, &mine, sizeof mine, all);
    for (size_t r = 0; r < P; r++)
        if (!strcmp(all[r].host, mine.host)) {
            needed += all[r].bytes;
            sharers++;
        }
    free(all);
    if (needed > available)
        st = fail(ST_NOMEM,
                  "training: found %.2f GB of memory available on %s, its %d rank%s "
                  "need%s %.2f GB; lower --batch or --seq, take --recompute all, a "
                  "smaller --model, or more hosts",
                  available * 1e-9, mine.host, sharers, sharers == 1 ? "" : "s",
                  sharers == 1 ? "s" : "", needed * 1e-9);
    return comm_agree(t->comm, st);
}
