/* SPDX-License-Identifier: MIT */
/* Tasks of forward of one micro-batch. A chunk goes through a layer stage by stage;
 * between two stages is a join that ends the writing of what the first has made and
 * begins that of the second. Chunks meet in attention only. */
#include "engine/engine_private.h"

static const struct model *model_of(void *args)
{
    return &((struct job *)args)->e->model;
}

static void do_embedding(void *args, struct task_event event)
{
    struct job *j = args;

    (void)event;
    forward_embedding(model_of(args), engine_inputs(j->e, j->a), j->j);
}

static void do_attention(void *args, struct task_event event)
{
    struct job *j = args;
    float *work = scratch_take(&j->e->scratch);

    (void)event;
    forward_attention(model_of(args), j->l, j->i, j->j, work);
    scratch_give(&j->e->scratch, work);
}

static void do_final_norm(void *args, struct task_event event)
{
    (void)event;
    forward_final_norm(model_of(args), ((struct job *)args)->j);
}

/* ---- weights for bf16 products ---- */

static void do_pack(void *args, struct task_event event)
{
    struct job *j = args;
    size_t rows = j->e->layout.slices[j->i].rows;

    (void)event;
    pack_weights(model_of(args), j->e->layout.slices[j->i].kind, j->l, j->j * j->a,
                 min_size(rows, (j->j + 1) * j->a));
}

/* The sentinel of the slice stands for its packed form too from here on. */
static void spawn_packing_of(struct engine *e, enum tensor_kind kind, size_t l)
{
    enum { ROWS = 256 };
    size_t s = slice_index(e, kind, l);

    needs(e, S_PARAM, s, 0);
    spawn_each(e, "pack", PRIORITY_PATH, do_pack,
               &(struct job){.e = e, .i = s, .l = l, .a = ROWS}, 0,
               ceil_div(e->layout.slices[s].rows, ROWS));
    makes(e, S_PARAM, s, 0);
    spawn_join(e);
}

void spawn_packing(struct engine *e)
{
    static const enum tensor_kind matrices[] = {QKVW, ATTPROJW, FCW, FCPROJW};
    size_t wte = slice_index(e, WTE, 0);

    for (size_t l = 0; l < e->layout.shape.L; l++)
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
            spawn_packing_of(e, matrices[i], l);
    for (size_t v = 0; v < e->model.tiling.vocab_tiles; v++) {
        makes(e, S_WTE, 0, v);
        spawn(e, "pack", PRIORITY_PATH, do_pack,
              &(struct job){.e = e, .i = wte, .j = v, .a = e->model.tiling.vocab_tile});
    }
}

/* ---- forward ---- */

static void needs_param(struct engine *e, enum tensor_kind kind, size_t layer)
{
    needs(e, S_PARAM, slice_index(e, kind, layer), 0);
}

static void spawn_embedding(struct engine *e, size_t a, size_t c)
{
    struct span tiles = tiling_chunk_tiles(&e->model.tiling, c);

    if (e->split && !e->plan.replicated)
        needs(e, S_ROWS, 0, 0);
    else
        needs_param(e, WTE, 0);
    needs_param(e, WPE, 0);
    makes(e, S_X, 0, c);
    spawn_join(e);
    needs(e, S_X, 0, c);
    spawn_each(e, "embedding", PRIORITY_PATH, do_embedding,
               &(struct job){.e = e, .work = WORK_EMBEDDING, .i = c, .a = a}, tiles.begin,
               tiles.size);
}

/* Labels of the stages that backward may need again. */
static const char *name(const char *first, const char *again, bool is_again)
{
    return is_again ? again : first;
}

/* x -> ln1, qkv */
static void spawn_qkv(struct engine *e, size_t l, size_t c, bool again)
{
    const struct tiling *t = &e->model.tiling;
    size_t place = attention_place(e, l);
    size_t set = work_place(e, l);

    needs_param(e, LN1W, l);
    needs_param(e, LN1B, l);
    makes(e, S_X, l, c);
    makes(e, S_LN1, set, c);
    makes(e, S_QKV, place, c);
    spawn_join(e);
    needs(e, S_X, l, c);
    needs(e, S_LN1, set, c);
    needs(e, S_QKV, place, c);
    spawn_row_tiles(e, name("ln1", "ln1 again", again), WORK_NORM1, forward_norm1, l, c);

    needs_param(e, QKVW, l);
    needs_param(e, QKVB, l);
    makes(e, S_LN1, set, c);
    spawn_join(e);
    needs(e, S_LN1, set, c);
    needs(e, S_QKV, place, c);
    spawn_column_tiles(e, name("qkv", "qkv again", again), WORK_QKV, &t->forward[QKVW],
                       forward_qkv, l, c);

    makes(e, S_QKV, place, c);
    makes(e, S_ATT, place, c);
    spawn_join(e);
}

static void spawn_attention(struct engine *e, size_t l, size_t b, bool again)
{
    const struct tiling *t = &e->model.tiling;
    size_t place = attention_place(e, l);
    size_t first, last;

    tiling_chunks_of_sequence(t, b, &first, &last);
    needs_range(e, S_QKV, place, first, last);
    needs_range(e, S_ATT, place, first, last);
    spawn_each(
        e, name("attention", "attention again", again), PRIORITY_PATH, do_attention,
        &(struct job){.e = e, .work = WORK_ATTENTION, .l = l, .i = b}, 0, t->head_groups);
}

/* att, x -> mid */
static void spawn_attproj(struct engine *e, size_t l, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    size_t place = attention_place(e, l);

    needs_param(e, ATTPROJW, l);
    needs_param(e, ATTPROJB, l);
    makes(e, S_ATT, place, c);
    makes(e, S_MID, l, c);
    spawn_join(e);
    needs(e, S_ATT, place, c);
    needs(e, S_X, l, c);
    needs(e, S_MID, l, c);
    spawn_column_tiles(e, "attproj", WORK_ATTPROJ, &t->forward[ATTPROJW], forward_attproj,
                       l, c);
}

/* mid -> ln2, fc, gelu */
static void spawn_fc(struct engine *e, size_t l, size_t c, bool again)
{
    const struct tiling *t = &e->model.tiling;
    size_t place = mlp_place(e, l);
    size_t set = work_place(e, l);

    needs_param(e, LN2W, l);
    needs_param(e, LN2B, l);
    makes(e, S_MID, l, c);
    makes(e, S_LN2, set, c);
    spawn_join(e);
    needs(e, S_MID, l, c);
    needs(e, S_LN2, set, c);
    spawn_row_tiles(e, name("ln2", "ln2 again", again), WORK_NORM2, forward_norm2, l, c);

    needs_param(e, FCW, l);
    needs_param(e, FCB, l);
    makes(e, S_MID, l, c);
    makes(e, S_LN2, set, c);
    makes(e, S_FC, place, c);
    makes(e, S_GELU, set, c);
    spawn_join(e);
    needs(e, S_LN2, set, c);
    needs(e, S_FC, place, c);
    needs(e, S_GELU, set, c);
    spawn_column_tiles(e, name("fc", "fc again", again), WORK_FC, &t->forward[FCW],
                       forward_fc, l, c);
}

/* gelu, mid -> x of the next layer */
static void spawn_fcproj(struct engine *e, size_t l, size_t c)
{
    const struct tiling *t = &e->model.tiling;
    size_t set = work_place(e, l);

    needs_param(e, FCPROJW, l);
    needs_param(e, FCPROJB, l);
    makes(e, S_FC, mlp_place(e, l), c);
    makes(e, S_GELU, set, c);
    makes(e, S_X, l + 1, c);
    spawn_join(e);
    needs(e, S_GELU, set, c);
    needs(e, S_MID, l, c);
    needs(e, S_X, l + 1, c);
    spawn_column_tiles(e, "fcproj", WORK_FCPROJ, &t->forward[FCPROJW], forward_fcproj, l,
                       c);
}

/* x -> att */
static void spawn_attention_stages(struct engine *e, size_t l, bool again)
{
    const struct tiling *t = &e->model.tiling;

    for (size_t c = 0; c < t->chunks; c++)
        spawn_qkv(e, l, c, again);
    for (size_t b = 0; b < t->B; b++)
        spawn_attention(e, l, b, again);
}

static void spawn_layer(struct engine *e, size_t l)
{
    spawn_attention_stages(e, l, false);
    for (size_t c = 0; c < e->model.tiling.chunks; c++) {
        spawn_attproj(e, l, c);
        spawn_fc(e, l, c, false);
        spawn_fcproj(e, l, c);
    }
}

void spawn_forward_again(struct engine *e, size_t l)
{
    enum recompute recompute = e->options.recompute;

    if (l + 1 == e->layout.shape.L)
        return;
    if (recompute == RECOMPUTE_ALL)
        spawn_attention_stages(e, l, true);
    for (size_t c = 0; c < e->model.tiling.chunks && recompute != RECOMPUTE_NONE; c++)
        spawn_fc(e, l, c, true);
}

static void spawn_final_norm(struct engine *e, size_t c)
{
    struct span tiles = tiling_chunk_tiles(&e->model.tiling, c);
    size_t L = e->layout.shape.L;

    needs_param(e, LNFW, 0);
    needs_param(e, LNFB, 0);
    makes(e, S_X, L, c);
    makes(e, S_LN1, 0, c);
    spawn_join(e);
    needs(e, S_X, L, c);
    needs(e, S_LN1, 0, c);
    spawn_each(e, "final norm", PRIORITY_PATH, do_final_norm,
               &(struct job){.e = e, .work = WORK_FINAL_NORM, .i = c}, tiles.begin,
               tiles.size);
    makes(e, S_LN1, 0, c);
    spawn_join(e);
}

void spawn_forward(struct engine *e, size_t a)
{
    size_t chunks = e->model.tiling.chunks;

    for (size_t c = 0; c < chunks; c++)
        spawn_embedding(e, a, c);
    for (size_t l = 0; l < e->layout.shape.L; l++)
        spawn_layer(e, l);
    for (size_t c = 0; c < chunks; c++)
        spawn_final_norm(e, c);
}
