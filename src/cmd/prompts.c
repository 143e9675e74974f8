/* SPDX-License-Identifier: MIT */
#include "cmd/prompts.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"

static enum status no_memory(size_t bytes)
{
    return fail(ST_NOMEM, "prompts: no memory for %zu bytes", bytes);
}

/* Takes over a malloc'ed text. */
static enum status add_owned(struct prompts *p, char *text, size_t bytes)
{
    if (p->count == p->capacity) {
        size_t capacity = 2 * p->capacity + 8;
        struct prompt *more = realloc(p->prompts, capacity * sizeof *more);

        if (!more) {
            free(text);
            return no_memory(capacity * sizeof *more);
        }
        p->prompts = more;
        p->capacity = capacity;
    }
    p->prompts[p->count++] = (struct prompt){text, bytes};
    return ST_OK;
}

enum status prompts_add(struct prompts *p, const char *text, size_t bytes)
{
    char *copy = malloc(bytes + 1);

    if (!copy)
        return no_memory(bytes);
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    return add_owned(p, copy, bytes);
}

enum status prompts_read_one(struct prompts *p, const char *path)
{
    char *text;
    size_t bytes;
    enum status st = file_read_all(path, &text, &bytes);

    return st == ST_OK ? add_owned(p, text, bytes) : st;
}

static enum status add_json(struct prompts *p, const char *path, size_t number,
                            const char *line, size_t bytes)
{
    json_error_t error;
    json_t *object = json_loadb(line, bytes, JSON_ALLOW_NUL, &error);
    const json_t *prompt = json_object_get(object, "prompt");
    enum status st;

    if (!object)
        st = fail(ST_FORMAT, "%s:%zu: not JSON: %s", path, number, error.text);
    else if (!json_is_string(prompt))
        st = fail(ST_FORMAT, "%s:%zu: needs an object with a text \"prompt\"", path,
                  number);
    else
        st = prompts_add(p, json_string_value(prompt), json_string_length(prompt));
    json_decref(object);
    return st;
}

enum status prompts_read_list(struct prompts *p, const char *path)
{
    const char *ending = strrchr(path, '.');
    bool json = ending && !strcmp(ending, ".jsonl");
    size_t number = 0;
    char *text;
    size_t bytes;
    enum status st = file_read_all(path, &text, &bytes);

    for (size_t at = 0; st == ST_OK && at < bytes;) {
        const char *line = text + at;
        const char *end = memchr(line, '\n', bytes - at);
        size_t n = end ? (size_t)(end - line) : bytes - at;

        at += n + 1;
        number++;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        if (n > 0)
            st = json ? add_json(p, path, number, line, n) : prompts_add(p, line, n);
    }
    free(text);
    if (st == ST_OK && p->count == 0)
        st = fail(ST_FORMAT, "%s: found no prompt in %zu bytes, needs one a line", path,
                  bytes);
    return st;
}

void prompts_release(struct prompts *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->prompts[i].text);
    free(p->prompts);
    *p = (struct prompts){0};
}
