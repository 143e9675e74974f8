/* SPDX-License-Identifier: MIT */
/* Placement of the buffers. One function both counts and places, so that the plan and
 * the memory can never differ. */
#include "model/model.h"

#include <string.h>

struct placer {
    struct arena *arena; /* NULL: only count */
    size_t bytes;
};

static void *place(struct placer *p, size_t count, size_t elem_bytes)
{
    size_t bytes = count * elem_bytes;

    p->bytes = round_up(p->bytes, CACHE_LINE) + bytes;
    return p->arena ? arena_take(p->arena, bytes) : NULL;
}

static float *place_floats(struct placer *p, size_t count)
{
    return place(p, count, sizeof(float));
}

static bf16 *place_halves(struct placer *p, size_t count)
{
    return place(p, count, sizeof(bf16));
}

static void place_stream(struct placer *p, struct layer_state *s, size_t C, size_t N)
{
    s->x = place_floats(p, N * C);
    s->ln1_mean = place_floats(p, N);
    s->ln1_rstd = place_floats(p, N);
    s->mid = place_floats(p, N * C);
    s->ln2_mean = place_floats(p, N);
    s->ln2_rstd = place_floats(p, N);
}

static void place_attention(struct placer *p, struct layer_state *s,
                            const struct shape *shape, size_t N)
{
    s->qkv = place_floats(p, N * 3 * shape->C);
    s->att = place_floats(p, N * shape->C);
    s->lse = place_floats(p, N * shape->H);
}

static void place_mlp(struct placer *p, struct layer_state *s, size_t C, size_t N)
{
    s->fc = place_floats(p, N * 4 * C);
}

/* Of the parts of a layer's state those that layers share, or those of one layer. */
static void place_layer(const struct model *m, struct placer *p, struct layer_state *s,
                        size_t N, bool train, bool shared)
{
    bool keeps_attention = train && m->recompute < RECOMPUTE_ALL;
    bool keeps_mlp = train && m->recompute < RECOMPUTE_MLP;

    if (shared != train)
        place_stream(p, s, m->shape.C, N);
    if (shared != keeps_attention)
        place_attention(p, s, &m->shape, N);
    if (shared != keeps_mlp)
        place_mlp(p, s, m->shape.C, N);
}

/* Returns what layers share. */
static struct layer_state place_layers(const struct model *m, struct placer *p,
                                       struct layer_state *layers, size_t N, bool train)
{
    struct layer_state shared = {0};

    place_layer(m, p, &shared, N, train, true);
    for (size_t l = 0; l < m->shape.L; l++) {
        struct layer_state own = shared;

        place_layer(m, p, &own, N, train, false);
        if (layers)
            layers[l] = own;
    }
    return shared;
}

static void place_work(struct placer *p, struct layer_work *w, size_t C, size_t N,
                       size_t row_tiles, bool train, bool half)
{
    w->ln1 = place_floats(p, N * C);
    w->ln2 = place_floats(p, N * C);
    w->gelu = half ? NULL : place_floats(p, N * 4 * C);
    w->gelu_half = half ? place_halves(p, N * 4 * C) : NULL;
    w->att_half = half ? place_halves(p, N * C) : NULL;
    if (!train)
        return;
    if (half) {
        w->dx_half = place_halves(p, N * C);
        w->dmid_half = place_halves(p, N * C);
        w->dfc_half = place_halves(p, N * 4 * C);
        w->dqkv_half = place_halves(p, N * 3 * C);
        w->dfcb = place_floats(p, tiling_max_chunks(N) * 4 * C);
    } else {
        w->dfc = place_floats(p, N * 4 * C);
    }
    w->dx = place_floats(p, N * C);
    w->dmid = place_floats(p, N * C);
    w->datt = place_floats(p, N * C);
    w->dqkv = place_floats(p, N * 3 * C);
    w->dln1w = place_floats(p, row_tiles * C);
    w->dln1b = place_floats(p, row_tiles * C);
    w->dln2w = place_floats(p, row_tiles * C);
    w->dln2b = place_floats(p, row_tiles * C);
}

static void place_all(struct model *m, struct placer *p, struct layer_state *layers,
                      size_t B, size_t T, bool train, bool half)
{
    const struct shape *s = &m->shape;
    size_t N = B * T;
    size_t row_tiles = tiling_max_row_tiles(N);
    int32_t *positions = place(p, N, sizeof *positions);

    tiling_init(&m->tiling, s, B, T);
    for (size_t n = 0; positions && n < N; n++)
        positions[n] = (int32_t)(n % T);
    m->positions = positions;
    struct layer_state shared = place_layers(m, p, layers, N, train);
    m->layers = layers;
    /* In inference every layer reads and writes the one residual stream in place. */
    m->x_last = train ? place_floats(p, N * s->C) : shared.x;
    m->lnf_mean = place_floats(p, N);
    m->lnf_rstd = place_floats(p, N);
    size_t chunk_rows = min_size(N, m->tiling.chunk_tiles * m->tiling.row_tile);
    int buffers = tiling_max_chunks(N) > 1 ? 2 : 1;
    for (int i = 0; i < buffers; i++)
        m->logits[i] = place_floats(p, chunk_rows * s->Vp);
    m->stat_max = place_floats(p, m->tiling.vocab_tiles * N);
    m->stat_sum = place_floats(p, m->tiling.vocab_tiles * N);
    m->head_lse = place_floats(p, N);
    m->row_loss = place_floats(p, N);
    if (train) {
        for (int i = 0; i < buffers; i++)
            m->dlnf[i] = place_floats(p, m->tiling.head_lanes * chunk_rows * s->C);
        m->dlnfw = place_floats(p, row_tiles * s->C);
        m->dlnfb = place_floats(p, row_tiles * s->C);
    }
    for (size_t i = 0; i < m->sets; i++)
        place_work(p, &m->work[i], s->C, N, row_tiles, train, half);
    m->lnf = m->work[0].ln1;
}

size_t model_bytes(const struct shape *s, size_t B, size_t T, bool train,
                   enum recompute recompute, size_t sets, bool half)
{
    struct model m = {.shape = *s, .recompute = recompute, .sets = sets};
    struct placer p = {0};

    place_all(&m, &p, NULL, B, T, train, half);
    return round_up(p.bytes, CACHE_LINE);
}

void model_place(struct model *m, struct arena *arena, struct layer_state *layers,
                 size_t B, size_t T, bool train)
{
    struct placer p = {.arena = arena};

    place_all(m, &p, layers, B, T, train, m->half != NULL);
}

size_t model_work_bytes(const struct shape *s, size_t B, size_t T)
{
    struct tiling t;
    size_t F = 4 * s->C;

    tiling_init(&t, s, B, T);
    size_t weight_rows =
        max_size(tiling_weight_rows(s, QKVW), tiling_weight_rows(s, FCW));
    size_t product =
        gemm_bf16_work_bytes(CHUNK_ROWS, F, max_size(F, t.vocab_tile), false);
    size_t layers = gemm_bf16_work_bytes(weight_rows, F, t.N, false);
    size_t head = gemm_bf16_work_bytes(t.vocab_tile, s->C, CHUNK_ROWS, false);
    /* A tile of dfc, beside what its product needs. */
    size_t dfc = min_size(t.N, CHUNK_ROWS) * t.backward[FCPROJW].tile * sizeof(float);

    /* A row of gelu is there at the same time as nothing else. */
    return round_up(dfc, CACHE_LINE) +
           max_size(max_size(product, layers), max_size(head, F * sizeof(float)));
}
