/* SPDX-License-Identifier: MIT */
/* The training loop. Every branch that ends or changes the run is taken on agreed values:
 * what engine_step returns is the same on all ranks. */
#include "engine/trainer_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/files.h"
#include "base/log.h"
#include "base/progress.h"
#include "engine/cores.h"
#include "engine/peak.h"
#include "engine/stop.h"
#include "task/task.h"

enum { LOG_LINES_WANTED = 50 };

static enum status evaluate(struct trainer *t)
{
    double loss;

    comm_watch_at(t->comm, t->state.step, STAGE_EVALUATION);
    fault_at("evaluate");
    enum status st = trainer_evaluate(t, &loss);

    if (st != ST_OK)
        return st;
    if (!isfinite(loss))
        return comm_agree(t->comm, fail(ST_NUMERIC,
                                        "step %" PRIu64 ": validation loss %g: not a "
                                        "finite number. Lower --lr, or lengthen --warmup",
                                        t->state.step, loss));
    log_info("step %" PRIu64 "  validation loss %.4f", t->state.step, loss);
    if (loss < t->state.best_val_loss)
        t->state.best_val_loss = loss;
    if (t->metrics)
        st = metrics_eval(t->metrics, t->state.step, loss);
    return comm_agree(t->comm, st);
}

/* What became of writing a step down: local, agreed on with the next step's data. The
 * text is kept because other failures may come between. */
struct recorded {
    enum status st;
    char text[1024];
};

static void note_recorded(struct recorded *r, enum status st)
{
    r->st = st;
    if (st != ST_OK)
        (void)snprintf(r->text, sizeof r->text, "%s", fail_text());
}

static enum status tell_recorded(const struct recorded *r)
{
    return r->st == ST_OK ? ST_OK : fail(r->st, "%s", r->text);
}

static enum status dropped_step(struct trainer *t, const struct step_result *r,
                                enum status own)
{
    if (r->failed_ranks > 0) {
        /* The steps before were good: they are saved before the reason is told. */
        struct recorded reason;

        note_recorded(&reason, own);
        enum status saved = trainer_save_now(t);
        enum status st = comm_agree(t->comm, tell_recorded(&reason));

        return st != ST_OK ? st : saved;
    }
    return trainer_say_diverged(t, r);
}

static bool line_is_due(const struct trainer *t, double now_s)
{
    const double least_s = 1; /* between automatic lines of quick steps */
    uint64_t every = t->options->log_every;

    if (t->state.step == t->steps)
        return true;
    if (every)
        return t->state.step % every == 0;
    every = t->steps / LOG_LINES_WANTED ? t->steps / LOG_LINES_WANTED : 1;
    return t->unseen.steps >= every && now_s - t->unseen.line_at_s >= least_s;
}

static double share_of_peak(const struct trainer *t, double tokens, double seconds)
{
    return shape_train_flops(&t->eo.shape, t->eo.seq, tokens) / (seconds * t->peak_flops);
}

/* Shown values, the most important first; see progress.h. */
static void format_figures(const struct trainer *t, const struct figures *f, double lr,
                           double norm, char *out, size_t out_bytes)
{
    double tokens = (double)(t->sampler.batch * t->eo.seq);
    char exposed[40] = "";
    char mfu[40] = "";

    if (comm_size(t->comm) > 1)
        (void)snprintf(exposed, sizeof exposed, "  exposed %.0f %%",
                       100 * f->exposed_s / f->step_s);
    if (t->peak_flops > 0)
        (void)snprintf(mfu, sizeof mfu, "  MFU %.0f %%",
                       100 * share_of_peak(t, tokens, f->step_s / f->weight));
    (void)snprintf(out, out_bytes, "loss %.4f  %.0f tokens/s%s%s  lr %.3g  norm %.3g",
                   f->loss / f->weight, f->weight * tokens / f->step_s, exposed, mfu, lr,
                   norm);
}

/* Older steps count `keep` times as much as before: 1 sums, less forgets. */
static void add_figures(struct figures *f, double keep, const struct step_result *r)
{
    f->weight = keep * f->weight + 1;
    f->loss = keep * f->loss + r->loss;
    f->step_s = keep * f->step_s + r->step_s;
    f->exposed_s = keep * f->exposed_s + r->comm_exposed_s;
}

/* Lines of the log show means since the line before, the live line a running mean. */
static void show_step(struct trainer *t, const struct step_result *r, double lr,
                      struct progress *bar)
{
    const double live_keep = 0.95;
    double now_s = clock_s();
    char text[200];

    t->unseen.steps++;
    add_figures(&t->unseen.figures, 1, r);
    add_figures(&t->live, live_keep, r);
    if (line_is_due(t, now_s)) {
        double done = (double)t->state.step - bar->first;
        char eta[16];

        format_duration((now_s - bar->start_s) / done *
                            (double)(t->steps - t->state.step),
                        eta, sizeof eta);
        format_figures(t, &t->unseen.figures, lr, r->grad_norm, text, sizeof text);
        log_info("step %" PRIu64 "/%" PRIu64 "  %s  ETA %s", t->state.step, t->steps,
                 text, eta);
        memset(&t->unseen, 0, sizeof t->unseen);
        t->unseen.line_at_s = now_s;
    } else if (bar->live) {
        format_figures(t, &t->live, lr, r->grad_norm, text, sizeof text);
        progress_update(bar, (double)t->state.step, text);
    }
}

static enum status record_step(struct trainer *t, const struct step_result *r, double lr)
{
    double tokens = (double)(t->sampler.batch * t->eo.seq);
    struct account account = account_of(r);

    trainer_account(t, &account);
    if (!t->metrics)
        return ST_OK;
    return metrics_step(t->metrics,
                        &(struct metrics_step){.step = t->state.step,
                                               .loss = r->loss,
                                               .lr = lr,
                                               .grad_norm = r->grad_norm,
                                               .tokens = t->state.tokens,
                                               .tokens_per_s = tokens / r->step_s,
                                               .mfu = share_of_peak(t, tokens, r->step_s),
                                               .account = account,
                                               .comm_cpu_s = r->comm_cpu_s});
}

static void note_epoch(const struct trainer *t)
{
    uint64_t per_epoch = sampler_steps_per_epoch(&t->sampler);

    if (t->state.step > 0 && t->state.step % per_epoch == 0)
        log_info("step %" PRIu64 "  epoch %" PRIu64 " begins", t->state.step,
                 t->state.step / per_epoch + 1);
}

/* Leaves room for the step at hand and for saving. A rank that thinks so says so; all
 * stop with it. */
static bool time_is_over(const struct trainer *t)
{
    const double least_s = 2; /* before the first save has been timed */
    double save_s = fmax(t->saved.seconds, least_s);
    int saves = saver_busy(t->saver) ? 2 : 1;

    return t->time_limit_s > 0 &&
           stop_elapsed_s() + 2 * t->longest_step_s + 1.5 * saves * save_s >
               t->time_limit_s;
}

/* Without --save-every a long run saves by the clock of rank 0. */
static bool save_is_overdue(const struct trainer *t)
{
    const double period_s = 600;

    return t->options->save_every == OPTION_SIZE_UNSET && comm_rank(t->comm) == 0 &&
           clock_s() - t->saved.at_s > period_s;
}

/* One step, and the status of the one before. */
static enum status one_step(struct trainer *t, struct progress *bar,
                            struct recorded *recorded, struct step_result *r)
{
    double lr = schedule_rate(&t->schedule, t->state.step);
    double begin_s = clock_s();
    enum status own = tell_recorded(recorded);

    comm_watch_at(t->comm, t->state.step + 1, STAGE_STEP);
    note_epoch(t);
    if (stop_signalled() || time_is_over(t))
        engine_request_stop(t->engine);
    if (save_is_overdue(t))
        engine_request_save(t->engine);
    trainer_save_tell(t);
    if (own == ST_OK)
        own = trainer_fetch(t, t->state.step);
    engine_step(t->engine, lr, t->state.adam_step + 1, own != ST_OK, r);
    if (!r->finite || r->failed_ranks > 0)
        return dropped_step(t, r, own);
    t->state.step++;
    t->state.adam_step++;
    t->state.tokens += t->sampler.batch * t->eo.seq;
    t->state.wall_s += r->step_s;
    trainer_trace_step(t, begin_s);
    t->longest_step_s = fmax(t->longest_step_s, r->step_s);
    show_step(t, r, lr, bar);
    enum status st = record_step(t, r, lr);

    if (trainer_account_is_due(t) || r->stop) {
        enum status shared = trainer_share_account(t);

        st = st == ST_OK ? shared : st;
    }
    note_recorded(recorded, st);
    return trainer_save_look(t, r);
}

static enum status say_stopped(const struct trainer *t)
{
    log_info("stopped at step %" PRIu64 " of %" PRIu64 " (%s); the same command goes on "
             "from there",
             t->state.step, t->steps, time_is_over(t) ? "time limit" : "signal");
    return ST_STOPPED;
}

static bool due(uint64_t step, size_t every)
{
    return every > 0 && every != OPTION_SIZE_UNSET && step % every == 0;
}

static void train_loop(void *arg)
{
    struct trainer *t = arg;
    struct progress bar;
    struct recorded recorded = {0};
    enum status st = ST_OK;

    if (!t->has_start)
        engine_init_weights(t->engine, t->options->seed);
    progress_begin(&bar, "train", "steps", (double)t->steps,
                   comm_rank(t->comm) == 0 && !t->options->quiet);
    bar.first = (double)t->state.step;
    t->saved.at_s = clock_s();
    trainer_trace_begin(t);
    if (t->options->check_sync)
        st = trainer_check_sync(t);
    while (st == ST_OK && t->state.step < t->steps) {
        struct step_result r = {0};

        st = one_step(t, &bar, &recorded, &r);
        bool last = t->state.step == t->steps;
        bool stop = r.stop && !last;
        enum status evaluated = ST_OK;

        if (st == ST_OK && due(t->state.step, t->options->check_sync))
            st = trainer_check_sync(t);
        if (st == ST_OK && t->eval_windows && !stop &&
            (last || due(t->state.step, t->options->eval_every)))
            evaluated = evaluate(t);
        /* Bad validation data ends the run, but not without the steps it has done. */
        bool wanted = stop || last || r.save || evaluated != ST_OK ||
                      due(t->state.step, t->options->save_every);
        if (st == ST_OK && evaluated != ST_NUMERIC && wanted)
            st = stop || last ? trainer_save_now(t) : trainer_save_begin(t);
        if (st == ST_OK)
            st = evaluated;
        /* After a save, which so does not wait for it. */
        if (st == ST_OK && !stop && due(t->state.step, t->options->sample_every))
            trainer_sample(t);
        if (st == ST_OK && stop)
            st = say_stopped(t);
    }
    /* A good checkpoint on its way arrives, whatever ended the run. */
    enum status arrived = trainer_save_wait(t);

    engine_flush(t->engine);
    progress_clear_line();
    if (t->metrics && recorded.st == ST_OK)
        note_recorded(&recorded, metrics_end(t->metrics, t->state.step,
                                             st == ST_OK        ? "done"
                                             : st == ST_STOPPED ? "stopped"
                                                                : "failed"));
    t->st = comm_agree(t->comm, st == ST_OK || st == ST_STOPPED ? tell_recorded(&recorded)
                                                                : ST_OK);
    if (t->st == ST_OK)
        t->st = st != ST_OK && st != ST_STOPPED ? st : arrived != ST_OK ? arrived : st;
    if (t->st == ST_OK || t->st == ST_STOPPED) {
        enum status written = trainer_trace_write(t);

        t->st = written == ST_OK ? t->st : written;
    }
}

static enum status load_start(struct trainer *t)
{
    struct checkpoint_view view = trainer_view(t);
    enum status st;

    t->state = (struct run_state){.seed = t->options->seed,
                                  .batch_windows = t->sampler.batch,
                                  .best_val_loss = INFINITY,
                                  .data_tokens = shards_tokens(t->train),
                                  .data_hash = t->data_hash};
    if (!t->has_start)
        return ST_OK;
    if (!t->resumed) {
        st = comm_agree(t->comm, model_read(&t->start, view.layout, view.params));
        if (st == ST_OK)
            log_info(
                "weights from %s; moments are zero and the schedule starts at step 0",
                t->start.path);
        t->start.state = t->state;
        return st;
    }
    st = checkpoint_load(t->comm, t->start.path, strcmp(t->options->resume, "auto") != 0,
                         &view, &t->state);
    if (st != ST_OK)
        return st;
    log_info("resumed from %s at step %" PRIu64, t->start.path, t->state.step);
    if (comm_rank(t->comm) == 0)
        trainer_tell_changes(t);
    t->state.seed = t->sampler.seed;
    t->state.data_tokens = shards_tokens(t->train);
    t->state.data_hash = t->data_hash;
    if (t->state.batch_windows != t->sampler.batch) {
        log_info("global batch changed from %" PRIu64 " to %" PRIu64
                 " sequences: the data order goes on from step %" PRIu64
                 " of the new one",
                 t->state.batch_windows, t->sampler.batch, t->state.step);
        t->state.batch_windows = t->sampler.batch;
    }
    return ST_OK;
}

static void say_done(const struct trainer *t)
{
    char took[16], best[64] = "";

    format_duration(t->state.wall_s, took, sizeof took);
    if (isfinite(t->state.best_val_loss))
        (void)snprintf(best, sizeof best, "; best validation loss %.4f",
                       t->state.best_val_loss);
    log_info("done: %" PRIu64 " step%s, %.2f M tokens, %s of steps%s", t->state.step,
             t->state.step == 1 ? "" : "s", (double)t->state.tokens * 1e-6, took, best);
}

static void measure_peak(void *arg)
{
    const double seconds = 0.01;
    struct trainer *t = arg;
    struct peak peak;

    peak_measure(t->eo.workers, seconds, false, &peak);
    t->peak_flops = peak.fma_flops;
}

/* A rank that keeps the others waiting is named within a minute, also when the limit is
 * hours; from the beginning, when nothing else has been compared yet. */
static enum status watch_ranks(struct trainer *t)
{
    const double longest_s = 30;
    const char *text = t->options->stall_limit;
    enum status st = ST_OK;

    if (strcmp(text, "0") != 0)
        st = stop_parse_limit("stall-limit", text, &t->stall_limit_s);
    st = comm_agree(t->comm, st);
    if (st != ST_OK)
        return st;
    double limit_s = t->stall_limit_s;

    comm_max(t->comm, &limit_s, 1);
    if (limit_s > 0)
        st = comm_watch_begin(t->comm, fmin(longest_s, limit_s / 2), limit_s);
    fault_at("prepare");
    return st;
}

static enum status run(struct trainer *t)
{
    enum status st = watch_ranks(t);

    if (st == ST_OK)
        st = trainer_find_latest(t);
    if (st == ST_OK)
        st = comm_agree(t->comm, trainer_prepare(t));
    if (st == ST_OK)
        st = trainer_same_everywhere(t);
    if (st != ST_OK)
        return st;
    t->eo.workers = cores_workers(t->comm, t->options->threads, &t->cores);
    /* What the workers of all ranks can do when all work. */
    task_run(t->eo.workers, measure_peak, t);
    comm_sum(t->comm, &t->peak_flops, 1);
    st = trainer_choose(t);
    if (st == ST_OK)
        st = trainer_banner(t);
    if (st != ST_OK)
        return st;
    if (t->resumed && t->start.state.step >= t->steps) {
        log_info("%s is at step %" PRIu64 " of %" PRIu64
                 ": nothing to do; raise --steps to "
                 "go on",
                 t->start.path, t->start.state.step, t->steps);
        return ST_OK;
    }
    if (t->options->dry_run)
        return comm_agree(t->comm, comm_rank(t->comm) == 0 ? folder_check(t->options->out)
                                                           : ST_OK);
    st = trainer_lock_run(t);
    if (st == ST_OK)
        st = engine_new(t->comm, &t->eo, &t->engine);
    if (st == ST_OK)
        st = load_start(t);
    /* Only now is the run sure to begin: what an earlier one wrote is touched last. */
    if (st == ST_OK)
        st = trainer_open_run(t);
    if (st == ST_OK)
        st = trainer_new_saver(t);
    if (st != ST_OK)
        return st;
    trainer_samples_open(t);
    fault_at("start");
    engine_run(t->engine, train_loop, t);
    if (t->st == ST_OK)
        say_done(t);
    return t->st;
}

enum status train_run(struct comm *c, struct train_options *o)
{
    struct trainer t = {.comm = c, .options = o};

    stop_watch();
    enum status st = run(&t);

    fault_at("end");
    saver_free(t.saver);
    trainer_samples_close(&t);
    engine_free(t.engine);
    metrics_close(t.metrics);
    shards_close(t.train);
    shards_close(t.val);
    free(t.config_text);
    if (t.lock_fd > 0)
        close(t.lock_fd);
    return st;
}
