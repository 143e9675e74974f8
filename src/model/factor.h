/* factor.h - a matrix that products read, in the form that they want. Inside src/model
 * only. */
#ifndef WEFT_MODEL_FACTOR_H
#define WEFT_MODEL_FACTOR_H

#include <stddef.h>

#include "kernels/bf16.h"
#include "model/model.h"

/* x [rows][columns], or half [rows][columns] with its leading dimension. */
struct factor {
    const float *x;
    const bf16 *half;
    size_t ld_half;
};

/* Rounded where it is. */
static inline struct factor rounded(const float *x, size_t columns)
{
    return (struct factor){x, (const bf16 *)(const void *)x, 2 * columns};
}

static inline struct factor with_copy(const float *x, const bf16 *half, size_t columns)
{
    return (struct factor){x, half, columns};
}

#endif
