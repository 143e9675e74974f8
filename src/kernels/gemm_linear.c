/* SPDX-License-Identifier: MIT */
#include "kernels/gemm_own.h"

/* What is added is written first, and the product to it. */
void gemm_linear_apart(const struct kernels *k, const struct linear *l)
{
    k->bias_rows(l->y, l->ldy, l->bias, l->add, l->ldadd, l->rows, l->out);
    gemm(false, true, l->rows, l->out, l->in, l->x, l->ldx, l->W, l->ldw, 1, l->y,
         l->ldy);
}
