/* SPDX-License-Identifier: MIT */
/* Hugging Face folders: config.json and weights in safetensors files. A file is the
 * length of its head (8 bytes), the head (JSON: name, type, shape and place of each
 * tensor), and the data without holes. Linear weights are stored [in][out]. */
#include "checkpoint/weights.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "checkpoint/hf_config.h"

#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"
#define PREFIX "transformer."

/* The head of a GPT-2 of 10,000 layers stays below it. */
enum { MOST_HEAD_BYTES = 16 << 20, LENGTH_BYTES = 8, MOST_DIMS = 4, MOST_FILES = 10000 };

static const struct naming names = {
    .layer_prefix = "h.",
    .head = "lm_head.weight",
    .names = {[WTE] = "wte.weight",
              [WPE] = "wpe.weight",
              [LN1W] = "ln_1.weight",
              [LN1B] = "ln_1.bias",
              [QKVW] = "attn.c_attn.weight",
              [QKVB] = "attn.c_attn.bias",
              [ATTPROJW] = "attn.c_proj.weight",
              [ATTPROJB] = "attn.c_proj.bias",
              [LN2W] = "ln_2.weight",
              [LN2B] = "ln_2.bias",
              [FCW] = "mlp.c_fc.weight",
              [FCB] = "mlp.c_fc.bias",
              [FCPROJW] = "mlp.c_proj.weight",
              [FCPROJB] = "mlp.c_proj.bias",
              [LNFW] = "ln_f.weight",
              [LNFB] = "ln_f.bias"},
    .transposed = {[QKVW] = true, [ATTPROJW] = true, [FCW] = true, [FCPROJW] = true}};

static const struct {
    const char *name;
    size_t bytes;
    int dtype; /* -1: none that weights may have */
} types[] = {{"F32", 4, DTYPE_FP32}, {"BF16", 2, DTYPE_BF16}, {"F16", 2, DTYPE_FP16},
             {"F64", 8, -1},         {"I64", 8, -1},          {"U64", 8, -1},
             {"I32", 4, -1},         {"U32", 4, -1},          {"I16", 2, -1},
             {"U16", 2, -1},         {"I8", 1, -1},           {"U8", 1, -1},
             {"BOOL", 1, -1},        {"F8_E4M3", 1, -1},      {"F8_E5M2", 1, -1}};
enum { TYPES = sizeof types / sizeof *types };

/* ---- the head of one file ---- */

struct head {
    const char *path;
    json_t *root;
    uint64_t data;       /* where the data begins in the file */
    uint64_t data_bytes; /* up to the end of the file */
};

static enum status read_length(int fd, const char *path, uint64_t file_bytes,
                               uint64_t *length)
{
    enum status st;

    *length = 0;
    if (file_bytes < LENGTH_BYTES)
        return fail(ST_FORMAT,
                    "%s: found %" PRIu64 " bytes, needs %d for the length of "
                    "a head",
                    path, file_bytes, LENGTH_BYTES);
    st = fd_read_at(fd, path, length, sizeof *length, 0);
    if (st == ST_OK && *length > file_bytes - LENGTH_BYTES)
        st = fail(ST_FORMAT,
                  "%s: found a file of %" PRIu64 " bytes, needs %d and the %" PRIu64
                  " of its head",
                  path, file_bytes, LENGTH_BYTES, *length);
    if (st == ST_OK && (*length < 2 || *length > MOST_HEAD_BYTES))
        st = fail(ST_FORMAT, "%s: found a head of %" PRIu64 " bytes, needs 2 to %d", path,
                  *length, MOST_HEAD_BYTES);
    return st;
}

static enum status read_head(int fd, const char *path, uint64_t file_bytes,
                             struct head *h)
{
    json_error_t error;
    uint64_t length;
    char *text = NULL;
    enum status st = read_length(fd, path, file_bytes, &length);

    *h = (struct head){.path = path};
    if (st == ST_OK)
        st = memory_alloc((size_t)length, 1, "head of a safetensors file", &text);
    if (st == ST_OK)
        st = fd_read_at(fd, path, text, (size_t)length, LENGTH_BYTES);
    if (st == ST_OK && text[0] != '{')
        st = fail(ST_FORMAT, "%s: found a head that begins with byte 0x%02x, needs '{'",
                  path, (unsigned char)text[0]);
    if (st == ST_OK) {
        h->root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
        if (!h->root)
            st = fail(ST_FORMAT, "%s: head: byte %d: %s", path, error.position,
                      error.text);
    }
    h->data = LENGTH_BYTES + length;
    h->data_bytes = file_bytes - h->data;
    free(text);
    return st;
}

/* An entry of the head, all of it checked but for what the tensor is. */
struct entry {
    const char *name;
    int type; /* index into types */
    size_t n_dims;
    uint64_t dims[MOST_DIMS];
    uint64_t begin, end;
};

static enum status bad_entry(const struct head *h, const char *name, const char *what)
{
    return fail(ST_FORMAT, "%s: tensor %.200s: %s", h->path, name, what);
}

static bool read_whole(const json_t *v, uint64_t *out)
{
    *out = (uint64_t)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static enum status read_entry(const struct head *h, const char *name, const json_t *v,
                              struct entry *e)
{
    const char *type = json_string_value(json_object_get(v, "dtype"));
    const json_t *shape = json_object_get(v, "shape");
    const json_t *place = json_object_get(v, "data_offsets");
    uint64_t bytes;

    *e = (struct entry){.name = name, .type = TYPES};
    for (int i = 0; type && i < TYPES; i++)
        if (!strcmp(types[i].name, type))
            e->type = i;
    if (e->type == TYPES)
        return fail(ST_FORMAT, "%s: tensor %.200s: found dtype %.40s, needs a known one",
                    h->path, name, type ? type : "none");
    e->n_dims = json_array_size(shape);
    if (!json_is_array(shape) || e->n_dims > MOST_DIMS)
        return bad_entry(h, name, "needs a \"shape\" of at most 4 dimensions");
    bytes = types[e->type].bytes;
    for (size_t i = 0; i < e->n_dims; i++)
        if (!read_whole(json_array_get(shape, i), &e->dims[i]) ||
            __builtin_mul_overflow(bytes, e->dims[i], &bytes))
            return bad_entry(h, name,
                             "found an impossible shape, needs whole numbers "
                             "whose product is below 2^64 bytes");
    if (json_array_size(place) != 2 || !read_whole(json_array_get(place, 0), &e->begin) ||
        !read_whole(json_array_get(place, 1), &e->end) || e->end < e->begin)
        return bad_entry(h, name, "needs \"data_offsets\": a begin and an end");
    if (e->end - e->begin != bytes)
        return fail(ST_FORMAT,
                    "%s: tensor %.200s: found %" PRIu64 " bytes of data, needs %" PRIu64
                    " for its shape",
                    h->path, name, e->end - e->begin, bytes);
    return ST_OK;
}

/* ---- tensors of a GPT-2 ---- */

/* Masks that old versions saved with the weights: h.<i>.attn.bias, .attn.masked_bias. */
static bool is_mask(const char *name)
{
    size_t n = strlen(name);
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias"};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);

        if (!strncmp(name, names.layer_prefix, 2) && n > m &&
            !strcmp(name + n - m, ends[i]))
            return true;
    }
    return false;
}

static enum status add_tensor(struct weight_map *m, int file, const struct head *h,
                              const struct entry *e)
{
    const char *name = e->name;
    struct declared d = {
        .name = e->name, .n_dims = e->n_dims, .offset = h->data + e->begin};
    enum tensor_kind kind;
    size_t layer;

    if (!strncmp(name, PREFIX, sizeof PREFIX - 1))
        name += sizeof PREFIX - 1;
    if (is_mask(name))
        return ST_OK;
    if (!naming_find(&names, name, &kind, &layer))
        return bad_entry(h, e->name, "is no tensor of a GPT-2");
    if (types[e->type].dtype < 0)
        return fail(ST_FORMAT,
                    "%s: tensor %.200s: found dtype %s, needs F32, F16 or BF16", h->path,
                    e->name, types[e->type].name);
    d.dtype = (enum dtype)types[e->type].dtype;
    memcpy(d.dims, e->dims, sizeof d.dims);
    return weight_map_add(m, file, kind, layer,
                          kind < TENSOR_KINDS && names.transposed[kind], 0, &d);
}

/* The file of the index a tensor should be in; NULL index: any. */
static enum status check_index(const struct head *h, const json_t *index,
                               const char *file, const char *name)
{
    const char *listed = json_string_value(json_object_get(index, name));

    if (!index || (listed && !strcmp(listed, file)))
        return ST_OK;
    return fail(ST_FORMAT, "%s: tensor %.200s: found here, %s %.200s", h->path, name,
                listed ? "the index has it in" : "the index has it",
                listed ? listed : "nowhere");
}

static enum status add_entries(struct weight_map *m, int file, const struct head *h,
                               const char *name_in_index, const json_t *index)
{
    struct extent *extents;
    size_t n = 0;
    const char *name;
    json_t *value;
    enum status st = memory_alloc(json_object_size(h->root), sizeof *extents,
                                  "list of tensors", &extents);

    json_object_foreach(h->root, name, value)
    {
        struct entry e;

        if (st != ST_OK)
            break;
        if (!strcmp(name, "__metadata__"))
            continue;
        st = read_entry(h, name, value, &e);
        if (st == ST_OK)
            st = check_index(h, index, name_in_index, name);
        if (st == ST_OK)
            extents[n++] = (struct extent){e.begin, e.end, e.name};
    }
    if (st == ST_OK)
        st = extents_check(extents, n, 1, h->data_bytes, h->path);
    free(extents);
    /* Places are taken only when the file as a whole is right. */
    json_object_foreach(h->root, name, value)
    {
        struct entry e;

        if (st != ST_OK)
            break;
        if (!strcmp(name, "__metadata__"))
            continue;
        st = read_entry(h, name, value, &e);
        if (st == ST_OK)
            st = add_tensor(m, file, h, &e);
    }
    return st;
}

static enum status add_file(struct weight_map *m, const char *path,
                            const char *name_in_index, const json_t *index)
{
    struct head h = {0};
    int file = 0;
    enum status st = weight_map_add_file(m, path, &file);

    if (st == ST_OK)
        st = read_head(m->fds[file], path, m->file_bytes[file], &h);
    if (st == ST_OK)
        st = add_entries(m, file, &h, name_in_index, index);
    json_decref(h.root);
    return st;
}

/* ---- folders ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Adds every file the index names, each once. */
static enum status add_files(struct weight_map *m, const char *index_path,
                             const json_t *weight_map)
{
    size_t n = json_object_size(weight_map), i = 0;
    const char **files;
    const char *name;
    json_t *value;
    size_t added = 0;
    enum status st = memory_alloc(n, sizeof *files, "list of files", &files);

    json_object_foreach((json_t *)weight_map, name, value)
    {
        const char *file = json_string_value(value);

        if (st != ST_OK)
            break;
        if (!file || !file[0] || file[0] == '.' || strchr(file, '/'))
            st = fail(ST_FORMAT,
                      "%s: tensor %.200s: found file \"%.200s\", needs the name of a "
                      "file in this folder",
                      index_path, name, file ? file : "");
        else
            files[i++] = file;
    }
    if (st == ST_OK)
        qsort(files, n, sizeof *files, by_text);
    for (i = 0; st == ST_OK && i < n; i++) {
        char path[PATH_BYTES];

        if (i > 0 && !strcmp(files[i], files[i - 1]))
            continue;
        if (++added > MOST_FILES)
            st = fail(ST_FORMAT, "%s: found more than %d files", index_path, MOST_FILES);
        if (st == ST_OK)
            st = path_beside(path, index_path, files[i]);
        if (st == ST_OK)
            st = add_file(m, path, files[i], weight_map);
    }
    free(files);
    return st;
}

static enum status add_index(struct weight_map *m, const char *path)
{
    json_error_t error;
    char *text = NULL;
    uint64_t size = 0;
    size_t bytes;
    json_t *root = NULL;
    enum status st = file_size(path, &size);

    if (st == ST_OK && size > MOST_HEAD_BYTES)
        st = fail(ST_FORMAT, "%s: found %" PRIu64 " bytes, needs at most %d", path, size,
                  MOST_HEAD_BYTES);
    if (st == ST_OK)
        st = file_read_all(path, &text, &bytes);
    if (st == ST_OK) {
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
        if (!root)
            st = fail(ST_FORMAT, "%s: line %d: %s", path, error.line, error.text);
    }
    free(text);
    const json_t *map = json_object_get(root, "weight_map");
    if (st == ST_OK && !json_is_object(map))
        st = fail(ST_FORMAT, "%s: no \"weight_map\" found, needs tensors and their files",
                  path);
    if (st == ST_OK)
        st = add_files(m, path, map);
    json_decref(root);
    return st;
}

static bool holds(const char *folder, const char *name)
{
    char inside[PATH_BYTES];

    return path_in(inside, folder, name) == ST_OK && file_exists(inside);
}

/* A file by itself has a head that begins with '{'. */
static bool is_safetensors(const struct sniffed *s)
{
    uint64_t length;

    if (s->folder)
        return holds(s->path, "config.json");
    memcpy(&length, s->head, sizeof length);
    return s->n_head > LENGTH_BYTES && s->head[LENGTH_BYTES] == '{' &&
           length < (uint64_t)1 << 63;
}

static enum status no_weights(const char *folder)
{
    bool pickle = holds(folder, "pytorch_model.bin");

    return fail(ST_FORMAT, "%s: found config.json%s, needs " SINGLE " or " INDEX "%s",
                folder, pickle ? " and pytorch_model.bin" : "",
                pickle ? "; transformers' save_pretrained writes them" : "");
}

static enum status map_safetensors(const char *path, struct weight_map *out)
{
    bool folder = file_is_folder(path);
    char config[PATH_BYTES], weights[PATH_BYTES];
    struct shape shape;
    enum status st = folder ? path_in(config, path, "config.json")
                            : path_beside(config, path, "config.json");

    if (st == ST_OK && !file_exists(config))
        st = fail(ST_FORMAT,
                  "%s: found no config.json beside it, needs its n_head and "
                  "the like",
                  path);
    if (st == ST_OK)
        st = hf_config_read(config, &shape);
    if (st == ST_OK)
        st = weight_map_set_shape(out, &shape);
    if (st != ST_OK)
        return st;
    if (!folder)
        st = add_file(out, path, NULL, NULL);
    else if (holds(path, SINGLE))
        st = path_in(weights, path, SINGLE) == ST_OK
                 ? add_file(out, weights, NULL, NULL)
                 : fail(ST_IO, "%s: path too long", path);
    else if (holds(path, INDEX))
        st = path_in(weights, path, INDEX) == ST_OK
                 ? add_index(out, weights)
                 : fail(ST_IO, "%s: path too long", path);
    else
        st = no_weights(path);
    return st == ST_OK ? weight_map_complete(out, path, &names) : st;
}

static enum status safetensors_tokenizer(const char *path, char *out)
{
    return file_is_folder(path) ? path_in(out, path, "vocab.json")
                                : path_beside(out, path, "vocab.json");
}

/* ---- writing ---- */

struct head_writer {
    FILE *out;
    const struct shape *shape;
    enum dtype dtype;
    uint64_t at;
};

static enum status put_entry(void *arg, enum tensor_kind kind, size_t layer)
{
    static const char *const type_names[DTYPES] = {"F32", "BF16", "F16"};
    struct head_writer *h = arg;
    char name[TENSOR_NAME_BYTES];
    size_t rows, cols;

    stored_dims(h->shape, kind, &rows, &cols);
    naming_put(&names, kind, layer, name);
    uint64_t end = h->at + (uint64_t)rows * cols * dtype_bytes(h->dtype);

    (void)fprintf(h->out, ",\"" PREFIX "%s\":{\"dtype\":\"%s\",\"shape\":[", name,
                  type_names[h->dtype]);
    if (!tensor_table[kind].decays)
        (void)fprintf(h->out, "%zu", cols);
    else
        (void)fprintf(h->out, "%zu,%zu", names.transposed[kind] ? cols : rows,
                      names.transposed[kind] ? rows : cols);
    (void)fprintf(h->out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", h->at, end);
    h->at = end;
    return ST_OK;
}

/* transformers refuses a file whose metadata lacks the format. */
static enum status make_head(const struct shape *s, enum dtype dtype, char **text,
                             size_t *bytes)
{
    struct head_writer h = {.shape = s, .dtype = dtype};
    enum status st = ST_OK;

    h.out = open_memstream(text, bytes);
    if (!h.out)
        return fail(ST_NOMEM, "no memory for the head of a safetensors file");
    (void)fputs("{\"__metadata__\":{\"format\":\"pt\"}", h.out);
    st = each_by_layer(s, put_entry, &h);
    (void)fputs("}", h.out);
    while (ftell(h.out) % LENGTH_BYTES)
        (void)fputs(" ", h.out);
    int bad = ferror(h.out);
    if ((fclose(h.out) != 0 || bad) && st == ST_OK)
        st = fail(ST_NOMEM, "no memory for the head of a safetensors file");
    return st;
}

struct body_writer {
    struct weight_writer w;
    enum dtype dtype;
};

static enum status put_body(void *arg, enum tensor_kind kind, size_t layer)
{
    struct body_writer *b = arg;

    return weight_writer_put(&b->w, kind, layer, b->dtype, names.transposed[kind]);
}

static enum status write_weights(const char *folder, const struct weight_source *source,
                                 enum dtype dtype)
{
    struct body_writer b = {.dtype = dtype};
    char path[PATH_BYTES];
    char *head = NULL;
    size_t bytes = 0;
    enum status st = path_in(path, folder, SINGLE);

    if (st == ST_OK)
        st = make_head(&source->shape, dtype, &head, &bytes);
    if (st == ST_OK) {
        const uint64_t length = bytes;

        st = weight_writer_begin(&b.w, path, source);
        if (st == ST_OK)
            st = stream_put(&b.w.stream, &length, sizeof length);
        if (st == ST_OK)
            st = stream_put(&b.w.stream, head, bytes);
        if (st == ST_OK)
            st = each_by_layer(&source->shape, put_body, &b);
        st = weight_writer_end(&b.w, st);
    }
    free(head);
    return st;
}

static enum status write_safetensors(const char *path, const struct weight_source *source,
                                     const struct model_write_options *o)
{
    char tmp[PATH_BYTES];
    enum status st;

    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp)
        return fail(ST_IO, "%s: path too long", path);
    st = folder_remove(tmp);
    if (st == ST_OK)
        st = folder_make(tmp);
    if (st == ST_OK)
        st = hf_files_write(tmp, &source->shape, o);
    if (st == ST_OK)
        st = write_weights(tmp, source, o->dtype);
    if (st == ST_OK)
        st = folder_sync(tmp);
    return commit_path(tmp, path, st);
}

const struct model_format format_safetensors = {
    .name = "safetensors",
    .what = "a Hugging Face folder or one of its safetensors files",
    .is = is_safetensors,
    .map = map_safetensors,
    .tokenizer = safetensors_tokenizer,
    .write = write_safetensors};
