/* SPDX-License-Identifier: MIT */
/* What the ranks exchange, and in what pieces, when a measured network says which is
 * best. */
#include "engine/trainer_private.h"

#include <string.h>

#include "base/log.h"
#include "engine/cost.h"

/* Share of the peak that forward and backward usually reach. */
static const double usual_efficiency = 0.6;

struct choice {
    enum strategy strategy;
    size_t block_bytes;
    struct cost cost;
};

static int count_hosts(const struct trainer *t)
{
    const int *host = comm_host_numbers(t->comm);
    int hosts = 0;

    for (int r = 0; r < comm_size(t->comm); r++)
        hosts = host[r] >= hosts ? host[r] + 1 : hosts;
    return hosts;
}

/* Seconds of forward and backward, from the peak just measured. */
static double compute_seconds(const struct trainer *t)
{
    double tokens = (double)(t->sampler.batch * t->eo.seq);

    return shape_train_flops(&t->eo.shape, t->eo.seq, tokens) /
           (usual_efficiency * t->peak_flops);
}

/* LOCAL, on one rank: what it measured decides for all. */
static enum status choose(const struct trainer *t, struct choice *out)
{
    struct cost_cluster cluster = {comm_size(t->comm), count_hosts(t), {.library = ""}};
    struct engine_options o = t->eo;
    enum status st = network_read(t->options->network, &cluster.network);

    o.compute_s = compute_seconds(t);
    if (t->options->strategy == 0 && o.roots <= 1)
        o.strategy = 0;
    if (st == ST_OK)
        st = cost_choose(&o, &cluster, &out->cost);
    out->strategy = o.strategy;
    out->block_bytes = o.block_bytes;
    return st;
}

enum status trainer_choose(struct trainer *t)
{
    struct choice choice;
    enum status st = ST_OK;

    if (!t->options->network)
        return ST_OK;
    memset(&choice, 0, sizeof choice);
    if (t->eo.exchange == EXCHANGE_COLLECTIVE)
        st = fail(ST_USAGE,
                  "--network: needs --engine direct; what MPI's collectives take "
                  "cannot be predicted");
    if (st == ST_OK && comm_rank(t->comm) == 0)
        st = choose(t, &choice);
    st = comm_agree(t->comm, st);
    if (st != ST_OK)
        return st;
    comm_broadcast(t->comm, &choice, sizeof choice, 0);
    t->eo.strategy = choice.strategy;
    if (!t->eo.one_block)
        t->eo.block_bytes = choice.block_bytes;
    if (comm_rank(t->comm) == 0)
        log_info(
            "network %s: %s, blocks of %zu KiB; a step should take %.3g s, %.0f %% "
            "of it exposed; it could not take less than %.3g s of compute, %.3g s of "
            "messages",
            t->options->network, strategy_ops(choice.strategy)->name,
            choice.block_bytes / 1024, choice.cost.step_s,
            100 * choice.cost.exposed_s / choice.cost.step_s, choice.cost.compute_s,
            choice.cost.wire_bound_s);
    return ST_OK;
}
