/* SPDX-License-Identifier: MIT */
#include "engine/metrics.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "report/prometheus.h"
#include "report/tensorboard.h"

/* One of the files. */
struct lines {
    char path[PATH_MAX];
    FILE *file;
};

struct metrics {
    struct metrics_options options;
    struct lines numbers, events;
    struct tensorboard *tensorboard; /* NULL: not wanted */
    struct metrics_step last;        /* for Prometheus */
    double val_loss;
    double exported_s; /* clock when it was last written for Prometheus */
    bool export_failed;
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

static enum status name_lines(struct lines *l, const char *run, const char *name)
{
    if (snprintf(l->path, sizeof l->path, "%s/%s", run, name) >= (int)sizeof l->path)
        return fail(ST_IO, "%s: path too long", run);
    return ST_OK;
}

/* A process that was killed in mid-line must not spoil the first line of the next. */
static bool ends_in_mid_line(FILE *f)
{
    char last = '\n';

    return fseeko(f, -1, SEEK_END) == 0 && pread(fileno(f), &last, 1, ftello(f)) == 1 &&
           last != '\n';
}

static enum status open_lines(struct lines *l)
{
    enum status st = file_check_regular(l->path);

    if (st != ST_OK)
        return st;
    l->file = fopen(l->path, "a+e");
    if (!l->file)
        return fail(ST_IO, "%s: cannot open: %s", l->path, strerror(errno));
    if (ends_in_mid_line(l->file) && (fputc('\n', l->file) < 0 || fflush(l->file) != 0))
        return fail(ST_IO, "%s: cannot write: %s", l->path, strerror(errno));
    return ST_OK;
}

/* A file that was moved or removed under the run would take all further lines with it. */
static bool is_in_place(const struct lines *l)
{
    struct stat info;

    return l->file && file_exists(l->path) &&
           (fstat(fileno(l->file), &info) != 0 || info.st_nlink > 0);
}

static enum status open_again(struct lines *l)
{
    char folder[PATH_MAX];
    enum status st;

    log_warn("%s was moved or removed; a new one begins here", l->path);
    if (l->file)
        fclose(l->file);
    l->file = NULL;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(l->path, '/') - l->path),
                   l->path);
    st = folder_make(folder);
    return st == ST_OK ? open_lines(l) : st;
}

static enum status open_tensorboard(struct metrics *m)
{
    char folder[PATH_MAX];

    if (!m->options.tensorboard)
        return ST_OK;
    if (snprintf(folder, sizeof folder, "%s/tensorboard", m->options.run) >=
        (int)sizeof folder)
        return fail(ST_IO, "%s: path too long", m->options.run);
    return tensorboard_open(folder, &m->tensorboard);
}

enum status metrics_open(const struct metrics_options *o, struct metrics **out)
{
    struct metrics *m = NULL;
    enum status st = memory_alloc(1, sizeof *m, "metrics", &m);

    *out = NULL;
    if (st != ST_OK)
        return st;
    m->options = *o;
    m->val_loss = (double)NAN;
    st = name_lines(&m->numbers, o->run, "metrics.jsonl");
    if (st == ST_OK)
        st = name_lines(&m->events, o->run, "events.jsonl");
    if (st == ST_OK)
        st = drop_later_lines(m->numbers.path, o->first_step);
    if (st == ST_OK)
        st = open_lines(&m->numbers);
    if (st == ST_OK)
        st = open_lines(&m->events);
    if (st == ST_OK)
        st = open_tensorboard(m);
    if (st == ST_OK) {
        *out = m;
        m = NULL;
    }
    metrics_close(m);
    return st;
}

/* ---- Prometheus ---- */

/* Somebody else's folder is no reason to end a run: told once. */
static void export_now(struct metrics *m)
{
    const struct metrics_step *s = &m->last;
    const struct prometheus_value values[] = {
        {"weft_step", "Steps done.", (double)s->step, true},
        {"weft_tokens_total", "Tokens trained on.", (double)s->tokens, true},
        {"weft_loss", "Training loss of the last step.", s->loss, false},
        {"weft_validation_loss", "Last validation loss.", m->val_loss, false},
        {"weft_learning_rate", "Learning rate of the last step.", s->lr, false},
        {"weft_gradient_norm", "Global norm of the last gradient.", s->grad_norm, false},
        {"weft_tokens_per_second", "Speed of the last step.", s->tokens_per_s, false},
        {"weft_mfu_ratio", "Share of the peak in the last step.", s->mfu, false},
        {"weft_step_seconds", "Length of the last step.", s->account.wall_s, false},
        {"weft_exposed_seconds", "Of it, spent waiting for messages.",
         s->account.exposed_s, false}};

    m->exported_s = clock_s();
    if (prometheus_write(m->options.prometheus, m->options.run, values,
                         sizeof values / sizeof *values) == ST_OK ||
        m->export_failed)
        return;
    m->export_failed = true;
    log_warn("--prometheus: %s", fail_text());
}

static void export_if_due(struct metrics *m)
{
    const double period_s = 5;

    if (m->options.prometheus && clock_s() - m->exported_s >= period_s)
        export_now(m);
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    if (m->options.prometheus && m->last.step > 0)
        export_now(m);
    tensorboard_close(m->tensorboard);
    if (m->numbers.file)
        fclose(m->numbers.file);
    if (m->events.file)
        fclose(m->events.file);
    free(m);
}

/* The event files lie beside the numbers and went with them. */
static enum status bring_back(struct metrics *m, struct lines *l)
{
    enum status st;

    if (is_in_place(l))
        return ST_OK;
    st = open_again(l);
    if (st != ST_OK || l != &m->numbers || !m->tensorboard)
        return st;
    tensorboard_close(m->tensorboard);
    m->tensorboard = NULL;
    return open_tensorboard(m);
}

/* One line in one write, so that a reader never sees half of one. */
static enum status write_line(struct metrics *m, struct lines *l, json_t *object)
{
    char *text =
        object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    enum status st = ST_OK;

    json_decref(object);
    if (!text)
        return fail(ST_NOMEM, "%s: no memory for a line", l->path);
    st = bring_back(m, l);
    if (st == ST_OK && (fprintf(l->file, "%s\n", text) < 0 || fflush(l->file) != 0))
        st = fail(ST_IO, "%s: cannot write: %s", l->path, strerror(errno));
    free(text);
    return st;
}

static enum status show_step(struct metrics *m, const struct metrics_step *s)
{
    const struct tensorboard_scalar scalars[] = {
        {"train/loss", s->loss},
        {"train/learning_rate", s->lr},
        {"train/gradient_norm", s->grad_norm},
        {"speed/tokens_per_second", s->tokens_per_s},
        {"speed/mfu", s->mfu},
        {"speed/step_seconds", s->account.wall_s},
        {"speed/exposed_seconds", s->account.exposed_s}};

    m->last = *s;
    export_if_due(m);
    return m->tensorboard ? tensorboard_write(m->tensorboard, s->step, scalars,
                                              sizeof scalars / sizeof *scalars)
                          : ST_OK;
}

enum status metrics_step(struct metrics *m, const struct metrics_step *s)
{
    const struct account *a = &s->account;
    enum status st = show_step(m, s);

    if (st != ST_OK)
        return st;
    return write_line(
        m, &m->numbers,
        json_pack("{s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}",
                  "step", (json_int_t)s->step, "loss", s->loss, "lr", s->lr, "grad_norm",
                  s->grad_norm, "tokens", (json_int_t)s->tokens, "step_s", a->wall_s,
                  "tokens_per_s", s->tokens_per_s, "mfu", s->mfu, "compute_s",
                  a->compute_s, "comm_busy_s", a->exposed_s + a->hidden_s,
                  "comm_exposed_s", a->exposed_s, "idle_s", a->idle_s, "comm_cpu_s",
                  s->comm_cpu_s));
}

enum status metrics_eval(struct metrics *m, uint64_t step, double val_loss)
{
    const struct tensorboard_scalar scalar = {"validation/loss", val_loss};
    enum status st =
        m->tensorboard ? tensorboard_write(m->tensorboard, step, &scalar, 1) : ST_OK;

    m->val_loss = val_loss;
    if (st != ST_OK)
        return st;
    return write_line(
        m, &m->numbers,
        json_pack("{s:I, s:f}", "step", (json_int_t)step, "val_loss", val_loss));
}

/* ---- events ---- */

static json_t *event(const char *name, uint64_t step)
{
    return json_pack("{s:s, s:I, s:I}", "event", name, "step", (json_int_t)step, "time",
                     (json_int_t)time(NULL));
}

/* Adds what `more` holds to an event; both may be NULL for want of memory. */
static json_t *with(json_t *event, json_t *more)
{
    int rc = event && more ? json_object_update(event, more) : -1;

    json_decref(more);
    if (rc == 0)
        return event;
    json_decref(event);
    return NULL;
}

enum status metrics_start(struct metrics *m, const struct metrics_start *s)
{
    json_t *more =
        json_pack("{s:I, s:i, s:i, s:o, s:s, s:s, s:s, s:s, s:s, s:f, s:f, s:f}", "steps",
                  (json_int_t)s->steps, "ranks", s->ranks, "workers", s->workers, "from",
                  s->from ? utf8_json(s->from) : json_null(), "version", WEFT_VERSION,
                  "strategy", s->strategy, "kernels", s->kernels, "tasks", s->tasks,
                  "library", s->library, "tokens_a_step", s->tokens_a_step, "parameters",
                  s->parameters, "peak_flops", s->peak_flops);

    return write_line(m, &m->events, with(event("start", s->step), more));
}

/* One number of every rank's account. */
static json_t *column(const struct account *of_rank, size_t ranks, size_t number)
{
    json_t *out = json_array();

    for (size_t r = 0; r < ranks; r++)
        if (json_array_append_new(
                out, json_real(((const double *)&of_rank[r])[number])) != 0) {
            json_decref(out);
            return NULL;
        }
    return out;
}

enum status metrics_ranks(struct metrics *m, uint64_t step, uint64_t steps,
                          const struct account *of_rank, size_t ranks)
{
    static const char *const names[ACCOUNT_NUMBERS] = {"compute_s", "exposed_s", "idle_s",
                                                       "hidden_s", "wall_s"};
    json_t *line = with(event("ranks", step), json_pack("{s:I}", "n", (json_int_t)steps));

    for (size_t i = 0; i < ACCOUNT_NUMBERS && line; i++)
        line = with(line, json_pack("{s:o}", names[i], column(of_rank, ranks, i)));
    return write_line(m, &m->events, line);
}

enum status metrics_end(struct metrics *m, uint64_t step, const char *why)
{
    return write_line(m, &m->events,
                      with(event("end", step), json_pack("{s:s}", "why", why)));
}

enum status metrics_save(struct metrics *m, uint64_t step, double seconds, double stall_s,
                         uint64_t bytes)
{
    return write_line(m, &m->numbers,
                      json_pack("{s:I, s:f, s:f, s:I}", "step", (json_int_t)step,
                                "save_s", seconds, "save_stall_s", stall_s, "save_bytes",
                                (json_int_t)bytes));
}
