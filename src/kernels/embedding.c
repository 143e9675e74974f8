/* SPDX-License-Identifier: MIT */
/* embedding.c - token and position rows in, their gradients out. */
#include "kernels/isa.h"

void KERNEL(embedding_fwd)(float *restrict x, const float *restrict wte,
                           const float *restrict wpe, const int32_t *tokens,
                           const int32_t *positions, size_t rows, size_t C)
{
    for (size_t n = 0; n < rows; n++) {
        const float *restrict token = wte + (size_t)tokens[n] * C;
        const float *restrict position = wpe + (size_t)positions[n] * C;

        for (size_t c = 0; c < C; c++)
            x[n * C + c] = token[c] + position[c];
    }
}

void KERNEL(embedding_bwd_tokens)(float *restrict dwte, const float *restrict dx,
                                  const int32_t *tokens, size_t rows, size_t C, size_t v0,
                                  size_t v1)
{
    for (size_t n = 0; n < rows; n++) {
        size_t v = (size_t)tokens[n];

        if (v < v0 || v >= v1)
            continue;
        for (size_t c = 0; c < C; c++)
            dwte[v * C + c] += dx[n * C + c];
    }
}

void KERNEL(embedding_bwd_positions)(float *restrict dwpe, const float *restrict dx,
                                     size_t B, size_t T, size_t C, size_t t0, size_t t1,
                                     bool accumulate)
{
    for (size_t t = t0; t < t1; t++) {
        float *restrict row = dwpe + t * C;

        if (!accumulate)
            memset(row, 0, C * sizeof *row);
        for (size_t b = 0; b < B; b++)
            for (size_t c = 0; c < C; c++)
                row[c] += dx[(b * T + t) * C + c];
    }
}
