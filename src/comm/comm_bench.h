/* comm_bench.h - what the network between the ranks of a job can do, measured.
 *
 * Messages are MPI's own, made by the communication thread, which waits for them as it
 * does in training: so the figures are what an exchange can get, not what the wire is
 * sold for. Latency alone is measured without naps.
 *
 * A *node* is a host, or a rank where all ranks share one host. Link figures are those of
 * a node's link to the others, each direction for itself, however many ranks are behind
 * it.
 */
#ifndef WEFT_COMM_COMM_BENCH_H
#define WEFT_COMM_COMM_BENCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "comm/comm.h"

/* Of the repetitions of one measurement; NaN where it was not made. */
struct bench_spread {
    double median, least, most;
};

struct network_size {
    size_t bytes;                      /* of a message */
    struct bench_spread latency_s;     /* half a round trip, between nodes; up to 1 MiB */
    struct bench_spread one_way_Bps;   /* a link, while the other direction is quiet */
    struct bench_spread both_ways_Bps; /* each direction of a link, both busy */
    struct bench_spread
        message_s; /* CPU time of a rank for a message, sent or received */
};

enum { NETWORK_MAX_SIZES = 32 };

struct network_options {
    size_t sizes[NETWORK_MAX_SIZES]; /* ascending, 1 .. NETWORK_MAX_BYTES each */
    size_t n_sizes;                  /* >= 1 */
    size_t repeat;                   /* repetitions of each measurement, >= 1 */
};

#define NETWORK_MAX_BYTES ((size_t)1 << 30)

struct network_figures {
    int ranks, hosts;
    bool links_join_hosts; /* nodes are hosts */

    struct network_size sizes[NETWORK_MAX_SIZES];
    size_t n_sizes; /* measured ones come first; fewer than asked where ... */
    bool is_cut;    /* ... the longest would have taken too long */

    struct bench_spread latency_s;      /* 8 bytes, between nodes */
    struct bench_spread bandwidth_Bps;  /* both_ways_Bps of the best size */
    struct bench_spread one_way_Bps;    /* one_way_Bps of the best size */
    struct bench_spread host_latency_s; /* 8 bytes, between ranks of a host */
    struct bench_spread
        host_bandwidth_Bps; /* each rank and direction, a whole host busy */

    /* The same blocks from all ranks to one root, and to roots that take turns. */
    size_t root_block_bytes, root_blocks;
    struct bench_spread congested_Bps; /* into the node of the only root */
    struct bench_spread rotating_Bps;  /* into the busiest node while roots take turns */
    struct bench_spread congestion;    /* time with one root / time with turns */

    struct bench_spread sum_Bps;     /* one worker: bytes of contributions added */
    double message_s;                /* CPU time of a rank for the shortest message ... */
    double byte_s;                   /* ... and for each byte of the longest */
    struct bench_spread barrier_s;   /* all ranks, the thread as in training */
    struct bench_spread agreement_s; /* five doubles added, callers asleep */
};

/* Tells how far the measurements are: `done` of `total`, about equal in time. */
typedef void (*bench_progress)(void *arg, double done, double total);

/* Measures everything. On links of 1 Gbit/s it takes about 15 seconds with the sizes 64 B
 * to 64 MiB and five repetitions.
 * Call     COLLECTIVE, SAME options; nothing else in flight
 * Out      the same figures on all ranks
 * Returns  ST_OK; ST_USAGE with one rank, ST_NOMEM; with the same text on all ranks,
 *          nothing printed */
MUST_USE enum status comm_bench_network(struct comm *c, const struct network_options *o,
                                        bench_progress progress, void *arg,
                                        struct network_figures *out);

/* A job of this rank alone, to measure what a step takes without its exchange. Other
 * threads than the communication thread use it as they use a job; its end comes before
 * comm_stop(c). LOCAL. */
MUST_USE enum status comm_alone_new(struct comm *c, struct comm **out);
void comm_alone_free(struct comm *c, struct comm *alone); /* NULL allowed */

/* Median, least and most of n values, which it sorts; NaN for n = 0. */
struct bench_spread bench_spread_of(double *values, size_t n);

#endif
