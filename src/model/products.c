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

/* p for each height of tile that the rows of a micro-batch are cut into. */
static void add_row_tiles(struct product_list *list, struct model_product p, size_t times)
{
    const struct tiling *t = list->tiling;
    struct cut rows = cut_into(t->N, t->row_tile);

    p.m = t->row_tile;
    p.calls = rows.whole * times * list->accum;
    add(list, p);
    p.m = rows.rest;
    p.calls = times * list->accum;
    add(list, p);
}

/* y = x W^T + y and dx = dy W, W [out][in] */
static void add_rows_products(struct product_list *list, const char *name,
                              enum tensor_kind kind, enum product_part part)
{
    size_t out, in;

    tensor_dims(list->shape, kind, &out, &in);
    if (part == PRODUCT_FORWARD)
        add_row_tiles(list,
                      (struct model_product){.name = name,
                                             .part = part,
                                             .tb = true,
                                             .n = out,
                                             .k = in,
                                             .lda = in,
                                             .ldb = in,
                                             .ldc = out,
                                             .beta = 1},
                      list->shape->L);
    else
        add_row_tiles(list,
                      (struct model_product){.name = name,
                                             .part = part,
                                             .n = in,
                                             .k = out,
                                             .lda = out,
                                             .ldb = in,
                                             .ldc = in},
                      list->shape->L);
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

/* dW (+)= dy^T x */
static void add_weight_grad(struct product_list *list, const char *name,
                            enum tensor_kind kind)
{
    size_t L = list->shape->L;
    size_t out, in;

    tensor_dims(list->shape, kind, &out, &in);
    struct cut rows = cut_into(out, tiling_weight_rows(list->shape, kind));
    struct model_product p = {.name = name,
                              .part = PRODUCT_WEIGHT_GRAD,
                              .ta = true,
                              .m = min_size(out, tiling_weight_rows(list->shape, kind)),
                              .n = in,
                              .k = list->tiling->N,
                              .lda = out,
                              .ldb = in,
                              .ldc = in};

    add_first_and_others(list, p, L * rows.whole, L * rows.whole * (list->accum - 1));
    p.m = rows.rest;
    add_first_and_others(list, p, L, L * (list->accum - 1));
}

/* One chunk of rows and one tile of the vocabulary; `chunks` and `tiles` of that size a
 * micro-batch. The gradient of wte is overwritten by the very first chunk only. */
static void add_head_tile(struct product_list *list, size_t rows, size_t chunks,
                          bool has_first, size_t vocab, size_t tiles,
                          enum product_part part)
{
    size_t C = list->shape->C;
    size_t Vp = list->shape->Vp;
    size_t calls = chunks * tiles * list->accum;
    struct model_product logits = {.name = "head",
                                   .part = part,
                                   .tb = true,
                                   .m = rows,
                                   .n = vocab,
                                   .k = C,
                                   .lda = C,
                                   .ldb = C,
                                   .ldc = Vp,
                                   .calls = calls};
    struct model_product weights = {.name = "head",
                                    .part = part,
                                    .ta = true,
                                    .m = vocab,
                                    .n = C,
                                    .k = rows,
                                    .lda = Vp,
                                    .ldb = C,
                                    .ldc = C};

    if (rows == 0 || calls == 0)
        return;
    if (part == PRODUCT_FORWARD)
        add(list, logits);
    else
        add_first_and_others(list, weights, has_first ? tiles : 0,
                             calls - (has_first ? tiles : 0));
}

static void add_head(struct product_list *list, enum product_part part)
{
    const struct tiling *t = list->tiling;
    size_t Vp = list->shape->Vp;
    size_t chunk_rows = t->chunk_tiles * t->row_tile;
    struct cut rows = cut_into(t->N, chunk_rows);
    struct cut vocab = cut_into(Vp, t->vocab_tile);

    if (part == PRODUCT_INPUT_GRAD) {
        add_row_tiles(list,
                      (struct model_product){.name = "head",
                                             .part = part,
                                             .n = list->shape->C,
                                             .k = Vp,
                                             .lda = Vp,
                                             .ldb = list->shape->C,
                                             .ldc = list->shape->C},
                      1);
        return;
    }
    for (int cut_short = 0; cut_short < 2; cut_short++) {
        size_t height = cut_short ? vocab.rest : t->vocab_tile;
        size_t tiles = cut_short ? vocab.rest > 0 : vocab.whole;

        add_head_tile(list, chunk_rows, rows.whole, true, height, tiles, part);
        add_head_tile(list, rows.rest, 1, rows.whole == 0, height, tiles, part);
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
