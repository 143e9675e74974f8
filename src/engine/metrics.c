/* SPDX-License-Identifier: MIT */
#include "engine/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/memory.h"

struct metrics {
    char path[PATH_MAX];
    FILE *file;
};

/* Keeps the lines whose step is at most first_step. */
static enum status drop_later_lines(const char *path, uint64_t first_step)
{
    char *text = NULL;
    char *kept = NULL;
    size_t bytes, n = 0;
    enum status st;

    if (!file_exists(path))
        return ST_OK;
    st = file_read_all(path, &text, &bytes);
    if (st == ST_OK)
        st = memory_alloc(bytes + 1, 1, path, &kept);
    for (char *line = text; st == ST_OK && line < text + bytes;) {
        char *end = memchr(line, '\n', (size_t)(text + bytes - line));

        if (!end) /* cut by a kill in mid-line */
            break;
        size_t length = (size_t)(end - line) + 1;
        json_t *entry = json_loadb(line, length - 1, 0, NULL);
        json_t *step = json_object_get(entry, "step");

        if (json_is_integer(step) && (uint64_t)json_integer_value(step) <= first_step) {
            memcpy(kept + n, line, length);
            n += length;
        }
        json_decref(entry);
        line = end + 1;
    }
    if (st == ST_OK && n != bytes)
        st = file_write_all(path, kept, n);
    free(kept);
    free(text);
    return st;
}

enum status metrics_open(const char *run, uint64_t first_step, struct metrics **out)
{
    struct metrics *m = NULL;
    enum status st = memory_alloc(1, sizeof *m, "metrics", &m);

    *out = NULL;
    if (st != ST_OK)
        return st;
    if (snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", run) >= (int)sizeof m->path)
        st = fail(ST_IO, "%s: path too long", run);
    if (st == ST_OK)
        st = drop_later_lines(m->path, first_step);
    if (st == ST_OK && !(m->file = fopen(m->path, "ae")))
        st = fail(ST_IO, "%s: cannot open: %s", m->path, strerror(errno));
    if (st == ST_OK) {
        *out = m;
        m = NULL;
    }
    metrics_close(m);
    return st;
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    if (m->file)
        fclose(m->file);
    free(m);
}

/* One line in one write, so that a reader never sees half of one. */
static enum status write_line(struct metrics *m, json_t *object)
{
    char *text =
        object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    enum status st = ST_OK;

    json_decref(object);
    if (!text)
        return fail(ST_NOMEM, "%s: no memory for a line", m->path);
    if (fprintf(m->file, "%s\n", text) < 0 || fflush(m->file) != 0)
        st = fail(ST_IO, "%s: cannot write: %s", m->path, strerror(errno));
    free(text);
    return st;
}

enum status metrics_step(struct metrics *m, const struct metrics_step *s)
{
    return write_line(
        m, json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "step",
                     (json_int_t)s->step, "loss", s->loss, "lr", s->lr, "grad_norm",
                     s->grad_norm, "tokens", (json_int_t)s->tokens, "step_s", s->step_s,
                     "tokens_per_s", s->tokens_per_s, "mfu", s->mfu, "comm_busy_s",
                     s->comm_busy_s, "comm_exposed_s", s->comm_exposed_s, "comm_cpu_s",
                     s->comm_cpu_s));
}

enum status metrics_eval(struct metrics *m, uint64_t step, double val_loss)
{
    return write_line(
        m, json_pack("{s:I, s:f}", "step", (json_int_t)step, "val_loss", val_loss));
}

enum status metrics_save(struct metrics *m, uint64_t step, double seconds, double stall_s,
                         uint64_t bytes)
{
    return write_line(m, json_pack("{s:I, s:f, s:f, s:I}", "step", (json_int_t)step,
                                   "save_s", seconds, "save_stall_s", stall_s,
                                   "save_bytes", (json_int_t)bytes));
}
