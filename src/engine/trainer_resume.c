/* SPDX-License-Identifier: MIT */
/* Going on from a checkpoint: which one, and what is not as it was. */
#include "engine/trainer_private.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"

/* ---- which one ---- */

/* --resume names one itself: neither auto nor none. */
static bool names_checkpoint(const struct train_options *o)
{
    return strcmp(o->resume, "auto") != 0 && strcmp(o->resume, "none") != 0;
}

/* What this run writes would be older than what is there, and pruned as such. */
static enum status check_no_newer(const struct trainer *t)
{
    struct model_file newest;
    enum status st = t->latest.found ? model_open(t->latest.path, &newest) : ST_OK;

    if (st == ST_OK && t->latest.found && newest.state.step > t->start.state.step)
        st = fail(ST_USAGE,
                  "--resume %s: found newer %s in --out %s; needs another --out, or the "
                  "newer ones moved away",
                  t->options->resume, t->latest.path, t->options->out);
    return st;
}

static enum status open_named(struct trainer *t)
{
    const char *path = t->options->resume;
    enum status st = model_open(path, &t->start);

    if (st == ST_OK && t->start.kind != MODEL_NATIVE)
        st = fail(ST_USAGE,
                  "--resume %s: found a model file without optimizer state, needs a "
                  "checkpoint; --model %s starts from its weights",
                  path, path);
    return st == ST_OK ? check_no_newer(t) : st;
}

/* The seed of a run stays, unless the user asks for another one. */
static void keep_seed(struct trainer *t)
{
    struct train_options *o = t->options;

    if (!trainer_option_is_set(t, "seed"))
        o->seed = t->start.state.seed;
    else if (o->seed != t->start.state.seed)
        log_info("seed changed from %llu to %zu: the data order is another one from here "
                 "on",
                 (unsigned long long)t->start.state.seed, o->seed);
}

enum status trainer_find_resume(struct trainer *t)
{
    const struct train_options *o = t->options;
    enum status st = ST_OK;

    if (names_checkpoint(o)) {
        st = open_named(t);
        t->has_start = t->resumed = st == ST_OK;
        if (t->resumed)
            keep_seed(t);
        return st;
    }
    if (!t->latest.found)
        return ST_OK;
    if (!strcmp(o->resume, "none"))
        return fail(ST_USAGE,
                    "--resume none: %s already holds %s; needs another --out, or "
                    "--resume auto to go on from it",
                    o->out, t->latest.path);
    st = model_open(t->latest.path, &t->start);
    t->has_start = t->resumed = st == ST_OK;
    if (t->resumed)
        keep_seed(t);
    return st;
}

/* A run whose checkpoints are all damaged must not start anew by itself: it would write
 * over them. */
static enum status refuse_damaged(const char *run)
{
    struct path_list found = {0};
    enum status st = checkpoint_list(run, &found);

    if (st == ST_OK && found.count > 0)
        st = fail(ST_FORMAT,
                  "%s: found no whole checkpoint to go on from, newest is %s; needs one, "
                  "or another --out",
                  run, found.paths[found.count - 1]);
    path_list_release(&found);
    return st;
}

enum status trainer_find_latest(struct trainer *t)
{
    const char *out = t->options->out;
    enum status st = ST_OK;

    if (!out)
        st = fail(ST_USAGE, "train: needs --out RUN");
    else if (!*out)
        st = fail(ST_USAGE, "--out: found '', needs a folder's name");

    st = comm_agree(t->comm, st);
    if (st == ST_OK && !strcmp(t->options->resume, "auto"))
        st = checkpoint_find(t->comm, out, t->latest.path, &t->latest.found);
    if (st != ST_OK)
        return st;
    /* One rank looks, so that what it warns of is said once and all go on alike. */
    if (comm_rank(t->comm) == 0) {
        if (strcmp(t->options->resume, "auto") != 0)
            st = checkpoint_latest(out, t->latest.path, &t->latest.found);
        if (st == ST_OK && !t->latest.found && !names_checkpoint(t->options))
            st = refuse_damaged(out);
    }
    st = comm_agree(t->comm, st);
    comm_broadcast(t->comm, &t->latest, sizeof t->latest, 0);
    return st;
}

/* ---- what has changed ---- */

enum status trainer_check_tokenizer(const struct trainer *t)
{
    if (!t->resumed || !t->meta.path[0] || !t->start.tokens_json[0] ||
        !tokens_json_differ(t->meta.path, t->start.tokens_json))
        return ST_OK;
    return fail(ST_USAGE,
                "%s: found another tokenizer than the checkpoint's %s; needs data made "
                "with the same one, or --model %s to start from the weights",
                t->meta.path, t->start.tokens_json, t->start.path);
}

/* Not worth a line when they differ. */
static const char *const passing[] = {"out",
                                      "resume",
                                      "config",
                                      "help",
                                      "threads",
                                      "log-every",
                                      "dry-run",
                                      "quiet",
                                      "epochs",
                                      "isa",
                                      "total-batch-tokens",
                                      "trace-data",
                                      "time-limit",
                                      "save",
                                      "stall-limit",
                                      "check-sync",
                                      "tensorboard",
                                      "prometheus",
                                      NULL};

static bool is_passing(const char *name)
{
    const char *const *p = passing;

    while (*p && strcmp(*p, name) != 0)
        p++;
    return *p != NULL;
}

/* A table like the run's whose values are in `old`; rows of other variables are left
 * out. Freed by the caller. */
static enum status table_over(const struct train_options *now, struct train_options *old,
                              struct option_row **out)
{
    size_t n = 0;
    enum status st;

    while (now->table[n].name)
        n++;
    st = memory_alloc(n + 1, sizeof **out, "options", out);
    for (size_t i = 0, k = 0; st == ST_OK && i < n; i++) {
        struct option_row row = now->table[i];
        size_t at = (size_t)((char *)row.value - (const char *)now);

        if (at >= sizeof *now)
            continue;
        row.value = (char *)old + at;
        row.set = row.on_command_line = false;
        (*out)[k++] = row;
    }
    return st;
}

/* An option without a value is not in the text: what the run has now must not stand in
 * its place. */
static void unset_absent(struct option_row *table)
{
    for (struct option_row *row = table; row->name; row++) {
        if (row->set)
            continue;
        if (row->kind == OPTION_TEXT)
            *(const char **)row->value = NULL;
        else if (!strcmp(row->name, "save-every"))
            *(size_t *)row->value = OPTION_SIZE_UNSET;
    }
}

static void tell_options(const struct option_row *old, const struct option_row *now)
{
    for (; old->name; old++) {
        char was[4096], is[4096];

        while (strcmp(now->name, old->name) != 0)
            now++;
        option_format(old, was, sizeof was);
        option_format(now, is, sizeof is);
        if (!is_passing(old->name) && strcmp(was, is) != 0)
            log_info("changed: --%s %s -> %s", old->name, was[0] ? was : "(not given)",
                     is[0] ? is : "(not given)");
    }
}

static void tell_rate(const struct trainer *t, const struct train_options *old)
{
    const struct schedule then = {.kind = (enum schedule_kind)old->schedule,
                                  .lr = old->lr,
                                  .min_lr = old->min_lr,
                                  .warmup = old->warmup,
                                  .steps = old->steps};
    uint64_t step = t->start.state.step;
    double was = schedule_rate(&then, step);
    double is = schedule_rate(&t->schedule, step);

    if (fabs(was - is) > 1e-9 * fabs(was))
        log_info("changed: the learning rate of step %" PRIu64 " is %.4e, was to be %.4e",
                 step + 1, is, was);
}

static void tell_data(const struct trainer *t)
{
    const struct run_state *s = &t->start.state;
    uint64_t tokens = shards_tokens(t->train);

    if (s->data_tokens == 0 || (s->data_tokens == tokens && s->data_hash == t->data_hash))
        return;
    log_warn("%s: found other training data than the checkpoint's: %" PRIu64
             " tokens, were %" PRIu64 "; its order goes on from step %" PRIu64,
             t->options->data, tokens, s->data_tokens, s->step);
}

void trainer_tell_changes(const struct trainer *t)
{
    struct train_options old = *t->options;
    struct option_row *table = NULL;
    char *text = NULL;
    enum status st = checkpoint_read_config(t->start.path, &text);

    if (st == ST_OK)
        st = table_over(t->options, &old, &table);
    if (st == ST_OK)
        st = options_read_text(table, text, t->start.path);
    if (st == ST_OK) {
        unset_absent(table);
        tell_options(table, t->options->table);
        tell_rate(t, &old);
    } else {
        log_warn("cannot compare options with the checkpoint's: %s", fail_text());
    }
    tell_data(t);
    free(table);
    free(text);
}
