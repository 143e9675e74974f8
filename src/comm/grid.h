/* grid.h - the ranks of a job as numbers with several digits, one a round.
 *
 * An exchange of a block goes in rounds; in round j the ranks that differ in digit j
 * alone trade with one another, directly. One digit with radix P is the flat exchange
 * (everyone with everyone, one round); digits of radix 2 are recursive halving and
 * doubling (Rabenseifner, "Optimization of Collective Reduction Operations", 2004),
 * nearest partner first; a first digit that counts the ranks of one host keeps that round
 * inside the host.
 *
 * Pure: rank and host numbers arrive as ints.
 */
#ifndef WEFT_COMM_GRID_H
#define WEFT_COMM_GRID_H

#include <stdbool.h>

#include "base/status.h"

enum { GRID_MAX_DIGITS = 32 };

enum grid_schedule {
    SCHEDULE_AUTO,     /* flat up to 8 hosts (or ranks), recursive above */
    SCHEDULE_FLAT,     /* one round */
    SCHEDULE_RECURSIVE /* a round for each prime factor: halving and doubling for 2^n */
};

struct grid {
    int ranks;
    int n_digits; /* >= 1; with one rank one digit of radix 1 */
    int radix[GRID_MAX_DIGITS];
    int host_ranks; /* ranks a host that digit 0 counts; 1: digit 0 crosses hosts */
    int *place;     /* [rank] its number in the grid: digit 0 counts fastest */
    int *rank;      /* [place] */
};

/* Builds the grid of `ranks` ranks. With host (the host number of each rank, from 0 and
 * without gaps) the ranks of a host share all digits but digit 0, when there is more than
 * one a host and the same number on each; else, and with host NULL, no digit is kept
 * inside hosts.
 * Memory   grid_release() frees; allowed on a zeroed grid */
MUST_USE enum status grid_init(struct grid *g, int ranks, const int *host,
                               enum grid_schedule schedule);
MUST_USE enum status grid_copy(struct grid *to, const struct grid *from);
void grid_release(struct grid *g);

/* Digit j of a rank's place. */
int grid_digit(const struct grid *g, int rank, int j);
/* The rank whose place differs from that of `rank` in digit j alone, where it is d. */
int grid_with_digit(const struct grid *g, int rank, int j, int d);
/* True when digits 0 .. n - 1 of both ranks are the same. */
bool grid_same_digits(const struct grid *g, int a, int b, int n);
/* Rank number i when digit 0 counts slowest: neighbours in this order share their first
 * digits, so what goes to one partner in a round adjoins. */
int grid_nested(const struct grid *g, int i);
/* Rank number i when the host counts fastest: neighbours are on different hosts. */
int grid_spread(const struct grid *g, int i);
/* True when round j stays inside hosts. */
bool grid_inside_host(const struct grid *g, int j);

#endif
