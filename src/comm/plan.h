/* plan.h - how the gradients are cut into communication blocks, and who owns what of
 * each.
 *
 * Needs base only: rank counts arrive as ints, so that the plan is tested without MPI.
 *
 * The gradients are one vector of n elements in *production order* (order (b) of the
 * glossary in docs/ARCHITECTURE.md): the order in which backward finishes them. The
 * caller describes it as consecutive slices, each with its place in memory. The vector is
 * cut into communication blocks of nearly equal length, and each block into *parts*, each
 * with an *owner*: the rank that has the part's sum after the reduction, updates it, and
 * from which it returns to all. The strategy says how (strategy.h).
 *
 * Invariants: blocks are disjoint, in order, and cover [0, n), parts cover their block
 * likewise; none is empty; every boundary but the last is a multiple of 16 elements (64
 * bytes); lengths of blocks differ by at most 16 elements, and so do those of the parts
 * of a block. Where each block has few owners the number of blocks is such that owners
 * take turns a whole number of times: the busiest has at most 1 % more than the mean
 * where a part holds 64 KiB. A vector of fewer than 16 P elements leaves ranks without a
 * part.
 */
#ifndef WEFT_COMM_PLAN_H
#define WEFT_COMM_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "comm/grid.h"
#include "comm/strategy.h"

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
    size_t at; /* first element, from the start of the block */
};

/* A contiguous run of one block in memory: one or several segments that adjoin. */
struct plan_piece {
    size_t offset; /* first element, from the base of the parameters */
    size_t elems;
    size_t at; /* first element, from the start of the block */
};

/* A contiguous run of one block that has one owner. */
struct plan_part {
    size_t at; /* first element, from the start of the block */
    size_t elems;
    int owner;
};

struct plan_block {
    size_t begin; /* first element in production order */
    size_t elems;
    size_t first_segment, n_segments; /* into plan->segments, in production order */
    size_t first_piece, n_pieces;     /* into plan->pieces, in production order */
    size_t first_part, n_parts;       /* into plan->parts, in production order */
};

struct plan_options {
    enum strategy strategy;
    const struct grid *grid;
    size_t block_bytes; /* >= 64; about this long, fp32 elements */
    int roots;          /* reduce-broadcast: owners of a block, 1 .. P; 0 = 1 */
    bool one_block;     /* the whole vector as one block, whatever block_bytes */
    bool one_root;      /* reduce-broadcast: rank 0 owns all (for comparison) */
    /* Blocks with the first so many elements return before all others: those of a tensor
     * that is produced first and needed first. */
    size_t return_first;
};

struct plan {
    enum strategy strategy;
    bool replicated; /* every rank updates everything: the sums return, not parameters */
    struct grid grid;
    int ranks;
    size_t elems; /* n */
    size_t n_blocks;
    struct plan_block *blocks;
    size_t n_return_first; /* blocks 0 .. n - 1 return before all others */
    size_t n_segments;
    struct plan_segment *segments;
    size_t n_pieces;
    struct plan_piece *pieces;
    size_t n_parts;
    struct plan_part *parts;
};

/* Builds the plan.
 *
 * The count of blocks is the one nearest to n * 4 / block_bytes, at least 1 and at most
 * u = n / 16 - in whole turns of the owners where the strategy wants it. Block i covers
 * the 16-element units floor(i * u / count) .. floor((i + 1) * u / count). No length is
 * limited: what MPI can count is the exchange's business.
 *
 * Call     LOCAL, pure: same arguments give the same plan on every rank
 * Out      *p, overwritten; zeroed on failure
 * Returns  ST_OK, ST_USAGE for a block size below 64 bytes or roots out of range,
 * ST_NOMEM Memory   plan_release() frees; allowed on a zeroed plan */
MUST_USE enum status plan_init(struct plan *p, const struct plan_slice *slices,
                               size_t n_slices, const struct plan_options *options);
void plan_release(struct plan *p);

/* Elements that `rank` owns. */
size_t plan_owned_elems(const struct plan *p, int rank);
/* Elements that `rank` updates and keeps moments of: what it owns, or all. The moments
 * lie one part after another in production order. */
size_t plan_updated_elems(const struct plan *p, int rank);
bool plan_updates(const struct plan *p, const struct plan_part *part, int rank);
/* True when `rank` owns all parts of the block. */
bool plan_owns_block(const struct plan *p, size_t block, int rank);

/* The block that returns as number i: the last of production order is needed first. */
size_t plan_return_order(const struct plan *p, size_t i);

/* Largest plan_owned_elems over the mean of all ranks; 1.0 is perfect (and the value for
 * n = 0). `central` is P by intention. */
double plan_imbalance(const struct plan *p);

/* Walks the segments of a block that lie in [at, at + elems), cut to it:
 *     struct plan_cursor c = plan_walk(plan, block, at, elems);
 *     for (struct plan_segment s; plan_next(&c, &s);) */
struct plan_cursor {
    const struct plan *plan;
    size_t segment, end_segment;
    size_t begin, end; /* from the start of the block */
};
struct plan_cursor plan_walk(const struct plan *p, size_t block, size_t at, size_t elems);
bool plan_next(struct plan_cursor *c, struct plan_segment *out);

#endif
