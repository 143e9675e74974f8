/* SPDX-License-Identifier: MIT */
/* What a model path is, and its weights. */
#include "checkpoint/weights.h"

#include <fcntl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

#define KNOWN_MODELS                                                                     \
    "needs a run folder, a checkpoint folder, a Hugging Face folder or safetensors "     \
    "file, a GGUF file or an llm.c model file"

const struct model_format *const model_formats[MODEL_KINDS] = {
    [MODEL_NATIVE] = &format_native,
    [MODEL_LLMC] = &format_llmc,
    [MODEL_SAFETENSORS] = &format_safetensors,
    [MODEL_GGUF] = &format_gguf};

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

static enum status open_run(const char *path, struct model_file *out)
{
    char inside[PATH_BYTES];
    bool found;
    enum status st = path_in(inside, path, "checkpoints");

    if (st != ST_OK)
        return st;
    bool run = holds(path, "config.ini") || holds(path, "metrics.jsonl");
    if (!file_is_folder(inside) && !run)
        return fail(ST_FORMAT,
                    "%s: found a folder with neither manifest.json, checkpoints/ nor "
                    "config.json, " KNOWN_MODELS,
                    path);
    st = checkpoint_latest(path, inside, &found);
    if (st != ST_OK)
        return st;
    if (!found)
        return say_none(path, run);
    return open_native(inside, out);
}

/* "80 4b 03 04" of a file's start, "nothing" for an empty one. */
static void first_bytes(const struct sniffed *s, char *out, size_t out_bytes)
{
    int at = 0;

    (void)snprintf(out, out_bytes, "nothing");
    for (size_t i = 0; i < s->n_head && i < 8 && at + 4 < (int)out_bytes; i++)
        at += snprintf(out + at, out_bytes - (size_t)at, "%s%02x", i ? " " : "",
                       s->head[i]);
}

/* What a file is that is no model, for the error text. */
static const char *other_file(const struct sniffed *s)
{
    int32_t magic;

    memcpy(&magic, s->head, sizeof magic);
    switch (s->n_head < sizeof magic ? 0 : magic) {
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

static enum status fail_unknown(const struct sniffed *s)
{
    const char *other = other_file(s);
    char hex[40];

    if (other)
        return fail(ST_FORMAT, "%s: found %s, " KNOWN_MODELS, s->path, other);
    first_bytes(s, hex, sizeof hex);
    return fail(ST_FORMAT, "%s: starts with %s, no known magic; " KNOWN_MODELS, s->path,
                hex);
}

/* Looks at the first bytes of a regular file, or sees that it is a folder. */
static enum status sniff(const char *path, struct sniffed *s)
{
    struct stat info;
    /* O_NONBLOCK: a pipe by that name is refused below and not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    *s = (struct sniffed){.path = path};
    if (fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    bool known = fstat(fd, &info) == 0;
    s->folder = known && S_ISDIR(info.st_mode);
    if (s->folder || !known || !S_ISREG(info.st_mode)) {
        close(fd);
        return s->folder ? ST_OK : fail(ST_IO, "%s: not a regular file", path);
    }
    ssize_t n = read(fd, s->head, sizeof s->head);
    close(fd);
    if (n < 0)
        return fail(ST_IO, "%s: cannot read: %s", path, strerror(errno));
    s->n_head = (size_t)n;
    return ST_OK;
}

/* MODEL_KINDS for none of them. */
static int kind_of(const struct sniffed *s)
{
    int kind = 0;

    while (kind < MODEL_KINDS && !model_formats[kind]->is(s))
        kind++;
    return kind;
}

bool model_recognised(const char *path)
{
    struct sniffed s;

    return sniff(path, &s) == ST_OK && kind_of(&s) < MODEL_KINDS;
}

/* A model of another program. */
static enum status open_foreign(enum model_kind kind, const char *path,
                                struct model_file *out)
{
    const struct model_format *f = model_formats[kind];
    struct weight_map map = {0};
    enum status st = f->map(path, &map);

    out->kind = kind;
    out->shape = map.shape;
    weight_map_close(&map);
    if (st == ST_OK)
        st = f->tokenizer(path, out->tokens_json);
    if (snprintf(out->path, sizeof out->path, "%s", path) >= (int)sizeof out->path)
        return fail(ST_IO, "%s: path too long", path);
    return st;
}

enum status model_open(const char *path, struct model_file *out)
{
    struct sniffed s;
    enum status st = sniff(path, &s);

    *out = (struct model_file){0};
    if (st != ST_OK)
        return st;
    int kind = kind_of(&s);
    if (kind == MODEL_NATIVE)
        st = open_native(path, out);
    else if (kind < MODEL_KINDS)
        st = open_foreign((enum model_kind)kind, path, out);
    else
        st = s.folder ? open_run(path, out) : fail_unknown(&s);
    if (!file_exists(out->tokens_json))
        out->tokens_json[0] = 0;
    return st;
}

/* ---- weights ---- */

enum status model_read(const struct model_file *f, const struct layout *layout,
                       float *params)
{
    struct weight_source source;
    enum status st = weight_source_open(&source, f);

    if (st == ST_OK)
        st = shape_match(&source.shape, f->path, &layout->shape);
    if (st == ST_OK && f->kind == MODEL_NATIVE)
        st = native_read_params(&source.manifest, f->path, layout, params);
    for (size_t i = 0; st == ST_OK && i < layout->n_slices; i++) {
        const struct slice *s = &layout->slices[i];
        size_t rows, cols;

        stored_dims(&layout->shape, s->kind, &rows, &cols);
        if (f->kind != MODEL_NATIVE)
            st = source.read(source.arg, s->kind, s->layer, params + s->offset);
        memset(params + s->offset + rows * cols, 0,
               (s->span - rows * cols) * sizeof *params);
    }
    weight_source_close(&source);
    return st;
}

/* Writes from a source: the checks that all formats share. */
static enum status write_from(const struct weight_source *source, enum model_kind to,
                              const char *out, const struct model_write_options *o)
{
    char clean[PATH_BYTES];

    if (o->tokenizer && tokenizer_vocab(o->tokenizer) > source->shape.V)
        return fail(ST_USAGE,
                    "%s: found a tokenizer of %u ids, needs at most the model's %zu",
                    source->path, tokenizer_vocab(o->tokenizer), source->shape.V);
    if (snprintf(clean, sizeof clean, "%s", out) >= (int)sizeof clean)
        return fail(ST_IO, "%s: path too long", out);
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/'; n--)
        clean[n - 1] = 0;
    return model_formats[to]->write(clean, source, o);
}

enum status model_convert(const struct model_file *from, enum model_kind to,
                          const char *out, const struct model_write_options *o)
{
    struct weight_source source;
    enum status st = weight_source_open(&source, from);

    if (st == ST_OK)
        st = write_from(&source, to, out, o);
    weight_source_close(&source);
    return st;
}

enum status model_write(const struct layout *layout, const float *params,
                        enum model_kind to, const char *out,
                        const struct model_write_options *o)
{
    const struct weights_in_memory memory = {layout, params};
    struct weight_source source;

    weight_source_memory(&source, &memory);
    return write_from(&source, to, out, o);
}
