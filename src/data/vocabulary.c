/* SPDX-License-Identifier: MIT */
#include "data/vocabulary.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"
#include "data/tokenizer_private.h"

#define MERGES_HEADING "#version: 0.2\n"
enum { MOST_IDS = 1 << 24 };

void vocabulary_release(struct vocabulary *v)
{
    gguf_strings_release(&v->names);
    free(v->merges);
    *v = (struct vocabulary){0};
}

static const char *name_of(const struct vocabulary *v, size_t id)
{
    return v->names.block + v->names.begin[id];
}

static size_t name_bytes(const struct vocabulary *v, size_t id)
{
    return v->names.begin[id + 1] - v->names.begin[id] - 1;
}

/* The first id of that name, or -1. */
static int32_t find_name(const struct vocabulary *v, const char *name)
{
    for (size_t i = 0; i < v->names.n; i++)
        if (!strcmp(name_of(v, i), name))
            return (int32_t)i;
    return -1;
}

/* ---- from a tokenizer ---- */

static enum status put_names(const struct tokenizer *t, struct vocabulary *v)
{
    size_t used = 0;
    enum status st = memory_alloc((size_t)t->vocab + 1, sizeof *v->names.begin,
                                  "names of tokens", &v->names.begin);

    /* Two bytes a symbol, and a 0 each. */
    if (st == ST_OK)
        st = memory_alloc(2 * (size_t)t->begin[t->vocab] + t->vocab +
                              sizeof END_OF_TEXT_NAME,
                          1, "names of tokens", &v->names.block);
    if (st != ST_OK)
        return st;
    for (uint32_t id = 0; id < t->vocab; id++) {
        char *to = v->names.block + used;

        v->names.begin[id] = used;
        if ((int32_t)id == t->end_of_text) {
            memcpy(to, END_OF_TEXT_NAME, sizeof END_OF_TEXT_NAME);
            used += sizeof END_OF_TEXT_NAME;
            continue;
        }
        used += symbols_put(t->text + t->begin[id], t->begin[id + 1] - t->begin[id], to);
        v->names.block[used++] = 0;
    }
    v->names.begin[t->vocab] = used;
    v->names.n = t->vocab;
    return ST_OK;
}

/* The merges that make each character of several bytes: its first two bytes, these and
 * the third, and so on. Bytes of one character never meet those of another, so the order
 * among characters does not matter; shorter beginnings come first. */
static void put_char_merges(const struct tokenizer *t, FILE *out)
{
    for (size_t length = 2; length <= 4; length++)
        for (uint32_t id = 0; id < t->vocab; id++) {
            const char *bytes = t->text + t->begin[id];
            const char *before = id ? t->text + t->begin[id - 1] : NULL;
            char left[16], right[16];

            if (t->begin[id + 1] - t->begin[id] < length)
                continue;
            /* Ids ascend, so equal beginnings are neighbours. */
            if (id && t->begin[id] - t->begin[id - 1] >= length &&
                !memcmp(before, bytes, length))
                continue;
            left[symbols_put(bytes, length - 1, left)] = 0;
            right[symbols_put(bytes + length - 1, 1, right)] = 0;
            (void)fprintf(out, "%s %s\n", left, right);
        }
}

static enum status put_merges(const struct tokenizer *t, struct vocabulary *v)
{
    FILE *out = open_memstream(&v->merges, &v->merges_bytes);

    if (!out)
        return fail(ST_NOMEM, "no memory for the merges of a vocabulary");
    if (t->kind == TOKENIZER_GPT2) {
        bool heading = t->table_bytes > 8 && !memcmp(t->table, MERGES_HEADING, 8);

        (void)fputs(heading ? "" : MERGES_HEADING, out);
        (void)fwrite(t->table, 1, t->table_bytes, out);
    } else {
        (void)fputs(MERGES_HEADING, out);
        if (t->kind == TOKENIZER_CHAR)
            put_char_merges(t, out);
    }
    int bad = ferror(out);
    if (fclose(out) != 0 || bad)
        return fail(ST_NOMEM, "no memory for the merges of a vocabulary");
    return ST_OK;
}

enum status vocabulary_of(const struct tokenizer *t, struct vocabulary *out)
{
    enum status st;

    *out = (struct vocabulary){.end_of_text = t->end_of_text};
    st = put_names(t, out);
    return st == ST_OK ? put_merges(t, out) : st;
}

/* ---- from Hugging Face's files ---- */

/* Sorts the names by id; every id from 0 on must be there once. */
static enum status order_names(const json_t *root, const char *path, struct vocabulary *v)
{
    size_t n = json_object_size(root), bytes = 0;
    const char **names = NULL;
    const char *name;
    json_t *id;
    enum status st = memory_alloc(n, sizeof *names, "names of tokens", &names);

    json_object_foreach((json_t *)root, name, id)
    {
        json_int_t i = json_integer_value(id);

        if (st != ST_OK)
            break;
        if (!json_is_integer(id) || i < 0 || (size_t)i >= n || n > MOST_IDS)
            st = fail(ST_FORMAT, "%s: \"%.80s\": found an id that is none of 0 to %zu",
                      path, name, n - 1);
        else if (names[i])
            st = fail(ST_FORMAT,
                      "%s: found id %" JSON_INTEGER_FORMAT
                      " twice, for \"%.80s\" and \"%.80s\"",
                      path, i, names[i], name);
        else
            names[i] = name;
        bytes += strlen(name) + 1;
    }
    if (st == ST_OK)
        st = memory_alloc(n + 1, sizeof *v->names.begin, "names of tokens",
                          &v->names.begin);
    if (st == ST_OK)
        st = memory_alloc(bytes, 1, "names of tokens", &v->names.block);
    for (size_t i = 0; st == ST_OK && i < n; i++) {
        size_t length = strlen(names[i]) + 1;

        memcpy(v->names.block + v->names.begin[i], names[i], length);
        v->names.begin[i + 1] = v->names.begin[i] + length;
        v->names.n++;
    }
    free(names);
    return st;
}

enum status vocabulary_read_json(const char *vocab_json, struct vocabulary *out)
{
    const char *slash = strrchr(vocab_json, '/');
    char merges[4096];
    json_error_t error;
    json_t *root = NULL;
    char *text = NULL;
    size_t bytes;
    enum status st;

    *out = (struct vocabulary){.end_of_text = -1};
    if (snprintf(merges, sizeof merges, "%.*smerges.txt",
                 slash ? (int)(slash - vocab_json) + 1 : 0,
                 vocab_json) >= (int)sizeof merges)
        return fail(ST_IO, "%s: path too long", vocab_json);
    st = file_read_all(vocab_json, &text, &bytes);
    if (st != ST_OK)
        return st;
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json_is_object(root))
        st = fail(ST_FORMAT, "%s: line %d: %s", vocab_json, root ? 1 : error.line,
                  root ? "needs an object" : error.text);
    if (st == ST_OK)
        st = order_names(root, vocab_json, out);
    if (st == ST_OK)
        st = file_read_all(merges, &out->merges, &out->merges_bytes);
    if (st == ST_OK)
        out->end_of_text = find_name(out, END_OF_TEXT_NAME);
    json_decref(root);
    return st;
}

/* ---- from GGUF ---- */

static enum status join_merges(const struct gguf_strings *list, struct vocabulary *v)
{
    size_t head = sizeof MERGES_HEADING - 1, n = list->begin[list->n];
    enum status st = memory_alloc(head + n + 1, 1, "merges", &v->merges);

    if (st != ST_OK)
        return st;
    memcpy(v->merges, MERGES_HEADING, head);
    for (size_t i = 0; i < list->n; i++) {
        size_t bytes = list->begin[i + 1] - list->begin[i];

        memcpy(v->merges + head + list->begin[i], list->block + list->begin[i], bytes);
        v->merges[head + list->begin[i + 1] - 1] = '\n'; /* in place of the final 0 */
    }
    v->merges_bytes = head + n;
    return ST_OK;
}

enum status vocabulary_read_gguf(const char *path, struct vocabulary *out)
{
    struct gguf g;
    struct gguf_strings merges = {0};
    char *model = NULL;
    enum status st = gguf_open(path, &g);

    *out = (struct vocabulary){.end_of_text = -1};
    if (st == ST_OK)
        st = gguf_string(&g, "tokenizer.ggml.model", &model);
    if (st == ST_OK && strcmp(model, "gpt2") != 0)
        st = fail(ST_FORMAT, "%s: found a tokenizer of kind %.40s, needs gpt2", path,
                  model);
    if (st == ST_OK)
        st = gguf_strings(&g, "tokenizer.ggml.tokens", &out->names);
    if (st == ST_OK && out->names.n > MOST_IDS)
        st = fail(ST_FORMAT, "%s: found %zu tokens, needs at most %d", path, out->names.n,
                  MOST_IDS);
    if (st == ST_OK)
        st = gguf_strings(&g, "tokenizer.ggml.merges", &merges);
    if (st == ST_OK)
        st = join_merges(&merges, out);
    if (st == ST_OK)
        out->end_of_text = find_name(out, END_OF_TEXT_NAME);
    free(model);
    gguf_strings_release(&merges);
    gguf_close(&g);
    return st;
}

/* ---- to a tokenizer ---- */

/* Does each id of t have the name that v gives it? */
static bool same_names(const struct tokenizer *t, const struct vocabulary *v)
{
    size_t longest = 0;
    char *name;
    bool same = t->vocab <= v->names.n;

    for (uint32_t id = 0; id < t->vocab; id++)
        longest = max_size(longest, t->begin[id + 1] - t->begin[id]);
    name = malloc(2 * longest + 1);
    for (uint32_t id = 0; same && name && id < t->vocab; id++) {
        if ((int32_t)id == t->end_of_text) {
            same = !strcmp(name_of(v, id), END_OF_TEXT_NAME);
            continue;
        }
        size_t n =
            symbols_put(t->text + t->begin[id], t->begin[id + 1] - t->begin[id], name);

        same = n == name_bytes(v, id) && !memcmp(name, name_of(v, id), n);
    }
    same = same && name;
    free(name);
    return same;
}

/* Keeps *out when it names its ids as v does. */
static bool fits(struct tokenizer **out, const struct vocabulary *v)
{
    if (*out && same_names(*out, v))
        return true;
    tokenizer_free(*out);
    *out = NULL;
    return false;
}

/* Characters in ascending order, as far as there are any. */
static enum status new_chars(const struct vocabulary *v, struct tokenizer **out)
{
    uint32_t *code_points;
    size_t n = 0;
    enum status st =
        memory_alloc(v->names.n, sizeof *code_points, "characters", &code_points);

    for (; st == ST_OK && n < v->names.n; n++) {
        char bytes[8];
        size_t length = 0;
        uint32_t c = 0;

        /* Four bytes, two for each symbol. */
        if (name_bytes(v, n) > 8 ||
            !symbols_read(name_of(v, n), name_bytes(v, n), bytes, &length) ||
            utf8_read((const unsigned char *)bytes, length, &c) != length ||
            (n > 0 && c <= code_points[n - 1]))
            break;
        code_points[n] = c;
    }
    if (st == ST_OK && n > 0)
        st = tokenizer_new_char(code_points, n, out);
    free(code_points);
    return st;
}

enum status vocabulary_tokenizer(const struct vocabulary *v, const char *where,
                                 struct tokenizer **out)
{
    enum status st;

    *out = NULL;
    st = tokenizer_new_bytes(out);
    if (st != ST_OK || fits(out, v))
        return st;
    st = new_chars(v, out);
    /* What follows the characters must be names that no text gives. */
    if (st != ST_OK || (fits(out, v) && (v->names.n == (*out)->vocab ||
                                         name_of(v, (*out)->vocab)[0] == '[')))
        return st;
    tokenizer_free(*out);
    *out = NULL;
    st = tokenizer_new_table(where, v->merges, v->merges_bytes, 0, out);
    if (st != ST_OK || fits(out, v))
        return st;
    return fail(ST_FORMAT,
                "%s: found a vocabulary of %zu names that do not follow from its merges, "
                "needs GPT-2's order: 256 bytes, one a merge, %s",
                where, v->names.n, END_OF_TEXT_NAME);
}
