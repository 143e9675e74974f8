/* exchange_job.h - steps of reductions and returns as a training run makes them, for one
 * setting: the returns of one step beside the reductions of the next, called by several
 * threads in an order of each rank's own, with random delays. Every sum is compared with
 * one computed here, every parameter with its owner's.
 */
#ifndef WEFT_TESTS_EXCHANGE_JOB_H
#define WEFT_TESTS_EXCHANGE_JOB_H

#include "comm/comm.h"

/* Which ranks are said to share a host. */
enum hosts {
    HOSTS_APART,  /* none, whatever the machine is */
    HOSTS_PAIRS,  /* two a host, neighbours (an odd one is alone) */
    HOSTS_CYCLIC, /* ranks / 2 hosts in turn */
    HOSTS_ONE     /* all */
};

struct setting {
    enum strategy strategy;
    enum exchange_engine engine;
    enum grid_schedule schedule;
    enum exchange_wire wire;
    enum hosts hosts;
    bool visible; /* gradients, to the ranks of a host */
    bool shared;  /* one copy of the parameters a host */
    int roots;
    bool one_root, one_block;
    size_t block_bytes;
    bool storage; /* pieces apart in memory, in another order */
    bool whole;   /* whole numbers: their sum does not depend on the order */
    size_t return_first;
    size_t max_count, window_bytes;
    int tag_bound; /* what MPI is said to allow; 0: what it does */
    size_t scale;  /* of the slices' sizes */
    int steps;     /* with reductions; one more only returns */
};

/* Runs it. COLLECTIVE. Returns the wrong values seen by this rank; what cannot be on this
 * machine (no shared memory) is left out and counted in *left_out. */
size_t run_setting(struct comm *comm, const struct setting *s, size_t *left_out);

/* In words, for a failure. */
void describe_setting(const struct setting *s, char *out, size_t bytes);

#endif
