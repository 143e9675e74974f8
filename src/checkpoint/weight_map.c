/* SPDX-License-Identifier: MIT */
/* Where the numbers of a model are in its files, held against what they should be. */
#include "checkpoint/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

enum status weight_map_set_shape(struct weight_map *m, const struct shape *shape)
{
    size_t n = TENSOR_KINDS * shape->L;
    enum status st = memory_alloc(n, sizeof *m->places, "list of tensors", &m->places);

    m->shape = *shape;
    m->shape.Vp = round_up(shape->V, VOCAB_PAD);
    m->head.file = -1;
    for (size_t i = 0; st == ST_OK && i < n; i++)
        m->places[i].file = -1;
    return st;
}

void weight_map_close(struct weight_map *m)
{
    for (size_t i = 0; m->fds && i < m->files.count; i++)
        close(m->fds[i]);
    path_list_release(&m->files);
    free(m->fds);
    free(m->file_bytes);
    free(m->places);
    *m = (struct weight_map){0};
}

static enum status open_regular(const char *path, int *fd, uint64_t *bytes)
{
    struct stat info;

    /* O_NONBLOCK: a pipe by that name is refused below and not waited for. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(*fd, &info) == 0 && S_ISREG(info.st_mode)) {
        *bytes = (uint64_t)info.st_size;
        return ST_OK;
    }
    close(*fd);
    *fd = -1;
    return fail(ST_IO, "%s: not a regular file", path);
}

enum status weight_map_add_file(struct weight_map *m, const char *path, int *file)
{
    size_t n = m->files.count;
    int *fds = realloc(m->fds, (n + 1) * sizeof *fds);
    uint64_t *bytes = realloc(m->file_bytes, (n + 1) * sizeof *bytes);
    int fd;
    enum status st;

    if (fds)
        m->fds = fds;
    if (bytes)
        m->file_bytes = bytes;
    if (!fds || !bytes)
        return fail(ST_NOMEM, "%s: no memory for a list of files", path);
    st = open_regular(path, &fd, &m->file_bytes[n]);
    if (st != ST_OK)
        return st;
    st = path_list_add(&m->files, path);
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    m->fds[n] = fd;
    *file = (int)n;
    return ST_OK;
}

/* ---- dimensions ---- */

void stored_dims(const struct shape *s, enum tensor_kind kind, size_t *rows, size_t *cols)
{
    tensor_dims(s, kind, rows, cols);
    if (kind == WTE)
        *rows = s->V;
}

size_t stored_most(const struct shape *s)
{
    size_t most = 0;

    for (int k = 0; k < TENSOR_KINDS; k++) {
        size_t rows, cols;

        stored_dims(s, (enum tensor_kind)k, &rows, &cols);
        most = max_size(most, rows * cols);
    }
    return most;
}

enum status each_by_layer(const struct shape *s,
                          enum status (*visit)(void *arg, enum tensor_kind kind,
                                               size_t layer),
                          void *arg)
{
    enum status st = visit(arg, WTE, 0);

    if (st == ST_OK)
        st = visit(arg, WPE, 0);
    for (size_t layer = 0; st == ST_OK && layer < s->L; layer++)
        for (int k = 0; st == ST_OK && k < TENSOR_KINDS; k++)
            if (tensor_table[k].per_layer)
                st = visit(arg, (enum tensor_kind)k, layer);
    if (st == ST_OK)
        st = visit(arg, LNFW, 0);
    return st == ST_OK ? visit(arg, LNFB, 0) : st;
}

/* "[3, 4]" */
static const char *dims_text(const uint64_t *dims, size_t n, char *buf, size_t buf_bytes)
{
    int at = snprintf(buf, buf_bytes, "[");

    for (size_t i = 0; i < n && at < (int)buf_bytes; i++)
        at += snprintf(buf + at, buf_bytes - (size_t)at, "%s%" PRIu64, i ? ", " : "",
                       dims[i]);
    if (at < (int)buf_bytes)
        (void)snprintf(buf + at, buf_bytes - (size_t)at, "]");
    return buf;
}

static bool same_dims(const struct declared *d, const uint64_t *needed, size_t n)
{
    for (size_t i = 0; i < n && d->n_dims == n; i++)
        if (d->dims[i] != needed[i])
            return false;
    return d->n_dims == n;
}

enum status weight_map_add(struct weight_map *m, int file, enum tensor_kind kind,
                           size_t layer, bool transposed, size_t wte_rows,
                           const struct declared *d)
{
    enum tensor_kind like = kind == TENSOR_KINDS ? WTE : kind;
    const char *path = m->files.paths[file];
    struct place *p = &m->head;
    char found[128], need[128];
    size_t rows, cols;

    if (kind != TENSOR_KINDS && layer >= (tensor_table[kind].per_layer ? m->shape.L : 1))
        return fail(ST_FORMAT, "%s: found tensor %s, needs layers below %zu", path,
                    d->name, m->shape.L);
    if (kind != TENSOR_KINDS)
        p = &m->places[(size_t)kind * m->shape.L + layer];
    if (p->file >= 0)
        return fail(ST_FORMAT, "%s: found tensor %s twice, needs it once", path, d->name);
    stored_dims(&m->shape, like, &rows, &cols);
    if (like == WTE && wte_rows)
        rows = wte_rows;
    bool vector = !tensor_table[like].decays;
    uint64_t needed[2] = {transposed || vector ? cols : rows, transposed ? rows : cols};
    if (!same_dims(d, needed, vector ? 1 : 2))
        return fail(ST_FORMAT, "%s: tensor %s: found shape %s, needs %s", path, d->name,
                    dims_text(d->dims, d->n_dims, found, sizeof found),
                    dims_text(needed, vector ? 1 : 2, need, sizeof need));
    uint64_t bytes = (uint64_t)rows * cols * dtype_bytes(d->dtype);
    if (d->offset > m->file_bytes[file] || bytes > m->file_bytes[file] - d->offset)
        return fail(ST_FORMAT,
                    "%s: tensor %s: found %" PRIu64 " bytes in the file, needs %" PRIu64
                    " at byte %" PRIu64,
                    path, d->name, m->file_bytes[file], bytes, d->offset);
    *p = (struct place){
        .file = file, .dtype = d->dtype, .transposed = transposed, .offset = d->offset};
    return ST_OK;
}

enum status weight_map_complete(const struct weight_map *m, const char *path,
                                const struct naming *n)
{
    char name[TENSOR_NAME_BYTES];

    for (int k = 0; k < TENSOR_KINDS; k++)
        for (size_t l = 0; l < (tensor_table[k].per_layer ? m->shape.L : 1); l++)
            if (m->places[(size_t)k * m->shape.L + l].file < 0) {
                naming_put(n, (enum tensor_kind)k, l, name);
                return fail(ST_FORMAT, "%s: found no tensor %s, needs it for L=%zu", path,
                            name, m->shape.L);
            }
    return ST_OK;
}

/* ---- names ---- */

void naming_put(const struct naming *n, enum tensor_kind kind, size_t layer, char *out)
{
    if (tensor_table[kind].per_layer)
        (void)snprintf(out, TENSOR_NAME_BYTES, "%s%zu.%s", n->layer_prefix, layer,
                       n->names[kind]);
    else
        (void)snprintf(out, TENSOR_NAME_BYTES, "%s", n->names[kind]);
}

bool naming_find(const struct naming *n, const char *name, enum tensor_kind *kind,
                 size_t *layer)
{
    size_t prefix = strlen(n->layer_prefix);
    bool in_layer = !strncmp(name, n->layer_prefix, prefix);

    *layer = 0;
    *kind = TENSOR_KINDS;
    if (!strcmp(name, n->head))
        return true;
    if (in_layer) {
        size_t digits = strspn(name + prefix, "0123456789");

        /* One way to write a number, so that no tensor has two names. */
        if (digits == 0 || digits > 6 || (digits > 1 && name[prefix] == '0') ||
            name[prefix + digits] != '.')
            return false;
        *layer = strtoul(name + prefix, NULL, 10);
        name += prefix + digits + 1;
    }
    for (int k = 0; k < TENSOR_KINDS; k++)
        if (tensor_table[k].per_layer == in_layer && !strcmp(name, n->names[k])) {
            *kind = (enum tensor_kind)k;
            return true;
        }
    return false;
}

/* ---- extents ---- */

static int by_begin(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin > y->begin ? 1 : -1;
    return (x->end > y->end) - (x->end < y->end);
}

enum status extents_check(struct extent *list, size_t n, uint64_t align, uint64_t bytes,
                          const char *path)
{
    uint64_t at = 0, last = 0;

    qsort(list, n, sizeof *list, by_begin);
    for (size_t i = 0; i < n; i++) {
        const struct extent *e = &list[i];

        if (e->begin != at)
            return fail(ST_FORMAT,
                        "%s: tensor %s: found its data at byte %" PRIu64
                        ", needs it at %" PRIu64 ": %s",
                        path, e->name, e->begin, at,
                        e->begin < at ? "tensors overlap" : "there is a hole");
        last = e->end;
        if (e->end > bytes)
            return fail(ST_FORMAT,
                        "%s: tensor %s: found %" PRIu64
                        " bytes of data in the file, needs %" PRIu64,
                        path, e->name, bytes, e->end);
        at = (e->end + align - 1) / align * align;
    }
    if (bytes != last && bytes != at)
        return fail(ST_FORMAT,
                    "%s: found %" PRIu64 " bytes of data, needs %" PRIu64
                    ", the end of the last tensor",
                    path, bytes, last);
    return ST_OK;
}
