/* SPDX-License-Identifier: MIT */
#include "data/nanogpt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/tokenizer_private.h"

bool nanogpt_is_meta(const json_t *root)
{
    return json_is_integer(json_object_get(root, "vocab_size")) &&
           (json_object_get(root, "itos") || json_object_get(root, "stoi"));
}

/* names[id] for 0 <= id < n, NULL where the tables have none. */
static void list_names(const json_t *itos, const json_t *stoi, size_t n,
                       const char **names)
{
    const char *name;
    json_t *id;
    char key[24];

    if (itos) {
        for (size_t i = 0; i < n; i++) {
            (void)snprintf(key, sizeof key, "%zu", i);
            names[i] =
                json_string_value(json_is_array(itos) ? json_array_get(itos, i)
                                                      : json_object_get(itos, key));
        }
        return;
    }
    json_object_foreach((json_t *)stoi, name, id)
    {
        json_int_t i = json_integer_value(id);

        if (json_is_integer(id) && i >= 0 && (size_t)i < n)
            names[i] = name;
    }
}

enum status nanogpt_load(const char *path, const json_t *root, struct tokenizer **out)
{
    const json_t *itos = json_object_get(root, "itos");
    const json_t *stoi = json_object_get(root, "stoi");
    json_int_t n = json_integer_value(json_object_get(root, "vocab_size"));
    size_t entries = json_is_array(itos) ? json_array_size(itos)
                                         : json_object_size(itos ? itos : stoi);
    uint32_t *code_points = NULL;
    const char **names = NULL;
    enum status st;

    *out = NULL;
    if (n < 1 || n > CODE_POINTS || (size_t)n != entries)
        return fail(ST_FORMAT,
                    "%s: found vocab_size %lld and %zu characters, needs the same number",
                    path, (long long)n, entries);
    st = memory_alloc((size_t)n, sizeof *code_points, "characters", &code_points);
    if (st == ST_OK)
        st = memory_alloc((size_t)n, sizeof *names, "characters", &names);
    if (st == ST_OK)
        list_names(itos, stoi, (size_t)n, names);
    for (size_t i = 0; st == ST_OK && i < (size_t)n; i++) {
        const char *c = names[i] ? names[i] : "";
        size_t bytes = strlen(c);

        if (bytes == 0 ||
            utf8_read((const unsigned char *)c, bytes, &code_points[i]) != bytes)
            st = fail(ST_FORMAT, "%s: id %zu: found \"%.40s\", needs one character", path,
                      i, c);
        else if (i > 0 && code_points[i] <= code_points[i - 1])
            st = fail(ST_FORMAT,
                      "%s: id %zu: found U+%04X after U+%04X, needs ascending characters",
                      path, i, code_points[i], code_points[i - 1]);
    }
    if (st == ST_OK)
        st = tokenizer_new_char(code_points, (size_t)n, out);
    free(names);
    free(code_points);
    return st;
}
