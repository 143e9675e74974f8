/* SPDX-License-Identifier: MIT */
#include "engine/trainer_private.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"

static void trace_row(const struct trainer *t, uint64_t step, size_t row, int32_t first)
{
    if (t->options->trace_data)
        fprintf(stderr, "trace-data step %llu rank %d row %zu first %d\n",
                (unsigned long long)step, comm_rank(t->comm), row, (int)first);
}

enum status trainer_fetch(struct trainer *t, uint64_t step)
{
    const struct engine_options *o = &t->eo;
    int rank = comm_rank(t->comm);
    int ranks = comm_size(t->comm);
    enum status st = fault_status("data", shards_path(t->train, 0));

    for (size_t a = 0; a < o->accum; a++) {
        int32_t *x = engine_inputs(t->engine, a);
        int32_t *y = engine_targets(t->engine, a);

        for (size_t b = 0; b < o->batch; b++) {
            uint64_t slot = sampler_slot(rank, ranks, o->batch, a, b);
            uint64_t window = sampler_window(&t->sampler, step, slot);

            if (st == ST_OK)
                st = shards_window(t->train, o->seq, window, x + b * o->seq,
                                   y + b * o->seq);
            trace_row(t, step, a * o->batch + b, x[b * o->seq]);
        }
        if (st != ST_OK) {
            memset(x, 0, o->batch * o->seq * sizeof *x);
            memset(y, 0, o->batch * o->seq * sizeof *y);
        }
    }
    return st;
}

/* One batch of validation windows from `first` on; rows beyond the last have no target.
 */
static enum status fetch_validation(struct trainer *t, uint64_t first, double *tokens)
{
    const struct engine_options *o = &t->eo;
    int32_t *x = engine_inputs(t->engine, 0);
    int32_t *y = engine_targets(t->engine, 0);

    for (size_t b = 0; b < o->batch; b++) {
        uint64_t w = first + b;

        if (w < t->eval_windows) {
            enum status st =
                shards_window(t->val, o->seq, w, x + b * o->seq, y + b * o->seq);

            if (st != ST_OK)
                return st;
            *tokens += (double)o->seq;
            continue;
        }
        for (size_t i = 0; i < o->seq; i++) {
            x[b * o->seq + i] = 0;
            y[b * o->seq + i] = -1;
        }
    }
    return ST_OK;
}

enum status trainer_evaluate(struct trainer *t, double *loss)
{
    size_t B = t->eo.batch;
    uint64_t batch = B * (uint64_t)comm_size(t->comm);
    double sums[2] = {0, 0}; /* loss, tokens */
    enum status st = ST_OK;

    engine_flush(t->engine);
    for (uint64_t w = 0; w < t->eval_windows && st == ST_OK; w += batch) {
        st = fetch_validation(t, w + B * (uint64_t)comm_rank(t->comm), &sums[1]);
        if (st == ST_OK)
            sums[0] += engine_eval(t->engine);
    }
    st = comm_agree(t->comm, st);
    comm_sum(t->comm, sums, 2);
    *loss = sums[0] / sums[1];
    return st;
}
