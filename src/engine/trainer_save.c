/* SPDX-License-Identifier: MIT */
/* Checkpoints of a run: when one begins, what it costs, how it ends. Between the steps
 * the state is copied, by all workers (not for the last one); the rest is the saver's. */
#include "engine/trainer_private.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "task/task.h"

struct checkpoint_view trainer_view(struct trainer *t)
{
    struct checkpoint_view view = {.layout = engine_layout(t->engine),
                                   .plan = engine_block_plan(t->engine),
                                   .params = engine_params(t->engine)};

    engine_moments(t->engine, &view.m, &view.v);
    return view;
}

bool trainer_saves_beside(const struct trainer *t)
{
    return t->options->save == 0 && t->options->save_every != 0;
}

enum status trainer_new_saver(struct trainer *t)
{
    const struct train_options *o = t->options;
    const struct saver_options options = {.run = o->out,
                                          .view = trainer_view(t),
                                          .config_text = t->config_text,
                                          .tokens_json =
                                              t->meta.path[0] ? t->meta.path : NULL,
                                          .keep = o->keep,
                                          .background = trainer_saves_beside(t)};

    t->saved.step = t->state.step;
    return saver_new(t->comm, &options, &t->saver);
}

struct copy_job {
    struct saver *saver;
    size_t piece;
};

static void do_copy(void *args, struct task_event event)
{
    struct copy_job *j = args;

    (void)event;
    saver_copy(j->saver, j->piece);
}

static void copy_state(struct trainer *t)
{
    for (size_t i = 0; i < saver_pieces(t->saver); i++) {
        struct copy_job job = {t->saver, i};
        struct task task = {
            .label = "copy", .body = do_copy, .args = &job, .args_bytes = sizeof job};

        task_spawn(&task);
    }
    task_wait_all();
}

/* After the last phase. */
static enum status note_saved(struct trainer *t)
{
    struct saver_report r;
    enum status st = ST_OK;

    saver_last(t->saver, &r);
    t->saved.seconds = clock_s() - t->saved.at_s;
    log_info("saved %s (%.1f s, training stood still for %.2f s)", r.path,
             t->saved.seconds, t->saved.stall_s);
    if (t->metrics)
        st =
            metrics_save(t->metrics, r.step, t->saved.seconds, t->saved.stall_s, r.bytes);
    return comm_agree(t->comm, st);
}

/* One phase on; `start_s` is when training stopped for it. */
static enum status advance(struct trainer *t, double start_s)
{
    enum status st = saver_advance(t->saver);

    t->saved.stall_s += clock_s() - start_s;
    if (st == ST_OK && !saver_busy(t->saver))
        st = note_saved(t);
    return st;
}

enum status trainer_save_wait(struct trainer *t)
{
    enum status st = ST_OK;

    while (st == ST_OK && saver_busy(t->saver))
        st = advance(t, clock_s());
    return st;
}

/* Beside the steps, or at once from where the state lies. */
static enum status begin(struct trainer *t, bool beside)
{
    enum status st = trainer_save_wait(t);

    if (st != ST_OK || t->saved.step == t->state.step)
        return st;
    comm_watch_at(t->comm, t->state.step, STAGE_SAVE);
    st = trainer_keep_run(t);
    if (st != ST_OK)
        return st;
    /* The update of the step would be due in the next one; it is no time lost here. */
    engine_flush(t->engine);
    t->saved.step = t->state.step;
    t->saved.at_s = clock_s();
    saver_prepare(t->saver, beside);
    copy_state(t);
    st = saver_start(t->saver, &t->state);
    t->saved.stall_s = clock_s() - t->saved.at_s;
    return st == ST_OK && !beside ? trainer_save_wait(t) : st;
}

enum status trainer_save_begin(struct trainer *t)
{
    return begin(t, trainer_saves_beside(t));
}

enum status trainer_save_now(struct trainer *t)
{
    enum status st = begin(t, false);

    return st == ST_OK ? trainer_save_wait(t) : st;
}

void trainer_save_tell(struct trainer *t)
{
    engine_tell_saved(t->engine, saver_part_done(t->saver));
}

enum status trainer_save_look(struct trainer *t, const struct step_result *r)
{
    if (!saver_busy(t->saver) || r->saved_ranks < comm_size(t->comm))
        return ST_OK;
    return advance(t, clock_s());
}
