/* SPDX-License-Identifier: MIT */
/* Loading: whoever wrote the files, a rank reads the canonical ranges that it needs,
 * straight to where they belong in memory. */
#include "checkpoint/native.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"

/* Elements wanted: a run of the canonical vector and its place in memory. */
struct target {
    size_t canonical, elems;
    float *to;
};

static int by_canonical(const void *a, const void *b)
{
    size_t x = ((const struct target *)a)->canonical;
    size_t y = ((const struct target *)b)->canonical;

    return (x > y) - (x < y);
}

/* First target that ends behind `at`. */
static size_t first_target(const struct target *t, size_t n, size_t at)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (t[middle].canonical + t[middle].elems <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reads what the targets want of one range, which starts at `offset` of the file. */
static enum status read_range(int fd, const char *path, const struct manifest_range *r,
                              uint64_t offset, const struct target *t, size_t n)
{
    size_t end = r->begin + r->elems;
    enum status st = ST_OK;

    for (size_t i = first_target(t, n, r->begin);
         st == ST_OK && i < n && t[i].canonical < end; i++) {
        size_t from = max_size(r->begin, t[i].canonical);
        size_t to = min_size(end, t[i].canonical + t[i].elems);

        st = fd_read_at(fd, path, t[i].to + (from - t[i].canonical),
                        (to - from) * sizeof(float),
                        offset + (from - r->begin) * sizeof(float));
    }
    return st;
}

/* Fills the targets (sorted by canonical) from one section of all files. */
static enum status read_section(const struct manifest *m, const char *folder,
                                enum section section, const struct target *t, size_t n)
{
    enum status st = ST_OK;

    for (int f = 0; st == ST_OK && f < m->ranks; f++) {
        const struct manifest_file *file = &m->files[f];
        uint64_t offset = (uint64_t)section * file->elems * sizeof(float);
        char path[PATH_BYTES];

        st = path_in(path, folder, file->name);
        if (st != ST_OK)
            break;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            st = fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
            break;
        }
        for (size_t i = 0; st == ST_OK && i < file->n_ranges; i++) {
            const struct manifest_range *r = &m->ranges[file->first_range + i];

            st = read_range(fd, path, r, offset, t, n);
            offset += r->elems * sizeof(float);
        }
        close(fd);
    }
    return st;
}

enum status native_read_params(const struct manifest *m, const char *folder,
                               const struct layout *l, float *params)
{
    struct target *t;
    enum status st = memory_alloc(l->n_slices, sizeof *t, "read list", &t);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < l->n_slices; i++) {
        const struct slice *s = &l->slices[i];

        t[i] = (struct target){s->canonical_offset, s->elems, params + s->offset};
    }
    qsort(t, l->n_slices, sizeof *t, by_canonical);
    params_zero_gaps(l, params);
    st = read_section(m, folder, PARAMS, t, l->n_slices);
    free(t);
    return st;
}

enum status native_read_range(const struct manifest *m, const char *folder, size_t begin,
                              size_t elems, float *to)
{
    const struct target t = {begin, elems, to};

    return read_section(m, folder, PARAMS, &t, 1);
}

static enum status read_moment(const struct manifest *m, const char *folder,
                               enum section section, const struct owned *own,
                               struct target *t, float *base)
{
    size_t at = 0;

    for (size_t i = 0; i < own->n; i++) {
        const struct owned_range *r = &own->ranges[i];

        memset(base + at, 0, (r->moment - at) * sizeof *base);
        at = r->moment + r->elems;
        t[i] = (struct target){r->canonical, r->elems, base + r->moment};
    }
    memset(base + at, 0, (own->span - at) * sizeof *base);
    qsort(t, own->n, sizeof *t, by_canonical);
    return read_section(m, folder, section, t, own->n);
}

enum status native_read_moments(const struct manifest *m, const char *folder,
                                const struct checkpoint_view *view, int rank)
{
    struct target *t = NULL;
    struct owned own;
    enum status st = owned_init(&own, view->layout, view->plan, rank, OWNED_AND_COPIES);

    if (st != ST_OK)
        return st;
    st = own.n > 0 ? memory_alloc(own.n, sizeof *t, "read list", &t) : ST_OK;
    if (st == ST_OK && own.n > 0)
        st = read_moment(m, folder, MOMENT_M, &own, t, view->m);
    if (st == ST_OK && own.n > 0)
        st = read_moment(m, folder, MOMENT_V, &own, t, view->v);
    free(t);
    owned_release(&own);
    return st;
}

static enum status check_hash(const char *path, uint64_t bytes, uint64_t needed)
{
    uint64_t found = 0;
    enum status st = file_hash(path, bytes, &found);

    if (st == ST_OK && found != needed)
        st = fail(ST_FORMAT,
                  "%s: found checksum %016" PRIx64 ", needs %016" PRIx64
                  ": the file is damaged",
                  path, found, needed);
    return st;
}

enum status native_verify(const struct manifest *m, const char *folder, int file,
                          bool params_only)
{
    const struct file_sums *sums = &m->files[file].sums;
    char path[PATH_BYTES];
    enum status st = path_in(path, folder, m->files[file].name);

    if (st != ST_OK)
        return st;
    return params_only ? check_hash(path, sums->bytes / 3, sums->params_hash)
                       : check_hash(path, sums->bytes, sums->hash);
}

enum status native_verify_share(const struct manifest *m, const char *folder, int rank,
                                int ranks)
{
    char path[PATH_BYTES];
    enum status st = ST_OK;

    for (int f = rank; st == ST_OK && f < m->ranks; f += ranks)
        st = native_verify(m, folder, f, false);
    if (st == ST_OK && rank == 0 && m->tokens_json.there) {
        st = path_in(path, folder, "tokens.json");
        if (st == ST_OK)
            st = check_hash(path, m->tokens_json.bytes, m->tokens_json.hash);
    }
    return st;
}

enum status checkpoint_load(struct comm *c, const char *path, bool verify,
                            const struct checkpoint_view *view, struct run_state *state)
{
    struct manifest m;
    enum status st;

    require(view->plan->ranks == comm_size(c));
    st = native_inspect(path, &m);
    if (st == ST_OK)
        st = fault_status("load", path);
    if (st == ST_OK)
        st = shape_match(&m.shape, path, &view->layout->shape);
    st = comm_agree(c, st);
    if (st != ST_OK)
        goto done;

    if (verify)
        st = comm_agree(c, native_verify_share(&m, path, comm_rank(c), comm_size(c)));
    if (st != ST_OK)
        goto done;

    st = native_read_params(&m, path, view->layout, view->params);
    if (st == ST_OK)
        st = native_read_moments(&m, path, view, comm_rank(c));
    st = comm_agree(c, st);
    if (st != ST_OK)
        goto done;
    *state = m.state;
    if (m.ranks != comm_size(c))
        log_info("%s: written by %d rank%s, read by %d", path, m.ranks,
                 m.ranks == 1 ? "" : "s", comm_size(c));
done:
    manifest_release(&m);
    return st;
}
