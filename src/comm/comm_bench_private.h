/* comm_bench_private.h - what is measured, as lists of messages; no MPI in here. */
#ifndef WEFT_COMM_COMM_BENCH_PRIVATE_H
#define WEFT_COMM_COMM_BENCH_PRIVATE_H

#include "comm/comm_bench.h"

/* Which ranks are behind which link. */
struct bench_nodes {
    int ranks, nodes, hosts;
    int *node; /* [rank], numbered from 0 */
    int *host; /* [rank], numbered from 0 */
};

/* From the host number of each rank. Memory: bench_nodes_release() frees; allowed on a
 * zeroed struct. */
MUST_USE enum status bench_nodes_init(struct bench_nodes *n, int ranks, const int *host);
void bench_nodes_release(struct bench_nodes *n);

/* Members of group g of `of` (node or host) in rank order; returns their number. With out
 * NULL it counts. */
int bench_members(const struct bench_nodes *n, const int *of, int g, int *out);

/* Nodes of the i-th pair to measure: half of all nodes apart, so that long ways count. */
void bench_pair(int nodes, size_t i, int *a, int *b);

/* The i-th host, in turn, that has two ranks or more; -1 when none has. */
int bench_shared_host(const struct bench_nodes *n, size_t i);

/* What one rank sends and receives in one measurement: messages of equal length, in
 * order. Ranks that have messages or lead form the group that is measured. */
struct pattern {
    size_t bytes;
    int *to, *from; /* peers */
    size_t n_to, n_from, capacity;
};

MUST_USE enum status pattern_init(struct pattern *p, size_t capacity);
void pattern_release(struct pattern *p);

/* `count` messages from each rank of node a to its partner of node b, `ways` = 2: and
 * back. At most `most_pairs` ranks of a node take part; returns how many do. */
int pattern_stream(struct pattern *p, const struct bench_nodes *n, int rank, int a, int b,
                   int ways, int most_pairs, size_t count);

/* `count` messages from each rank of a host to the next. */
void pattern_ring(struct pattern *p, const struct bench_nodes *n, int rank, int host,
                  size_t count);

/* Every rank's part of `blocks` blocks to their roots: rank 0, or all ranks in turn. */
void pattern_roots(struct pattern *p, int ranks, int rank, size_t blocks, bool rotating);

/* Messages of pattern_roots that enter the busiest node from other nodes. */
size_t pattern_roots_entering(const struct bench_nodes *n, size_t blocks, bool rotating);

/* Messages in flight in each direction, and of those the ones to one rank. */
enum { BENCH_WINDOW_MOST = 64 };
size_t bench_window(size_t bytes);
size_t bench_peer_window(size_t bytes);

/* Bytes a second of contributions that this thread adds to a gradient of its own, as the
 * exchange does it for `ranks` ranks: one repetition of about 20 ms. `buffer` has
 * BENCH_SUM_FLOATS. */
enum { BENCH_SUM_FLOATS = 4 << 20 };
double bench_sum_Bps(float *buffer, int ranks);

#endif
