/* SPDX-License-Identifier: MIT */
/* decoder.c - one pass as a chain of phases.
 *
 * The tasks of a phase wait for the gate; a task without work that closes the gate waits
 * for all of them. Nothing is shared by two spans of a phase, so their number may follow
 * the workers without touching a bit. */
#include "engine/decoder.h"

#include <stdlib.h>

#include "task/task.h"

enum { COLUMN_UNIT = 16 }; /* spans are whole vectors */

enum phase {
    EMBEDDING,
    NORM1,
    QKV,
    ATTENTION,
    ATTPROJ,
    NORM2,
    FC,
    FCPROJ,
    FINAL_NORM,
    LOGITS,
    USE
};

struct decoder {
    struct decode model;
    struct arena arena;
    float *work; /* [workers][round_up(room, CACHE_TILE)] */
    size_t workers;
    /* of the pass at hand */
    const struct decode_row *rows;
    size_t n, outputs;
    decoder_use use;
    void *use_arg;
    char gate;
};

struct span_job {
    struct decoder *d;
    enum phase phase;
    size_t layer, begin, end, part;
};

static size_t work_elems(const struct decode *m)
{
    return round_up(m->room, CACHE_TILE);
}

size_t decoder_bytes(const struct shape *s, size_t sequences, size_t room, int workers)
{
    return decode_bytes(s, sequences, room) +
           round_up((size_t)workers * round_up(room, CACHE_TILE) * sizeof(float),
                    CACHE_LINE);
}

enum status decoder_new(const struct decoder_options *o, struct decoder **out)
{
    struct decoder *d = calloc(1, sizeof *d);
    enum status st;

    *out = NULL;
    if (!d)
        return fail(ST_NOMEM, "decoder: no memory");
    d->workers = (size_t)o->workers;
    d->model = (struct decode){.shape = o->layout->shape,
                               .kernels = o->kernels,
                               .layout = o->layout,
                               .params = o->params,
                               .sequences = o->sequences,
                               .room = o->room};
    st = arena_init(&d->arena,
                    decoder_bytes(&d->model.shape, o->sequences, o->room, o->workers),
                    "keys and values");
    if (st != ST_OK) {
        free(d);
        return st;
    }
    decode_place(&d->model, &d->arena);
    d->work = arena_take(&d->arena, d->workers * work_elems(&d->model) * sizeof *d->work);
    *out = d;
    return ST_OK;
}

void decoder_free(struct decoder *d)
{
    if (!d)
        return;
    arena_release(&d->arena);
    free(d);
}

const struct shape *decoder_shape(const struct decoder *d)
{
    return &d->model.shape;
}

size_t decoder_sequences(const struct decoder *d)
{
    return d->model.sequences;
}

size_t decoder_room(const struct decoder *d)
{
    return d->model.room;
}

double decoder_loss(const struct decoder *d, const float *logits, int32_t target)
{
    return decode_loss(&d->model, logits, target);
}

static void do_span(void *args, struct task_event event)
{
    const struct span_job *j = args;
    struct decoder *d = j->d;
    const struct decode *m = &d->model;
    size_t begin = j->begin;
    size_t end = j->end;

    (void)event;
    switch (j->phase) {
    case EMBEDDING:
        decode_embedding(m, d->rows, begin, end);
        return;
    case NORM1:
    case NORM2:
        decode_norm(m, j->phase == NORM2, j->layer, begin, end);
        return;
    case QKV:
        decode_qkv(m, d->rows, d->n, j->layer, begin, end);
        return;
    case ATTENTION:
        decode_attention(m, d->rows, d->n, j->layer, begin, end,
                         d->work + j->part * work_elems(m));
        return;
    case ATTPROJ:
        decode_attproj(m, d->n, j->layer, begin, end);
        return;
    case FC:
        decode_fc(m, d->n, j->layer, begin, end);
        return;
    case FCPROJ:
        decode_fcproj(m, d->n, j->layer, begin, end);
        return;
    case FINAL_NORM:
        decode_final_norm(m, d->rows, d->n);
        return;
    case LOGITS:
        decode_logits(m, d->outputs, begin, end);
        return;
    case USE:
        for (size_t i = begin; i < end; i++)
            d->use(d->use_arg, i, m->logits + i * m->shape.V);
        return;
    }
}

/* `total` items in spans of whole units, one a worker at most, then the gate. */
static void spawn_phase(struct decoder *d, enum phase phase, size_t layer, size_t total,
                        size_t unit)
{
    static const char *const labels[] = {[EMBEDDING] = "decode embedding",
                                         [NORM1] = "decode norm",
                                         [QKV] = "decode qkv",
                                         [ATTENTION] = "decode attention",
                                         [ATTPROJ] = "decode attproj",
                                         [NORM2] = "decode norm",
                                         [FC] = "decode fc",
                                         [FCPROJ] = "decode fcproj",
                                         [FINAL_NORM] = "decode norm",
                                         [LOGITS] = "decode logits",
                                         [USE] = "use logits"};
    const void *gate[] = {&d->gate};
    size_t units = ceil_div(total, unit);
    size_t parts = min_size(units, d->workers);

    for (size_t p = 0; p < parts; p++) {
        struct span_job job = {d,
                               phase,
                               layer,
                               units * p / parts * unit,
                               min_size(total, units * (p + 1) / parts * unit),
                               p};
        struct task t = {.label = labels[phase],
                         .body = do_span,
                         .args = &job,
                         .args_bytes = sizeof job,
                         .in = gate,
                         .n_in = 1};

        task_spawn(&t);
    }
    struct task close = {.label = "decode gate", .out = gate, .n_out = 1};
    task_spawn(&close);
}

void decoder_pass(struct decoder *d, const struct decode_row *rows, size_t n,
                  decoder_use use, void *arg)
{
    const struct shape *s = &d->model.shape;
    size_t C = s->C;

    require(n <= DECODE_ROWS);
    d->rows = rows;
    d->n = n;
    d->use = use;
    d->use_arg = arg;
    d->outputs = 0;
    for (size_t r = 0; r < n; r++) {
        require(rows[r].sequence < d->model.sequences &&
                rows[r].position < d->model.room);
        d->outputs += rows[r].output;
    }
    spawn_phase(d, EMBEDDING, 0, n, 1);
    for (size_t l = 0; l < s->L; l++) {
        spawn_phase(d, NORM1, l, n, 1);
        spawn_phase(d, QKV, l, 3 * C, COLUMN_UNIT);
        spawn_phase(d, ATTENTION, l, n * s->H, 1);
        spawn_phase(d, ATTPROJ, l, C, COLUMN_UNIT);
        spawn_phase(d, NORM2, l, n, 1);
        spawn_phase(d, FC, l, 4 * C, COLUMN_UNIT);
        spawn_phase(d, FCPROJ, l, C, COLUMN_UNIT);
    }
    if (d->outputs > 0) {
        spawn_phase(d, FINAL_NORM, 0, 1, 1);
        spawn_phase(d, LOGITS, 0, s->V, COLUMN_UNIT);
        spawn_phase(d, USE, 0, d->outputs, 1);
    }
    task_wait_all();
}
