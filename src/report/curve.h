/* curve.h - a curve as text: for those who watch a run in a terminal. */
#ifndef WEFT_REPORT_CURVE_H
#define WEFT_REPORT_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum { CURVE_MOST_COLUMNS = 400, CURVE_MOST_ROWS = 100 };

/* Draws n values, evenly spaced, as `rows` lines of at most `columns` characters, with
 * the scale to the left. unicode: braille patterns, eight dots a character; else '*'. A
 * column of dots stands for the mean of its values; what is not finite is left out, and
 * nothing is drawn when nothing is finite. */
void curve_draw(FILE *out, const double *values, size_t n, size_t columns, size_t rows,
                bool unicode);

#endif
