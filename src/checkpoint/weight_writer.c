/* SPDX-License-Identifier: MIT */
/* Writing slice by slice, and how a finished file gets its name. */
#include "checkpoint/weights.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { CHUNK_NUMBERS = 1 << 18 };

enum status weight_writer_begin(struct weight_writer *w, const char *path,
                                const struct weight_source *source)
{
    enum status st;

    *w = (struct weight_writer){.source = source, .stream.fd = -1};
    if (snprintf(w->path, sizeof w->path, "%s", path) >= (int)sizeof w->path)
        return fail(ST_IO, "%s: path too long", path);
    st = memory_alloc(stored_most(&source->shape), sizeof *w->slice, "tensor", &w->slice);
    if (st == ST_OK)
        st = memory_alloc(CHUNK_NUMBERS, sizeof(float), "write buffer", &w->chunk);
    return st == ST_OK ? stream_open(&w->stream, w->path) : st;
}

static enum status put_numbers(struct weight_writer *w, enum dtype dtype,
                               const float *from, size_t n, const struct slice *s)
{
    enum status st = ST_OK;

    if (dtype == DTYPE_FP32)
        return stream_put(&w->stream, from, n * sizeof *from);
    for (size_t i = 0; st == ST_OK && i < n; i += CHUNK_NUMBERS) {
        size_t some = min_size(CHUNK_NUMBERS, n - i);
        size_t lost = dtype_store(dtype, from + i, some, w->chunk);
        char name[32];

        if (lost < some)
            return fail(ST_NUMERIC, "%s: tensor %s: found %g, needs less for %s",
                        w->source->path, slice_name(s, name, sizeof name),
                        (double)from[i + lost], dtype_name(dtype));
        st = stream_put(&w->stream, w->chunk, some * dtype_bytes(dtype));
    }
    return st;
}

/* Column strips of the slice, as rows. */
static enum status put_transposed(struct weight_writer *w, enum dtype dtype, size_t rows,
                                  size_t cols, const struct slice *s)
{
    size_t some = max_size(CHUNK_NUMBERS / rows, 1);
    float *strip;
    enum status st = memory_alloc(some * rows, sizeof *strip, "write buffer", &strip);

    for (size_t c = 0; st == ST_OK && c < cols; c += some) {
        size_t n = min_size(some, cols - c);

        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < n; i++)
                strip[i * rows + r] = w->slice[r * cols + c + i];
        st = put_numbers(w, dtype, strip, n * rows, s);
    }
    free(strip);
    return st;
}

enum status weight_writer_put(struct weight_writer *w, enum tensor_kind kind,
                              size_t layer, enum dtype dtype, bool transposed)
{
    const struct slice s = {.kind = kind, .layer = layer};
    size_t rows, cols;
    enum status st = w->source->read(w->source->arg, kind, layer, w->slice);

    if (st != ST_OK)
        return st;
    stored_dims(&w->source->shape, kind, &rows, &cols);
    return transposed ? put_transposed(w, dtype, rows, cols, &s)
                      : put_numbers(w, dtype, w->slice, rows * cols, &s);
}

enum status weight_writer_zeros(struct weight_writer *w, uint64_t bytes)
{
    const size_t most = CHUNK_NUMBERS * sizeof(float);
    enum status st = ST_OK;

    memset(w->chunk, 0, bytes < most ? (size_t)bytes : most);
    for (; st == ST_OK && bytes > 0; bytes -= bytes < most ? bytes : most)
        st = stream_put(&w->stream, w->chunk, bytes < most ? (size_t)bytes : most);
    return st;
}

enum status weight_writer_end(struct weight_writer *w, enum status st)
{
    free(w->slice);
    free(w->chunk);
    st = stream_close(&w->stream, st);
    *w = (struct weight_writer){.stream.fd = -1};
    return st;
}

/* ---- names ---- */

enum status path_beside(char *out, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;

    if (snprintf(out, PATH_BYTES, "%.*s%s", folder, path, name) >= PATH_BYTES)
        return fail(ST_IO, "%s: path too long", path);
    return ST_OK;
}

enum status sync_parent(const char *path)
{
    char folder[PATH_BYTES];
    enum status st = path_beside(folder, path, ".");

    return st == ST_OK ? folder_sync(folder) : st;
}

enum status commit_path(const char *tmp, const char *path, enum status st)
{
    if (st == ST_OK && rename(tmp, path) != 0)
        st = fail(ST_IO, "%s: cannot rename to %s: %s", tmp, path, strerror(errno));
    if (st == ST_OK)
        return sync_parent(path);
    if (!file_is_folder(tmp))
        unlink(tmp);
    else if (folder_remove(tmp) != ST_OK)
        return st; /* the first failure is what counts */
    return st;
}
