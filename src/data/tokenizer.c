/* SPDX-License-Identifier: MIT */
/* The kinds of tokenizer, tokens.json, and what they share. Invariant: the bytes of id i
 * are text[begin[i]..begin[i + 1]), so decoding is a table look-up for every kind. */
#include "data/tokenizer_private.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/nanogpt.h"
#include "data/vocabulary.h"

#define TABLE_NAME "vocab.bpe"
static const char *const kind_names[] = {"gpt2", "char", "bytes"};

enum status token_list_reserve(struct token_list *l, size_t more)
{
    if (l->capacity - l->count >= more)
        return ST_OK;
    size_t capacity = max_size(max_size(2 * l->capacity, l->count + more), 1024);
    uint32_t *ids = realloc(l->ids, capacity * sizeof *ids);

    if (!ids)
        return fail(ST_NOMEM, "no memory for %zu token ids", capacity);
    l->ids = ids;
    l->capacity = capacity;
    return ST_OK;
}

enum status token_list_add(struct token_list *l, uint32_t id)
{
    enum status st = token_list_reserve(l, 1);

    if (st == ST_OK)
        l->ids[l->count++] = id;
    return st;
}

void token_list_release(struct token_list *l)
{
    free(l->ids);
    *l = (struct token_list){0};
}

/* Length of the UTF-8 character at p, with its code point, or 0 when there is none:
 * overlong forms, surrogates and what lies above U+10FFFF are none. */
size_t utf8_read(const unsigned char *p, size_t bytes, uint32_t *code_point)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c = p[0];
    size_t n = c < 0x80   ? 1
               : c < 0xC2 ? 0
               : c < 0xE0 ? 2
               : c < 0xF0 ? 3
               : c < 0xF5 ? 4
                          : 0;

    if (n == 0 || n > bytes)
        return 0;
    if (n > 1)
        c &= 0x7Fu >> n;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    if (c < least[n] || c >= CODE_POINTS || (c >= 0xD800 && c < 0xE000))
        return 0;
    *code_point = c;
    return n;
}

size_t utf8_write(uint32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFF) | c);
    return n;
}

size_t utf8_run(const char *text, size_t bytes)
{
    const uint64_t high_bits = 0x8080808080808080u;
    size_t at = 0;

    while (at < bytes) {
        uint64_t eight;
        uint32_t c;

        if (bytes - at >= sizeof eight) {
            memcpy(&eight, text + at, sizeof eight);
            if (!(eight & high_bits)) {
                at += sizeof eight;
                continue;
            }
        }
        size_t n = utf8_read((const unsigned char *)text + at, bytes - at, &c);
        if (n == 0)
            break;
        at += n;
    }
    return at;
}

size_t tokenizer_mark_chars(const char *text, size_t bytes, bool *seen)
{
    size_t at = 0;

    while (at < bytes) {
        uint32_t c;
        size_t n = utf8_read((const unsigned char *)text + at, bytes - at, &c);

        if (n == 0)
            return at;
        seen[c] = true;
        at += n;
    }
    return bytes;
}

static enum status new_plain(enum tokenizer_kind kind, uint32_t vocab, size_t text_bytes,
                             struct tokenizer **out)
{
    struct tokenizer *t = calloc(1, sizeof *t);

    *out = NULL;
    if (t) {
        t->kind = kind;
        t->vocab = vocab;
        t->end_of_text = -1;
        t->text = malloc(text_bytes);
        t->begin = calloc((size_t)vocab + 1, sizeof *t->begin);
    }
    if (!t || !t->text || !t->begin) {
        tokenizer_free(t);
        return fail(ST_NOMEM, "no memory for a vocabulary of %u ids", vocab);
    }
    *out = t;
    return ST_OK;
}

enum status tokenizer_new_bytes(struct tokenizer **out)
{
    enum status st = new_plain(TOKENIZER_BYTES, BYTES_END_OF_TEXT + 1, 256, out);

    if (st != ST_OK)
        return st;
    for (uint32_t i = 0; i < 256; i++) {
        (*out)->text[i] = (char)i;
        (*out)->begin[i] = i;
    }
    /* End-of-text has no bytes. */
    (*out)->begin[256] = (*out)->begin[257] = 256;
    (*out)->end_of_text = BYTES_END_OF_TEXT;
    return ST_OK;
}

enum status tokenizer_new_char(const uint32_t *code_points, size_t n,
                               struct tokenizer **out)
{
    struct tokenizer *t;

    *out = NULL;
    if (n == 0 || n > CODE_POINTS)
        return fail(ST_FORMAT,
                    "character vocabulary: found %zu characters, needs 1 to %d", n,
                    CODE_POINTS);
    enum status st = new_plain(TOKENIZER_CHAR, (uint32_t)n, 4 * n, &t);
    if (st != ST_OK)
        return st;
    t->char_id = calloc(CODE_POINTS, sizeof *t->char_id);
    if (!t->char_id) {
        st = fail(ST_NOMEM, "no memory for a character table");
        goto done;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t c = code_points[i];

        if (c >= CODE_POINTS || (c >= 0xD800 && c < 0xE000) ||
            (i > 0 && c <= code_points[i - 1])) {
            st = fail(ST_FORMAT,
                      "character vocabulary: entry %zu is U+%04X, needs ascending code "
                      "points of characters",
                      i, c);
            goto done;
        }
        t->char_id[c] = (uint32_t)i + 1;
        t->begin[i + 1] = t->begin[i] + (uint32_t)utf8_write(c, t->text + t->begin[i]);
    }
    *out = t;
    t = NULL;
done:
    tokenizer_free(t);
    return st;
}

enum status tokenizer_new_gpt2(const char *path, struct tokenizer **out)
{
    return tokenizer_new_merges(path, GPT2_END_OF_TEXT - 256, out);
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    free(t->text);
    free(t->begin);
    free(t->char_id);
    free(t->table);
    free(t->table_path);
    bpe_free(t->bpe);
    free(t);
}

enum tokenizer_kind tokenizer_kind_of(const struct tokenizer *t)
{
    return t->kind;
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab;
}

int32_t tokenizer_end_of_text(const struct tokenizer *t)
{
    return t->end_of_text;
}

const char *tokenizer_bytes(const struct tokenizer *t, uint32_t id, size_t *bytes)
{
    require(id < t->vocab);
    *bytes = t->begin[id + 1] - t->begin[id];
    return t->text + t->begin[id];
}

static enum status encode_chars(const struct tokenizer *t, const char *text, size_t bytes,
                                struct token_list *out)
{
    enum status st = token_list_reserve(out, bytes);
    size_t at = 0;

    if (st != ST_OK)
        return st;
    while (at < bytes) {
        uint32_t c;
        size_t n = utf8_read((const unsigned char *)text + at, bytes - at, &c);

        if (n == 0)
            return fail(ST_FORMAT, "byte %zu: found 0x%02X, needs UTF-8 text", at,
                        (unsigned char)text[at]);
        if (t->char_id[c] == 0)
            return fail(ST_FORMAT,
                        "byte %zu: character U+%04X is not in the vocabulary of %u", at,
                        c, t->vocab);
        out->ids[out->count++] = t->char_id[c] - 1;
        at += n;
    }
    return ST_OK;
}

static enum status encode_bytes(const char *text, size_t bytes, struct token_list *out)
{
    enum status st = token_list_reserve(out, bytes);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < bytes; i++)
        out->ids[out->count++] = (unsigned char)text[i];
    return ST_OK;
}

enum status tokenizer_encode_with(const struct tokenizer *t, struct tokenizer_scratch *s,
                                  const char *text, size_t bytes, struct token_list *out)
{
    switch (t->kind) {
    case TOKENIZER_CHAR:
        return encode_chars(t, text, bytes, out);
    case TOKENIZER_BYTES:
        return encode_bytes(text, bytes, out);
    case TOKENIZER_GPT2:
        break;
    }
    return bpe_encode(t, s, text, bytes, out);
}

enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t bytes,
                             struct token_list *out)
{
    struct tokenizer_scratch *s;
    enum status st = tokenizer_scratch_new(t, &s);

    if (st == ST_OK)
        st = tokenizer_encode_with(t, s, text, bytes, out);
    tokenizer_scratch_free(s);
    return st;
}

static bool is_ascii_space(unsigned char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

size_t tokenizer_cut(const char *text, size_t bytes, size_t at)
{
    const unsigned char *p = (const unsigned char *)text;

    for (size_t i = max_size(at, 1); i < bytes; i++)
        if (is_ascii_space(p[i]) && p[i - 1] < 0x80 && !is_ascii_space(p[i - 1]))
            return i;
    return bytes;
}

/* tokens.json -------------------------------------------------------------------- */

static enum status add_vocabulary(json_t *root, const struct tokenizer *t)
{
    char sum[17];
    int bad = 0;

    if (t->kind == TOKENIZER_GPT2) {
        (void)snprintf(sum, sizeof sum, "%016llx", (unsigned long long)t->table_xxh3);
        /* A table without a file is written beside tokens.json. */
        const char *path = t->table_path ? t->table_path : TABLE_NAME;

        bad |= json_object_set_new(root, "table_path", json_string(path));
        bad |= json_object_set_new(root, "table_xxh3", json_string(sum));
        if (!json_object_get(root, "table_path"))
            return fail(ST_FORMAT, "%s: the file name is not UTF-8", path);
    } else if (t->kind == TOKENIZER_CHAR) {
        json_t *list = json_array();

        for (uint32_t i = 0; i < t->vocab; i++) {
            uint32_t c = 0;
            size_t n = utf8_read((const unsigned char *)t->text + t->begin[i], 4, &c);

            require(n == t->begin[i + 1] - t->begin[i]);
            bad |= json_array_append_new(list, json_integer(c));
        }
        bad |= json_object_set_new(root, "code_points", list);
    }
    return bad ? fail(ST_NOMEM, "no memory for tokens.json") : ST_OK;
}

enum status tokenizer_save(const struct tokenizer *t, const struct tokens_note *note,
                           const char *tokens_json)
{
    char sum[17];
    char *text = NULL;
    json_t *root;

    (void)snprintf(sum, sizeof sum, "%016llx", (unsigned long long)note->text_xxh3);
    root = json_pack(
        "{ss si ss si si sI sI sI sI ss}", "format", "weft-tokens", "version", 1, "kind",
        kind_names[t->kind], "vocab", (int)t->vocab, "end_of_text", (int)t->end_of_text,
        "train_tokens", (json_int_t)note->train_tokens, "val_tokens",
        (json_int_t)note->val_tokens, "documents", (json_int_t)note->documents,
        "text_bytes", (json_int_t)note->text_bytes, "text_xxh3", sum);
    if (!root)
        return fail(ST_NOMEM, "no memory for tokens.json");
    /* The other kinds have an id; null says that this one has none. */
    if (t->end_of_text < 0)
        json_object_set_new(root, "end_of_text", json_null());
    enum status st = add_vocabulary(root, t);
    if (st == ST_OK) {
        text = json_dumps(root, t->kind == TOKENIZER_CHAR ? 0 : JSON_INDENT(2));
        size_t n = text ? strlen(text) : 0;

        if (text)
            text[n] = '\n'; /* in place of the final 0 */
        st = text ? file_write_all(tokens_json, text, n + 1)
                  : fail(ST_NOMEM, "no memory for tokens.json");
    }
    free(text);
    json_decref(root);
    return st;
}

static enum status load_char(const char *path, const json_t *root, struct tokenizer **out)
{
    const json_t *list = json_object_get(root, "code_points");
    size_t n = json_array_size(list);
    uint32_t *code_points = malloc((n + 1) * sizeof *code_points);

    if (!code_points)
        return fail(ST_NOMEM, "%s: no memory", path);
    for (size_t i = 0; i < n; i++) {
        json_int_t c = json_integer_value(json_array_get(list, i));

        code_points[i] = c < 0 || c > CODE_POINTS ? CODE_POINTS : (uint32_t)c;
    }
    enum status st = tokenizer_new_char(code_points, n, out);
    free(code_points);
    if (st == ST_FORMAT) {
        char why[256];

        (void)snprintf(why, sizeof why, "%s", fail_text());
        return fail(ST_FORMAT, "%s: code_points: %s", path, why);
    }
    return st;
}

static enum status load_gpt2(const char *path, const json_t *root, struct tokenizer **out)
{
    const char *table = json_string_value(json_object_get(root, "table_path"));
    const char *sum = json_string_value(json_object_get(root, "table_xxh3"));
    const char *slash = strrchr(path, '/');
    char beside[PATH_MAX];
    char found[17];

    if (!table || !sum)
        return fail(ST_FORMAT, "%s: needs table_path and table_xxh3", path);
    (void)snprintf(beside, sizeof beside, "%.*s" TABLE_NAME,
                   slash ? (int)(slash - path) + 1 : 0, path);
    bool there = table[0] == '/' && file_exists(table);
    if (!there && !file_exists(beside))
        return fail(ST_IO,
                    "%s: the merge table %s is gone; put it back, or beside this file "
                    "as " TABLE_NAME,
                    path, table);
    if (!there)
        table = beside;
    enum status st = tokenizer_new_merges(table, 0, out);
    if (st != ST_OK)
        return st;
    (void)snprintf(found, sizeof found, "%016llx",
                   (unsigned long long)(*out)->table_xxh3);
    if (!strcmp(found, sum))
        return ST_OK;
    tokenizer_free(*out);
    *out = NULL;
    return fail(ST_FORMAT, "%s: found checksum %s, %s needs %s", table, found, path, sum);
}

static enum status load_ours(const char *path, const json_t *root, struct tokenizer **out)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *kind = json_string_value(json_object_get(root, "kind"));
    json_int_t version = json_integer_value(json_object_get(root, "version"));
    json_int_t vocab = json_integer_value(json_object_get(root, "vocab"));
    enum status st;

    if (!format || strcmp(format, "weft-tokens") != 0)
        return fail(ST_FORMAT, "%s: found format %s, needs weft-tokens", path,
                    format ? format : "none");
    if (version != 1)
        return fail(ST_FORMAT, "%s: found version %lld, needs 1", path,
                    (long long)version);
    if (kind && !strcmp(kind, kind_names[TOKENIZER_BYTES]))
        st = tokenizer_new_bytes(out);
    else if (kind && !strcmp(kind, kind_names[TOKENIZER_CHAR]))
        st = load_char(path, root, out);
    else if (kind && !strcmp(kind, kind_names[TOKENIZER_GPT2]))
        st = load_gpt2(path, root, out);
    else
        st = fail(ST_FORMAT, "%s: found kind %s, needs gpt2, char or bytes", path,
                  kind ? kind : "none");
    if (st == ST_OK && vocab != (json_int_t)(*out)->vocab) {
        st = fail(ST_FORMAT, "%s: found vocab %lld, needs %u", path, (long long)vocab,
                  (*out)->vocab);
        tokenizer_free(*out);
        *out = NULL;
    }
    return st;
}

static enum status load_vocabulary(const char *path, bool gguf, struct tokenizer **out)
{
    struct vocabulary v;
    enum status st =
        gguf ? vocabulary_read_gguf(path, &v) : vocabulary_read_json(path, &v);

    if (st == ST_OK)
        st = vocabulary_tokenizer(&v, path, out);
    vocabulary_release(&v);
    return st;
}

/* Hugging Face's vocab.json: names with ids, and nothing else. */
static bool is_vocab_json(const json_t *root)
{
    void *first = json_object_iter((json_t *)root);

    return first && json_is_integer(json_object_iter_value(first)) &&
           !json_object_get(root, "vocab_size");
}

static bool is_gguf(const char *path)
{
    char magic[4] = {0};
    FILE *f = fopen(path, "rbe");
    bool is = f && fread(magic, 1, sizeof magic, f) == sizeof magic &&
              !memcmp(magic, GGUF_MAGIC, sizeof magic);

    if (f)
        (void)fclose(f);
    return is;
}

enum status tokenizer_load(const char *path, struct tokenizer **out)
{
    json_error_t error;
    char *text;
    size_t bytes;
    enum status st;

    *out = NULL;
    if (is_gguf(path))
        return load_vocabulary(path, true, out);
    st = file_read_all(path, &text, &bytes);
    if (st != ST_OK)
        return st;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root)
        return fail(ST_FORMAT, "%s:%d: not JSON: %s", path, error.line, error.text);
    if (nanogpt_is_meta(root))
        st = nanogpt_load(path, root, out);
    else if (is_vocab_json(root))
        st = load_vocabulary(path, false, out);
    else
        st = load_ours(path, root, out);
    json_decref(root);
    return st;
}
