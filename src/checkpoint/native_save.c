/* SPDX-License-Identifier: MIT */
/* The steps of a save: every rank writes its own file into step-N.tmp, rank 0 adds the
 * manifest, and only a whole folder gets its final name. All that may fail on a rank
 * happens before an agreement, so the ranks take every branch together. saver.c goes
 * through them. */
#include "checkpoint/native.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

static enum status paths_set(struct save_paths *p, const char *run, uint64_t step)
{
    enum status st = path_in(p->run, run, "");

    if (st == ST_OK)
        st = path_in(p->folder, run, "checkpoints");
    if (st == ST_OK)
        st = step_path(p->final, run, step, "");
    if (st == ST_OK)
        st = step_path(p->tmp, run, step, ".tmp");
    if (st == ST_OK)
        st = step_path(p->old, run, step, ".old");
    return st;
}

enum status save_folder(struct save_paths *p, const char *run, uint64_t step, bool first)
{
    enum status st = paths_set(p, run, step);

    if (st == ST_OK && first)
        st = fault_status("save-begin", p->tmp);
    if (st == ST_OK && first)
        st = folder_remove(p->tmp);
    if (st == ST_OK && first)
        st = folder_make(p->tmp);
    return st;
}

static enum status put_section(struct stream *s, const struct owned *own,
                               enum section section, const struct state_source *from)
{
    enum status st = ST_OK;

    if (from->copy)
        return stream_put(s, from->copy + section * own->elems,
                          own->elems * sizeof(float));
    for (size_t i = 0; st == ST_OK && i < own->n; i++)
        st = stream_put(s, state_at(from->view, &own->ranges[i], section),
                        own->ranges[i].elems * sizeof(float));
    return st;
}

const float *state_at(const struct checkpoint_view *view, const struct owned_range *r,
                      enum section section)
{
    return section == PARAMS     ? view->params + r->memory
           : section == MOMENT_M ? view->m + r->moment
                                 : view->v + r->moment;
}

enum status save_state(const char *folder, int rank, int ranks, const struct owned *own,
                       const struct state_source *from, struct file_sums *sums)
{
    char name[STATE_NAME_BYTES], path[PATH_BYTES];
    struct stream s;
    enum status st;

    *sums = (struct file_sums){0};
    state_file_name(name, rank, ranks);
    st = path_in(path, folder, name);
    if (st != ST_OK)
        return st;
    st = stream_open(&s, path);
    if (st == ST_OK)
        st = put_section(&s, own, PARAMS, from);
    if (st == ST_OK)
        st = stream_digest(&s, &sums->params_hash);
    if (st == ST_OK)
        st = fault_status("save-write", path);
    if (st == ST_OK)
        st = put_section(&s, own, MOMENT_M, from);
    if (st == ST_OK)
        st = put_section(&s, own, MOMENT_V, from);
    if (st == ST_OK)
        st = stream_digest(&s, &sums->hash);
    if (st == ST_OK)
        st = fault_status("save-sync", path);
    sums->bytes = s.bytes;
    return stream_close(&s, st);
}

enum status native_write_state(const char *folder, const struct checkpoint_view *view,
                               int rank, struct file_sums *sums)
{
    const struct state_source from = {.view = view};
    struct owned own;
    enum status st = owned_init(&own, view->layout, view->plan, rank, OWNED);

    *sums = (struct file_sums){0};
    if (st == ST_OK)
        st = save_state(folder, rank, view->plan->ranks, &own, &from, sums);
    owned_release(&own);
    return st;
}

static enum status sum_tokens_json(struct manifest *m, const char *folder)
{
    char path[PATH_BYTES];
    enum status st = path_in(path, folder, "tokens.json");

    m->tokens_json.there = st == ST_OK && file_exists(path);
    if (!m->tokens_json.there)
        return st;
    st = file_size(path, &m->tokens_json.bytes);
    return st == ST_OK ? file_hash(path, m->tokens_json.bytes, &m->tokens_json.hash) : st;
}

enum status native_write_manifest(const char *folder, const struct checkpoint_view *view,
                                  const struct run_state *state, const char *config_text,
                                  const struct file_sums *sums)
{
    struct manifest m;
    enum status st = manifest_init(&m, view, state, config_text);

    if (st != ST_OK)
        return st;
    for (int r = 0; r < m.ranks; r++) {
        require(m.files[r].sums.bytes == sums[r].bytes);
        m.files[r].sums = sums[r];
    }
    st = sum_tokens_json(&m, folder);
    if (st == ST_OK)
        st = manifest_write(&m, folder);
    if (st == ST_OK)
        st = manifest_check_sizes(&m, folder);
    manifest_release(&m);
    return st;
}

/* A checkpoint without its tokenizer is still the run: only the copy's own failure to be
 * written counts. */
static enum status copy_tokens_json(const char *from, const char *folder)
{
    char to[PATH_BYTES];
    char *text;
    size_t bytes;
    enum status st = path_in(to, folder, "tokens.json");

    if (st != ST_OK || !from)
        return st;
    if (file_read_all(from, &text, &bytes) != ST_OK) {
        log_warn("%s; the checkpoint has no tokens.json", fail_text());
        return ST_OK;
    }
    st = file_write_all(to, text, bytes);
    free(text);
    return st;
}

static enum status move(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return fail(ST_IO, "%s: cannot rename to %s: %s", from, to, strerror(errno));
    return ST_OK;
}

/* Gives the finished folder its name. The old one of the same step, if any, waits under
 * .old, where checkpoint_latest still finds it, until the new one is safe. */
static enum status publish(const struct save_paths *p)
{
    bool replaces = file_exists(p->final);
    enum status st = ST_OK;

    if (replaces) {
        st = folder_remove(p->old);
        if (st == ST_OK)
            st = move(p->final, p->old);
        if (st != ST_OK)
            return st;
    }
    st = fault_status("save-rename", p->tmp);
    if (st == ST_OK)
        st = move(p->tmp, p->final);
    if (st == ST_OK) {
        st = folder_sync(p->folder);
        if (st != ST_OK && move(p->final, p->tmp) != ST_OK)
            log_warn("%s", fail_text());
    }
    if (st != ST_OK && replaces && rename(p->old, p->final) != 0)
        log_warn("%s: cannot rename to %s: %s", p->old, p->final, strerror(errno));
    return st;
}

/* What readers do not depend on: it only warns. */
static void finish(const struct save_paths *p)
{
    char latest[PATH_BYTES], line[64];
    int n = snprintf(line, sizeof line, "%s\n", strrchr(p->final, '/') + 1);
    enum status st = fault_status("save-latest", p->final);

    if (st == ST_OK)
        st = path_in(latest, p->folder, "latest");

    if (st == ST_OK)
        st = file_write_all(latest, line, (size_t)n);
    if (st == ST_OK)
        st = folder_sync(p->folder);
    if (st == ST_OK)
        st = folder_sync(p->run);
    if (st == ST_OK)
        st = folder_remove(p->old);
    if (st != ST_OK)
        log_warn("%s (%s is complete)", fail_text(), p->final);
}

enum status save_publish(const struct save_paths *p, const struct checkpoint_view *view,
                         const struct run_state *state, const char *config_text,
                         const char *tokens_json, const struct file_sums *sums)
{
    enum status st = fault_status("save-manifest", p->tmp);

    if (st == ST_OK)
        st = copy_tokens_json(tokens_json, p->tmp);
    if (st == ST_OK)
        st = native_write_manifest(p->tmp, view, state, config_text, sums);
    if (st == ST_OK)
        st = folder_sync(p->tmp);
    if (st == ST_OK)
        st = publish(p);
    if (st == ST_OK)
        finish(p);
    return st;
}

void save_give_up(const struct save_paths *p)
{
    char kept[PATH_BYTES];
    bool found = false;

    if (folder_remove(p->tmp) != ST_OK)
        log_warn("%s", fail_text());
    if (checkpoint_latest(p->run, kept, &found) != ST_OK)
        found = false;
    log_warn("checkpoint %s not written, %s%s", p->final,
             found ? "kept: " : "there is no other", found ? kept : "");
}
