/* SPDX-License-Identifier: MIT */
#include "cmd/bench_check.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* Largest difference and largest wanted value so far. */
struct extremes {
    double difference, wanted;
};

static void compare(struct extremes *e, double got, double want)
{
    double difference = fabs(got - want);

    /* Written so that a NaN stays. */
    if (!(difference <= e->difference))
        e->difference = isnan(e->difference) ? e->difference : difference;
    e->wanted = fmax(e->wanted, fabs(want));
}

static double error_of(const struct extremes *e)
{
    double error = e->wanted > 0 ? e->difference / e->wanted : e->difference;

    return isfinite(error) ? error : (double)INFINITY;
}

double check_error(const float *got, const double *want, size_t n)
{
    struct extremes e = {0};

    for (size_t i = 0; i < n; i++)
        compare(&e, (double)got[i], want[i]);
    return error_of(&e);
}

/* op(A)[i][l] at A[i * a_row + l * a_k], op(B)[l][j] at B[l * b_k + j * b_column]. */
struct steps {
    size_t a_row, a_k, b_k, b_column;
};

static struct steps steps_of(const struct model_product *p)
{
    return (struct steps){.a_row = p->ta ? 1 : p->lda,
                          .a_k = p->ta ? p->lda : 1,
                          .b_k = p->tb ? 1 : p->ldb,
                          .b_column = p->tb ? p->ldb : 1};
}

/* Four sums at once: one would wait for its own last addition. */
static double dot(const float *a, size_t a_step, const float *b, size_t b_step, size_t k)
{
    double sum[4] = {0};
    size_t l = 0;

    for (; l + 4 <= k; l += 4)
        for (size_t i = 0; i < 4; i++)
            sum[i] += (double)a[(l + i) * a_step] * (double)b[(l + i) * b_step];
    for (; l < k; l++)
        sum[0] += (double)a[l * a_step] * (double)b[l * b_step];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* One row of the result, n elements. */
static void reference_row(const struct model_product *p, const float *A, const float *B,
                          const float *before, size_t i, double *row)
{
    struct steps s = steps_of(p);

    for (size_t j = 0; j < p->n; j++)
        row[j] = p->beta != 0 ? (double)p->beta * (double)before[i * p->ldc + j] : 0;
    if (s.b_k == 1) {
        for (size_t j = 0; j < p->n; j++)
            row[j] += dot(A + i * s.a_row, s.a_k, B + j * s.b_column, 1, p->k);
        return;
    }
    for (size_t l = 0; l < p->k; l++) {
        double a = (double)A[i * s.a_row + l * s.a_k];

        for (size_t j = 0; j < p->n; j++)
            row[j] += a * (double)B[l * s.b_k + j];
    }
}

/* One column of the result, m elements. */
static void reference_column(const struct model_product *p, const float *A,
                             const float *B, const float *before, size_t j,
                             double *column)
{
    struct steps s = steps_of(p);

    for (size_t i = 0; i < p->m; i++)
        column[i] = p->beta != 0 ? (double)p->beta * (double)before[i * p->ldc + j] : 0;
    if (s.a_k == 1) {
        for (size_t i = 0; i < p->m; i++)
            column[i] += dot(A + i * s.a_row, 1, B + j * s.b_column, s.b_k, p->k);
        return;
    }
    for (size_t l = 0; l < p->k; l++) {
        double b = (double)B[l * s.b_k + j * s.b_column];

        for (size_t i = 0; i < p->m; i++)
            column[i] += (double)A[i + l * s.a_k] * b;
    }
}

/* How many of `most` lines at `cost` each, first and last among them. */
static size_t lines_for(double budget, double cost, size_t most)
{
    double lines = budget / cost;

    return lines >= (double)most ? most : max_size(min_size(2, most), (size_t)lines);
}

static size_t line_at(size_t i, size_t lines, size_t most)
{
    return lines > 1 ? i * (most - 1) / (lines - 1) : 0;
}

enum status check_product(const struct model_product *p, const float *A, const float *B,
                          const float *before, const float *got, double budget,
                          double *error)
{
    double k = (double)max_size(p->k, 1);
    size_t rows = lines_for(budget / 2, (double)p->n * k, p->m);
    size_t columns = rows < p->m ? lines_for(budget / 2, (double)p->m * k, p->n) : 0;
    struct extremes e = {0};
    double *line;
    enum status st =
        memory_alloc(max_size(p->m, p->n), sizeof *line, "reference product", &line);

    if (st != ST_OK)
        return st;
    for (size_t r = 0; r < rows; r++) {
        size_t i = line_at(r, rows, p->m);

        reference_row(p, A, B, before, i, line);
        for (size_t j = 0; j < p->n; j++)
            compare(&e, (double)got[i * p->ldc + j], line[j]);
    }
    for (size_t c = 0; c < columns; c++) {
        size_t j = line_at(c, columns, p->n);

        reference_column(p, A, B, before, j, line);
        for (size_t i = 0; i < p->m; i++)
            compare(&e, (double)got[i * p->ldc + j], line[i]);
    }
    free(line);
    *error = error_of(&e);
    return ST_OK;
}

/* Rounding errors of k additions are about eps sqrt(k) beside a sum of random terms;
 * measured, they are a fifth of this or less. One product too few or too many is 1 / (4
 * sqrt(k)) of the largest sum, far above it for any k below a million. */
double check_product_limit(size_t k)
{
    return 5e-7 + 2e-7 * sqrt((double)k);
}
