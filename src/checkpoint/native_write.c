/* SPDX-License-Identifier: MIT */
/* A native checkpoint of weights that come from elsewhere: one state file as one rank
 * writes it, moments zero, at step 0. */
#include "checkpoint/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/vocabulary.h"

static enum status put_params(struct weight_writer *w, const struct shape *s)
{
    enum status st = ST_OK;

    for (int k = 0; st == ST_OK && k < TENSOR_KINDS; k++)
        for (size_t l = 0; st == ST_OK && l < (tensor_table[k].per_layer ? s->L : 1);
             l++) {
            st = weight_writer_put(w, (enum tensor_kind)k, l, DTYPE_FP32, false);
            if (st == ST_OK && k == WTE)
                st = weight_writer_zeros(w, (s->Vp - s->V) * s->C * sizeof(float));
        }
    return st;
}

static enum status put_state(const char *path, const struct weight_source *source,
                             struct manifest_file *f)
{
    struct weight_writer w;
    enum status st = weight_writer_begin(&w, path, source);

    if (st == ST_OK)
        st = put_params(&w, &source->shape);
    if (st == ST_OK)
        st = stream_digest(&w.stream, &f->sums.params_hash);
    if (st == ST_OK) /* m and v */
        st = weight_writer_zeros(&w, 2 * (uint64_t)f->elems * sizeof(float));
    if (st == ST_OK)
        st = stream_digest(&w.stream, &f->sums.hash);
    f->sums.bytes = w.stream.bytes;
    return weight_writer_end(&w, st);
}

/* tokens.json, and for GPT-2's vocabulary its table, which may be part of another file
 * only. */
static enum status put_tokenizer(const char *folder, const struct tokenizer *t)
{
    struct tokens_note note = {0};
    struct vocabulary v = {0};
    char path[PATH_BYTES];
    enum status st = ST_OK;

    if (tokenizer_kind_of(t) == TOKENIZER_GPT2) {
        st = vocabulary_of(t, &v);
        if (st == ST_OK)
            st = path_in(path, folder, "vocab.bpe");
        if (st == ST_OK)
            st = file_write_all(path, v.merges, v.merges_bytes);
        vocabulary_release(&v);
    }
    if (st == ST_OK)
        st = path_in(path, folder, "tokens.json");
    return st == ST_OK ? tokenizer_save(t, &note, path) : st;
}

static enum status put_all(const char *folder, const struct weight_source *source,
                           const struct model_write_options *o)
{
    struct manifest_range range = {0, 0};
    struct manifest_file file = {.n_ranges = 1};
    struct manifest m = {.shape = source->shape,
                         .state = {.best_val_loss = INFINITY},
                         .ranks = 1,
                         .files = &file,
                         .ranges = &range,
                         .n_ranges = 1,
                         .config = (char *)""};
    char path[PATH_BYTES];
    enum status st = shape_from_file(&m.shape, source->path, &m.canonical_elems);

    file.elems = range.elems = m.canonical_elems;
    state_file_name(file.name, 0, 1);
    if (st == ST_OK)
        st = path_in(path, folder, file.name);
    if (st == ST_OK)
        st = put_state(path, source, &file);
    if (st == ST_OK)
        st = manifest_write(&m, folder);
    if (st == ST_OK && o->tokenizer)
        st = put_tokenizer(folder, o->tokenizer);
    return st == ST_OK ? folder_sync(folder) : st;
}

static enum status write_native(const char *path, const struct weight_source *source,
                                const struct model_write_options *o)
{
    char tmp[PATH_BYTES];
    enum status st;

    if (o->dtype != DTYPE_FP32)
        return fail(ST_USAGE, "--dtype %s: native checkpoints are fp32",
                    dtype_name(o->dtype));
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return fail(ST_IO, "%s: path too long", path);
    st = folder_remove(tmp);
    if (st == ST_OK)
        st = folder_make(tmp);
    if (st == ST_OK)
        st = put_all(tmp, source, o);
    return commit_path(tmp, path, st);
}

static bool is_native(const struct sniffed *s)
{
    char inside[PATH_BYTES];

    return s->folder && path_in(inside, s->path, "manifest.json") == ST_OK &&
           file_exists(inside);
}

const struct model_format format_native = {.name = "weft",
                                           .what = "a checkpoint folder",
                                           .is = is_native,
                                           .write = write_native};
