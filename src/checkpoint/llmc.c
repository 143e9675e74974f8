/* SPDX-License-Identifier: MIT */
/* llm.c model files: a header of 256 words, then the tensors in storage order, wte with
 * the padding rows that the header counts. */
#include "checkpoint/native.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { HEADER_WORDS = LLMC_HEADER_BYTES / 4 };

/* The first words of a file; a shorter file gives zeros. */
static enum status read_header(const char *path, int32_t *words)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    enum status st = ST_OK;
    uint64_t bytes = 0;

    memset(words, 0, LLMC_HEADER_BYTES);
    if (fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    st = file_size(path, &bytes);
    if (st == ST_OK)
        st = fd_read_at(fd, path, words,
                        bytes < LLMC_HEADER_BYTES ? (size_t)bytes : LLMC_HEADER_BYTES, 0);
    close(fd);
    return st;
}

static enum status check_magic(const char *path, const int32_t *words)
{
    if (words[0] != LLMC_MODEL_MAGIC)
        return fail(ST_FORMAT, "%s: found magic %" PRId32 ", needs %d (llm.c model)",
                    path, words[0], LLMC_MODEL_MAGIC);
    if (words[1] != LLMC_FP32)
        return fail(ST_FORMAT,
                    "%s: found llm.c model version %" PRId32 "%s, needs %d "
                    "(fp32)",
                    path, words[1], words[1] == 5 ? " (bf16)" : "", LLMC_FP32);
    for (int i = 2; i <= 7; i++)
        if (words[i] < 0)
            return fail(ST_FORMAT, "%s: header word %d is %" PRId32 ", needs a count",
                        path, i, words[i]);
    return ST_OK;
}

enum status llmc_read_shape(const char *path, struct shape *shape)
{
    int32_t words[HEADER_WORDS];
    size_t elems = 0;
    uint64_t bytes = 0;
    enum status st = read_header(path, words);

    *shape = (struct shape){0};
    if (st == ST_OK)
        st = check_magic(path, words);
    if (st != ST_OK)
        return st;
    *shape = (struct shape){.T = (size_t)words[2],
                            .V = (size_t)words[3],
                            .L = (size_t)words[4],
                            .H = (size_t)words[5],
                            .C = (size_t)words[6],
                            .Vp = (size_t)words[7]};
    st = shape_from_file(shape, path, &elems);
    if (st == ST_OK)
        st = file_size(path, &bytes);
    if (st == ST_OK && bytes != LLMC_HEADER_BYTES + elems * sizeof(float))
        st = fail(ST_FORMAT,
                  "%s: found %" PRIu64 " bytes, needs %zu for L=%zu,H=%zu,C=%zu,T=%zu,"
                  "V=%zu (padded to %zu)",
                  path, bytes, LLMC_HEADER_BYTES + elems * sizeof(float), shape->L,
                  shape->H, shape->C, shape->T, shape->V, shape->Vp);
    return st;
}

/* ---- reading ---- */

struct reader {
    int fd;
    const char *path;
    uint64_t offset;
    const struct shape *file; /* Vp as in the file */
    float *params;
    enum status st;
};

static void read_slice(const struct slice *s, void *arg)
{
    struct reader *r = arg;
    float *to = r->params + s->offset;
    size_t rows = s->rows, rows_in_file = s->rows;

    if (r->st != ST_OK)
        return;
    if (s->kind == WTE) {
        rows = r->file->V; /* padding is ours, whatever the file has there */
        rows_in_file = r->file->Vp;
    }
    r->st = fd_read_at(r->fd, r->path, to, rows * s->cols * sizeof *to, r->offset);
    memset(to + rows * s->cols, 0, (s->span - rows * s->cols) * sizeof *to);
    r->offset += rows_in_file * s->cols * sizeof *to;
}

enum status llmc_read(const char *path, const struct layout *layout, float *params)
{
    struct shape file, in_memory;
    struct reader r = {
        .path = path, .offset = LLMC_HEADER_BYTES, .file = &file, .params = params};
    enum status st = llmc_read_shape(path, &file);

    if (st != ST_OK)
        return st;
    in_memory = file;
    in_memory.Vp = layout->shape.Vp;
    st = shape_match(&in_memory, path, &layout->shape);
    if (st != ST_OK)
        return st;
    r.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r.fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    layout_each_canonical(layout, read_slice, &r);
    close(r.fd);
    return r.st;
}

/* ---- writing ---- */

struct writer {
    struct stream stream;
    const float *params;
    enum status st;
};

static void write_slice(const struct slice *s, void *arg)
{
    struct writer *w = arg;

    if (w->st == ST_OK)
        w->st =
            stream_put(&w->stream, w->params + s->offset, s->elems * sizeof *w->params);
}

/* fsyncs the folder that holds `path`. */
static enum status sync_parent(const char *path)
{
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');

    if (!slash)
        return folder_sync(".");
    if (slash == path)
        return folder_sync("/");
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return folder_sync(folder);
}

enum status llmc_write(const char *path, const struct layout *layout, const float *params)
{
    const struct shape *s = &layout->shape;
    int32_t words[HEADER_WORDS] = {LLMC_MODEL_MAGIC, LLMC_FP32,     (int32_t)s->T,
                                   (int32_t)s->V,    (int32_t)s->L, (int32_t)s->H,
                                   (int32_t)s->C,    (int32_t)s->Vp};
    struct writer w = {.params = params};
    char tmp[PATH_BYTES];

    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return fail(ST_IO, "%s: path too long", path);
    w.st = stream_open(&w.stream, tmp);
    if (w.st == ST_OK)
        w.st = stream_put(&w.stream, words, sizeof words);
    layout_each_canonical(layout, write_slice, &w);
    w.st = stream_close(&w.stream, w.st);
    if (w.st == ST_OK && rename(tmp, path) != 0)
        w.st = fail(ST_IO, "%s: cannot rename to %s: %s", tmp, path, strerror(errno));
    if (w.st != ST_OK)
        unlink(tmp);
    return w.st == ST_OK ? sync_parent(path) : w.st;
}
