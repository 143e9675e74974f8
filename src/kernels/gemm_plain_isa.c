/* SPDX-License-Identifier: MIT */
/* gemm_plain_isa.c - blocked matrix product on the register tile of panel.h.
 *
 * A block of op(B), DEPTH x COLUMNS, is packed once and stays in the second-level cache
 * while all rows pass; PANEL_ROWS rows of op(A) at a time are packed beside it. Blocks of
 * k are added to C in ascending order.
 */
#include "kernels/gemm_plain.h"
#include "kernels/isa.h"
#include "kernels/panel.h"

#include "base/memory.h"

enum { DEPTH = 256, COLUMNS = 128 };

static void pack_right(float *restrict out, const struct product *p, size_t k0,
                       size_t depth, size_t j0, size_t columns)
{
    const float *restrict from = p->B + k0 * p->b_k + j0 * p->b_column;

    memset(out, 0, depth * COLUMNS * sizeof *out);
    if (p->b_column == 1) {
        for (size_t k = 0; k < depth; k++)
            memcpy(out + k * COLUMNS, from + k * p->b_k, columns * sizeof *out);
        return;
    }
    /* A cache line at a time: what is written stays in the first-level cache. */
    for (size_t line = 0; line < depth; line += PANEL_ALIGN)
        for (size_t j = 0; j < columns; j++)
            for (size_t k = line; k < min_size(line + PANEL_ALIGN, depth); k++)
                out[k * COLUMNS + j] = from[k * p->b_k + j * p->b_column];
}

static void pack_left(float *restrict out, const struct product *p, size_t i0,
                      size_t rows, size_t k0, size_t depth)
{
    const float *restrict from = p->A + i0 * p->a_row + k0 * p->a_k;

    if (rows < PANEL_ROWS)
        memset(out, 0, PANEL_ROWS * DEPTH * sizeof *out);
    for (size_t i = 0; i < rows; i++)
        for (size_t k = 0; k < depth; k++)
            out[i * DEPTH + k] = from[i * p->a_row + k * p->a_k];
}

static void add_tile(const struct product *p, size_t i0, size_t rows, size_t j0,
                     size_t columns, const float *restrict tile, bool add)
{
    for (size_t i = 0; i < rows; i++) {
        float *restrict row = p->C + (i0 + i) * p->ldc + j0;

        if (add)
            for (size_t j = 0; j < columns; j++)
                row[j] += tile[i * COLUMNS + j];
        else
            memcpy(row, tile + i * COLUMNS, columns * sizeof *row);
    }
}

void KERNEL(product)(const struct product *p)
{
    _Alignas(64) float right[DEPTH * COLUMNS], left[PANEL_ROWS * DEPTH];
    _Alignas(64) float tile[PANEL_ROWS * COLUMNS];

    for (size_t j = 0; j < p->n; j += COLUMNS) {
        size_t columns = min_size(COLUMNS, p->n - j);

        for (size_t k = 0; k == 0 || k < p->k; k += DEPTH) {
            size_t depth = min_size(DEPTH, p->k - k);

            pack_right(right, p, k, depth, j, columns);
            for (size_t i = 0; i < p->m; i += PANEL_ROWS) {
                size_t rows = min_size(PANEL_ROWS, p->m - i);

                pack_left(left, p, i, rows, k, depth);
                panel(tile, COLUMNS, left, DEPTH, 1, right, COLUMNS,
                      round_up(columns, PANEL_ALIGN), depth, false);
                add_tile(p, i, rows, j, columns, tile, p->add || k > 0);
            }
        }
    }
}
