/* SPDX-License-Identifier: MIT */
#include "report/run.h"

#include <ini.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/utf8.h"

const char *const run_column_names[RUN_COLUMNS] = {
    "step",         "loss", "lr",        "grad_norm",   "tokens",         "step_s",
    "tokens_per_s", "mfu",  "compute_s", "comm_busy_s", "comm_exposed_s", "idle_s"};

const char *const run_file_names[RUN_FILES] = {"metrics.jsonl", "events.jsonl"};

static double number(const json_t *line, const char *key)
{
    const json_t *v = json_object_get(line, key);

    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Doubles what an array of n elements has room for when n has reached it. */
static enum status grow(void *array_ptr, size_t n, size_t elem_bytes)
{
    void **array = array_ptr;

    if (n < 256 ? n > 0 : (n & (n - 1)) != 0)
        return ST_OK;
    size_t room = n < 256 ? 256 : 2 * n;
    void *grown = realloc(*array, room * elem_bytes);

    if (!grown)
        return fail(ST_NOMEM, "report: no memory for %zu lines", room);
    *array = grown;
    return ST_OK;
}

static enum status add_step(struct run *r, const json_t *line)
{
    for (int c = 0; c < RUN_COLUMNS; c++) {
        enum status st = grow(&r->columns[c], r->n, sizeof *r->columns[c]);

        if (st != ST_OK)
            return st;
        r->columns[c][r->n] = number(line, run_column_names[c]);
    }
    r->n++;
    return ST_OK;
}

/* Among the events, though it stands with the numbers. */
static enum status add_checkpoint(struct run *r, json_t *line)
{
    json_t *event = json_pack("{s:s, s:O}", "event", "checkpoint", "step",
                              json_object_get(line, "step"));

    return event && json_array_append_new(r->events, event) == 0
               ? ST_OK
               : fail(ST_NOMEM, "report: no memory for a checkpoint");
}

static enum status add_number_line(void *run, json_t *line)
{
    struct run *r = run;
    enum status st;

    if (json_object_get(line, "loss"))
        return add_step(r, line);
    if (json_object_get(line, "save_s"))
        return add_checkpoint(r, line);
    if (!json_object_get(line, "val_loss"))
        return ST_OK;
    st = grow(&r->evaluations, r->n_evaluations, sizeof *r->evaluations);
    if (st == ST_OK)
        r->evaluations[r->n_evaluations++] =
            (struct run_evaluation){number(line, "step"), number(line, "val_loss")};
    return st;
}

/* What a process wrote of steps that a later one has done again counts no more.
 * (metrics.jsonl, with the checkpoints, is cut then.) */
static void forget_later(json_t *events, json_int_t step)
{
    for (size_t i = json_array_size(events); i-- > 0;) {
        const json_t *e = json_array_get(events, i);
        const char *name = json_string_value(json_object_get(e, "event"));
        bool counts = json_integer_value(json_object_get(e, "step")) <= step;

        if (!counts && name && !strcmp(name, "ranks"))
            (void)json_array_remove(events, i);
    }
}

static enum status add_event_line(void *run, json_t *line)
{
    struct run *r = run;
    const char *name = json_string_value(json_object_get(line, "event"));

    if (!name)
        return ST_OK;
    if (!strcmp(name, "start"))
        forget_later(r->events, json_integer_value(json_object_get(line, "step")));
    return json_array_append(r->events, line) == 0
               ? ST_OK
               : fail(ST_NOMEM, "report: no memory for an event");
}

enum status run_each_line(const char *folder, enum run_file file,
                          enum status (*add)(void *arg, json_t *line), void *arg,
                          size_t *damaged)
{
    char path[PATH_MAX];
    char *text;
    size_t bytes;
    enum status st;

    *damaged = 0;
    if (snprintf(path, sizeof path, "%s/%s", folder, run_file_names[file]) >=
        (int)sizeof path)
        return fail(ST_IO, "%s: path too long", folder);
    if (!file_exists(path))
        return ST_OK;
    st = file_read_all(path, &text, &bytes);
    for (char *line = text; st == ST_OK && line < text + bytes;) {
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));

        if (!end)
            break;
        json_t *entry = json_loadb(line, (size_t)(end - line), 0, NULL);

        if (json_is_object(entry))
            st = add(arg, entry);
        else
            ++*damaged;
        json_decref(entry);
        line = end + 1;
    }
    free(text);
    return st;
}

bool run_tell_damaged(const struct run *r, char *out, size_t out_bytes)
{
    int used = 0;

    for (int f = 0; f < RUN_FILES; f++)
        if (r->damaged[f] > 0 && (size_t)used < out_bytes)
            used += snprintf(out + used, out_bytes - (size_t)used, "%s%s: %zu line%s",
                             used ? ", " : "", run_file_names[f], r->damaged[f],
                             r->damaged[f] == 1 ? "" : "s");
    if ((size_t)used < out_bytes)
        (void)snprintf(out + used, out_bytes - (size_t)used, " passed over: not JSON");
    return used > 0;
}

static int on_option(void *user, const char *section, const char *name, const char *value)
{
    (void)section;
    return json_object_set_new(user, name, utf8_json(value)) == 0;
}

/* A file that does not read is no reason to show nothing. */
static void read_options(struct run *r)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/config.ini", r->path) < (int)sizeof path &&
        file_check_regular(path) == ST_OK)
        (void)ini_parse(path, on_option, r->options);
}

static enum status read_all(struct run *r)
{
    char path[PATH_MAX];
    enum status st;

    if (snprintf(path, sizeof path, "%s/metrics.jsonl", r->path) >= (int)sizeof path)
        return fail(ST_IO, "%s: path too long", r->path);
    if (!file_exists(path))
        return fail(ST_FORMAT,
                    "%s: found no metrics.jsonl, needs a run folder of weft train",
                    r->path);
    st =
        run_each_line(r->path, RUN_NUMBERS, add_number_line, r, &r->damaged[RUN_NUMBERS]);
    if (st == ST_OK)
        st = run_each_line(r->path, RUN_EVENTS, add_event_line, r,
                           &r->damaged[RUN_EVENTS]);
    read_options(r);
    return st;
}

enum status run_read(const char *path, struct run *out)
{
    size_t length = strlen(path);
    enum status st = ST_OK;

    while (length > 1 && path[length - 1] == '/')
        length--;
    *out = (struct run){
        .path = strndup(path, length), .events = json_array(), .options = json_object()};
    if (!out->path || !out->events || !out->options)
        st = fail(ST_NOMEM, "%s: no memory to read it", path);
    if (st == ST_OK)
        st = read_all(out);
    if (st != ST_OK)
        run_release(out);
    return st;
}

void run_release(struct run *r)
{
    free(r->path);
    for (int c = 0; c < RUN_COLUMNS; c++)
        free(r->columns[c]);
    free(r->evaluations);
    json_decref(r->events);
    json_decref(r->options);
    *r = (struct run){0};
}
