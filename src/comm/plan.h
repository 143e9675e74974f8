/* plan.h - which part of the gradients goes to which root rank, in what order.
 *
 * Needs base only: rank counts arrive as ints, so that the plan is tested without MPI.
 *
 * The gradients are one vector of n elements in *production order* (order (b) of the
 * glossary in docs/ARCHITECTURE.md): the order in which backward finishes them. The
 * caller describes it as consecutive slices, each with its place in memory. The vector is
 * cut into communication blocks of nearly equal length; block i has root i mod P.
 *
 * Invariants: blocks are disjoint, in order, and cover [0, n); none is empty; every
 * boundary but the last is a multiple of 16 elements (64 bytes); lengths differ by at
 * most 16 elements, so that the busiest root has at most 1 % more than the mean where a
 * block holds 64 KiB; the number of blocks is a multiple of P, or n / 16 where that is
 * less than P: then the last ranks are root of nothing.
 */
#ifndef WEFT_COMM_PLAN_H
#define WEFT_COMM_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { PLAN_ALIGN_ELEMS = 16 };

/* One slice of production order. */
struct plan_slice {
    size_t elems;         /* a multiple of PLAN_ALIGN_ELEMS, or 0: no segment then */
    size_t memory_offset; /* [elements] from the base of the parameters */
};

/* A contiguous run of one block inside one slice. */
struct plan_segment {
    size_t slice;  /* index into the slices given */
    size_t offset; /* first element, from the base of the parameters */
    size_t elems;
};

/* A contiguous run of one block in memory: one or several segments that adjoin. */
struct plan_piece {
    size_t offset; /* first element, from the base of the parameters */
    size_t elems;
};

struct plan_block {
    size_t begin; /* first element in production order */
    size_t elems;
    int root;
    size_t first_segment, n_segments; /* into plan->segments, in production order */
    size_t first_piece, n_pieces;     /* into plan->pieces, in production order */
};

struct plan {
    int ranks;
    size_t elems; /* n */
    size_t n_blocks;
    struct plan_block *blocks;
    size_t n_segments;
    struct plan_segment *segments;
    size_t n_pieces;
    struct plan_piece *pieces;
};

/* Builds the plan for `ranks` ranks and blocks of about block_bytes (fp32 elements).
 *
 * The count of blocks is the multiple of `ranks` nearest to n * 4 / block_bytes, at least
 * `ranks` and at most u = n / 16; SIZE_MAX therefore means one block a rank. Block i
 * covers the 16-element units floor(i * u / count) .. floor((i + 1) * u / count). No
 * length is limited: what MPI can count is the exchange's business.
 *
 * Call     LOCAL, pure: same arguments give the same plan on every rank
 * In       ranks >= 1; block_bytes >= 64; with one_block the whole vector is a single
 *          block with root 0, whatever block_bytes (for comparison)
 * Out      *p, overwritten; zeroed on failure
 * Returns  ST_OK, ST_USAGE for a block size below 64 bytes, ST_NOMEM
 * Memory   plan_release() frees; allowed on a zeroed plan */
MUST_USE enum status plan_init(struct plan *p, const struct plan_slice *slices,
                               size_t n_slices, int ranks, size_t block_bytes,
                               bool one_block);
void plan_release(struct plan *p);

/* Elements whose root is `rank`. */
size_t plan_root_elems(const struct plan *p, int rank);

/* Largest plan_root_elems over the mean of all ranks; 1.0 is perfect (and the value for
 * n = 0). */
double plan_imbalance(const struct plan *p);

#endif
