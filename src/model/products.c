/* SPDX-License-Identifier: MIT */
#include "model/products.h"

#include "base/memory.h"

struct product_list {
    struct model_product *out;
    size_t n;
    const struct shape *shape;
    const struct tiling *tiling;
    size_t accum;
};

/* Leaves out what is never called. */
static void add(struct product_list *list, struct model_product p)
{
    if (p.calls == 0 || p.m == 0 || p.n == 0)
        return;
    require(list->n < MODEL_PRODUCTS_MOST);
    list->out[list->n++] = p;
}

/* `total` things in tiles of `tile`: whole tiles, and what is left. */
struct cut {
    size_t whole, rest;
};

static struct cut cut_into(size_t total, size_t tile)
{
    return (struct cut){total / tile, total % tile};
}

/* p for each width of tile that `cut` makes, and each height of chunk. */
static void add_tiles(struct product_list *list, struct model_product p,
                      const struct column_cut *cut, size_t times)
{
    const struct tiling *t = list->tiling;
    struct cut rows = cut_into(t->N, t->chunk_tiles * t->row_tile);
    struct cut cols = cut_into(cut->columns, cut->tile);

    for (int i = 0; i < 4; i++) {
        bool low = i & 2;
        bool narrow = i & 1;

        p.m = low ? rows.rest : t->chunk_tiles * t->row_tile;
        p.n = narrow ? cols.rest : cut->tile;
        p.calls = (low ? 1 : rows.whole) * (narrow ? 1 : cols.whole) * times;
        add(list, p);
    }
}

/* y = x W^T + y and dx = dy W, W [out][in] */
static void add_rows_products(struct product_list *list, const char *name,
                              enum tensor_kind kind, enum product_part part)
{
    size_t out, in;
    size_t times = list->shape->L * list->accum;
    bool forward = part == PRODUCT_FORWARD;

    tensor_dims(list->shape, kind, &out, &in);
    add_tiles(list,
              (struct model_product){.name = name,
                                     .part = part,
                                     .tb = forward,
                                     .k = forward ? in : out,
                                     .lda = forward ? in : out,
                                     .ldb = in,
                                     .ldc = forward ? out : in,
                                     .beta = forward ? 1 : 0},
              forward ? &list->tiling->forward[kind] : &list->tiling->backward[kind],
              times);
}

/* The first micro-batch overwrites, the others add. */
static void add_first_and_others(struct product_list *list, struct model_product p,
                                 size_t firsts, size_t others)
{
    p.beta = 0;
    p.calls = firsts;
    add(list, p);
    p.beta = 1;
    p.calls = others;
    add(list, p);
}

/* `base` calls for each chunk of every micro-batch, the first of which overwrites. */
static void add_chunks(struct product_list *list, struct model_product p, size_t base)
{
    const struct tiling *t = list->tiling;
    struct cut terms = cut_into(t->N, t->chunk_tiles * t->row_tile);
    size_t whole = base * terms.whole * list->accum;
    size_t rest = base * list->accum;
    size_t firsts = terms.whole > 0 ? base : 0;

    p.k = t->chunk_tiles * t->row_tile;
    add_first_and_others(list, p, firsts, whole - firsts);
    p.k = terms.rest;
    firsts = base - firsts;
    if (terms.rest > 0)
        add_first_and_others(list, p, firsts, rest - firsts);
}

/* dW (+)= dy^T x */
static void add_weight_grad(struct product_list *list, const char *name,
                            enum tensor_kind kind)
{
    size_t tile = tiling_weight_rows(list->shape, kind);
    size_t out, in;

    tensor_dims(list->shape, kind, &out, &in);
    struct cut rows = cut_into(out, tile);
    struct cut cols = cut_into(in, list->tiling->weight[kind].tile);
    struct model_product p = {.name = name,
                              .part = PRODUCT_WEIGHT_GRAD,
                              .ta = true,
                              .lda = out,
                              .ldb = in,
                              .ldc = in};

    for (int i = 0; i < 4; i++) {
        bool low = i & 2;
        bool narrow = i & 1;

        p.m = low ? rows.rest : tile;
        p.n = narrow ? cols.rest : list->tiling->weight[kind].tile;
        add_chunks(list, p,
                   (low ? 1 : rows.whole) * (narrow ? 1 : cols.whole) * list->shape->L);
    }
}

/* `chunks` of so many rows and `tiles` of so many rows of wte a micro-batch, the first of
 * them in a lane or not. The gradient of wte is overwritten by the very first chunk only.
 */
struct head_tile {
    size_t rows, chunks;
    bool has_first;
    size_t vocab, tiles, firsts;
};

static void add_head_tile(struct product_list *list, const struct head_tile *h,
                          enum product_part part)
{
    size_t C = list->shape->C;
    size_t Vp = list->shape->Vp;
    size_t times = h->chunks * list->accum;
    struct model_product p = {.name = "head", .part = part, .lda = C, .ldb = C, .ldc = C};

    if (part == PRODUCT_FORWARD) {
        p.tb = true;
        p.m = h->rows;
        p.n = h->vocab;
        p.k = C;
        p.ldc = Vp;
        p.calls = times * h->tiles;
        add(list, p);
        return;
    }
    size_t firsts = part == PRODUCT_INPUT_GRAD ? times * h->firsts
                    : h->has_first             ? h->tiles
                                               : 0;

    p.ta = part == PRODUCT_WEIGHT_GRAD;
    p.m = p.ta ? h->vocab : h->rows;
    p.n = C;
    p.k = p.ta ? h->rows : h->vocab;
    p.lda = Vp;
    add_first_and_others(list, p, firsts, times * h->tiles - firsts);
}

static void add_head(struct product_list *list, enum product_part part)
{
    const struct tiling *t = list->tiling;
    size_t chunk_rows = t->chunk_tiles * t->row_tile;
    struct cut rows = cut_into(t->N, chunk_rows);
    struct cut vocab = cut_into(list->shape->Vp, t->vocab_tile);

    for (int i = 0; i < 4; i++) {
        bool low = i & 2;
        bool narrow = i & 1;
        size_t lanes = min_size(t->head_lanes, vocab.whole);
        struct head_tile h = {.rows = low ? rows.rest : chunk_rows,
                              .chunks = low ? 1 : rows.whole,
                              .has_first = !low || rows.whole == 0,
                              .vocab = narrow ? vocab.rest : t->vocab_tile,
                              .tiles = narrow ? 1 : vocab.whole,
                              .firsts = narrow ? t->head_lanes - lanes : lanes};

        if (h.rows > 0 && h.vocab > 0 && h.chunks > 0)
            add_head_tile(list, &h, part);
    }
}

size_t model_products(const struct shape *s, const struct tiling *t, size_t accum,
                      struct model_product *out)
{
    static const struct {
        const char *name;
        enum tensor_kind kind;
    } matrices[] = {
        {"qkv", QKVW}, {"attproj", ATTPROJW}, {"fc", FCW}, {"fcproj", FCPROJW}};
    struct product_list list = {.out = out, .shape = s, .tiling = t, .accum = accum};

    for (enum product_part part = PRODUCT_FORWARD; part <= PRODUCT_WEIGHT_GRAD; part++) {
        for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++)
            if (part == PRODUCT_WEIGHT_GRAD)
                add_weight_grad(&list, matrices[i].name, matrices[i].kind);
            else
                add_rows_products(&list, matrices[i].name, matrices[i].kind, part);
        add_head(&list, part);
    }
    return list.n;
}

double product_flops(const struct model_product *p)
{
    return 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->calls;
}

const char *product_part_name(enum product_part part)
{
    static const char *const names[] = {
        [PRODUCT_FORWARD] = "forward",
        [PRODUCT_INPUT_GRAD] = "input gradient",
        [PRODUCT_WEIGHT_GRAD] = "weight gradient",
    };

    return names[part];
}
