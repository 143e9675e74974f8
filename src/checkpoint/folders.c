/* SPDX-License-Identifier: MIT */
/* The folder <run>/checkpoints: which checkpoints are there, which is the newest complete
 * one, which may go. Names are compared as numbers. */
#include "checkpoint/native.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"

enum status path_in(char *out, const char *folder, const char *name)
{
    size_t n = strlen(folder);
    const char *slash = n > 0 && folder[n - 1] == '/' ? "" : "/";

    if (snprintf(out, PATH_BYTES, "%s%s%s", folder, slash, name) >= PATH_BYTES)
        return fail(ST_IO, "%s/%s: path too long", folder, name);
    return ST_OK;
}

enum status step_path(char *out, const char *run, uint64_t step, const char *suffix)
{
    char name[80];

    (void)snprintf(name, sizeof name, "checkpoints/step-%06" PRIu64 "%s", step, suffix);
    return path_in(out, run, name);
}

/* ---- listing ---- */

/* In the order of preference at equal steps. */
enum entry_kind { LEFTOVER, SET_ASIDE, REPLACED, FINAL };

struct entry {
    uint64_t step;
    enum entry_kind kind;
    char path[PATH_BYTES];
};

struct entries {
    struct entry *list; /* ascending */
    size_t n, capacity;
};

/* step-DIGITS and the same with .tmp, .old or .damaged; false for anything else. */
static bool parse_name(const char *name, struct entry *out)
{
    const char *digits = name + 5;

    if (strncmp(name, "step-", 5) != 0)
        return false;
    size_t n = strspn(digits, "0123456789");
    if (n == 0 || n > 19)
        return false;
    out->step = strtoull(digits, NULL, 10);
    if (!digits[n])
        out->kind = FINAL;
    else if (!strcmp(digits + n, ".old"))
        out->kind = REPLACED;
    else if (!strcmp(digits + n, ".damaged"))
        out->kind = SET_ASIDE;
    else if (!strcmp(digits + n, ".tmp"))
        out->kind = LEFTOVER;
    else
        return false;
    return true;
}

static int by_step(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static enum status entries_add(struct entries *e, const char *folder, const char *name)
{
    struct entry entry;

    if (!parse_name(name, &entry))
        return ST_OK;
    if (e->n == e->capacity) {
        size_t capacity = e->capacity ? 2 * e->capacity : 16;
        struct entry *grown = realloc(e->list, capacity * sizeof *grown);

        if (!grown)
            return fail(ST_NOMEM, "no memory for a list of %zu checkpoints", capacity);
        e->list = grown;
        e->capacity = capacity;
    }
    e->list[e->n] = entry;
    return path_in(e->list[e->n++].path, folder, name);
}

/* The list is to be freed in any case. */
static enum status entries_read(struct entries *e, const char *run)
{
    char folder[PATH_BYTES];
    struct dirent *entry;
    enum status st;

    *e = (struct entries){0};
    st = path_in(folder, run, "checkpoints");
    if (st != ST_OK)
        return st;
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return ST_OK;
    if (!dir)
        return fail(ST_IO, "%s: cannot open folder: %s", folder, strerror(errno));
    while (st == ST_OK && (entry = readdir(dir)))
        st = entries_add(e, folder, entry->d_name);
    closedir(dir);
    if (e->n > 0)
        qsort(e->list, e->n, sizeof *e->list, by_step);
    return st;
}

enum status checkpoint_list(const char *run, struct path_list *out)
{
    struct entries e;
    enum status st = entries_read(&e, run);

    for (size_t i = 0; st == ST_OK && i < e.n; i++)
        if (e.list[i].kind == FINAL)
            st = path_list_add(out, e.list[i].path);
    free(e.list);
    return st;
}

/* ---- looking at one ---- */

enum status native_inspect(const char *folder, struct manifest *m)
{
    enum status st = manifest_read(m, folder);

    if (st == ST_OK)
        st = manifest_check_sizes(m, folder);
    return st;
}

enum status checkpoint_inspect(const char *path, bool verify, struct checkpoint_info *out)
{
    struct manifest m;
    enum status st = native_inspect(path, &m);

    *out = (struct checkpoint_info){
        .shape = m.shape, .state = m.state, .ranks = m.ranks, .elems = m.canonical_elems};
    for (int f = 0; st == ST_OK && f < m.ranks; f++) {
        out->file_bytes += m.files[f].sums.bytes;
    }
    if (st == ST_OK && verify)
        st = native_verify_share(&m, path, 0, 1);
    manifest_release(&m);
    return st;
}

/* The newest before number *end that looks complete; *end becomes its number. */
static bool next_complete(const struct entries *e, size_t *end, char *path)
{
    while (*end > 0) {
        const struct entry *entry = &e->list[--*end];
        struct checkpoint_info info;

        if (entry->kind != FINAL && entry->kind != REPLACED)
            continue;
        if (checkpoint_inspect(entry->path, false, &info) == ST_OK) {
            memcpy(path, entry->path, PATH_BYTES);
            return true;
        }
        log_warn("%s passed over: %s", entry->path, fail_text());
    }
    return false;
}

enum status checkpoint_latest(const char *run, char *path, bool *found)
{
    struct entries e;
    enum status st = entries_read(&e, run);
    size_t end = e.n;

    *found = st == ST_OK && next_complete(&e, &end, path);
    free(e.list);
    return st;
}

static enum status verify_together(struct comm *c, const char *path)
{
    struct manifest m;
    enum status st = native_inspect(path, &m);

    if (st == ST_OK)
        st = native_verify_share(&m, path, comm_rank(c), comm_size(c));
    manifest_release(&m);
    return comm_share(c, st);
}

enum status checkpoint_find(struct comm *c, const char *run, char *path, bool *found)
{
    struct {
        bool any;
        char path[PATH_BYTES];
    } candidate = {0};
    struct entries e = {0};
    bool first = comm_rank(c) == 0;
    enum status st = comm_agree(c, first ? entries_read(&e, run) : ST_OK);
    size_t end = e.n;

    *found = false;
    while (st == ST_OK && !*found) {
        if (first)
            candidate.any = next_complete(&e, &end, candidate.path);
        comm_broadcast(c, &candidate, sizeof candidate, 0);
        if (!candidate.any)
            break;
        enum status whole = verify_together(c, candidate.path);

        *found = whole == ST_OK;
        if (whole == ST_NOMEM) /* says nothing of the checkpoint */
            st = comm_agree(c, whole);
        else if (whole != ST_OK && first)
            log_warn("%s passed over: %s", candidate.path, fail_text());
    }
    if (*found)
        memcpy(path, candidate.path, PATH_BYTES);
    free(e.list);
    return st;
}

enum status checkpoint_read_config(const char *path, char **text)
{
    struct manifest m;
    enum status st = manifest_read(&m, path);

    *text = m.config;
    m.config = NULL;
    manifest_release(&m);
    return st;
}

enum status checkpoint_set_aside(const char *run, uint64_t step)
{
    struct entries e;
    enum status st = entries_read(&e, run);

    for (size_t i = 0; st == ST_OK && i < e.n; i++) {
        const struct entry *entry = &e.list[i];
        char aside[PATH_BYTES];

        if (entry->step <= step || entry->kind != FINAL)
            continue;
        st = step_path(aside, run, entry->step, ".damaged");
        if (st == ST_OK)
            st = folder_remove(aside);
        if (st == ST_OK && rename(entry->path, aside) != 0)
            st = fail(ST_IO, "%s: cannot rename to %s: %s", entry->path, aside,
                      strerror(errno));
    }
    free(e.list);
    return st;
}

/* ---- pruning ---- */

/* Takes the final name away first: a removal that is cut short leaves no half one. */
static enum status remove_checkpoint(const struct entry *e, const char *run)
{
    char tmp[PATH_BYTES];
    enum status st;

    if (e->kind != FINAL)
        return folder_remove(e->path);
    st = step_path(tmp, run, e->step, ".tmp");
    if (st == ST_OK)
        st = folder_remove(tmp);
    if (st == ST_OK && rename(e->path, tmp) != 0)
        st = fail(ST_IO, "%s: cannot rename to %s: %s", e->path, tmp, strerror(errno));
    return st == ST_OK ? folder_remove(tmp) : st;
}

/* What pruning knows before it removes anything. */
struct prune_plan {
    bool *complete; /* one an entry */
    size_t newest;  /* index of the newest complete one */
    size_t oldest;  /* index of the oldest of the newest `keep` */
    size_t best;    /* index, or SIZE_MAX */
};

/* False when no checkpoint is complete: then nothing may go. */
static bool prune_look(const struct entries *e, size_t keep, struct prune_plan *p)
{
    double best = (double)INFINITY;
    size_t kept = 0;

    p->best = SIZE_MAX;
    for (size_t i = e->n; i-- > 0;) {
        struct checkpoint_info info;

        p->complete[i] = e->list[i].kind == FINAL &&
                         checkpoint_inspect(e->list[i].path, false, &info) == ST_OK;
        if (!p->complete[i])
            continue;
        if (kept == 0)
            p->newest = i;
        if (kept < keep) {
            p->oldest = i;
            kept++;
        }
        if (info.state.best_val_loss <= best && isfinite(info.state.best_val_loss)) {
            best = info.state.best_val_loss;
            p->best = i;
        }
    }
    return kept > 0;
}

static bool prune_wants(const struct entries *e, const struct prune_plan *p, size_t i)
{
    const struct entry *entry = &e->list[i];

    if (entry->kind == LEFTOVER || entry->kind == REPLACED)
        return entry->step <= e->list[p->newest].step;
    return i < p->oldest && i != p->best;
}

enum status checkpoint_prune(const char *run, size_t keep)
{
    struct prune_plan p = {0};
    struct entries e;
    enum status st = entries_read(&e, run);

    require(keep >= 1);
    if (st == ST_OK)
        st = fault_status("prune", run);
    if (st == ST_OK && e.n > 0) {
        p.complete = calloc(e.n, sizeof *p.complete);
        if (!p.complete)
            st = fail(ST_NOMEM, "no memory for a list of %zu checkpoints", e.n);
        else if (prune_look(&e, keep, &p))
            for (size_t i = 0; st == ST_OK && i < e.n; i++)
                if (prune_wants(&e, &p, i))
                    st = remove_checkpoint(&e.list[i], run);
    }
    free(p.complete);
    free(e.list);
    return st;
}
