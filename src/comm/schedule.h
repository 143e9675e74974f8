/* schedule.h - what passes between which ranks in each round of an exchange.
 *
 * Derived from the plan alone; pure. The direct engine sends by it, the cost model
 * predicts by it, and the tests count the bytes on the wire against it.
 *
 * Reduction, round j: of the parts whose owners share digits 0 .. j - 1 with a rank, the
 * rank sends those whose owner's digit j differs to the rank with that digit and receives
 * from its partners what is like its own; then it adds. After the last round each part's
 * sum is at its owner. Return: the same backwards, from the last digit to the first; what
 * arrives in a round is passed on in the next.
 */
#ifndef WEFT_COMM_SCHEDULE_H
#define WEFT_COMM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/plan.h"

enum exchange_phase { PHASE_REDUCE, PHASE_RETURN };
enum { N_PHASES = 2 };

struct transfer {
    size_t block;
    size_t at, elems; /* within the block */
    int from, to;
};

struct transfers {
    struct transfer *list;
    size_t n, capacity;
};

/* Rounds of each phase: the digits of the grid. */
int schedule_rounds(const struct plan *p);
/* The digit in which the partners of a round differ. */
int schedule_digit(const struct plan *p, enum exchange_phase phase, int round);

/* Appends what `rank` sends (or receives) of a block in a round, in an order both sides
 * share. LOCAL. Returns ST_OK, ST_NOMEM. */
MUST_USE enum status schedule_sends(const struct plan *p, enum exchange_phase phase,
                                    int round, size_t block, int rank,
                                    struct transfers *out);
MUST_USE enum status schedule_receives(const struct plan *p, enum exchange_phase phase,
                                       int round, size_t block, int rank,
                                       struct transfers *out);
void transfers_release(struct transfers *t);

/* The extent [*at, *at + *elems) of a block that `rank` receives and adds in a round of
 * the reduction; *elems = 0 when nothing. */
void schedule_sum_range(const struct plan *p, int round, size_t block, int rank,
                        size_t *at, size_t *elems);

/* Bytes that `rank` puts on the wire in one round of the phase's rounds, all blocks:
 * elem_bytes an element, nothing for rounds inside a host when host_memory is shared
 * there. LOCAL. Returns ST_OK, ST_NOMEM. */
MUST_USE enum status schedule_bytes(const struct plan *p, enum exchange_phase phase,
                                    int rank, size_t elem_bytes, bool host_memory,
                                    uint64_t *bytes);

#endif
