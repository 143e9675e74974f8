/* SPDX-License-Identifier: MIT */
#include "cmd/jsonl.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static size_t spaces(const char *line, size_t bytes)
{
    size_t n = 0;

    while (n < bytes && (line[n] == ' ' || (line[n] >= '\t' && line[n] <= '\r')))
        n++;
    return n;
}

enum status jsonl_text(const char *path, uint64_t line_number, const char *line,
                       size_t line_bytes, const char *field, char **text, size_t *bytes)
{
    json_error_t error;
    json_t *root, *value;
    enum status st = ST_OK;

    *text = NULL;
    *bytes = 0;
    if (spaces(line, line_bytes) == line_bytes)
        return ST_OK;
    root = json_loadb(line, line_bytes, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &error);
    value = json_object_get(root, field);
    if (!root)
        st = fail(ST_FORMAT, "%s: line %" PRIu64 ": byte %d: %s", path, line_number,
                  error.position, error.text);
    else if (!json_is_object(root))
        st = fail(ST_FORMAT, "%s: line %" PRIu64 ": found no object, needs {\"%s\": ...}",
                  path, line_number, field);
    else if (!json_is_string(value))
        st = fail(ST_FORMAT, "%s: line %" PRIu64 ": found %s \"%.60s\", needs a text",
                  path, line_number, value ? "no text in field" : "no field", field);
    else
        *bytes = json_string_length(value);
    if (st == ST_OK && *bytes > 0) {
        st = memory_alloc(*bytes, 1, "a document", text);
        if (st == ST_OK)
            memcpy(*text, json_string_value(value), *bytes);
    }
    json_decref(root);
    return st;
}
