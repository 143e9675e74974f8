/* SPDX-License-Identifier: MIT */
/* Saving: every rank writes its own file into step-N.tmp, rank 0 adds the manifest, and
 * only a whole folder gets its final name. All that may fail on a rank happens before an
 * agreement, so the ranks take every branch together. */
#include "checkpoint/native.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

struct save_paths {
    char folder[PATH_BYTES]; /* <run>/checkpoints */
    char final[PATH_BYTES];
    char tmp[PATH_BYTES];
    char old[PATH_BYTES]; /* an earlier checkpoint of the same step, while replaced */
};

static enum status paths_set(struct save_paths *p, const char *run, uint64_t step)
{
    enum status st = path_in(p->folder, run, "checkpoints");

    if (st == ST_OK)
        st = step_path(p->final, run, step, "");
    if (st == ST_OK)
        st = step_path(p->tmp, run, step, ".tmp");
    if (st == ST_OK)
        st = step_path(p->old, run, step, ".old");
    return st;
}

static enum status put_section(struct stream *s, const struct owned *own, bool moments,
                               const float *base)
{
    enum status st = ST_OK;

    for (size_t i = 0; st == ST_OK && i < own->n; i++) {
        const struct owned_range *r = &own->ranges[i];

        st = stream_put(s, base + (moments ? r->moment : r->memory),
                        r->elems * sizeof *base);
    }
    return st;
}

enum status native_write_state(const char *folder, const struct checkpoint_view *view,
                               int rank, struct file_sums *sums)
{
    char name[STATE_NAME_BYTES], path[PATH_BYTES];
    struct owned own;
    struct stream s;
    enum status st;

    *sums = (struct file_sums){0};
    state_file_name(name, rank, view->plan->ranks);
    st = path_in(path, folder, name);
    if (st != ST_OK)
        return st;
    st = owned_init(&own, view->layout, view->plan, rank, OWNED);
    if (st != ST_OK)
        return st;
    st = stream_open(&s, path);
    if (st == ST_OK)
        st = put_section(&s, &own, false, view->params);
    if (st == ST_OK)
        st = stream_digest(&s, &sums->params_hash);
    if (st == ST_OK)
        st = put_section(&s, &own, true, view->m);
    if (st == ST_OK)
        st = put_section(&s, &own, true, view->v);
    if (st == ST_OK)
        st = stream_digest(&s, &sums->hash);
    sums->bytes = s.bytes;
    st = stream_close(&s, st);
    owned_release(&own);
    return st;
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
static void finish(const struct save_paths *p, const char *run)
{
    char latest[PATH_BYTES], line[64];
    int n = snprintf(line, sizeof line, "%s\n", strrchr(p->final, '/') + 1);
    enum status st = path_in(latest, p->folder, "latest");

    if (st == ST_OK)
        st = file_write_all(latest, line, (size_t)n);
    if (st == ST_OK)
        st = folder_sync(p->folder);
    if (st == ST_OK)
        st = folder_sync(run);
    if (st == ST_OK)
        st = folder_remove(p->old);
    if (st != ST_OK)
        log_warn("%s (%s is complete)", fail_text(), p->final);
}

static void give_up(const struct save_paths *p, const char *run)
{
    char kept[PATH_BYTES];
    bool found = false;

    if (folder_remove(p->tmp) != ST_OK)
        log_warn("%s", fail_text());
    if (checkpoint_latest(run, kept, &found) != ST_OK)
        found = false;
    log_warn("checkpoint %s not written, %s%s", p->final,
             found ? "kept: " : "there is no other", found ? kept : "");
}

enum status checkpoint_save(struct comm *c, const char *run,
                            const struct run_state *state,
                            const struct checkpoint_view *view, const char *config_text,
                            const char *tokens_json, char *path)
{
    bool first = comm_rank(c) == 0;
    struct file_sums mine, *sums = NULL;
    struct save_paths p;
    enum status st;

    require(view->plan->ranks == comm_size(c));
    st = paths_set(&p, run, state->step);
    if (st == ST_OK)
        st = memory_alloc((size_t)comm_size(c), sizeof *sums, "checksums", &sums);
    if (st == ST_OK && first)
        st = folder_remove(p.tmp);
    if (st == ST_OK && first)
        st = folder_make(p.tmp);
    st = comm_agree(c, st);
    if (st != ST_OK)
        goto done;

    st = native_write_state(p.tmp, view, comm_rank(c), &mine);
    st = comm_agree(c, st);
    if (st != ST_OK)
        goto done;

    comm_gather_all(c, &mine, sizeof mine, sums);
    if (first) {
        st = copy_tokens_json(tokens_json, p.tmp);
        if (st == ST_OK)
            st = native_write_manifest(p.tmp, view, state, config_text, sums);
        if (st == ST_OK)
            st = folder_sync(p.tmp);
        if (st == ST_OK)
            st = publish(&p);
    }
    st = comm_agree(c, st);
    if (st == ST_OK && first)
        finish(&p, run);
    if (st == ST_OK)
        memcpy(path, p.final, PATH_BYTES);
done:
    if (st != ST_OK && first)
        give_up(&p, run);
    free(sums);
    return st;
}
