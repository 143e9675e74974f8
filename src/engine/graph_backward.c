/* SPDX-License-Identifier: MIT */
/* Tasks of backward of one micro-batch, spawned in production order so that each slice's
 * reduction can follow as soon as its last micro-batch's gradient is under way. Joins as
 * in graph_forward.c. */
#include "engine/engine_private.h"

static const struct model *model_of(void *args)
{
    return &((struct job *)args)->e->model;
}

static void do_final_norm_weights(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    final_norm_weight_grad(model_of(args), j->accumulate);
}

static void do_attention_bwd(void *args, struct task_event event)
{
    struct job *j = args;
    float *work = scratch_take(&j->e->scratch);

    (void)event;
    backward_attention(model_of(args), j->l, j->i, j->j, work);
    scratch_give(&j->e->scratch, work);
}

static void do_weight_grad(void *args, struct task_event event)
{
    struct job *j = args;
    void *work = product_work_take(j->e);

    (void)event;
    weight_grad(model_of(args), (enum tensor_kind)j->j, j->l, j->i, j->accumulate, work);
    product_work_give(j->e, work);
}

static void do_norm_weights(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    norm_weight_grad(model_of(args), j->l, j->j == 2, j->accumulate);
}

static void do_positions(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_positions(model_of(args), j->i, j->accumulate);
}

static void do_tokens(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_tokens(model_of(args), engine_inputs(j->e, j->a), j->i);
}

static void spawn_final_norm_grad(struct engine *e, bool accumulate)
{
    needs_range(e, S_DLNFW, 0, 0, e->model.tiling.chunks);
    makes(e, S_GRAD, slice_index(e, LNFB, 0), 0);
    makes(e, S_GRAD, slice_index(e, LNFW, 0), 0);
    spawn(e, "final norm gradient", PRIORITY_WEIGHT_GRAD, do_final_norm_weights,
          &(struct job){.e = e, .work = WORK_FINAL_NORM_GRAD, .accumulate = accumulate});
}

/* Sentinels of what the gradient of one matrix is made of. */
static void needs_product(struct engine *e, enum tensor_kind kind, size_t l)
{
    static const enum sentinel factors[TENSOR_KINDS][2] = {[QKVW] = {S_DQKV, S_LN1},
                                                           [ATTPROJW] = {S_DMID, S_ATT},
                                                           [FCW] = {S_DFC, S_LN2},
                                                           [FCPROJW] = {S_DX, S_GELU}};
    size_t chunks = e->model.tiling.chunks;
    size_t set = work_place(e, l);

    needs_range(e, factors[kind][0], set, 0, chunks);
    needs_range(e, factors[kind][1], kind == ATTPROJW ? attention_place(e, l) : set, 0,
                chunks);
}

static void spawn_weight_grad(struct engine *e, enum tensor_kind weight,
                              enum tensor_kind bias, size_t l, bool accumulate)
{
    size_t tiles = tiling_grad_tiles(&e->model.tiling, &e->layout.shape, weight);

    for (size_t o = 0; o < tiles; o++) {
        needs_product(e, weight, l);
        makes(e, S_GRAD, slice_index(e, bias, l), o);
        makes(e, S_GRAD, slice_index(e, weight, l), o);
        spawn(e, "weight gradient", PRIORITY_WEIGHT_GRAD, do_weight_grad,
              &(struct job){.e = e,
                            .work = WORK_WEIGHT_GRAD,
                            .l = l,
                            .i = o,
                            .j = (size_t)weight,
                            .accumulate = accumulate});
    }
}

static void spawn_norm_grad(struct engine *e, size_t l, bool second, bool accumulate)
{
    needs_range(e, second ? S_LN2 : S_LN1, work_place(e, l), 0, e->model.tiling.chunks);
    makes(e, S_GRAD, slice_index(e, second ? LN2B : LN1B, l), 0);
    makes(e, S_GRAD, slice_index(e, second ? LN2W : LN1W, l), 0);
    spawn(e, "norm gradient", PRIORITY_WEIGHT_GRAD, do_norm_weights,
          &(struct job){.e = e,
                        .work = WORK_NORM_GRAD,
                        .l = l,
                        .j = second ? 2 : 1,
                        .accumulate = accumulate});
}

/* dx -> gelu, dfc, dmid as the gradient of ln2's output */
static void spawn_mlp_bwd(struct engine *e, size_t l, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = work_place(e, l);

    makes(e, S_FC, mlp_place(e, l), c);
    makes(e, S_GELU, set, c);
    makes(e, S_DFC, set, c);
    spawn_join(e);
    needs(e, S_DX, set, c);
    needs(e, S_FC, mlp_place(e, l), c);
    needs(e, S_GELU, set, c);
    needs(e, S_DFC, set, c);
    spawn_column_tiles(e, "fcproj backward", WORK_FCPROJ_BWD, &t->backward[FCPROJW],
                       backward_fcproj, l, c);

    makes(e, S_GELU, set, c);
    makes(e, S_DFC, set, c);
    makes(e, S_DMID, set, c);
    spawn_join(e);
    needs(e, S_DFC, set, c);
    needs(e, S_DMID, set, c);
    spawn_column_tiles(e, "fc backward", WORK_FC_BWD, &t->backward[FCW], backward_fc, l,
                       c);
}

/* dmid, dx, att -> dmid, ln2, datt */
static void spawn_attproj_bwd(struct engine *e, size_t l, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = work_place(e, l);

    makes(e, S_ATT, attention_place(e, l), c);
    makes(e, S_DMID, set, c);
    makes(e, S_LN2, set, c);
    spawn_join(e);
    needs(e, S_DX, set, c);
    needs(e, S_MID, l, c);
    needs(e, S_ATT, attention_place(e, l), c);
    needs(e, S_DMID, set, c);
    needs(e, S_LN2, set, c);
    spawn_row_tiles(e, "ln2 backward", WORK_NORM2_BWD, backward_norm2, l, c);

    makes(e, S_DMID, set, c);
    makes(e, S_LN2, set, c);
    makes(e, S_DATT, set, c);
    spawn_join(e);
    needs(e, S_DMID, set, c);
    needs(e, S_DATT, set, c);
    spawn_column_tiles(e, "attproj backward", WORK_ATTPROJ_BWD, &t->backward[ATTPROJW],
                       backward_attproj, l, c);

    makes(e, S_DATT, set, c);
    makes(e, S_DQKV, set, c);
    spawn_join(e);
}

static void spawn_attention_bwd(struct engine *e, size_t l, size_t b)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = work_place(e, l);
    size_t first, last;

    tiling_chunks_of_sequence(t, b, &first, &last);
    needs_range(e, S_QKV, attention_place(e, l), first, last);
    needs_range(e, S_ATT, attention_place(e, l), first, last);
    needs_range(e, S_DATT, set, first, last);
    needs_range(e, S_DQKV, set, first, last);
    spawn_each(e, "attention backward", PRIORITY_PATH, do_attention_bwd,
               &(struct job){.e = e, .work = WORK_ATTENTION_BWD, .l = l, .i = b}, 0,
               t->head_groups);
}

/* dqkv -> dx of the layer below, ln1 */
static void spawn_qkv_bwd(struct engine *e, size_t l, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = work_place(e, l);
    size_t below = work_place(e, l + 1);

    makes(e, S_DQKV, set, c);
    makes(e, S_DX, below, c);
    spawn_join(e);
    needs(e, S_DQKV, set, c);
    needs(e, S_DX, below, c);
    spawn_column_tiles(e, "qkv backward", WORK_QKV_BWD, &t->backward[QKVW], backward_qkv,
                       l, c);

    makes(e, S_DX, below, c);
    makes(e, S_LN1, set, c);
    spawn_join(e);
    needs(e, S_X, l, c);
    needs(e, S_QKV, attention_place(e, l), c);
    needs(e, S_DMID, set, c);
    needs(e, S_DX, below, c);
    needs(e, S_LN1, set, c);
    spawn_row_tiles(e, "ln1 backward", WORK_NORM1_BWD, backward_norm1, l, c);

    makes(e, S_DX, below, c);
    makes(e, S_LN1, set, c);
    spawn_join(e);
}

/* In production order: fcproj, fc, ln2, attproj, qkv, ln1. */
static void spawn_layer_bwd(struct engine *e, size_t l, bool accumulate, bool last)
{
    const struct tiling *t = &e->model.tiling;

    spawn_forward_again(e, l);
    for (size_t c = 0; c < t->chunks; c++)
        spawn_mlp_bwd(e, l, c);
    spawn_weight_grad(e, FCPROJW, FCPROJB, l, accumulate);
    for (size_t c = 0; c < t->chunks; c++)
        spawn_attproj_bwd(e, l, c);
    spawn_weight_grad(e, FCW, FCB, l, accumulate);
    spawn_norm_grad(e, l, true, accumulate);
    spawn_weight_grad(e, ATTPROJW, ATTPROJB, l, accumulate);
    if (last)
        spawn_reductions_up_to(e, slice_index(e, ATTPROJW, l));
    for (size_t b = 0; b < t->B; b++)
        spawn_attention_bwd(e, l, b);
    for (size_t c = 0; c < t->chunks; c++)
        spawn_qkv_bwd(e, l, c);
    spawn_weight_grad(e, QKVW, QKVB, l, accumulate);
    spawn_norm_grad(e, l, false, accumulate);
    if (last)
        spawn_reductions_up_to(e, slice_index(e, LN1W, l));
}

static void spawn_embedding_bwd(struct engine *e, size_t a)
{
    const struct tiling *t = &e->model.tiling;
    size_t tiles = tiling_grad_tiles(t, &e->layout.shape, WPE);

    for (size_t i = 0; i < tiles; i++) {
        needs_range(e, S_DX, work_place(e, 1), 0, t->chunks);
        makes(e, S_GRAD, slice_index(e, WPE, 0), i);
        spawn(e, "position gradient", PRIORITY_WEIGHT_GRAD, do_positions,
              &(struct job){
                  .e = e, .work = WORK_POSITION_GRAD, .i = i, .accumulate = a > 0});
    }
    if (e->split) {
        spawn_row_gradients(e, a);
        return;
    }
    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs_range(e, S_DX, work_place(e, 1), 0, t->chunks);
        makes(e, S_GRAD, slice_index(e, WTE, 0), v);
        spawn(e, "token gradient", PRIORITY_WEIGHT_GRAD, do_tokens,
              &(struct job){.e = e, .work = WORK_TOKEN_GRAD, .i = v, .a = a});
    }
}

void spawn_backward(struct engine *e, size_t a)
{
    bool last = a + 1 == e->options.accum;
    bool accumulate = a > 0;

    if (last && e->split)
        spawn_reductions_up_to(e, slice_index(e, WTE, 0));
    spawn_final_norm_grad(e, accumulate);
    if (last)
        spawn_reductions_up_to(e, slice_index(e, LNFW, 0));
    for (size_t l = e->layout.shape.L; l-- > 0;)
        spawn_layer_bwd(e, l, accumulate, last);
    spawn_embedding_bwd(e, a);
}
