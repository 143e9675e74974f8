/* SPDX-License-Identifier: MIT */
#include "report/curve.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"

enum { SCALE_COLUMNS = 9 };

/* Dots, row by row from the top; a character has dots_x by dots_y of them. */
struct canvas {
    size_t columns, rows, dots_x, dots_y;
    unsigned char set[CURVE_MOST_ROWS * 4][CURVE_MOST_COLUMNS * 2];
};

static double mean(const double *v, size_t first, size_t last)
{
    double sum = 0;
    size_t known = 0;

    for (size_t i = first; i < last; i++)
        if (isfinite(v[i])) {
            sum += v[i];
            known++;
        }
    return known ? sum / (double)known : (double)NAN;
}

/* One value a column of dots; with fewer values than columns they are stretched. */
static void resample(const double *v, size_t n, double *out, size_t columns)
{
    for (size_t x = 0; x < columns; x++) {
        size_t first = n * x / columns;

        out[x] = mean(v, first, max_size(first + 1, n * (x + 1) / columns));
    }
}

static bool find_range(const double *v, size_t n, double *low, double *high)
{
    *low = (double)INFINITY;
    *high = -(double)INFINITY;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) {
            *low = fmin(*low, v[i]);
            *high = fmax(*high, v[i]);
        }
    if (*low > *high)
        return false;
    if (!(*high > *low)) {
        *low -= 0.5;
        *high += 0.5;
    }
    return true;
}

/* Joins neighbours by a vertical run of dots. */
static void plot(struct canvas *c, const double *v, double low, double high)
{
    size_t height = c->rows * c->dots_y;
    size_t before = SIZE_MAX;

    for (size_t x = 0; x < c->columns * c->dots_x; x++) {
        if (!isfinite(v[x])) {
            before = SIZE_MAX;
            continue;
        }
        /* A range beyond what a number holds, or below its last digit, is a line at the
         * bottom. */
        double up = (v[x] - low) / (high - low) * (double)(height - 1);

        up = isfinite(up) ? fmin(fmax(up, 0), (double)(height - 1)) : 0;
        size_t y = height - 1 - (size_t)(up + 0.5);
        size_t from = before == SIZE_MAX ? y : min_size(before, y);
        size_t to = before == SIZE_MAX ? y : max_size(before, y);

        for (size_t i = from; i <= to; i++)
            c->set[i][x] = 1;
        before = y;
    }
}

/* Bits of a braille pattern by row and column of the dot. */
static void put_braille(FILE *out, const struct canvas *c, size_t row, size_t column)
{
    static const unsigned char bit[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned dots = 0;

    for (size_t y = 0; y < 4; y++)
        for (size_t x = 0; x < 2; x++)
            if (c->set[4 * row + y][2 * column + x])
                dots |= bit[y][x];
    /* U+2800 and the bits, in UTF-8. */
    fprintf(out, "%c%c%c", 0xe2, (char)(0xa0 | (dots >> 6)),
            (char)(0x80 | (dots & 0x3f)));
}

static void put_row(FILE *out, const struct canvas *c, size_t row, bool unicode)
{
    for (size_t x = 0; x < c->columns; x++)
        if (unicode)
            put_braille(out, c, row, x);
        else
            fputc(c->set[row][x] ? '*' : ' ', out);
    fputc('\n', out);
}

void curve_draw(FILE *out, const double *values, size_t n, size_t columns, size_t rows,
                bool unicode)
{
    static struct canvas c; /* too large for a stack */
    double v[CURVE_MOST_COLUMNS * 2];
    double low, high;

    if (columns <= SCALE_COLUMNS + 2 || rows < 2 || n == 0)
        return;
    memset(&c, 0, sizeof c);
    c.columns = min_size(columns, CURVE_MOST_COLUMNS) - SCALE_COLUMNS;
    c.rows = min_size(rows, CURVE_MOST_ROWS);
    c.dots_x = unicode ? 2 : 1;
    c.dots_y = unicode ? 4 : 1;
    resample(values, n, v, c.columns * c.dots_x);
    if (!find_range(v, c.columns * c.dots_x, &low, &high))
        return;
    plot(&c, v, low, high);
    for (size_t row = 0; row < c.rows; row++) {
        bool scale = row == 0 || row + 1 == c.rows || row == c.rows / 2;
        double at = high - (high - low) * (double)row / (double)(c.rows - 1);

        if (scale)
            fprintf(out, "%*.4g ", SCALE_COLUMNS - 1, at);
        else
            fprintf(out, "%*s", SCALE_COLUMNS, "");
        put_row(out, &c, row, unicode);
    }
}
