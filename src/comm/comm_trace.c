/* SPDX-License-Identifier: MIT */
/* Events of the communication thread, for those who trace a run. */
#include <math.h>

#include "base/clock.h"
#include "base/trace.h"
#include "comm/comm_private.h"

enum { PHASE_OTHER = N_PHASES };

static const char *const phase_names[N_PHASES] = {
    [PHASE_REDUCE] = "reduce", [PHASE_RETURN] = "return"};

void trace_message(const struct stream *s, const struct message *m, double began_s,
                   size_t bytes)
{
    /* It began before recording did, or it is a collective: no message of ours. */
    if (!(began_s > 0) || s->traffic->x->options.engine == EXCHANGE_COLLECTIVE)
        return;
    trace_add(phase_names[s->phase],
              &(struct trace_event){.kind = s->receives ? TRACE_RECEIVE : TRACE_SEND,
                                    .phase = (uint8_t)s->phase,
                                    .begin_s = began_s,
                                    .end_s = clock_s(),
                                    .bytes = bytes,
                                    .place = m->span.at,
                                    .block = (uint32_t)m->block,
                                    .turn = s->traffic->turn[s->phase],
                                    .peer = m->peer,
                                    .round = m->round});
}

void trace_block_op(const struct traffic *t, const struct block_op *op)
{
    const struct plan *plan = t->x->plan;
    const struct plan_block *block = &plan->blocks[op->block];
    double now_s = clock_s();

    if (!(op->called_s > 0))
        return;
    trace_add(phase_names[op->phase],
              &(struct trace_event){
                  .kind = TRACE_OPERATION,
                  .phase = (uint8_t)op->phase,
                  .called_s = op->called_s,
                  .begin_s = op->moved_s > 0 ? fmax(op->called_s, op->moved_s) : now_s,
                  .end_s = now_s,
                  .bytes = op->bytes,
                  .block = (uint32_t)op->block,
                  .turn = t->turn[op->phase],
                  .peer = plan->parts[block->first_part].owner,
                  .round = op->round});
}

void trace_other_op(const char *label, double seen_s, uint64_t bytes)
{
    if (!(seen_s > 0))
        return;
    trace_add(label, &(struct trace_event){.kind = TRACE_OPERATION,
                                           .phase = PHASE_OTHER,
                                           .called_s = seen_s,
                                           .begin_s = seen_s,
                                           .end_s = clock_s(),
                                           .bytes = bytes,
                                           .peer = -1});
}
