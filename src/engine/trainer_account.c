/* SPDX-License-Identifier: MIT */
/* Where every rank's time went, and the events of a run: what reports are made of. */
#include "engine/trainer_private.h"

#include <math.h>
#include <stdlib.h>

#include "task/task.h"

enum { SHARES_WANTED = 100 }; /* of a run */

struct account account_of(const struct step_result *r)
{
    return (struct account){.compute_s = r->compute_s,
                            .exposed_s = r->comm_exposed_s,
                            .idle_s =
                                fmax(0, r->step_s - r->compute_s - r->comm_exposed_s),
                            .hidden_s = r->comm_busy_s - r->comm_exposed_s,
                            .wall_s = r->step_s};
}

void trainer_account(struct trainer *t, const struct account *step)
{
    struct account *sum = &t->account;

    sum->compute_s += step->compute_s;
    sum->exposed_s += step->exposed_s;
    sum->idle_s += step->idle_s;
    sum->hidden_s += step->hidden_s;
    sum->wall_s += step->wall_s;
    t->account_steps++;
}

bool trainer_account_is_due(const struct trainer *t)
{
    uint64_t every = t->steps / SHARES_WANTED ? t->steps / SHARES_WANTED : 1;

    return t->state.step % every == 0 || t->state.step == t->steps;
}

enum status trainer_share_account(struct trainer *t)
{
    size_t ranks = (size_t)comm_size(t->comm);
    struct account *all;
    enum status st = ST_OK;

    if (t->account_steps == 0)
        return ST_OK;
    all = calloc(ranks, sizeof *all);
    require(all);
    comm_gather_all(t->comm, &t->account, sizeof t->account, all);
    if (t->metrics)
        st = metrics_ranks(t->metrics, t->state.step, t->account_steps, all, ranks);
    free(all);
    t->account = (struct account){0};
    t->account_steps = 0;
    return st;
}

enum status trainer_note_start(struct trainer *t, uint64_t step)
{
    const struct engine_options *e = &t->eo;

    return metrics_start(
        t->metrics,
        &(struct metrics_start){
            .step = step,
            .steps = t->steps,
            .ranks = comm_size(t->comm),
            .workers = e->workers,
            .from = t->has_start ? t->start.path : NULL,
            .strategy = strategy_ops(e->strategy ? e->strategy
                                                 : strategy_default(comm_size(t->comm)))
                            ->name,
            .kernels = e->kernels->isa,
            .tasks = task_backend(),
            .library = comm_library(t->comm),
            .tokens_a_step = (double)(t->sampler.batch * e->seq),
            .parameters = (double)shape_parameters(&e->shape),
            .peak_flops = t->peak_flops});
}
