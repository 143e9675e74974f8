/* SPDX-License-Identifier: MIT */
/* Costs of tasks, and the order in which workers come to them: that of graph_forward.c
 * and graph_backward.c, where a layer's weight gradients go before the input gradients of
 * the layer below. */
#include "engine/profile.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* Work on an element, in operations of a matrix product that take as long. Measured on a
 * 124M model with oneDNN's products on one AVX-512 core: docs/COST-MODEL.md. */
static const double norm_cost = 60;
static const double gelu_cost = 60;
static const double softmax_cost = 90;
static const double copy_cost = 20;

/* Attention's products, both halves of the score matrix: half of them are left out, at
 * half the speed of a large product. */
enum { ATTENTION_FORWARD = 4, ATTENTION_BACKWARD = 10 };

static double heads_cost(const struct shape *s, const struct tiling *t, size_t group,
                         double products)
{
    size_t first, last;
    double T = (double)t->T;

    tiling_heads(t, s, group, &first, &last);
    return (double)(last - first) * products * T * T * (double)(s->C / s->H);
}

static double vocabulary_rows(const struct shape *s, const struct tiling *t, size_t v)
{
    size_t begin = v * t->vocab_tile;

    return (double)(min_size(s->Vp, begin + t->vocab_tile) - begin);
}

static double weight_grad_cost(const struct shape *s, const struct tiling *t, size_t o,
                               enum tensor_kind kind)
{
    size_t tile = tiling_weight_rows(s, kind);
    size_t out, in;

    tensor_dims(s, kind, &out, &in);
    return 2.0 * (double)t->N * (double)(min_size(out, (o + 1) * tile) - o * tile) *
           (double)in;
}

/* Per element of a row: what a task of rows costs. */
static double row_cost(enum work work)
{
    switch (work) {
    case WORK_EMBEDDING:
        return copy_cost;
    case WORK_NORM1:
    case WORK_NORM2:
    case WORK_FINAL_NORM:
        return norm_cost;
    case WORK_NORM1_BWD:
    case WORK_NORM2_BWD:
        return 3 * norm_cost;
    case WORK_FINAL_NORM_BWD:
        return 2 * norm_cost;
    default:
        bug("no cost of a row in work %d", (int)work);
    }
}

static double rows_cost(const struct shape *s, const struct tiling *t, enum work work,
                        size_t r)
{
    return (double)tiling_rows(t, r).size * (double)s->C * row_cost(work);
}

/* A tile of the product by matrix `kind`; after: what is done to each element of it. */
static double columns_cost(const struct shape *s, const struct tiling *t, size_t c,
                           size_t j, enum tensor_kind kind, bool backward, double after)
{
    size_t out, in;

    tensor_dims(s, kind, &out, &in);
    const struct column_cut *cut = backward ? &t->backward[kind] : &t->forward[kind];

    return (double)tiling_chunk_rows(t, c).size * (double)tiling_columns(cut, j).size *
           (2 * (double)(backward ? out : in) + after);
}

double work_cost(const struct shape *s, const struct tiling *t, enum work work, size_t i,
                 size_t j)
{
    double C = (double)s->C;

    switch (work) {
    case WORK_NONE:
    case WORK_KINDS:
        return 0;
    case WORK_ATTENTION:
        return heads_cost(s, t, j, ATTENTION_FORWARD);
    case WORK_ATTENTION_BWD:
        return heads_cost(s, t, j, ATTENTION_BACKWARD);
    case WORK_QKV:
        return columns_cost(s, t, i, j, QKVW, false, 0);
    case WORK_ATTPROJ:
        return columns_cost(s, t, i, j, ATTPROJW, false, 0);
    case WORK_FC:
        return columns_cost(s, t, i, j, FCW, false, gelu_cost);
    case WORK_FCPROJ:
        return columns_cost(s, t, i, j, FCPROJW, false, 0);
    case WORK_FCPROJ_BWD:
        return columns_cost(s, t, i, j, FCPROJW, true, 2 * gelu_cost);
    case WORK_FC_BWD:
        return columns_cost(s, t, i, j, FCW, true, 0);
    case WORK_ATTPROJ_BWD:
        return columns_cost(s, t, i, j, ATTPROJW, true, 0);
    case WORK_QKV_BWD:
        return columns_cost(s, t, i, j, QKVW, true, 0);
    case WORK_LOGITS:
        return (double)tiling_chunk_rows(t, i).size * vocabulary_rows(s, t, j) *
               (2 * C + softmax_cost);
    case WORK_LOSS:
        return (double)tiling_chunk_rows(t, i).size * (double)t->vocab_tiles *
               softmax_cost;
    case WORK_HEAD_GRAD:
        return (double)tiling_chunk_rows(t, i).size * vocabulary_rows(s, t, j) *
               (4 * C + softmax_cost);
    case WORK_FINAL_NORM_GRAD:
    case WORK_NORM_GRAD:
        return (double)t->row_tiles * 2 * C * copy_cost;
    case WORK_WEIGHT_GRAD:
        return weight_grad_cost(s, t, i, (enum tensor_kind)j);
    case WORK_POSITION_GRAD:
        return (double)t->N * C * copy_cost / (double)tiling_grad_tiles(t, s, WPE);
    case WORK_TOKEN_GRAD:
        return (double)t->N * C * copy_cost / (double)t->vocab_tiles;
    default:
        return rows_cost(s, t, work, j);
    }
}

/* ---- the way through a step ---- */

/* Workers take tasks in turn as they become free. Where a stage needs all of the one
 * before they wait for one another; what lies between two such points runs side by side.
 */
struct walk {
    struct profile *p;
    const struct layout *layout;
    struct tiling tiling;
    bool split; /* wte goes first */
    bool first, last;
    enum recompute recompute;
    double *free; /* [workers] when each is */
    int workers;
    double begin;   /* of the stage: the last meeting */
    double cost;    /* so far, of all workers */
    double squares; /* of the costs of tasks */
};

/* Returns when the task ends. */
static double task(struct walk *w, enum work work, size_t i, size_t j)
{
    double cost = work_cost(&w->layout->shape, &w->tiling, work, i, j);
    int first = 0;

    for (int k = 1; k < w->workers; k++)
        if (w->free[k] < w->free[first])
            first = k;
    w->cost += cost;
    w->squares += cost * cost;
    return w->free[first] += cost;
}

static double end_of(const struct walk *w)
{
    double end = 0;

    for (int k = 0; k < w->workers; k++)
        end = fmax(end, w->free[k]);
    return end;
}

/* All workers wait for the last. */
static void meet(struct walk *w)
{
    w->begin = end_of(w);
    for (int k = 0; k < w->workers; k++)
        w->free[k] = w->begin;
}

static void row_tasks(struct walk *w, enum work work)
{
    for (size_t r = 0; r < w->tiling.row_tiles; r++)
        task(w, work, r / w->tiling.chunk_tiles, r);
}

static void column_tasks(struct walk *w, enum work work, const struct column_cut *cut)
{
    for (size_t c = 0; c < w->tiling.chunks; c++)
        for (size_t j = 0; j < cut->tiles; j++)
            task(w, work, c, j);
}

static void attention_tasks(struct walk *w, enum work work)
{
    for (size_t b = 0; b < w->tiling.B; b++)
        for (size_t g = 0; g < w->tiling.head_groups; g++)
            task(w, work, b, g);
}

static struct profile_slice *slice_of(const struct walk *w, enum tensor_kind kind,
                                      size_t l)
{
    return &w->p->slices[layout_slice(w->layout, kind, l) - w->layout->slices];
}

/* By the stage that begins. */
static void needs(struct walk *w, enum tensor_kind kind, size_t l)
{
    if (w->first)
        slice_of(w, kind, l)->need = w->begin;
}

static void is_ready(struct walk *w, enum tensor_kind kind, size_t l, double begin,
                     double end)
{
    struct profile_slice *s = slice_of(w, kind, l);

    if (!w->last)
        return;
    s->ready_begin = begin;
    s->ready_end = end;
}

/* A stage begins that reads two tensors of layer l. */
static void begin_stage(struct walk *w, enum tensor_kind weight, enum tensor_kind bias,
                        size_t l)
{
    meet(w);
    needs(w, weight, l);
    needs(w, bias, l);
}

static void forward_layer(struct walk *w, size_t l)
{
    const struct tiling *t = &w->tiling;

    begin_stage(w, LN1W, LN1B, l);
    row_tasks(w, WORK_NORM1);
    begin_stage(w, QKVW, QKVB, l);
    column_tasks(w, WORK_QKV, &t->forward[QKVW]);
    meet(w);
    attention_tasks(w, WORK_ATTENTION);
    begin_stage(w, ATTPROJW, ATTPROJB, l);
    column_tasks(w, WORK_ATTPROJ, &t->forward[ATTPROJW]);
    begin_stage(w, LN2W, LN2B, l);
    row_tasks(w, WORK_NORM2);
    begin_stage(w, FCW, FCB, l);
    column_tasks(w, WORK_FC, &t->forward[FCW]);
    begin_stage(w, FCPROJW, FCPROJB, l);
    column_tasks(w, WORK_FCPROJ, &t->forward[FCPROJW]);
}

static void forward(struct walk *w)
{
    meet(w);
    if (!w->split)
        needs(w, WTE, 0);
    needs(w, WPE, 0);
    row_tasks(w, WORK_EMBEDDING);
    for (size_t l = 0; l < w->layout->shape.L; l++)
        forward_layer(w, l);
    begin_stage(w, LNFW, LNFB, 0);
    row_tasks(w, WORK_FINAL_NORM);
}

/* A chunk's gradients are made beside the logits of the next one. */
static void head(struct walk *w)
{
    const struct tiling *t = &w->tiling;

    meet(w);
    if (w->split)
        needs(w, WTE, 0);
    for (size_t c = 0; c < t->chunks; c++) {
        for (size_t v = 0; v < t->vocab_tiles; v++)
            task(w, WORK_LOGITS, c, v);
        task(w, WORK_LOSS, c, 0);
        meet(w);
        for (size_t v = 0; v < t->vocab_tiles; v++)
            task(w, WORK_HEAD_GRAD, c, v);
    }
    if (w->split)
        is_ready(w, WTE, 0, w->begin, end_of(w));
}

static void weight_grads(struct walk *w, enum tensor_kind weight, enum tensor_kind bias,
                         size_t l)
{
    size_t tiles = tiling_grad_tiles(&w->tiling, &w->layout->shape, weight);
    double first = 0;
    double last = 0;

    for (size_t o = 0; o < tiles; o++) {
        double end = task(w, WORK_WEIGHT_GRAD, o, (size_t)weight);

        /* Tiles are of equal length: the first began one before the first end. */
        if (o == 0)
            first = end - work_cost(&w->layout->shape, &w->tiling, WORK_WEIGHT_GRAD, 0,
                                    (size_t)weight);
        last = fmax(last, end);
    }
    is_ready(w, bias, l, first, last);
    is_ready(w, weight, l, first, last);
}

static void norm_grads(struct walk *w, enum work work, enum tensor_kind weight,
                       enum tensor_kind bias, size_t l)
{
    double end = task(w, work, 0, 0);

    is_ready(w, bias, l, end, end);
    is_ready(w, weight, l, end, end);
}

/* What backward of layer l begins with. */
static void forward_again(struct walk *w, size_t l)
{
    const struct tiling *t = &w->tiling;

    if (w->recompute == RECOMPUTE_NONE || l + 1 == w->layout->shape.L)
        return;
    if (w->recompute == RECOMPUTE_ALL) {
        row_tasks(w, WORK_NORM1);
        meet(w);
        column_tasks(w, WORK_QKV, &t->forward[QKVW]);
        meet(w);
        attention_tasks(w, WORK_ATTENTION);
    }
    row_tasks(w, WORK_NORM2);
    meet(w);
    column_tasks(w, WORK_FC, &t->forward[FCW]);
    meet(w);
}

static void backward_layer(struct walk *w, size_t l)
{
    const struct tiling *t = &w->tiling;

    forward_again(w, l);
    column_tasks(w, WORK_FCPROJ_BWD, &t->backward[FCPROJW]);
    meet(w);
    weight_grads(w, FCPROJW, FCPROJB, l);
    column_tasks(w, WORK_FC_BWD, &t->backward[FCW]);
    meet(w);
    row_tasks(w, WORK_NORM2_BWD);
    meet(w);
    weight_grads(w, FCW, FCB, l);
    norm_grads(w, WORK_NORM_GRAD, LN2W, LN2B, l);
    weight_grads(w, ATTPROJW, ATTPROJB, l);
    column_tasks(w, WORK_ATTPROJ_BWD, &t->backward[ATTPROJW]);
    meet(w);
    attention_tasks(w, WORK_ATTENTION_BWD);
    meet(w);
    column_tasks(w, WORK_QKV_BWD, &t->backward[QKVW]);
    meet(w);
    row_tasks(w, WORK_NORM1_BWD);
    meet(w);
    /* Beside the input gradients of the layer below. */
    weight_grads(w, QKVW, QKVB, l);
    norm_grads(w, WORK_NORM_GRAD, LN1W, LN1B, l);
}

static void embedding_grads(struct walk *w)
{
    const struct tiling *t = &w->tiling;
    double begin = end_of(w);

    for (size_t i = 0; i < tiling_grad_tiles(t, &w->layout->shape, WPE); i++)
        task(w, WORK_POSITION_GRAD, i, 0);
    is_ready(w, WPE, 0, begin, end_of(w));
    begin = end_of(w);
    for (size_t v = 0; v < t->vocab_tiles; v++)
        task(w, WORK_TOKEN_GRAD, v, 0);
    if (!w->split)
        is_ready(w, WTE, 0, begin, end_of(w));
}

static void backward(struct walk *w)
{
    meet(w);
    row_tasks(w, WORK_FINAL_NORM_BWD);
    meet(w);
    norm_grads(w, WORK_FINAL_NORM_GRAD, LNFW, LNFB, 0);
    for (size_t l = w->layout->shape.L; l-- > 0;)
        backward_layer(w, l);
    embedding_grads(w);
}

static void micro_batch(struct walk *w)
{
    double begin = end_of(w);
    double middle;

    forward(w);
    middle = end_of(w);
    w->p->forward += middle - begin;
    head(w);
    w->p->head += end_of(w) - middle;
    backward(w);
}

/* From costs to fractions of the step. */
static void scale(struct walk *w)
{
    struct profile *p = w->p;
    double end = end_of(w);
    double f = 1 / end;

    for (size_t s = 0; s < p->n_slices; s++) {
        p->slices[s].need *= f;
        p->slices[s].ready_begin *= f;
        p->slices[s].ready_end *= f;
    }
    p->forward *= f;
    p->head *= f;
    p->task = w->squares / w->cost * f;
    p->busy = w->cost * f / w->workers;
    p->length = end;
}

enum status profile_init(struct profile *p, const struct layout *l, size_t B, size_t T,
                         size_t accum, enum recompute recompute, int workers)
{
    struct walk w = {.p = p,
                     .layout = l,
                     .split = l->slices[0].kind == WTE,
                     .recompute = recompute,
                     .workers = workers};
    enum status st;

    *p = (struct profile){.n_slices = l->n_slices};
    st = memory_alloc(l->n_slices, sizeof *p->slices, "profile", &p->slices);
    if (st == ST_OK)
        st = memory_alloc((size_t)workers, sizeof *w.free, "profile", &w.free);
    if (st != ST_OK)
        return st;
    tiling_init(&w.tiling, &l->shape, B, T);
    for (size_t a = 0; a < accum; a++) {
        w.first = a == 0;
        w.last = a + 1 == accum;
        micro_batch(&w);
    }
    scale(&w);
    free(w.free);
    return ST_OK;
}

void profile_release(struct profile *p)
{
    free(p->slices);
    *p = (struct profile){0};
}
