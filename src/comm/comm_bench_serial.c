/* SPDX-License-Identifier: MIT */
/* Built without MPI there is one rank, and no network to measure. */
#include "comm/comm_bench.h"

enum status comm_bench_network(struct comm *c, const struct network_options *o,
                               bench_progress progress, void *arg,
                               struct network_figures *out)
{
    (void)o;
    (void)progress;
    (void)arg;
    *out = (struct network_figures){.ranks = comm_size(c), .hosts = 1};
    return fail(ST_USAGE, "found one rank, which has no network: this program was built "
                          "without MPI (WEFT_COMM=serial)");
}

enum status comm_alone_new(struct comm *c, struct comm **out)
{
    *out = c;
    return ST_OK;
}

void comm_alone_free(struct comm *c, struct comm *alone)
{
    (void)c;
    (void)alone;
}
