/* SPDX-License-Identifier: MIT */
/* Tasks of backward of one micro-batch, spawned in production order so that each slice's
 * reduction can follow as soon as its last micro-batch's gradient is under way. */
#include "engine/engine_private.h"

static const struct model *model_of(void *args)
{
    return &((struct job *)args)->e->model;
}

static void do_final_norm_bwd(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_final_norm(model_of(args), j->i);
}

static void do_final_norm_weights(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    final_norm_weight_grad(model_of(args), j->accumulate);
}

static void do_mlp_bwd(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_mlp(model_of(args), j->l, j->i);
}

static void do_attention_bwd(void *args, struct task_event event)
{
    struct job *j = args;
    float *work = scratch_take(&j->e->scratch);

    (void)event;
    backward_attention(model_of(args), j->l, j->i, j->j, work);
    scratch_give(&j->e->scratch, work);
}

static void do_qkv_bwd(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    backward_qkv(model_of(args), j->l, j->i);
}

static void do_weight_grad(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    weight_grad(model_of(args), (enum tensor_kind)j->j, j->l, j->i, j->accumulate);
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

static void spawn_final_norm(struct engine *e, bool accumulate)
{
    const struct tiling *t = &e->model.tiling;
    size_t L = e->layout.shape.L;

    for (size_t r = 0; r < t->row_tiles; r++) {
        needs(e, S_DLNF, 0, r);
        needs(e, S_X, L, r);
        needs(e, S_LNF, 0, r);
        makes(e, S_DX, (L - 1) % 2, r);
        makes(e, S_DLNFW, 0, r);
        spawn(e, "final norm backward", PRIORITY_PATH, do_final_norm_bwd,
              &(struct job){.e = e, .work = WORK_FINAL_NORM_BWD, .i = r});
    }
    needs_range(e, S_DLNFW, 0, 0, t->row_tiles);
    makes(e, S_GRAD, slice_index(e, LNFB, 0), 0);
    makes(e, S_GRAD, slice_index(e, LNFW, 0), 0);
    spawn(e, "final norm gradient", PRIORITY_WEIGHT_GRAD, do_final_norm_weights,
          &(struct job){.e = e, .work = WORK_FINAL_NORM_GRAD, .accumulate = accumulate});
}

/* Sentinels of what the gradient of one matrix is made of. */
static void needs_product(struct engine *e, enum tensor_kind kind, size_t l)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = l % 2;
    size_t rows = t->row_tiles;
    size_t groups = t->B * t->head_groups;

    switch (kind) {
    case QKVW:
        needs_range(e, S_DQKV, set, 0, groups);
        needs_range(e, S_WORK1, set, 0, rows);
        break;
    case ATTPROJW:
        needs_range(e, S_WORK2, set, 0, rows);
        needs_range(e, S_ATT, l, 0, groups);
        break;
    case FCPROJW:
        needs_range(e, S_DX, set, 0, rows);
        needs_range(e, S_WORK2, set, 0, rows);
        break;
    default:
        needs_range(e, S_WORK2, set, 0, rows);
        break;
    }
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
    needs_range(e, second ? S_WORK2 : S_WORK1, l % 2, 0, e->model.tiling.row_tiles);
    makes(e, S_GRAD, slice_index(e, second ? LN2B : LN1B, l), 0);
    makes(e, S_GRAD, slice_index(e, second ? LN2W : LN1W, l), 0);
    spawn(e, "norm gradient", PRIORITY_WEIGHT_GRAD, do_norm_weights,
          &(struct job){.e = e,
                        .work = WORK_NORM_GRAD,
                        .l = l,
                        .j = second ? 2 : 1,
                        .accumulate = accumulate});
}

static void spawn_mlp_bwd(struct engine *e, size_t l)
{
    for (size_t r = 0; r < e->model.tiling.row_tiles; r++) {
        needs(e, S_DX, l % 2, r);
        needs(e, S_MID, l, r);
        makes(e, S_WORK2, l % 2, r);
        spawn(e, "mlp backward", PRIORITY_PATH, do_mlp_bwd,
              &(struct job){.e = e, .work = WORK_MLP_BWD, .l = l, .i = r});
    }
}

static void spawn_attention_bwd(struct engine *e, size_t l)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t b = 0; b < t->B; b++) {
        for (size_t g = 0; g < t->head_groups; g++) {
            size_t first, last;

            tiling_tiles_of_sequence(t, b, &first, &last);
            needs_range(e, S_WORK2, l % 2, first, last);
            needs_range(e, S_QKV, l, first, last);
            needs(e, S_ATT, l, b * t->head_groups + g);
            makes(e, S_DQKV, l % 2, b * t->head_groups + g);
            spawn(e, "attention backward", PRIORITY_PATH, do_attention_bwd,
                  &(struct job){
                      .e = e, .work = WORK_ATTENTION_BWD, .l = l, .i = b, .j = g});
        }
    }
}

static void spawn_qkv_bwd(struct engine *e, size_t l)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t r = 0; r < t->row_tiles; r++) {
        size_t first, last;

        tiling_sequences_of_tile(t, r, &first, &last);
        needs_range(e, S_DQKV, l % 2, first * t->head_groups, last * t->head_groups);
        needs(e, S_WORK2, l % 2, r);
        needs(e, S_X, l, r);
        needs(e, S_QKV, l, r);
        makes(e, S_WORK1, l % 2, r);
        makes(e, S_DX, (l + 1) % 2, r);
        spawn(e, "qkv backward", PRIORITY_PATH, do_qkv_bwd,
              &(struct job){.e = e, .work = WORK_QKV_BWD, .l = l, .i = r});
    }
}

static void spawn_embedding_bwd(struct engine *e, size_t a)
{
    const struct tiling *t = &e->model.tiling;
    size_t tiles = tiling_grad_tiles(t, &e->layout.shape, WPE);

    for (size_t i = 0; i < tiles; i++) {
        needs_range(e, S_DX, 1, 0, t->row_tiles);
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
        needs_range(e, S_DX, 1, 0, t->row_tiles);
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
    spawn_final_norm(e, accumulate);
    if (last)
        spawn_reductions_up_to(e, slice_index(e, LNFW, 0));
    for (size_t l = e->layout.shape.L; l-- > 0;) {
        spawn_mlp_bwd(e, l);
        spawn_weight_grad(e, FCPROJW, FCPROJB, l, accumulate);
        spawn_weight_grad(e, FCW, FCB, l, accumulate);
        spawn_norm_grad(e, l, true, accumulate);
        spawn_weight_grad(e, ATTPROJW, ATTPROJB, l, accumulate);
        if (last)
            spawn_reductions_up_to(e, slice_index(e, ATTPROJW, l));
        spawn_attention_bwd(e, l);
        spawn_qkv_bwd(e, l);
        spawn_weight_grad(e, QKVW, QKVB, l, accumulate);
        spawn_norm_grad(e, l, false, accumulate);
        if (last)
            spawn_reductions_up_to(e, slice_index(e, LN1W, l));
    }
    spawn_embedding_bwd(e, a);
}
