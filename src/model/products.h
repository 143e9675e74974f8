/* products.h - the matrix products of one training step, as forward.c and backward.c ask
 * gemm() for them: what benchmarks measure and floors are made of. Those of
 * gemm_linear() are listed as if the bias had been written before. A test holds the list
 * against the calls of a real step.
 */
#ifndef WEFT_MODEL_PRODUCTS_H
#define WEFT_MODEL_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

#include "model/tiling.h"

enum product_part { PRODUCT_FORWARD, PRODUCT_INPUT_GRAD, PRODUCT_WEIGHT_GRAD };

/* One shape of call. The operands and their order are gemm()'s. */
struct model_product {
    const char *name; /* "qkv", "attproj", "fc", "fcproj", "head" */
    enum product_part part;
    bool ta, tb;
    size_t m, n, k, lda, ldb, ldc;
    float beta;
    size_t calls; /* a step */
};

enum { MODEL_PRODUCTS_MOST = 128 };

/* The products of one step of `accum` micro-batches; returns how many rows of `out`
 * [MODEL_PRODUCTS_MOST] are written. Tiles that are cut short are rows of their own. */
size_t model_products(const struct shape *s, const struct tiling *t, size_t accum,
                      struct model_product *out);

/* Floating-point operations of all its calls. */
double product_flops(const struct model_product *p);

/* "forward", "input gradient", "weight gradient" */
const char *product_part_name(enum product_part part);

#endif
