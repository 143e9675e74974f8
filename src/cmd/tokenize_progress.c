/* SPDX-License-Identifier: MIT */
#include "cmd/tokenize_progress.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/files.h"

static bool add(XXH3_state_t *h, const void *data, size_t bytes)
{
    return XXH3_64bits_update(h, data, bytes) == XXH_OK;
}

static bool add_tokenizer(XXH3_state_t *h, const struct tokenizer *t)
{
    const uint32_t vocab = tokenizer_vocab(t);
    bool ok = add(h, &vocab, sizeof vocab);

    for (uint32_t id = 0; ok && id < vocab; id++) {
        size_t n;
        const char *bytes = tokenizer_bytes(t, id, &n);

        ok = add(h, &n, sizeof n) && add(h, bytes, n);
    }
    return ok;
}

enum status tokenize_fingerprint(const struct tokenizer *t, const char *options,
                                 const struct corpus *c, uint64_t *out)
{
    XXH3_state_t *h = XXH3_createState();
    enum status st = ST_OK;
    bool ok = h && XXH3_64bits_reset(h) == XXH_OK && add_tokenizer(h, t) &&
              add(h, options, strlen(options) + 1);

    for (size_t i = 0; ok && st == ST_OK && i < c->files.count; i++) {
        const char *path = c->files.paths[i];
        struct stat info;

        if (stat(path, &info) != 0)
            st = fail(ST_IO, "%s: cannot open: %s", path, strerror(errno));
        else
            ok = add(h, path, strlen(path) + 1) &&
                 add(h, &c->bytes[i], sizeof c->bytes[i]) &&
                 add(h, &info.st_mtim.tv_sec, sizeof info.st_mtim.tv_sec) &&
                 add(h, &info.st_mtim.tv_nsec, sizeof info.st_mtim.tv_nsec);
    }
    if (!ok && st == ST_OK)
        st = fail(ST_NOMEM, "no memory for a checksum");
    *out = st == ST_OK ? XXH3_64bits_digest(h) : 0;
    XXH3_freeState(h);
    return st;
}

enum status tokenize_progress_save(const char *path, uint64_t fingerprint,
                                   const struct tokenize_progress *p)
{
    char text[512];
    int n = snprintf(text, sizeof text,
                     "{\"work\": \"%016" PRIx64 "\", \"parts\": %" PRIu64
                     ", \"train\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64
                     "], \"val\": [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]}\n",
                     fingerprint, p->parts, p->tokens[TRAIN], p->places[TRAIN].files,
                     p->places[TRAIN].tokens, p->tokens[VAL], p->places[VAL].files,
                     p->places[VAL].tokens);

    return file_write_all(path, text, (size_t)n);
}

static bool read_split(const json_t *list, struct tokenize_progress *p, enum split k)
{
    uint64_t *const to[] = {&p->tokens[k], &p->places[k].files, &p->places[k].tokens};

    for (size_t i = 0; i < 3; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
            return false;
        *to[i] = (uint64_t)json_integer_value(v);
    }
    return true;
}

void tokenize_progress_load(const char *path, uint64_t fingerprint,
                            struct tokenize_progress *p, bool *found)
{
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *parts = json_object_get(root, "parts");
    const char *work = json_string_value(json_object_get(root, "work"));
    char needed[20];

    *p = (struct tokenize_progress){0};
    (void)snprintf(needed, sizeof needed, "%016" PRIx64, fingerprint);
    *found = work && !strcmp(work, needed) && json_is_integer(parts) &&
             json_integer_value(parts) > 0 &&
             read_split(json_object_get(root, "train"), p, TRAIN) &&
             read_split(json_object_get(root, "val"), p, VAL);
    p->parts = *found ? (uint64_t)json_integer_value(parts) : 0;
    json_decref(root);
}
