/* SPDX-License-Identifier: MIT */
#include "data/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"

enum {
    WINDOW_BYTES = 1 << 16,
    MOST_KEYS = 10000,
    MOST_TENSORS = 200000, /* 10,000 layers have 120,004 */
    MOST_NAME = 65535,
    MOST_ALIGNMENT = 1 << 16
};

struct gguf_key {
    char *name;
    uint32_t type;
    uint64_t at; /* of the value in the file */
};

static const size_t type_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* ---- a window that moves over the file ---- */

struct cursor {
    const struct gguf *g;
    uint64_t at;        /* next byte */
    uint64_t window_at; /* first byte in the window */
    size_t window_bytes;
    char window[WINDOW_BYTES];
};

static uint64_t left(const struct cursor *c)
{
    return c->g->bytes - c->at;
}

static enum status ends_early(const struct cursor *c, const char *what, uint64_t needed)
{
    return fail(ST_FORMAT,
                "%s: %s: found %" PRIu64 " bytes in the file, needs %" PRIu64
                " more at byte %" PRIu64,
                c->g->path, what, c->g->bytes, needed, c->at);
}

static enum status take(struct cursor *c, const char *what, void *out, size_t bytes)
{
    char *to = out;

    if (bytes > left(c))
        return ends_early(c, what, bytes);
    while (bytes > 0) {
        if (c->at < c->window_at || c->at >= c->window_at + c->window_bytes) {
            size_t n = left(c) < WINDOW_BYTES ? (size_t)left(c) : WINDOW_BYTES;
            enum status st = fd_read_at(c->g->fd, c->g->path, c->window, n, c->at);

            if (st != ST_OK)
                return st;
            c->window_at = c->at;
            c->window_bytes = n;
        }
        size_t in = (size_t)(c->at - c->window_at);
        size_t n = min_size(bytes, c->window_bytes - in);

        memcpy(to, c->window + in, n);
        to += n;
        bytes -= n;
        c->at += n;
    }
    return ST_OK;
}

static enum status skip(struct cursor *c, const char *what, uint64_t count, size_t each)
{
    if (count > left(c) / each)
        return ends_early(c, what, count > UINT64_MAX / each ? UINT64_MAX : count * each);
    c->at += count * each;
    return ST_OK;
}

/* The length of a string that follows. */
static enum status take_length(struct cursor *c, const char *what, uint64_t most,
                               uint64_t *bytes)
{
    enum status st = take(c, what, bytes, sizeof *bytes);

    if (st == ST_OK && *bytes > left(c))
        st = ends_early(c, what, *bytes);
    if (st == ST_OK && *bytes > most)
        st = fail(ST_FORMAT, "%s: %s: found %" PRIu64 " bytes, needs at most %" PRIu64,
                  c->g->path, what, *bytes, most);
    return st;
}

static enum status take_string(struct cursor *c, const char *what, uint64_t most,
                               char **out)
{
    uint64_t bytes;
    enum status st = take_length(c, what, most, &bytes);

    *out = NULL;
    if (st == ST_OK)
        st = memory_alloc((size_t)bytes + 1, 1, what, out);
    if (st == ST_OK)
        st = take(c, what, *out, (size_t)bytes);
    if (st == ST_OK) {
        (*out)[bytes] = 0;
        if (strlen(*out) != bytes)
            st = fail(ST_FORMAT, "%s: %s '%s': found a zero byte in it", c->g->path, what,
                      *out);
    }
    if (st != ST_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

/* ---- keys ---- */

static enum status check_type(const struct gguf *g, const char *key, uint32_t type)
{
    if (type < GGUF_TYPES)
        return ST_OK;
    return fail(ST_FORMAT, "%s: %s: found value type %" PRIu32 ", needs 0 to %d", g->path,
                key, type, GGUF_TYPES - 1);
}

static enum status skip_array(struct cursor *c, const char *key)
{
    uint32_t type;
    uint64_t n;
    enum status st = take(c, key, &type, sizeof type);

    if (st == ST_OK)
        st = take(c, key, &n, sizeof n);
    if (st == ST_OK)
        st = check_type(c->g, key, type);
    if (st == ST_OK && type == GGUF_ARRAY)
        st = fail(ST_FORMAT, "%s: %s: found an array of arrays, needs plain values",
                  c->g->path, key);
    if (st != ST_OK || type != GGUF_STRING)
        return st == ST_OK ? skip(c, key, n, type_bytes[type]) : st;
    /* Each has a length at least. */
    if (n > left(c) / sizeof n)
        return ends_early(c, key, n);
    while (st == ST_OK && n-- > 0) {
        uint64_t bytes;

        st = take_length(c, key, UINT64_MAX, &bytes);
        if (st == ST_OK)
            st = skip(c, key, bytes, 1);
    }
    return st;
}

static enum status read_key(struct cursor *c, struct gguf_key *k)
{
    uint64_t bytes;
    enum status st = take_string(c, "key", MOST_NAME, &k->name);

    if (st == ST_OK)
        st = take(c, k->name, &k->type, sizeof k->type);
    if (st == ST_OK)
        st = check_type(c->g, k->name, k->type);
    if (st != ST_OK)
        return st;
    k->at = c->at;
    if (k->type == GGUF_ARRAY)
        return skip_array(c, k->name);
    if (k->type != GGUF_STRING)
        return skip(c, k->name, 1, type_bytes[k->type]);
    st = take_length(c, k->name, UINT64_MAX, &bytes);
    return st == ST_OK ? skip(c, k->name, bytes, 1) : st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gguf_key *)a)->name, ((const struct gguf_key *)b)->name);
}

static enum status read_keys(struct gguf *g, struct cursor *c, uint64_t n)
{
    enum status st;

    if (n > MOST_KEYS)
        return fail(ST_FORMAT, "%s: found %" PRIu64 " keys, needs at most %d", g->path, n,
                    MOST_KEYS);
    st = memory_alloc((size_t)n, sizeof *g->keys, "keys", &g->keys);
    while (st == ST_OK && g->n_keys < n)
        st = read_key(c, &g->keys[g->n_keys++]);
    if (st != ST_OK)
        return st;
    qsort(g->keys, g->n_keys, sizeof *g->keys, by_name);
    for (size_t i = 1; i < g->n_keys; i++)
        if (!by_name(&g->keys[i - 1], &g->keys[i]))
            return fail(ST_FORMAT, "%s: found key %s twice, needs it once", g->path,
                        g->keys[i].name);
    return ST_OK;
}

static const struct gguf_key *find(const struct gguf *g, const char *key)
{
    const struct gguf_key wanted = {.name = (char *)key};

    return g->n_keys ? bsearch(&wanted, g->keys, g->n_keys, sizeof *g->keys, by_name)
                     : NULL;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

static enum status no_key(const struct gguf *g, const char *key, const char *what)
{
    return fail(ST_FORMAT, "%s: found no %s, needs %s", g->path, key, what);
}

static enum status wrong_type(const struct gguf *g, const struct gguf_key *k,
                              const char *what)
{
    return fail(ST_FORMAT, "%s: %s: found value type %" PRIu32 ", needs %s", g->path,
                k->name, k->type, what);
}

/* The value of a key, at most 8 bytes. */
static enum status read_plain(const struct gguf *g, const struct gguf_key *k,
                              unsigned char raw[8])
{
    memset(raw, 0, 8);
    return fd_read_at(g->fd, g->path, raw, type_bytes[k->type], k->at);
}

enum status gguf_whole(const struct gguf *g, const char *key, uint64_t most,
                       uint64_t *out)
{
    const struct gguf_key *k = find(g, key);
    size_t n = k ? type_bytes[k->type] : 0;
    unsigned char raw[8];

    *out = 0;
    if (!k)
        return no_key(g, key, "a whole number");
    if (n == 0 || k->type == GGUF_F32 || k->type == GGUF_F64 || k->type == GGUF_BOOL)
        return wrong_type(g, k, "a whole number");
    enum status st = read_plain(g, k, raw);
    if (st != ST_OK)
        return st;
    bool is_signed = k->type == GGUF_I8 || k->type == GGUF_I16 || k->type == GGUF_I32 ||
                     k->type == GGUF_I64;
    if (is_signed && (raw[n - 1] & 0x80))
        return fail(ST_FORMAT, "%s: %s: found a negative number, needs 0 to %" PRIu64,
                    g->path, key, most);
    memcpy(out, raw, sizeof *out);
    if (*out > most)
        return fail(ST_FORMAT, "%s: %s: found %" PRIu64 ", needs at most %" PRIu64,
                    g->path, key, *out, most);
    return ST_OK;
}

enum status gguf_number(const struct gguf *g, const char *key, double *out)
{
    const struct gguf_key *k = find(g, key);
    unsigned char raw[8];
    float x;

    *out = 0;
    if (!k)
        return no_key(g, key, "a number");
    if (k->type != GGUF_F32 && k->type != GGUF_F64)
        return wrong_type(g, k, "a number with a fraction");
    enum status st = read_plain(g, k, raw);
    if (k->type == GGUF_F64) {
        memcpy(out, raw, sizeof *out);
    } else {
        memcpy(&x, raw, sizeof x);
        *out = (double)x;
    }
    return st;
}

/* A cursor that stands at a value. */
static enum status cursor_at(const struct gguf *g, uint64_t at, struct cursor **out)
{
    enum status st = memory_alloc(1, sizeof **out, "read buffer", out);

    if (st == ST_OK) {
        (*out)->g = g;
        (*out)->at = at;
        (*out)->window_at = 0;
        (*out)->window_bytes = 0;
    }
    return st;
}

enum status gguf_string(const struct gguf *g, const char *key, char **out)
{
    const struct gguf_key *k = find(g, key);
    struct cursor *c = NULL;
    enum status st;

    *out = NULL;
    if (!k)
        return no_key(g, key, "a text");
    if (k->type != GGUF_STRING)
        return wrong_type(g, k, "a text");
    st = cursor_at(g, k->at, &c);
    if (st == ST_OK)
        st = take_string(c, key, MOST_NAME, out);
    free(c);
    return st;
}

/* Appends the string at the cursor and its final 0. */
static enum status take_into(struct cursor *c, const char *key, struct gguf_strings *s,
                             size_t *capacity)
{
    uint64_t bytes;
    enum status st = take_length(c, key, MOST_NAME, &bytes);
    size_t used = s->begin[s->n], end = used + (size_t)bytes + 1;

    if (st != ST_OK)
        return st;
    if (end > *capacity) {
        size_t more = 2 * *capacity + end;
        char *block = realloc(s->block, more);

        if (!block)
            return fail(ST_NOMEM, "%s: no memory for %s", c->g->path, key);
        s->block = block;
        *capacity = more;
    }
    s->begin[++s->n] = end;
    s->block[end - 1] = 0;
    return take(c, key, s->block + used, (size_t)bytes);
}

enum status gguf_strings(const struct gguf *g, const char *key, struct gguf_strings *out)
{
    const struct gguf_key *k = find(g, key);
    struct cursor *c = NULL;
    size_t capacity = 0;
    uint32_t type = 0;
    uint64_t n = 0;
    enum status st;

    *out = (struct gguf_strings){0};
    if (!k)
        return no_key(g, key, "a list of texts");
    if (k->type != GGUF_ARRAY)
        return wrong_type(g, k, "a list of texts");
    st = cursor_at(g, k->at, &c);
    if (st == ST_OK)
        st = take(c, key, &type, sizeof type);
    if (st == ST_OK)
        st = take(c, key, &n, sizeof n);
    if (st == ST_OK && type != GGUF_STRING)
        st = wrong_type(g, k, "a list of texts");
    if (st == ST_OK && n > left(c) / sizeof n)
        st = ends_early(c, key, n);
    if (st == ST_OK)
        st = memory_alloc((size_t)n + 1, sizeof *out->begin, key, &out->begin);
    if (st == ST_OK)
        out->begin[0] = 0;
    while (st == ST_OK && out->n < n)
        st = take_into(c, key, out, &capacity);
    free(c);
    if (st != ST_OK)
        gguf_strings_release(out);
    return st;
}

void gguf_strings_release(struct gguf_strings *s)
{
    free(s->block);
    free(s->begin);
    *s = (struct gguf_strings){0};
}

/* ---- tensors ---- */

static enum status read_tensor(struct cursor *c, struct gguf_tensor *t)
{
    enum status st = take_string(c, "tensor name", MOST_NAME, &t->name);

    if (st == ST_OK)
        st = take(c, t->name, &t->n_dims, sizeof t->n_dims);
    if (st == ST_OK && (t->n_dims < 1 || t->n_dims > GGUF_MOST_DIMS))
        st = fail(ST_FORMAT, "%s: tensor %s: found %" PRIu32 " dimensions, needs 1 to %d",
                  c->g->path, t->name, t->n_dims, GGUF_MOST_DIMS);
    if (st == ST_OK)
        st = take(c, t->name, t->dims, t->n_dims * sizeof *t->dims);
    if (st == ST_OK)
        st = take(c, t->name, &t->type, sizeof t->type);
    return st == ST_OK ? take(c, t->name, &t->offset, sizeof t->offset) : st;
}

static enum status read_tensors(struct gguf *g, struct cursor *c, uint64_t n)
{
    /* Name length, number of dimensions, one dimension, type, offset. */
    const uint64_t least = 8 + 4 + 8 + 4 + 8;
    enum status st;

    if (n > MOST_TENSORS || n > left(c) / least)
        return fail(ST_FORMAT,
                    "%s: found %" PRIu64 " tensors, needs at most %d and no more than "
                    "%" PRIu64 " bytes can list",
                    g->path, n, MOST_TENSORS, left(c));
    st = memory_alloc((size_t)n, sizeof *g->tensors, "tensors", &g->tensors);
    while (st == ST_OK && g->n_tensors < n)
        st = read_tensor(c, &g->tensors[g->n_tensors++]);
    return st;
}

static enum status read_alignment(struct gguf *g)
{
    uint64_t n = GGUF_ALIGNMENT;
    enum status st = gguf_has(g, "general.alignment")
                         ? gguf_whole(g, "general.alignment", MOST_ALIGNMENT, &n)
                         : ST_OK;

    if (st == ST_OK && (n < 8 || (n & (n - 1))))
        st = fail(ST_FORMAT,
                  "%s: general.alignment: found %" PRIu64
                  ", needs a power of two from 8 to %d",
                  g->path, n, MOST_ALIGNMENT);
    g->alignment = (size_t)n;
    return st;
}

static enum status read_head(struct gguf *g, struct cursor *c)
{
    struct {
        char magic[4];
        uint32_t version;
        uint64_t tensors, keys;
    } head;
    enum status st = take(c, "header", &head, sizeof head);

    if (st != ST_OK)
        return st;
    if (memcmp(head.magic, GGUF_MAGIC, sizeof head.magic) != 0)
        return fail(ST_FORMAT, "%s: not a GGUF file, needs the magic " GGUF_MAGIC,
                    g->path);
    if (head.version != GGUF_VERSION)
        return fail(ST_FORMAT, "%s: found GGUF version %" PRIu32 ", needs %d", g->path,
                    head.version, GGUF_VERSION);
    st = read_keys(g, c, head.keys);
    if (st == ST_OK)
        st = read_alignment(g);
    if (st == ST_OK)
        st = read_tensors(g, c, head.tensors);
    g->data = round_up(c->at, g->alignment ? g->alignment : 1);
    if (st == ST_OK && g->data > g->bytes)
        g->data = g->bytes; /* no tensors, no padding */
    return st;
}

enum status gguf_open(const char *path, struct gguf *g)
{
    struct stat info;
    struct cursor *c = NULL;
    enum status st;

    *g = (struct gguf){.path = path, .alignment = GGUF_ALIGNMENT};
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (g->fd < 0)
        return fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(g->fd, &info) != 0 || !S_ISREG(info.st_mode))
        return fail(ST_IO, "%s: not a regular file", path);
    g->bytes = (uint64_t)info.st_size;
    st = cursor_at(g, 0, &c);
    if (st == ST_OK)
        st = read_head(g, c);
    free(c);
    return st;
}

void gguf_close(struct gguf *g)
{
    if (g->path && g->fd >= 0)
        close(g->fd);
    for (size_t i = 0; i < g->n_keys; i++)
        free(g->keys[i].name);
    for (size_t i = 0; i < g->n_tensors; i++)
        free(g->tensors[i].name);
    free(g->keys);
    free(g->tensors);
    *g = (struct gguf){.fd = -1};
}
