/* SPDX-License-Identifier: MIT */
/* Slices from memory, from a native checkpoint, or from wherever a map says. */
#include "checkpoint/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { CHUNK_BYTES = 1 << 20 };

/* to[j][i] = from[i][j] for i < n and j < m; strides in elements. */
static void transpose(const float *from, size_t n, size_t m, float *to, size_t to_stride)
{
    for (size_t j = 0; j < m; j++)
        for (size_t i = 0; i < n; i++)
            to[j * to_stride + i] = from[i * m + j];
}

/* Reads n numbers from number `first` of a place on. `raw` has room for them. */
static enum status read_numbers(const struct weight_map *m, const struct place *p,
                                size_t first, size_t n, void *raw, float *out)
{
    size_t bytes = dtype_bytes(p->dtype);
    enum status st = fd_read_at(m->fds[p->file], m->files.paths[p->file],
                                p->dtype == DTYPE_FP32 ? out : raw, n * bytes,
                                p->offset + first * bytes);

    if (st == ST_OK && p->dtype != DTYPE_FP32)
        dtype_load(p->dtype, raw, n, out);
    return st;
}

/* A matrix of rows x cols, whichever way it is stored. */
static enum status read_place(const struct weight_map *m, const struct place *p,
                              size_t rows, size_t cols, float *out)
{
    /* Stored rows a time: about a chunk, at least one. */
    size_t stored_rows = p->transposed ? cols : rows;
    size_t stored_cols = p->transposed ? rows : cols;
    size_t some =
        min_size(max_size(CHUNK_BYTES / sizeof *out / stored_cols, 1), stored_rows);
    float *strip = NULL;
    void *raw = NULL;
    enum status st = memory_alloc(some * stored_cols, sizeof *out, "read buffer", &raw);

    if (st == ST_OK && p->transposed)
        st = memory_alloc(some * stored_cols, sizeof *out, "read buffer", &strip);
    for (size_t i = 0; st == ST_OK && i < stored_rows; i += some) {
        size_t n = min_size(some, stored_rows - i);

        st = read_numbers(m, p, i * stored_cols, n * stored_cols, raw,
                          p->transposed ? strip : out + i * stored_cols);
        if (st == ST_OK && p->transposed)
            transpose(strip, n, stored_cols, out + i, cols);
    }
    free(strip);
    free(raw);
    return st;
}

/* The head of a GPT-2 is wte; a file that stores both must store the same numbers. */
static enum status check_head(const struct weight_map *m, size_t rows, size_t cols,
                              const float *wte)
{
    const struct place *p = &m->head;
    const char *path = m->files.paths[p->file];
    float *row = NULL;
    void *raw = NULL;
    enum status st = memory_alloc(cols, sizeof *row, "read buffer", &row);

    if (st == ST_OK)
        st = memory_alloc(cols, sizeof *row, "read buffer", &raw);
    for (size_t i = 0; st == ST_OK && i < rows; i++) {
        st = read_numbers(m, p, i * cols, cols, raw, row);
        if (st == ST_OK && memcmp(row, wte + i * cols, cols * sizeof *row) != 0)
            st = fail(ST_FORMAT,
                      "%s: found an output head that differs from the token embedding "
                      "in row %zu, needs a model with tied embeddings",
                      path, i);
    }
    free(row);
    free(raw);
    return st;
}

static enum status read_map(void *arg, enum tensor_kind kind, size_t layer, float *out)
{
    const struct weight_map *m = &((const struct weight_source *)arg)->map;
    size_t rows, cols;
    enum status st;

    stored_dims(&m->shape, kind, &rows, &cols);
    st = read_place(m, &m->places[(size_t)kind * m->shape.L + layer], rows, cols, out);
    if (st == ST_OK && kind == WTE && m->head.file >= 0)
        st = check_head(m, rows, cols, out);
    return st;
}

static enum status read_memory(void *arg, enum tensor_kind kind, size_t layer, float *out)
{
    const struct weights_in_memory *m = arg;
    const struct slice *s = layout_slice(m->layout, kind, layer);
    size_t rows, cols;

    stored_dims(&m->layout->shape, kind, &rows, &cols);
    memcpy(out, m->params + s->offset, rows * cols * sizeof *out);
    return ST_OK;
}

static enum status read_checkpoint(void *arg, enum tensor_kind kind, size_t layer,
                                   float *out)
{
    const struct weight_source *s = arg;
    size_t rows, cols;

    stored_dims(&s->shape, kind, &rows, &cols);
    return native_read_range(&s->manifest, s->path,
                             layout_slice(&s->layout, kind, layer)->canonical_offset,
                             rows * cols, out);
}

void weight_source_memory(struct weight_source *s, const struct weights_in_memory *from)
{
    *s = (struct weight_source){.shape = from->layout->shape,
                                .read = read_memory,
                                .arg = (void *)from,
                                .path = "memory"};
}

enum status weight_source_open(struct weight_source *s, const struct model_file *f)
{
    enum status st;

    *s = (struct weight_source){.arg = s};
    (void)snprintf(s->path, sizeof s->path, "%s", f->path);
    if (f->kind != MODEL_NATIVE) {
        s->read = read_map;
        st = model_formats[f->kind]->map(f->path, &s->map);
        s->shape = s->map.shape;
        return st;
    }
    s->read = read_checkpoint;
    st = native_inspect(f->path, &s->manifest);
    s->shape = s->manifest.shape;
    if (st == ST_OK)
        st = layout_init(&s->layout, &s->shape, LAYOUT_STORAGE);
    for (int i = 0; st == ST_OK && i < s->manifest.ranks; i++)
        st = native_verify(&s->manifest, f->path, i, true);
    return st;
}

void weight_source_close(struct weight_source *s)
{
    weight_map_close(&s->map);
    manifest_release(&s->manifest);
    layout_release(&s->layout);
    *s = (struct weight_source){0};
}

/* ---- numbers that are none ---- */

struct counter {
    const struct weight_source *source;
    float *slice;
    struct model_numbers *out;
};

static enum status count_slice(void *arg, enum tensor_kind kind, size_t layer)
{
    struct counter *c = arg;
    size_t rows, cols, bad = 0;
    enum status st = c->source->read(c->source->arg, kind, layer, c->slice);

    stored_dims(&c->source->shape, kind, &rows, &cols);
    for (size_t i = 0; st == ST_OK && i < rows * cols; i++)
        bad += isfinite(c->slice[i]) ? 0 : 1;
    if (bad && !c->out->not_finite) {
        const struct slice s = {.kind = kind, .layer = layer};

        slice_name(&s, c->out->first, sizeof c->out->first);
    }
    c->out->not_finite += bad;
    return st;
}

enum status model_check_numbers(const struct model_file *f, struct model_numbers *out)
{
    struct weight_source source;
    struct counter c = {.source = &source, .out = out};
    enum status st = weight_source_open(&source, f);

    *out = (struct model_numbers){0};
    if (st == ST_OK)
        st =
            memory_alloc(stored_most(&source.shape), sizeof *c.slice, "tensor", &c.slice);
    if (st == ST_OK && source.map.places)
        for (size_t i = 0; i < TENSOR_KINDS * source.shape.L; i++)
            if (source.map.places[i].file >= 0)
                out->tensors[source.map.places[i].dtype]++;
    if (st == ST_OK)
        st = each_by_layer(&source.shape, count_slice, &c);
    free(c.slice);
    weight_source_close(&source);
    return st;
}
