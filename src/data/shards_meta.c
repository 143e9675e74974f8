/* SPDX-License-Identifier: MIT */
/* tokens.json beside the shards: what wrote them and how many ids there are. Files of
 * other tools have none, which is fine; one that is there must be right in all we know of
 * it, keys we do not know are left alone. */
#include "data/shards.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "data/nanogpt.h"
#include "data/shards_files.h"

enum { META_VERSION = 1 };

/* The path of the file `name` beside `where`, existing or not. */
static enum status meta_path(const char *where, const char *name, char *buf,
                             size_t buf_bytes)
{
    struct path_list files = {0};
    enum status st = ST_OK;
    const char *beside = where;
    size_t folder_bytes;

    /* The folder of a pattern may have wildcards too: the first match tells it. A pattern
     * without a match is shards_open's error. */
    if (shards_is_pattern(where) && path_list_add_glob(&files, where) == ST_OK)
        beside = files.paths[0];
    if (file_is_folder(beside)) {
        folder_bytes = strlen(beside);
    } else {
        const char *slash = strrchr(beside, '/');

        folder_bytes = slash ? (size_t)(slash - beside) + 1 : 0;
    }
    const char *join = folder_bytes && beside[folder_bytes - 1] != '/' ? "/" : "";
    int n = folder_bytes >= buf_bytes ? -1
                                      : snprintf(buf, buf_bytes, "%.*s%s%s",
                                                 (int)folder_bytes, beside, join, name);

    if (n < 0 || (size_t)n >= buf_bytes)
        st = fail(ST_IO, "%s: path too long", where);
    path_list_release(&files);
    return st;
}

static const char *type_name(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* Text of a key, *out valid as long as root. */
static enum status get_text(const json_t *root, const char *path, const char *key,
                            const char **out)
{
    const json_t *v = json_object_get(root, key);

    *out = NULL;
    if (!v)
        return fail(ST_FORMAT, "%s: no \"%s\" found, needs a text", path, key);
    if (!json_is_string(v))
        return fail(ST_FORMAT, "%s: \"%s\" is %s, needs a text", path, key, type_name(v));
    *out = json_string_value(v);
    return ST_OK;
}

/* Whole number of a key within [least, most]. */
static enum status get_whole(const json_t *root, const char *path, const char *key,
                             int64_t least, int64_t most, int64_t *out)
{
    const json_t *v = json_object_get(root, key);

    *out = 0;
    if (!v)
        return fail(ST_FORMAT, "%s: no \"%s\" found, needs a whole number", path, key);
    if (!json_is_integer(v))
        return fail(ST_FORMAT, "%s: \"%s\" is %s, needs a whole number", path, key,
                    type_name(v));
    *out = json_integer_value(v);
    if (*out < least || *out > most)
        return fail(ST_FORMAT, "%s: \"%s\" is %" PRId64 ", needs %" PRId64 " to %" PRId64,
                    path, key, *out, least, most);
    return ST_OK;
}

/* As get_whole for a key that may be missing or null. */
static enum status check_optional(const json_t *root, const char *path, const char *key,
                                  int64_t least, int64_t most)
{
    const json_t *v = json_object_get(root, key);
    int64_t unused;

    if (!v || json_is_null(v))
        return ST_OK;
    return get_whole(root, path, key, least, most, &unused);
}

static enum status read_kind(const json_t *root, const char *path,
                             struct shards_meta *out)
{
    const char *kind;
    enum status st = get_text(root, path, "kind", &kind);

    if (st != ST_OK)
        return st;
    if (strcmp(kind, "gpt2") != 0 && strcmp(kind, "char") != 0 &&
        strcmp(kind, "bytes") != 0)
        return fail(ST_FORMAT,
                    "%s: \"kind\" is \"%s\", needs \"gpt2\", \"char\" or \"bytes\"", path,
                    kind);
    memcpy(out->kind, kind, strlen(kind) + 1);
    return ST_OK;
}

static enum status read_fields(const json_t *root, const char *path,
                               struct shards_meta *out)
{
    const char *format;
    int64_t number;
    enum status st;

    if (!json_is_object(root))
        return fail(ST_FORMAT, "%s: is %s, needs an object", path, type_name(root));
    if (nanogpt_is_meta(root)) {
        st = get_whole(root, path, "vocab_size", 1, CODE_POINTS, &number);
        out->vocab = (uint32_t)number;
        memcpy(out->kind, "char", sizeof "char");
        return st;
    }
    st = get_text(root, path, "format", &format);
    if (st != ST_OK)
        return st;
    if (strcmp(format, "weft-tokens") != 0)
        return fail(ST_FORMAT, "%s: \"format\" is \"%s\", needs \"weft-tokens\"", path,
                    format);
    st = get_whole(root, path, "version", META_VERSION, META_VERSION, &number);
    if (st != ST_OK)
        return st;
    st = read_kind(root, path, out);
    if (st != ST_OK)
        return st;
    st = get_whole(root, path, "vocab", 1, INT32_MAX, &number);
    if (st != ST_OK)
        return st;
    out->vocab = (uint32_t)number;
    /* -1: no end-of-text, as tokenizer_end_of_text() has it. */
    st = check_optional(root, path, "end_of_text", -1, number - 1);
    if (st == ST_OK)
        st = check_optional(root, path, "train_tokens", 0, INT64_MAX);
    if (st == ST_OK)
        st = check_optional(root, path, "val_tokens", 0, INT64_MAX);
    return st;
}

/* What cannot be looked at is there, so that its reading says why. */
static bool there(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

enum status shards_read_meta(const char *where, struct shards_meta *out)
{
    struct shards_meta meta = {0};
    json_error_t where_bad;
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes;
    enum status st;

    *out = meta;
    st = meta_path(where, "tokens.json", meta.path, sizeof meta.path);
    if (st == ST_OK && !there(meta.path))
        st = meta_path(where, "meta.json", meta.path, sizeof meta.path);
    if (st != ST_OK || !there(meta.path))
        return st;
    st = file_read_all(meta.path, &text, &bytes);
    if (st != ST_OK)
        goto done;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &where_bad);
    if (!root) {
        st = fail(ST_FORMAT, "%s: line %d: not JSON: %s", meta.path, where_bad.line,
                  where_bad.text);
        goto done;
    }
    st = read_fields(root, meta.path, &meta);
    if (st == ST_OK)
        *out = meta;
done:
    json_decref(root);
    free(text);
    return st;
}

/* The tokenizer of a tokens.json, without what may differ between two of the same: where
 * its table lies, and what it was used on. NULL when the file is none. */
static json_t *read_identity(const char *path)
{
    static const char *const ids[] = {"kind", "vocab", "table_xxh3", "code_points"};
    json_t *root = json_load_file(path, 0, NULL);
    json_t *kept = NULL;

    if (json_object_get(root, "kind"))
        kept = json_object();
    for (size_t i = 0; kept && i < sizeof ids / sizeof *ids; i++)
        (void)json_object_set(kept, ids[i], json_object_get(root, ids[i]));
    json_decref(root);
    return kept;
}

bool tokens_json_differ(const char *one, const char *other)
{
    json_t *a = read_identity(one);
    json_t *b = read_identity(other);
    bool differ = a && b && !json_equal(a, b);

    json_decref(a);
    json_decref(b);
    return differ;
}
