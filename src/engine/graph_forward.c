/* SPDX-License-Identifier: MIT */
/* Tasks of forward, head and loss of one micro-batch. */
#include "engine/engine_private.h"

static struct job *job_of(void *args)
{
    return args;
}

static const struct model *model_of(void *args)
{
    return &job_of(args)->e->model;
}

static const int32_t *inputs_of(void *args)
{
    return engine_inputs(job_of(args)->e, job_of(args)->a);
}

static const int32_t *targets_of(void *args)
{
    return engine_targets(job_of(args)->e, job_of(args)->a);
}

static void do_embedding(void *args, struct task_event event)
{
    (void)event;
    forward_embedding(model_of(args), inputs_of(args), job_of(args)->i);
}

static void do_qkv(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    forward_qkv(model_of(args), j->l, j->i);
}

static void do_attention(void *args, struct task_event event)
{
    struct job *j = args;
    float *work = scratch_take(&j->e->scratch);

    (void)event;
    forward_attention(model_of(args), j->l, j->i, j->j, work);
    scratch_give(&j->e->scratch, work);
}

static void do_mlp(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    forward_mlp(model_of(args), j->l, j->i);
}

static void do_final_norm(void *args, struct task_event event)
{
    (void)event;
    forward_final_norm(model_of(args), job_of(args)->i);
}

static void do_logits(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    head_logits(model_of(args), j->i, j->j);
}

static void do_loss(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    j->e->chunk_loss[j->a * j->e->max_chunks + j->i] =
        head_loss(model_of(args), targets_of(args), j->i);
}

static void do_softmax_grad(void *args, struct task_event event)
{
    struct job *j = args;
    const struct engine *e = j->e;
    double tokens =
        (double)e->model.tiling.N * (double)e->options.accum * (double)comm_size(e->comm);

    (void)event;
    head_softmax_grad(model_of(args), targets_of(args), j->i, j->j, (float)(1 / tokens));
}

static void do_head_weight_grad(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    head_weight_grad(model_of(args), j->i, j->j, j->accumulate);
}

static void do_head_input_grad(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    head_input_grad(model_of(args), j->i, j->j);
}

static void needs_param(struct engine *e, enum tensor_kind kind, size_t layer)
{
    needs(e, S_PARAM, slice_index(e, kind, layer), 0);
}

/* Attention outputs of the sequences that row tile r touches. */
static void needs_attention_of_tile(struct engine *e, enum sentinel kind, size_t i,
                                    size_t r)
{
    const struct tiling *t = &e->model.tiling;
    size_t first, last;

    tiling_sequences_of_tile(t, r, &first, &last);
    needs_range(e, kind, i, first * t->head_groups, last * t->head_groups);
}

static void spawn_layer(struct engine *e, size_t l)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t r = 0; r < t->row_tiles; r++) {
        needs(e, S_X, l, r);
        needs_param(e, LN1W, l);
        needs_param(e, LN1B, l);
        needs_param(e, QKVW, l);
        needs_param(e, QKVB, l);
        makes(e, S_QKV, l, r);
        makes(e, S_WORK1, l % 2, r);
        spawn(e, "qkv", PRIORITY_PATH, do_qkv,
              &(struct job){.e = e, .work = WORK_QKV, .l = l, .i = r});
    }
    for (size_t b = 0; b < t->B; b++) {
        for (size_t g = 0; g < t->head_groups; g++) {
            size_t first, last;

            tiling_tiles_of_sequence(t, b, &first, &last);
            needs_range(e, S_QKV, l, first, last);
            makes(e, S_ATT, l, b * t->head_groups + g);
            spawn(e, "attention", PRIORITY_PATH, do_attention,
                  &(struct job){.e = e, .work = WORK_ATTENTION, .l = l, .i = b, .j = g});
        }
    }
    for (size_t r = 0; r < t->row_tiles; r++) {
        needs_attention_of_tile(e, S_ATT, l, r);
        needs(e, S_X, l, r);
        needs_param(e, ATTPROJW, l);
        needs_param(e, ATTPROJB, l);
        needs_param(e, LN2W, l);
        needs_param(e, LN2B, l);
        needs_param(e, FCW, l);
        needs_param(e, FCB, l);
        needs_param(e, FCPROJW, l);
        needs_param(e, FCPROJB, l);
        makes(e, S_MID, l, r);
        makes(e, S_WORK2, l % 2, r);
        makes(e, S_X, l + 1, r);
        spawn(e, "mlp", PRIORITY_PATH, do_mlp,
              &(struct job){.e = e, .work = WORK_MLP, .l = l, .i = r});
    }
}

void spawn_forward(struct engine *e, size_t a)
{
    const struct tiling *t = &e->model.tiling;
    size_t L = e->layout.shape.L;

    for (size_t r = 0; r < t->row_tiles; r++) {
        if (e->split && !e->plan.replicated)
            needs(e, S_ROWS, 0, 0);
        else
            needs_param(e, WTE, 0);
        needs_param(e, WPE, 0);
        makes(e, S_X, 0, r);
        spawn(e, "embedding", PRIORITY_PATH, do_embedding,
              &(struct job){.e = e, .work = WORK_EMBEDDING, .i = r, .a = a});
    }
    for (size_t l = 0; l < L; l++)
        spawn_layer(e, l);
    for (size_t r = 0; r < t->row_tiles; r++) {
        needs(e, S_X, L, r);
        needs_param(e, LNFW, 0);
        needs_param(e, LNFB, 0);
        makes(e, S_LNF, 0, r);
        spawn(e, "final norm", PRIORITY_PATH, do_final_norm,
              &(struct job){.e = e, .work = WORK_FINAL_NORM, .i = r});
    }
}

struct tile_range {
    size_t first, last;
};

static struct tile_range tiles_of_chunk(const struct tiling *t, size_t c)
{
    size_t first = c * t->chunk_tiles;

    return (struct tile_range){first, min_size(t->row_tiles, first + t->chunk_tiles)};
}

static void spawn_chunk_loss(struct engine *e, size_t a, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    struct tile_range rows = tiles_of_chunk(t, c);

    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs_range(e, S_LNF, 0, rows.first, rows.last);
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

static void spawn_chunk_grad(struct engine *e, size_t a, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    struct tile_range rows = tiles_of_chunk(t, c);
    bool accumulate = a > 0 || c > 0;
    size_t wte = slice_index(e, WTE, 0);

    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs(e, S_LOSS, 0, c);
        makes(e, S_LOGITS, c % 2, v);
        spawn(e, "softmax gradient", PRIORITY_PATH, do_softmax_grad,
              &(struct job){.e = e, .work = WORK_SOFTMAX_GRAD, .i = c, .j = v, .a = a});
    }
    for (size_t r = rows.first; r < rows.last; r++) {
        needs_range(e, S_LOGITS, c % 2, 0, t->vocab_tiles);
        makes(e, S_DLNF, 0, r);
        spawn(e, "head input gradient", PRIORITY_PATH, do_head_input_grad,
              &(struct job){.e = e, .work = WORK_HEAD_INPUT_GRAD, .i = c, .j = r});
    }
    for (size_t v = 0; v < t->vocab_tiles; v++) {
        needs(e, S_LOGITS, c % 2, v);
        needs_range(e, S_LNF, 0, rows.first, rows.last);
        makes(e, S_GRAD, wte, v);
        spawn(e, "head weight gradient",
              e->split ? PRIORITY_WEIGHT_GRAD : PRIORITY_BACKGROUND, do_head_weight_grad,
              &(struct job){.e = e,
                            .work = WORK_HEAD_WEIGHT_GRAD,
                            .i = c,
                            .j = v,
                            .accumulate = accumulate});
    }
}

void spawn_head(struct engine *e, size_t a, bool train)
{
    for (size_t c = 0; c < e->model.tiling.chunks; c++) {
        spawn_chunk_loss(e, a, c);
        if (train)
            spawn_chunk_grad(e, a, c);
    }
}
