/* SPDX-License-Identifier: MIT */
#include "model/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/rng.h"

enum { SLICE_ALIGN = 16 };

const struct tensor_info tensor_table[TENSOR_KINDS] = {
    [WTE] = {"wte", false, true, INIT_NORMAL},
    [WPE] = {"wpe", false, true, INIT_NORMAL},
    [LN1W] = {"ln1w", true, false, INIT_ONE},
    [LN1B] = {"ln1b", true, false, INIT_ZERO},
    [QKVW] = {"qkvw", true, true, INIT_NORMAL},
    [QKVB] = {"qkvb", true, false, INIT_ZERO},
    [ATTPROJW] = {"attprojw", true, true, INIT_NORMAL_RESIDUAL},
    [ATTPROJB] = {"attprojb", true, false, INIT_ZERO},
    [LN2W] = {"ln2w", true, false, INIT_ONE},
    [LN2B] = {"ln2b", true, false, INIT_ZERO},
    [FCW] = {"fcw", true, true, INIT_NORMAL},
    [FCB] = {"fcb", true, false, INIT_ZERO},
    [FCPROJW] = {"fcprojw", true, true, INIT_NORMAL_RESIDUAL},
    [FCPROJB] = {"fcprojb", true, false, INIT_ZERO},
    [LNFW] = {"lnfw", false, false, INIT_ONE},
    [LNFB] = {"lnfb", false, false, INIT_ZERO},
};

/* Order in which backward finishes the gradients of one layer. */
static const enum tensor_kind layer_production[] = {
    FCPROJB, FCPROJW, FCB, FCW, LN2B, LN2W, ATTPROJB, ATTPROJW, QKVB, QKVW, LN1B, LN1W};
enum { LAYER_KINDS = sizeof layer_production / sizeof *layer_production };

void tensor_dims(const struct shape *s, enum tensor_kind kind, size_t *rows, size_t *cols)
{
    size_t C = s->C;

    *rows = 1;
    *cols = C;
    switch (kind) {
    case WTE:
        *rows = s->Vp;
        break;
    case WPE:
        *rows = s->T;
        break;
    case QKVW:
        *rows = 3 * C;
        break;
    case QKVB:
        *cols = 3 * C;
        break;
    case ATTPROJW:
        *rows = C;
        break;
    case FCW:
        *rows = 4 * C;
        break;
    case FCB:
        *cols = 4 * C;
        break;
    case FCPROJW:
        *rows = C;
        *cols = 4 * C;
        break;
    case LN1W:
    case LN1B:
    case ATTPROJB:
    case LN2W:
    case LN2B:
    case FCPROJB:
    case LNFW:
    case LNFB:
    case TENSOR_KINDS:
        break;
    }
}

static void add_slice(struct layout *l, enum tensor_kind kind, size_t layer)
{
    struct slice *s = &l->slices[l->n_slices];

    *s = (struct slice){.kind = kind, .layer = layer};
    tensor_dims(&l->shape, kind, &s->rows, &s->cols);
    s->elems = s->rows * s->cols;
    s->span = round_up(s->elems, SLICE_ALIGN);
    l->index[(size_t)kind * l->shape.L + layer] = l->n_slices++;
}

static void place_storage(const struct slice *s, void *arg)
{
    struct layout *l = arg;
    struct slice *own = &l->slices[s - l->slices];

    own->canonical_offset = l->canonical_elems;
    l->canonical_elems += own->elems;
    if (l->order == LAYOUT_STORAGE) {
        own->offset = l->elems;
        l->elems += own->span;
    }
}

static enum status init(struct layout *l, const struct shape *shape,
                        enum layout_order order, bool wte_first)
{
    enum status st;
    size_t n = 4 + LAYER_KINDS * shape->L;

    *l = (struct layout){.shape = *shape, .order = order};
    st = memory_alloc(n, sizeof *l->slices, "tensor table", &l->slices);
    if (st == ST_OK)
        st = memory_alloc(TENSOR_KINDS * shape->L, sizeof *l->index, "tensor table",
                          &l->index);
    if (st != ST_OK) {
        layout_release(l);
        return st;
    }
    if (wte_first)
        add_slice(l, WTE, 0);
    add_slice(l, LNFB, 0);
    add_slice(l, LNFW, 0);
    for (size_t layer = shape->L; layer-- > 0;)
        for (size_t i = 0; i < LAYER_KINDS; i++)
            add_slice(l, layer_production[i], layer);
    add_slice(l, WPE, 0);
    if (!wte_first)
        add_slice(l, WTE, 0);
    require(l->n_slices == n);

    layout_each_canonical(l, place_storage, l);
    for (size_t i = 0; order == LAYOUT_PRODUCTION && i < n; i++) {
        l->slices[i].offset = l->elems;
        l->elems += l->slices[i].span;
    }
    return ST_OK;
}

enum status layout_init(struct layout *l, const struct shape *s, enum layout_order order)
{
    return init(l, s, order, false);
}

enum status layout_init_split(struct layout *l, const struct shape *s,
                              enum layout_order order)
{
    return init(l, s, order, true);
}

void layout_release(struct layout *l)
{
    free(l->slices);
    free(l->index);
    *l = (struct layout){0};
}

const struct slice *layout_slice(const struct layout *l, enum tensor_kind kind,
                                 size_t layer)
{
    return &l->slices[l->index[(size_t)kind * l->shape.L + layer]];
}

void layout_each_canonical(const struct layout *l,
                           void (*visit)(const struct slice *s, void *arg), void *arg)
{
    for (int k = 0; k < TENSOR_KINDS; k++) {
        size_t layers = tensor_table[k].per_layer ? l->shape.L : 1;

        for (size_t layer = 0; layer < layers; layer++)
            visit(layout_slice(l, (enum tensor_kind)k, layer), arg);
    }
}

void tensor_init_rows(const struct layout *l, const struct slice *s, uint64_t seed,
                      size_t row0, size_t row1, float *out)
{
    const double sigma = 0.02;
    enum init_law law = tensor_table[s->kind].init;
    double scale =
        law == INIT_NORMAL_RESIDUAL ? sigma / sqrt(2.0 * (double)l->shape.L) : sigma;
    uint64_t stream = ((uint64_t)s->kind << 32) + s->layer;

    for (size_t r = row0; r < row1; r++) {
        bool padding = s->kind == WTE && r >= l->shape.V;

        for (size_t c = 0; c < s->cols; c++) {
            size_t i = r * s->cols + c;

            if (law == INIT_ZERO || padding)
                out[i] = 0;
            else if (law == INIT_ONE)
                out[i] = 1;
            else
                out[i] = (float)(scale * rng_normal(seed, stream, i));
        }
    }
}

const struct slice *layout_slice_at(const struct layout *l, size_t offset)
{
    for (size_t i = 0; i < l->n_slices; i++)
        if (offset - l->slices[i].offset < l->slices[i].span)
            return &l->slices[i];
    bug("no tensor at element %zu", offset);
}

const char *slice_name(const struct slice *s, char *buf, size_t buf_bytes)
{
    const struct tensor_info *info = &tensor_table[s->kind];

    if (info->per_layer)
        (void)snprintf(buf, buf_bytes, "%s[%zu]", info->name, s->layer);
    else
        (void)snprintf(buf, buf_bytes, "%s", info->name);
    return buf;
}
