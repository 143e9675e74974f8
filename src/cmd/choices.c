/* SPDX-License-Identifier: MIT */
#include "cmd/choices.h"

#include <endian.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

enum {
    EVAL_VERSION = 1,
    HEADER_BYTES = 1024,
    EXAMPLE_BEGINS = 65535,
    EXAMPLE_HEAD = 6 /* words before the context */
};

static enum status new_example(struct choices *c, struct choice_example **out)
{
    if (c->count == c->capacity) {
        size_t capacity = 2 * c->capacity + 64;
        struct choice_example *more = realloc(c->examples, capacity * sizeof *more);

        if (!more)
            return fail(ST_NOMEM, "no memory for %zu examples", capacity);
        c->examples = more;
        c->capacity = capacity;
    }
    *out = &c->examples[c->count++];
    **out = (struct choice_example){0};
    return ST_OK;
}

static enum status add_id(struct choices *c, uint32_t id)
{
    struct token_list *l = &c->tokens;

    if (l->count == l->capacity) {
        size_t capacity = 2 * l->capacity + 1024;
        uint32_t *ids = realloc(l->ids, capacity * sizeof *ids);

        if (!ids)
            return fail(ST_NOMEM, "no memory for %zu tokens", capacity);
        l->ids = ids;
        l->capacity = capacity;
    }
    l->ids[l->count++] = id;
    return ST_OK;
}

/* Where in a file an example stands: "FILE: example 3", or "FILE: line 4". */
struct place {
    char text[4200];
};

static struct place place_of(const char *path, const char *unit, size_t number)
{
    struct place p;

    (void)snprintf(p.text, sizeof p.text, "%s: %s %zu", path, unit, number);
    return p;
}

/* `label` as it was found: what is no number is the label of no ending. */
static enum status check_label(const struct choice_example *e, const char *where,
                               const char *label)
{
    if (e->n_endings < 2)
        return fail(ST_FORMAT, "%s: found %zu endings, needs 2 to %d", where,
                    e->n_endings, CHOICES_MOST);
    if (e->label >= e->n_endings)
        return fail(ST_FORMAT,
                    "%s: found label %s, needs 0 to %zu, the number of an ending", where,
                    label, e->n_endings - 1);
    return ST_OK;
}

static enum status check_example(const struct choices *c, const char *where, size_t V)
{
    const struct choice_example *e = &c->examples[c->count - 1];
    bool empty = e->context.n == 0;

    for (size_t i = 0; i < e->n_endings; i++)
        empty = empty || e->endings[i].n == 0;
    if (empty)
        return fail(ST_FORMAT, "%s: found a context or ending without tokens", where);
    for (size_t i = e->context.begin; i < c->tokens.count; i++)
        if (c->tokens.ids[i] >= V)
            return fail(ST_FORMAT,
                        "%s: found token id %u, the model's vocabulary has %zu", where,
                        c->tokens.ids[i], V);
    return ST_OK;
}

/* ---- llm.c ---- */

struct words {
    const unsigned char *at;
    size_t left; /* words of the file */
};

static bool next_word(struct words *w, size_t *out)
{
    if (w->left == 0)
        return false;
    *out = (size_t)w->at[0] | (size_t)w->at[1] << 8;
    w->at += 2;
    w->left--;
    return true;
}

static enum status take_text(struct choices *c, struct words *w, struct choice_text *out,
                             bool *whole)
{
    size_t n, id = 0;
    enum status st = ST_OK;

    *whole = next_word(w, &n) && n <= w->left;
    if (!*whole)
        return ST_OK;
    *out = (struct choice_text){c->tokens.count, n};
    for (size_t i = 0; i < n && st == ST_OK; i++) {
        *whole = next_word(w, &id);
        st = add_id(c, (uint32_t)id);
    }
    return st;
}

/* Start, bytes, index, label, number of endings; then the texts. */
static enum status take_example(struct choices *c, const char *path, struct words *w,
                                size_t V)
{
    size_t head[EXAMPLE_HEAD - 1] = {0};
    struct place where = place_of(path, "example", c->count + 1);
    struct choice_example *e;
    size_t words = w->left;
    char label[24];
    bool whole = true;
    enum status st = new_example(c, &e);

    for (size_t i = 0; i < EXAMPLE_HEAD - 1; i++)
        whole = whole && next_word(w, &head[i]);
    if (st != ST_OK)
        return st;
    if (whole && head[0] != EXAMPLE_BEGINS)
        return fail(ST_FORMAT, "%s: begins with %zu, needs %d", where.text, head[0],
                    EXAMPLE_BEGINS);
    if (whole && head[4] > CHOICES_MOST)
        return fail(ST_FORMAT, "%s: found %zu endings, needs 2 to %d", where.text,
                    head[4], CHOICES_MOST);
    e->label = head[3];
    e->n_endings = head[4];
    (void)snprintf(label, sizeof label, "%zu", e->label);
    if (whole)
        st = check_label(e, where.text, label);
    if (whole && st == ST_OK)
        st = take_text(c, w, &e->context, &whole);
    for (size_t i = 0; i < e->n_endings && whole && st == ST_OK; i++)
        st = take_text(c, w, &e->endings[i], &whole);
    if (st != ST_OK)
        return st;
    if (!whole)
        return fail(ST_FORMAT, "%s: the file ends within example %zu", path, c->count);
    if (head[1] != 2 * (words - w->left))
        return fail(ST_FORMAT, "%s: says %zu bytes, has %zu", where.text, head[1],
                    2 * (words - w->left));
    return check_example(c, where.text, V);
}

static enum status read_llmc(struct choices *c, const char *path, const char *data,
                             size_t bytes, size_t V)
{
    int32_t header[4];
    struct words w = {(const unsigned char *)data + HEADER_BYTES,
                      bytes > HEADER_BYTES ? (bytes - HEADER_BYTES) / 2 : 0};
    enum status st = ST_OK;

    memcpy(header, data, sizeof header);
    for (size_t i = 0; i < 4; i++)
        header[i] = (int32_t)le32toh((uint32_t)header[i]);
    if (bytes < HEADER_BYTES || header[1] != EVAL_VERSION || header[2] < 1)
        return fail(ST_FORMAT,
                    "%s: found %zu bytes, version %d and %d examples, needs %d or more, "
                    "version %d and an example",
                    path, bytes, header[1], header[2], HEADER_BYTES, EVAL_VERSION);
    for (int32_t i = 0; i < header[2] && st == ST_OK; i++)
        st = take_example(c, path, &w, V);
    if (st == ST_OK && w.left > 0)
        st = fail(ST_FORMAT, "%s: found %zu bytes behind the last example", path,
                  2 * w.left);
    return st;
}

/* ---- JSON lines ---- */

static enum status add_text(struct choices *c, const struct tokenizer *t,
                            const json_t *text, const char *before,
                            struct choice_text *out)
{
    size_t bytes = strlen(before) + json_string_length(text);
    char *joined = malloc(bytes + 1);
    enum status st;

    if (!joined)
        return fail(ST_NOMEM, "no memory for a text of %zu bytes", bytes);
    memcpy(joined, before, strlen(before));
    memcpy(joined + strlen(before), json_string_value(text), json_string_length(text));
    out->begin = c->tokens.count;
    st = tokenizer_encode(t, joined, bytes, &c->tokens);
    out->n = c->tokens.count - out->begin;
    free(joined);
    return st;
}

/* A number, or a text of digits as some copies of the data have it; else the label of no
 * ending. */
static size_t label_of(const json_t *label)
{
    const char *text = json_string_value(label);
    char *end = NULL;

    if (json_is_integer(label))
        return (size_t)json_integer_value(label);
    if (!text || text[0] < '0' || text[0] > '9')
        return CHOICES_MOST;
    size_t found = (size_t)strtoul(text, &end, 10);
    return *end ? CHOICES_MOST : found;
}

static bool is_question(const json_t *object, const json_t *endings)
{
    bool right = json_is_string(json_object_get(object, "ctx")) &&
                 json_is_array(endings) && json_array_size(endings) <= CHOICES_MOST;

    for (size_t i = 0; i < json_array_size(endings); i++)
        right = right && json_is_string(json_array_get(endings, i));
    return right;
}

/* The label as the file has it, for an error. */
static enum status check_object_label(const struct choice_example *e, const char *where,
                                      const json_t *label)
{
    char *text = label ? json_dumps(label, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    char shown[40];

    (void)snprintf(shown, sizeof shown, "%.36s%s", text ? text : "none",
                   text && strlen(text) > 36 ? "..." : "");
    free(text);
    return check_label(e, where, shown);
}

static enum status add_object(struct choices *c, const char *where,
                              const struct tokenizer *t, const json_t *object)
{
    const json_t *endings = json_object_get(object, "endings");
    const json_t *label = json_object_get(object, "label");
    struct choice_example *e;
    enum status st = new_example(c, &e);

    if (st != ST_OK)
        return st;
    if (!is_question(object, endings))
        return fail(ST_FORMAT,
                    "%s: needs an object with a text \"ctx\" and 2 to %d texts "
                    "\"endings\"",
                    where, CHOICES_MOST);
    e->label = label_of(label);
    e->n_endings = json_array_size(endings);
    st = check_object_label(e, where, label);
    if (st == ST_OK)
        st = add_text(c, t, json_object_get(object, "ctx"), "", &e->context);
    for (size_t i = 0; i < e->n_endings && st == ST_OK; i++)
        st = add_text(c, t, json_array_get(endings, i), " ", &e->endings[i]);
    return st;
}

static enum status read_line(struct choices *c, const char *where,
                             const struct tokenizer *t, const char *line, size_t bytes,
                             size_t V)
{
    json_error_t error;
    json_t *object = json_loadb(line, bytes, 0, &error);
    enum status st = object ? add_object(c, where, t, object)
                            : fail(ST_FORMAT, "%s: not JSON: %s", where, error.text);

    json_decref(object);
    return st == ST_OK ? check_example(c, where, V) : st;
}

static enum status read_lines(struct choices *c, const char *path,
                              const struct tokenizer *t, const char *data, size_t bytes,
                              size_t V)
{
    enum status st = ST_OK;
    size_t number = 0;

    for (size_t at = 0; at < bytes && st == ST_OK;) {
        const char *end = memchr(data + at, '\n', bytes - at);
        size_t n = end ? (size_t)(end - data) - at : bytes - at;

        number++;
        if (n > 0) {
            struct place where = place_of(path, "line", number);

            st = read_line(c, where.text, t, data + at, n, V);
        }
        at += n + 1;
    }
    if (st == ST_OK && c->count == 0)
        st = fail(ST_FORMAT, "%s: found no example in %zu bytes", path, bytes);
    return st;
}

enum status choices_read(struct choices *c, const char *path, const struct loaded *model,
                         const char *vocab)
{
    struct tokenizer *t = NULL;
    uint32_t magic = 0;
    char *data;
    size_t bytes;
    enum status st = file_read_all(path, &data, &bytes);

    if (st != ST_OK)
        return st;
    if (bytes >= sizeof magic)
        memcpy(&magic, data, sizeof magic);
    if (le32toh(magic) == CHOICES_MAGIC && bytes >= 4 * sizeof magic)
        st = read_llmc(c, path, data, bytes, model->file.shape.V);
    else
        st = loaded_tokenizer(model, vocab, &t);
    if (st == ST_OK && t)
        st = read_lines(c, path, t, data, bytes, model->file.shape.V);
    tokenizer_free(t);
    free(data);
    return st;
}

void choices_release(struct choices *c)
{
    free(c->examples);
    token_list_release(&c->tokens);
    *c = (struct choices){0};
}
