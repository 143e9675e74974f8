/* SPDX-License-Identifier: MIT */
/* The tied embedding in two parts. wte's gradient from the head is dense and first in
 * production order; that from the embedding touches the rows of this step's tokens and is
 * known last. It is kept apart, by row, and travels as rows to the owners when the dense
 * part has long been summed; and the rows of the next step's tokens come ahead of the
 * tensor, so that forward need not wait for all of it. */
#include "engine/engine_private.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_A_TASK = 256 };

static size_t row_tasks(size_t n)
{
    return ceil_div(max_size(n, 1), ROWS_A_TASK);
}

static size_t most_rows(const struct engine_options *o)
{
    return min_size(o->shape.V, o->accum * o->batch * o->seq);
}

bool splits_embedding(const struct engine_options *o, int ranks)
{
    enum strategy strategy = o->strategy ? o->strategy : strategy_default(ranks);

    /* MPI_Iallreduce leaves sums everywhere at once: rows would come too late. */
    return o->train && o->split_embedding && ranks > 1 &&
           !(o->exchange == EXCHANGE_COLLECTIVE && strategy_ops(strategy)->replicated);
}

struct rows_options rows_options(const struct engine_options *o, const struct layout *l,
                                 const struct plan *plan)
{
    const struct slice *wte = layout_slice(l, WTE, 0);

    require(wte == l->slices);
    return (struct rows_options){.begin = 0,
                                 .memory_offset = wte->offset,
                                 .rows = o->shape.V,
                                 .cols = wte->cols,
                                 .most = most_rows(o),
                                 .fetches = !plan->replicated};
}

size_t rows_bytes(const struct engine_options *o, const struct layout *l,
                  const struct plan *plan, int rank)
{
    struct rows_options rows = rows_options(o, l, plan);

    return rows.most * rows.cols * sizeof(float) + exchange_rows_bytes(plan, &rows, rank);
}

size_t rows_most_tasks(const struct engine_options *o)
{
    return row_tasks(most_rows(o));
}

enum status rows_init(struct engine *e)
{
    const struct engine_options *o = &e->options;
    struct rows_options rows = rows_options(o, &e->layout, &e->plan);
    struct embedding_rows *r = &e->rows;
    enum status st;
    void *map;

    st = memory_map(rows.most * rows.cols * sizeof *r->gradients,
                    "gradients of embedding rows", &map);
    r->gradients = map;
    if (st == ST_OK)
        st = memory_alloc(rows.most, sizeof *r->ids, "embedding rows", &r->ids);
    if (st == ST_OK)
        st = memory_alloc(o->accum * o->batch * o->seq, sizeof *r->index,
                          "embedding rows", &r->index);
    if (st == ST_OK)
        st = memory_alloc(o->shape.V, sizeof *r->place, "embedding rows", &r->place);
    return st;
}

void rows_release(struct engine *e)
{
    exchange_rows_free(e->rows.exchange);
    memory_unmap(e->rows.gradients,
                 most_rows(&e->options) * e->options.shape.C * sizeof(float));
    free(e->rows.ids);
    free(e->rows.index);
    free(e->rows.place);
}

/* The rows of this step's tokens in ascending order, and each token's place among them.
 */
static void list_rows(struct engine *e)
{
    struct embedding_rows *r = &e->rows;
    size_t tokens = e->options.accum * e->options.batch * e->options.seq;
    const int32_t *inputs = engine_inputs(e, 0);

    memset(r->place, 0, e->options.shape.V * sizeof *r->place);
    for (size_t i = 0; i < tokens; i++)
        r->place[inputs[i]] = 1;
    r->n = 0;
    for (size_t v = 0; v < e->options.shape.V; v++) {
        if (!r->place[v])
            continue;
        r->ids[r->n] = (int32_t)v;
        r->place[v] = (int32_t)r->n++;
    }
    for (size_t i = 0; i < tokens; i++)
        r->index[i] = r->place[inputs[i]];
}

static void complete(void *arg)
{
    struct task_event *event = arg;

    task_event_complete(*event);
}

static void do_tell(void *args, struct task_event event)
{
    struct job *j = args;
    struct embedding_rows *r = &j->e->rows;

    j->event = event;
    exchange_rows_tell(r->exchange, r->ids, r->n, complete, &j->event);
}

static void do_place(void *args, struct task_event event)
{
    (void)event;
    exchange_rows_place(((struct job *)args)->e->rows.exchange);
}

void spawn_rows_begin(struct engine *e)
{
    list_rows(e);
    makes(e, S_TOLD, 0, 0);
    spawn_with_event(e, "rows told", PRIORITY_COMM, do_tell, &(struct job){.e = e});
    makes(e, S_TOLD, 0, 0);
    spawn(e, "rows placed", PRIORITY_COMM, do_place, &(struct job){.e = e});
}

/* Blocks that hold elements of wte: the first ones. */
static size_t wte_blocks(const struct engine *e)
{
    size_t n = 0;

    while (n < e->plan.n_blocks && e->plan.blocks[n].begin < e->layout.slices[0].span)
        n++;
    return n;
}

/* ---- the rows of this step's tokens, from the owners ---- */

static void do_fetch(void *args, struct task_event event)
{
    struct job *j = args;

    j->event = event;
    exchange_rows_fetch(j->e->rows.exchange, complete, &j->event);
}

static void do_put(void *args, struct task_event event)
{
    (void)event;
    exchange_rows_put(((struct job *)args)->e->rows.exchange);
}

size_t spawn_rows_update(struct engine *e)
{
    size_t n = wte_blocks(e);

    for (size_t b = n; b-- > 0;)
        spawn_block_update(e, b);
    return n;
}

void needs_rows_fetch(struct engine *e)
{
    needs_range(e, S_UPDATED, 0, 0, wte_blocks(e));
    needs(e, S_TOLD, 0, 0);
}

void spawn_rows_fetch(struct engine *e)
{
    needs_rows_fetch(e);
    makes(e, S_ROWS, 0, 0);
    spawn_with_event(e, "rows fetched", PRIORITY_COMM, do_fetch, &(struct job){.e = e});
    makes(e, S_ROWS, 0, 0);
    spawn(e, "rows put", PRIORITY_COMM, do_put, &(struct job){.e = e});
}

/* ---- gradients of the rows, to the owners ---- */

static void do_row_gradients(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    size_t r0 = j->i * ROWS_A_TASK;

    (void)event;
    backward_token_rows(&e->model, e->rows.index + j->a * e->model.tiling.N,
                        e->rows.gradients, r0, min_size(e->rows.n, r0 + ROWS_A_TASK),
                        j->accumulate);
}

void spawn_row_gradients(struct engine *e, size_t a)
{
    for (size_t i = 0; i < row_tasks(e->rows.n); i++) {
        needs_range(e, S_DX, work_place(e, 1), 0, e->model.tiling.chunks);
        makes(e, S_ROW_GRAD, 0, i);
        spawn(e, "row gradient", PRIORITY_WEIGHT_GRAD, do_row_gradients,
              &(struct job){.e = e, .i = i, .a = a, .accumulate = a > 0});
    }
}

void needs_row_gradients(struct engine *e)
{
    needs_range(e, S_ROW_GRAD, 0, 0, row_tasks(e->rows.n));
}

static void do_rows_reduce(void *args, struct task_event event)
{
    struct job *j = args;
    struct embedding_rows *r = &j->e->rows;

    j->event = event;
    exchange_rows_reduce(r->exchange, r->gradients, complete, &j->event);
}

static void do_rows_add(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    size_t first = e->first_squares[j->i];

    (void)event;
    for (size_t i = first; i < e->first_squares[j->i + 1]; i++)
        e->squares[i] = 0;
    e->squares[first] = exchange_rows_add(e->rows.exchange, j->i);
}

void spawn_rows_reduction(struct engine *e)
{
    size_t n = wte_blocks(e);

    needs_row_gradients(e);
    needs(e, S_TOLD, 0, 0);
    makes(e, S_ROWS_IN, 0, 0);
    spawn_with_event(e, "rows reduced", PRIORITY_COMM, do_rows_reduce,
                     &(struct job){.e = e});
    for (size_t b = 0; b < n; b++) {
        if (e->first_squares[b] == e->first_squares[b + 1])
            continue; /* nothing of it is owned here */
        needs(e, S_ROWS_IN, 0, 0);
        makes(e, S_SUM, 0, b);
        spawn(e, "rows added", PRIORITY_COMM, do_rows_add, &(struct job){.e = e, .i = b});
    }
}
