/* SPDX-License-Identifier: MIT */
/* Tasks of head and loss of one micro-batch, chunk by chunk: logits, loss, gradient. Two
 * chunks have their logits in memory, so that the next one's are made beside the
 * gradients of the one before. */
#include "engine/engine_private.h"

static const struct model *model_of(void *args)
{
    return &((struct job *)args)->e->model;
}

static void do_logits(void *args, struct task_event event)
{
    struct job *j = args;

    void *work = product_work_take(j->e);

    (void)event;
    head_logits(model_of(args), j->i, j->j, work);
    product_work_give(j->e, work);
}

static void do_loss(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;

    (void)event;
    e->chunk_loss[j->a * e->max_chunks + j->i] =
        head_loss(model_of(args), engine_targets(e, j->a), j->i);
}

static void do_grad(void *args, struct task_event event)
{
    struct job *j = args;
    struct engine *e = j->e;
    double tokens =
        (double)e->model.tiling.N * (double)e->options.accum * (double)comm_size(e->comm);

    void *work = product_work_take(e);

    (void)event;
    head_grad(model_of(args), engine_targets(e, j->a), j->i, j->j, (float)(1 / tokens),
              j->accumulate, work);
    product_work_give(e, work);
}

static void do_final_norm_bwd(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_final_norm(model_of(args), j->i, j->j);
}

static void spawn_loss(struct engine *e, size_t a, size_t c)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs(e, S_LN1, 0, c);
        needs(e, S_WTE, 0, v);
        makes(e, S_LOGITS, c % 2, v);
        spawn(e, "logits", PRIORITY_PATH, do_logits,
              &(struct job){.e = e, .work = WORK_LOGITS, .i = c, .j = v});
    }
    needs_range(e, S_LOGITS, c % 2, 0, t->vocab_tiles);
    makes(e, S_LOSS, 0, c);
    spawn(e, "loss", PRIORITY_PATH, do_loss,
          &(struct job){.e = e, .work = WORK_LOSS, .i = c, .a = a});
}

static void spawn_grad(struct engine *e, size_t a, size_t c)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs(e, S_LOSS, 0, c);
        needs(e, S_LN1, 0, c);
        makes(e, S_LOGITS, c % 2, v);
        makes(e, S_DLNF, c % 2, v % t->head_lanes);
        makes(e, S_GRAD, slice_index(e, WTE, 0), v);
        spawn(e, "head gradient", e->split ? PRIORITY_WEIGHT_GRAD : PRIORITY_PATH,
              do_grad,
              &(struct job){.e = e,
                            .work = WORK_HEAD_GRAD,
                            .i = c,
                            .j = v,
                            .a = a,
                            .accumulate = a > 0 || c > 0});
    }
}

static void spawn_final_norm_bwd(struct engine *e, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    struct span tiles = tiling_chunk_tiles(t, c);
    size_t L = e->layout.shape.L;

    needs_range(e, S_DLNF, c % 2, 0, t->head_lanes);
    makes(e, S_DX, work_place(e, L - 1), c);
    makes(e, S_DLNFW, 0, c);
    spawn_join(e);
    needs(e, S_X, L, c);
    needs(e, S_LN1, 0, c);
    needs(e, S_DX, work_place(e, L - 1), c);
    needs(e, S_DLNFW, 0, c);
    spawn_each(e, "final norm backward", PRIORITY_PATH, do_final_norm_bwd,
               &(struct job){.e = e, .work = WORK_FINAL_NORM_BWD, .i = c}, tiles.begin,
               tiles.size);
    /* Stands for the readers of the lanes. */
    needs_range(e, S_DLNF, c % 2, 0, t->head_lanes);
    makes(e, S_DX, work_place(e, L - 1), c);
    makes(e, S_DLNFW, 0, c);
    spawn_join(e);
}

void spawn_head(struct engine *e, size_t a, bool train)
{
    for (size_t c = 0; c < e->model.tiling.chunks; c++) {
        spawn_loss(e, a, c);
        if (!train)
            continue;
        spawn_grad(e, a, c);
        spawn_final_norm_bwd(e, c);
    }
}
