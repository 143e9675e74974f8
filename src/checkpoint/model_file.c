/* SPDX-License-Identifier: MIT */
/* What a model path is, and its weights. */
#include "checkpoint/native.h"

#include <ctype.h>
#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

#define KNOWN_MODELS                                                                     \
    "needs a run folder, a checkpoint folder or an llm.c model file (version 3)"

static enum status open_native(const char *path, struct model_file *out)
{
    struct manifest m;
    enum status st = native_inspect(path, &m);

    out->kind = MODEL_NATIVE;
    out->shape = m.shape;
    out->state = m.state;
    manifest_release(&m);
    if (st == ST_OK)
        st = path_in(out->tokens_json, path, "tokens.json");
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return fail(ST_IO, "%s: path too long", path);
    return st;
}

static bool holds(const char *folder, const char *name)
{
    char inside[PATH_BYTES];

    return path_in(inside, folder, name) == ST_OK && file_exists(inside);
}

/* A run that has just begun, or one whose checkpoints are all damaged. */
static enum status say_none(const char *path, bool run)
{
    struct path_list list = {0};
    enum status st = checkpoint_list(path, &list);
    size_t n = list.count;

    path_list_release(&list);
    if (st != ST_OK)
        return st;
    if (run && n == 0)
        return fail(ST_FORMAT, "%s: no checkpoint yet", path);
    return fail(ST_FORMAT, "%s: no complete checkpoint in this run folder", path);
}

static enum status open_folder(const char *path, struct model_file *out)
{
    char inside[PATH_BYTES];
    bool found;
    enum status st = path_in(inside, path, "manifest.json");

    if (st != ST_OK)
        return st;
    if (file_exists(inside))
        return open_native(path, out);
    st = path_in(inside, path, "checkpoints");
    if (st != ST_OK)
        return st;
    bool run = holds(path, "config.ini") || holds(path, "metrics.jsonl");
    if (!file_is_folder(inside) && !run)
        return fail(ST_FORMAT,
                    "%s: found a folder with neither manifest.json nor "
                    "checkpoints/, " KNOWN_MODELS,
                    path);
    st = checkpoint_latest(path, inside, &found);
    if (st != ST_OK)
        return st;
    if (!found)
        return say_none(path, run);
    return open_native(inside, out);
}

/* "80 4B 03 04" of a file's start, "nothing" for an empty one. */
static void first_bytes(const unsigned char *head, size_t n, char *out, size_t out_bytes)
{
    int at = 0;

    (void)snprintf(out, out_bytes, "nothing");
    for (size_t i = 0; i < n && i < 8 && at + 4 < (int)out_bytes; i++)
        at += snprintf(out + at, out_bytes - (size_t)at, "%s%02x", i ? " " : "", head[i]);
}

/* Names of magics that are no models, for the error text. */
static const char *other_file(int32_t magic)
{
    switch (magic) {
    case 20240520:
    case 20240801:
        return "a token shard";
    case 20240327:
        return "an llm.c debug state";
    case 20240328:
        return "an llm.c tokenizer";
    case 20240522:
        return "an llm.c evaluation file";
    case 20240527:
        return "an llm.c optimizer state";
    default:
        return NULL;
    }
}

static enum status open_file(const char *path, struct model_file *out)
{
    unsigned char head[8] = {0};
    char hex[40];
    int32_t magic;
    struct stat info;
    /* O_NONBLOCK: a pipe by that name is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(ST_IO, "%s: not a regular file", path);
    }
    ssize_t n = read(fd, head, sizeof head);
    close(fd);
    if (n < 0)
        return fail(ST_IO, "%s: cannot read: %s", path, strerror(errno));
    memcpy(&magic, head, sizeof magic);
    if (n < (ssize_t)sizeof magic || magic != LLMC_MODEL_MAGIC) {
        const char *other = n < (ssize_t)sizeof magic ? NULL : other_file(magic);

        if (other)
            return fail(ST_FORMAT, "%s: found %s, " KNOWN_MODELS, path, other);
        first_bytes(head, (size_t)n, hex, sizeof hex);
        return fail(ST_FORMAT, "%s: starts with %s, no known magic; " KNOWN_MODELS, path,
                    hex);
    }
    out->kind = MODEL_LLMC;
    enum status st = llmc_read_shape(path, &out->shape);
    if (st != ST_OK)
        return st;
    out->shape.Vp = round_up(out->shape.V, VOCAB_PAD);
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return fail(ST_IO, "%s: path too long", path);
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    if (snprintf(out->tokens_json, sizeof out->tokens_json, "%.*stokens.json", folder,
                 path) >= (int)sizeof out->tokens_json)
        return fail(ST_IO, "%s: path too long", path);
    return ST_OK;
}

enum status model_open(const char *path, struct model_file *out)
{
    enum status st;

    *out = (struct model_file){0};
    st = file_is_folder(path) ? open_folder(path, out) : open_file(path, out);
    if (!file_exists(out->tokens_json))
        out->tokens_json[0] = 0;
    return st;
}

static enum status read_native(const struct model_file *f, const struct layout *layout,
                               float *params)
{
    struct manifest m;
    enum status st = native_inspect(f->path, &m);

    if (st == ST_OK)
        st = shape_match(&m.shape, f->path, &layout->shape);
    for (int i = 0; st == ST_OK && i < m.ranks; i++)
        st = native_verify(&m, f->path, i, true);
    if (st == ST_OK)
        st = native_read_params(&m, f->path, layout, params);
    manifest_release(&m);
    return st;
}

enum status model_read(const struct model_file *f, const struct layout *layout,
                       float *params)
{
    const struct slice *wte = layout_slice(layout, WTE, 0);
    size_t used = layout->shape.V * wte->cols;
    enum status st = f->kind == MODEL_NATIVE ? read_native(f, layout, params)
                                             : llmc_read(f->path, layout, params);

    if (st == ST_OK)
        memset(params + wte->offset + used, 0, (wte->span - used) * sizeof *params);
    return st;
}
