/* bench_kernel_cases.h - every kernel of kernels.h as something to judge and to time.
 *
 * A case works on a *tile*: arrays that lie one behind the other in one piece of memory,
 * each of some elements and some more for every row. One tile in a cache, or many that
 * are gone through in turn, are the two places a kernel is timed in.
 */
#ifndef WEFT_CMD_BENCH_KERNEL_CASES_H
#define WEFT_CMD_BENCH_KERNEL_CASES_H

#include <stddef.h>

#include "base/memory.h"
#include "kernels/kernels.h"

/* What the kernel does to an array, and what is in it at first: numbers in [-1, 1),
 * those above 0, or integers below the number of rows. */
enum array_kind {
    ARRAY_IN,
    ARRAY_IN_POSITIVE,
    ARRAY_IN_INDEX, /* int32_t */
    ARRAY_OUT,
    ARRAY_INOUT,
    ARRAY_INOUT_POSITIVE,
    ARRAY_WORK /* no traffic that counts */
};

struct case_array {
    enum array_kind kind;
    size_t fixed, per_row; /* elements */
};

enum { CASE_ARRAYS = 9 };

/* One head has D = C / H columns; cols is the width of a tile of logits. */
struct case_sizes {
    size_t C, H, T, cols;
};

struct case_tile {
    const struct case_sizes *sizes;
    size_t rows;
    float *a[CASE_ARRAYS];
};

/* The loop of ceiling.h that a case is held against. */
enum case_ceiling { CASE_READ, CASE_COPY, CASE_TRIAD, CASE_UPDATE, CASE_FMA };

struct kernel_case {
    const char *name; /* member of struct kernels */
    enum case_ceiling ceiling;
    size_t (*arrays)(const struct case_sizes *s, struct case_array *out);
    /* Whole sequences: a tile has T rows. Else as many as its place has room for. */
    bool sequence;
    /* Inputs that follow from others; NULL: there are none. */
    void (*prepare)(const struct kernels *k, const struct case_tile *t);
    void (*run)(const struct kernels *k, const struct case_tile *t);
    /* Largest error of what was written, by the definitions in double; `before` is a copy
     * of the tile before the run. scratch: case_scratch_bytes(). */
    double (*judge)(const struct case_tile *before, const struct case_tile *after,
                    struct arena *scratch);
};

extern const struct kernel_case kernel_cases[];
extern const size_t n_kernel_cases;

/* Rows of a tile of about `bytes`, at least one. */
size_t case_rows(const struct kernel_case *c, const struct case_sizes *s, size_t bytes);

/* Places the arrays in `base` (NULL: only counts); returns the floats that they take. */
size_t case_place(const struct kernel_case *c, const struct case_sizes *s, size_t rows,
                  float *base, struct case_tile *out);

/* First contents, the same for every tile of the same shape. */
void case_fill(const struct kernel_case *c, const struct case_tile *t);

/* Operations of a tile (CASE_FMA), or the bytes that must be read and written once. */
double case_work(const struct kernel_case *c, const struct case_sizes *s, size_t rows);

size_t case_scratch_bytes(const struct kernel_case *c, const struct case_sizes *s,
                          size_t rows);

#endif
