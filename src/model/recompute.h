/* recompute.h - what of forward is not kept for backward but computed once more.
 *
 * Layers then share its buffers, and backward of a layer begins with its forward tasks
 * again: the same bits as without. Of the last layer everything is still there.
 */
#ifndef WEFT_MODEL_RECOMPUTE_H
#define WEFT_MODEL_RECOMPUTE_H

#include "model/shape.h"

enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_MLP, /* the hidden layer of the MLP */
    RECOMPUTE_ALL  /* and the inputs and output of attention */
};

#define RECOMPUTE_WORDS "none|mlp|all" /* in the order of the enum */

static inline const char *recompute_name(enum recompute r)
{
    return r == RECOMPUTE_ALL ? "all" : r == RECOMPUTE_MLP ? "mlp" : "none";
}

/* Floats a row and layer that are kept, in multiples of C. */
static inline size_t recompute_kept(enum recompute r)
{
    return r == RECOMPUTE_ALL ? 2 : r == RECOMPUTE_MLP ? 6 : 10;
}

/* Operations that it adds to shape_train_flops(), which counts as this does. */
static inline double recompute_flops(enum recompute r, const struct shape *s, size_t T,
                                     double tokens)
{
    double C = (double)s->C;
    double mlp = 8 * C * C;
    double attention = 6 * C * C + 4 * C * (double)T;

    if (r == RECOMPUTE_NONE)
        return 0;
    return (double)(s->L - 1) * tokens * (r == RECOMPUTE_ALL ? mlp + attention : mlp);
}

#endif
