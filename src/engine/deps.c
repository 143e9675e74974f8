/* SPDX-License-Identifier: MIT */
/* Sentinels and the building of tasks; see engine_private.h. Tasks are built by the
 * creator thread alone, so none of this needs locks. The scratch pool is shared by
 * workers. */
#include "engine/engine_private.h"

#include <sched.h>
#include <stdlib.h>

static size_t most_grad_tiles(const struct engine *e)
{
    size_t most = 1;

    for (int k = 0; k < TENSOR_KINDS; k++)
        most = max_size(most, tiling_grad_tiles(&e->model.tiling, &e->layout.shape,
                                                (enum tensor_kind)k));
    return most;
}

enum status sentinels_init(struct engine *e)
{
    struct sentinels *s = &e->sentinels;
    const struct tiling *t = &e->model.tiling;
    size_t L = e->layout.shape.L;
    size_t chunks = tiling_max_chunks(t->N);
    const size_t dims[SENTINEL_KINDS][2] = {
        [S_X] = {L + 1, chunks},
        [S_QKV] = {L, chunks},
        [S_ATT] = {L, chunks},
        [S_MID] = {L, chunks},
        [S_FC] = {L, chunks},
        [S_LN1] = {2, chunks},
        [S_LN2] = {2, chunks},
        [S_GELU] = {2, chunks},
        [S_DX] = {2, chunks},
        [S_DFC] = {2, chunks},
        [S_DMID] = {2, chunks},
        [S_DATT] = {2, chunks},
        [S_DQKV] = {2, chunks},
        [S_DLNFW] = {1, chunks},
        [S_LOGITS] = {2, t->vocab_tiles},
        [S_LOSS] = {1, chunks},
        [S_DLNF] = {2, t->head_lanes},
        [S_GRAD] = {e->layout.n_slices, most_grad_tiles(e)},
        [S_PARAM] = {e->layout.n_slices, 1},
        [S_WTE] = {1, t->vocab_tiles},
        [S_SUM] = {1, e->plan.n_blocks},
        [S_UPDATED] = {1, e->plan.n_blocks},
        [S_ARRIVED] = {1, e->plan.n_blocks},
        [S_AGREED] = {1, 1},
        [S_TOLD] = {1, 1},
        [S_ROWS] = {1, 1},
        [S_ROW_GRAD] = {1, rows_most_tasks(&e->options)},
        [S_ROWS_IN] = {1, 1},
    };

    for (int k = 0; k < SENTINEL_KINDS; k++) {
        s->base[k] = s->total;
        s->stride[k] = dims[k][1];
        s->limit[k] = dims[k][0] * dims[k][1];
        s->total += s->limit[k];
    }
    return memory_alloc(s->total, 1, "sentinels", &s->bytes);
}

void sentinels_release(struct engine *e)
{
    free(e->sentinels.bytes);
    e->sentinels = (struct sentinels){0};
    free(e->deps.in);
    free(e->deps.out);
    e->deps = (struct dependencies){0};
}

const void *sentinel(const struct engine *e, enum sentinel kind, size_t i, size_t j)
{
    const struct sentinels *s = &e->sentinels;
    size_t at = i * s->stride[kind] + j;

    require(j < s->stride[kind] && at < s->limit[kind]);
    return s->bytes + s->base[kind] + at;
}

static void append(const void ***list, size_t *n, size_t *capacity, const void *address)
{
    if (*n == *capacity) {
        size_t wanted = *capacity ? 2 * *capacity : 64;
        const void **grown = realloc(*list, wanted * sizeof *grown);

        if (!grown)
            bug("no memory for %zu dependencies", wanted);
        *list = grown;
        *capacity = wanted;
    }
    (*list)[(*n)++] = address;
}

void needs(struct engine *e, enum sentinel kind, size_t i, size_t j)
{
    append(&e->deps.in, &e->deps.n_in, &e->deps.in_capacity, sentinel(e, kind, i, j));
}

void needs_range(struct engine *e, enum sentinel kind, size_t i, size_t first,
                 size_t last)
{
    for (size_t j = first; j < last; j++)
        needs(e, kind, i, j);
}

void makes(struct engine *e, enum sentinel kind, size_t i, size_t j)
{
    append(&e->deps.out, &e->deps.n_out, &e->deps.out_capacity, sentinel(e, kind, i, j));
}

static void make_task(struct engine *e, const char *label, int priority, task_body body,
                      const struct job *job, bool has_event)
{
    struct dependencies *d = &e->deps;
    bool simulated = e->cost_s > 0 && job && job->work != WORK_NONE;
    struct task t = {.label = label,
                     .body = simulated ? simulate_work : body,
                     .args = job,
                     .args_bytes = job ? sizeof *job : 0,
                     .priority = priority,
                     .has_event = has_event,
                     .in = d->in,
                     .n_in = d->n_in,
                     .out = d->out,
                     .n_out = d->n_out};

    task_spawn(&t);
    e->spawned++;
}

static void forget_dependencies(struct engine *e)
{
    e->deps.n_in = 0;
    e->deps.n_out = 0;
}

void spawn(struct engine *e, const char *label, int priority, task_body body,
           const struct job *job)
{
    make_task(e, label, priority, body, job, false);
    forget_dependencies(e);
}

void spawn_with_event(struct engine *e, const char *label, int priority, task_body body,
                      const struct job *job)
{
    make_task(e, label, priority, body, job, true);
    forget_dependencies(e);
}

void spawn_each(struct engine *e, const char *label, int priority, task_body body,
                const struct job *job, size_t first, size_t n)
{
    struct job own = *job;

    for (size_t i = 0; i < n; i++) {
        own.j = first + i;
        make_task(e, label, priority, body, &own, false);
    }
    forget_dependencies(e);
}

float *scratch_take(struct scratch_pool *p)
{
    for (;;) {
        for (size_t i = 0; i < p->n; i++)
            if (!atomic_flag_test_and_set_explicit(&p->taken[i], memory_order_acquire))
                return p->base + i * p->elems;
        sched_yield(); /* only when more threads run bodies than the pool was made for */
    }
}

void scratch_give(struct scratch_pool *p, float *piece)
{
    size_t i = (size_t)(piece - p->base) / p->elems;

    atomic_flag_clear_explicit(&p->taken[i], memory_order_release);
}

void *product_work_take(struct engine *e)
{
    return e->options.half ? scratch_take(&e->scratch) : NULL;
}

void product_work_give(struct engine *e, void *work)
{
    if (work)
        scratch_give(&e->scratch, work);
}

static void do_rows(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    j->tile.rows(&j->e->model, j->l, j->j);
}

static void do_columns(void *args, struct task_event event)
{
    struct job *j = args;

    void *work = product_work_take(j->e);

    (void)event;
    j->tile.columns(&j->e->model, j->l, j->i, j->j, work);
    product_work_give(j->e, work);
}

void spawn_row_tiles(struct engine *e, const char *label, enum work work,
                     model_rows *rows, size_t l, size_t c)
{
    struct span tiles = tiling_chunk_tiles(&e->model.tiling, c);

    spawn_each(e, label, PRIORITY_PATH, do_rows,
               &(struct job){.e = e, .work = work, .l = l, .i = c, .tile.rows = rows},
               tiles.begin, tiles.size);
}

void spawn_column_tiles(struct engine *e, const char *label, enum work work,
                        const struct column_cut *cut, model_columns *columns, size_t l,
                        size_t c)
{
    spawn_each(
        e, label, PRIORITY_PATH, do_columns,
        &(struct job){.e = e, .work = work, .l = l, .i = c, .tile.columns = columns}, 0,
        cut->tiles);
}

void spawn_join(struct engine *e)
{
    spawn(e, "join", PRIORITY_JOIN, NULL, NULL);
}

size_t attention_place(const struct engine *e, size_t l)
{
    return e->options.recompute == RECOMPUTE_ALL ? 0 : l;
}

size_t mlp_place(const struct engine *e, size_t l)
{
    return e->options.recompute == RECOMPUTE_NONE ? l : 0;
}

size_t work_place(const struct engine *e, size_t l)
{
    return model_set(&e->model, l);
}

size_t slice_index(const struct engine *e, enum tensor_kind kind, size_t layer)
{
    return (size_t)(layout_slice(&e->layout, kind, layer) - e->layout.slices);
}
