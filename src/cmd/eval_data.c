/* SPDX-License-Identifier: MIT */
#include "cmd/eval_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

/* A file that is no shard by its first word and is not named like a token file. */
static bool is_text(const char *path)
{
    const char *ending = strrchr(path, '.');
    int32_t magic = 0;
    FILE *f = file_is_folder(path) ? NULL : fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    n = fread(&magic, sizeof magic, 1, f);
    fclose(f);
    if (n == 1 && (magic == SHARD_MAGIC_16 || magic == SHARD_MAGIC_32))
        return false;
    return !ending || strcmp(ending, ".bin") != 0;
}

static enum status check_text(const struct eval_data *d, const char *where, size_t V)
{
    for (size_t i = 0; i < d->text.count; i++)
        if (d->text.ids[i] >= V)
            return fail(ST_USAGE,
                        "%s: found token id %u, the model's vocabulary has %zu; was it "
                        "trained with this tokenizer?",
                        where, d->text.ids[i], V);
    return ST_OK;
}

static enum status read_text(struct eval_data *d, const char *where,
                             const struct loaded *model, const char *vocab)
{
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t bytes;
    enum status st = loaded_tokenizer(model, vocab, &t);

    if (st == ST_OK)
        st = file_read_all(where, &text, &bytes);
    if (st == ST_OK)
        st = tokenizer_encode(t, text, bytes, &d->text);
    free(text);
    tokenizer_free(t);
    d->streams = 1;
    return st == ST_OK ? check_text(d, where, model->file.shape.V) : st;
}

/* Another tokenizer's ids are all in the vocabulary and mean something else. */
static enum status check_tokenizer(const char *where, const struct loaded *model)
{
    struct shards_meta meta;
    enum status st = shards_read_meta(where, &meta);

    if (st != ST_OK || !meta.path[0] || !model->file.tokens_json[0] ||
        !tokens_json_differ(meta.path, model->file.tokens_json))
        return st;
    return fail(ST_USAGE,
                "%s: found another tokenizer than the model's %s; needs tokens made with "
                "the same one, or the text itself",
                meta.path, model->file.tokens_json);
}

enum status eval_data_open(struct eval_data *d, const char *where,
                           const struct loaded *model, const char *vocab)
{
    bool predicted = false;
    enum status st;

    if (is_text(where)) {
        st = read_text(d, where, model, vocab);
    } else {
        st = check_tokenizer(where, model);
        if (st == ST_OK)
            st = shards_open(where, "val", (uint32_t)model->file.shape.V, &d->shards);
        d->streams = st == ST_OK ? shards_files(d->shards) : 0;
    }
    for (size_t i = 0; st == ST_OK && i < d->streams; i++)
        predicted = predicted || eval_data_tokens(d, i) >= 2;
    if (st == ST_OK && !predicted)
        st = fail(ST_FORMAT, "%s: found no file of two tokens or more, needs one", where);
    return st;
}

void eval_data_release(struct eval_data *d)
{
    shards_close(d->shards);
    token_list_release(&d->text);
}

uint64_t eval_data_tokens(const struct eval_data *d, size_t stream)
{
    return d->shards ? shards_file_tokens(d->shards, stream) : d->text.count;
}

/* Shards give windows of T tokens from multiples of T on; with T = 1 that is any place.
 */
static enum status read_shards(const struct eval_data *d, size_t stream, uint64_t begin,
                               size_t n, int32_t *out)
{
    uint64_t window = begin;
    enum status st = ST_OK;

    for (size_t i = 0; i < stream; i++)
        window += shards_file_tokens(d->shards, i) - 1;
    for (size_t i = 0; i + 1 < n && st == ST_OK; i++)
        st = shards_window(d->shards, 1, window + i, out + i, out + i + 1);
    return st;
}

enum status eval_data_read(const struct eval_data *d, size_t stream, uint64_t begin,
                           size_t n, int32_t *out)
{
    require(n >= 2);
    if (d->shards)
        return read_shards(d, stream, begin, n, out);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)d->text.ids[begin + i];
    return ST_OK;
}
