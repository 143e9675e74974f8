/* SPDX-License-Identifier: MIT */
/* The measurements. Every rank makes every call in the same order and comes to the same
 * figures, from which the length of later measurements follows. */
#include "comm/comm_bench.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm_bench_move.h"

enum { SMALL_BYTES = 8, MOST_PAIRS = 1 << 20, MOST_MESSAGES = 20000 };

static const double measure_s = 0.04;        /* aimed at for one repetition */
static const double longest_message_s = 1.5; /* sizes that take longer are left out */
static const double longest_size_s = 4;      /* of all repetitions of one size */
static const size_t latency_most_bytes = (size_t)1 << 20;

enum { N_VALUES = 4 };

struct bench {
    struct comm *comm;
    const struct network_options *options;
    struct network_figures *out;
    struct bench_nodes nodes;
    struct mover mover;
    double *values[N_VALUES]; /* [repeat] */
    bench_progress progress;
    void *arg;
    double done, total;
};

/* Adds the first `most` ranks of group g to those that take part. */
static void add_group(struct mover *m, const struct bench_nodes *nodes, const int *of,
                      int g, int most)
{
    int n = bench_members(nodes, of, g, m->group + m->n_group);

    m->n_group += n < most ? n : most;
}

static void tell(struct bench *b)
{
    b->done++;
    if (b->progress)
        b->progress(b->arg, b->done, b->total);
}

/* ---- latency ---- */

static int first_rank(const struct bench *b, int node)
{
    int r = 0;

    while (b->nodes.node[r] != node)
        r++;
    return r;
}

static struct bench_spread latency_of_links(struct bench *b, size_t bytes, size_t trips)
{
    size_t n = b->options->repeat;

    for (size_t i = 0; i < n; i++) {
        int node_a, node_b;

        bench_pair(b->nodes.nodes, i, &node_a, &node_b);
        b->values[0][i] = mover_trips(&b->mover, first_rank(b, node_a),
                                      first_rank(b, node_b), bytes, trips);
    }
    return bench_spread_of(b->values[0], n);
}

static struct bench_spread latency_in_hosts(struct bench *b)
{
    size_t n = bench_shared_host(&b->nodes, 0) < 0 ? 0 : b->options->repeat;

    for (size_t i = 0; i < n; i++) {
        int host = bench_shared_host(&b->nodes, i);
        const int *members = b->mover.group;

        (void)bench_members(&b->nodes, b->nodes.host, host, b->mover.group);
        b->values[0][i] =
            mover_trips(&b->mover, members[0], members[1], SMALL_BYTES, MOVER_MOST_TRIPS);
    }
    return bench_spread_of(b->values[0], n);
}

static void measure_latency(struct bench *b)
{
    b->out->latency_s = latency_of_links(b, SMALL_BYTES, MOVER_MOST_TRIPS);
    b->out->host_latency_s = latency_in_hosts(b);
    tell(b);
}

/* ---- bandwidth by size ---- */

/* Ranks of a node that stream at once: not so many that buffers take all memory. */
static int most_pairs(size_t bytes)
{
    const size_t node_bytes = (size_t)256 << 20;

    return (int)min_size(MOST_PAIRS, max_size(1, node_bytes / bytes));
}

/* Sets the i-th pair of nodes, `count` messages a rank; returns how many ranks of a node
 * take part. */
static int set_stream(struct bench *b, size_t i, int ways, size_t bytes, size_t count)
{
    struct mover *m = &b->mover;
    int node_a, node_b;

    bench_pair(b->nodes.nodes, i, &node_a, &node_b);
    m->pattern.bytes = bytes;
    int pairs = pattern_stream(&m->pattern, &b->nodes, b->comm->rank, node_a, node_b,
                               ways, most_pairs(bytes), count);

    m->n_group = 0;
    add_group(m, &b->nodes, b->nodes.node, node_a, pairs);
    add_group(m, &b->nodes, b->nodes.node, node_b, pairs);
    return pairs;
}

/* Bytes a second of one direction of a link. */
static double stream_Bps(struct bench *b, size_t i, int ways, size_t bytes, size_t count,
                         double *message_s)
{
    int pairs = set_stream(b, i, ways, bytes, count);
    double seconds = mover_move(&b->mover, message_s);

    return (double)pairs * (double)count * (double)bytes / seconds;
}

/* Messages a rank for one repetition, from what one message is thought to take. */
static size_t messages_for(double message_s, size_t bytes)
{
    size_t least = bytes <= (size_t)1 << 20 ? 8 : bytes <= (size_t)4 << 20 ? 2 : 1;
    double wanted = measure_s / message_s;

    return wanted < (double)MOST_MESSAGES ? max_size(least, (size_t)wanted)
                                          : MOST_MESSAGES;
}

/* Repetitions so that a size does not take for ever. */
static size_t repetitions_for(const struct bench *b, double seconds)
{
    double fitting = longest_size_s / (2 * seconds);
    size_t n = fitting < 2 ? 2 : fitting > 1e6 ? 1000000 : (size_t)fitting;

    return min_size(n, b->options->repeat);
}

/* `message_s`: what a message of this size is thought to take on its rank's way. */
static void measure_size(struct bench *b, size_t bytes, double message_s,
                         struct network_size *out)
{
    size_t count = messages_for(message_s, bytes);
    size_t n = repetitions_for(b, message_s * (double)count);

    *out = (struct network_size){.bytes = bytes};
    for (size_t i = 0; i < n; i++) {
        b->values[1][i] = stream_Bps(b, i, 1, bytes, count, &b->values[3][i]);
        b->values[2][i] = stream_Bps(b, i, 2, bytes, count, NULL);
    }
    out->one_way_Bps = bench_spread_of(b->values[1], n);
    out->both_ways_Bps = bench_spread_of(b->values[2], n);
    out->message_s = bench_spread_of(b->values[3], n);
    out->latency_s = bench_spread_of(NULL, 0);
    if (bytes <= latency_most_bytes) {
        double trips = measure_s / 2 / fmax(message_s, b->out->latency_s.median);

        out->latency_s = latency_of_links(
            b, bytes, min_size(MOVER_MOST_TRIPS, max_size(5, (size_t)trips)));
    }
}

static void measure_sizes(struct bench *b)
{
    const double first_message_s = 5e-6;
    struct network_figures *out = b->out;
    double message_s = first_message_s;
    double link_Bps = INFINITY;

    for (size_t i = 0; i < b->options->n_sizes; i++) {
        size_t bytes = b->options->sizes[i];
        double pairs = set_stream(b, 0, 1, bytes, 0);

        message_s = fmax(message_s, pairs * (double)bytes / link_Bps);
        if (i > 0 && message_s > longest_message_s) {
            out->is_cut = true;
            return;
        }
        measure_size(b, bytes, message_s, &out->sizes[out->n_sizes++]);
        link_Bps = out->sizes[i].both_ways_Bps.median;
        message_s = pairs * (double)bytes / link_Bps;
        tell(b);
    }
}

static void summarise_sizes(struct network_figures *f)
{
    const struct network_size *first = &f->sizes[0];
    const struct network_size *last = &f->sizes[f->n_sizes - 1];

    f->bandwidth_Bps = first->both_ways_Bps;
    f->one_way_Bps = first->one_way_Bps;
    for (size_t i = 1; i < f->n_sizes; i++) {
        if (f->sizes[i].both_ways_Bps.median > f->bandwidth_Bps.median)
            f->bandwidth_Bps = f->sizes[i].both_ways_Bps;
        if (f->sizes[i].one_way_Bps.median > f->one_way_Bps.median)
            f->one_way_Bps = f->sizes[i].one_way_Bps;
    }
    f->message_s = first->message_s.median;
    f->byte_s = last == first ? NAN
                              : fmax(0, last->message_s.median - f->message_s) /
                                    (double)(last->bytes - first->bytes);
}

/* ---- inside hosts ---- */

static void measure_hosts(struct bench *b)
{
    const size_t bytes = (size_t)1 << 20;
    const size_t count = 64;
    size_t n = bench_shared_host(&b->nodes, 0) < 0 ? 0 : b->options->repeat;

    for (size_t i = 0; i < n; i++) {
        int host = bench_shared_host(&b->nodes, i);

        b->mover.pattern.bytes = bytes;
        pattern_ring(&b->mover.pattern, &b->nodes, b->comm->rank, host, count);
        b->mover.n_group = 0;
        add_group(&b->mover, &b->nodes, b->nodes.host, host, b->comm->size);
        b->values[0][i] = (double)(count * bytes) / mover_move(&b->mover, NULL);
    }
    b->out->host_bandwidth_Bps = bench_spread_of(b->values[0], n);
    tell(b);
}

/* ---- one root against roots that take turns ---- */

/* Blocks of 1 MiB, of fewer bytes where one root would take seconds for them. */
static void size_blocks(struct bench *b)
{
    const size_t usual_bytes = (size_t)1 << 20;
    const double longest_s = 1;
    const double shortest_s = 0.2;
    double ranks = b->comm->size;
    double turn = ranks * (ranks - 1); /* messages while each rank is root once */
    double budget = longest_s * b->out->bandwidth_Bps.median / turn;
    size_t bytes = budget < (double)usual_bytes ? (size_t)budget / 64 * 64 : usual_bytes;

    bytes = max_size(1024, bytes);
    double turns = shortest_s * b->out->bandwidth_Bps.median / turn / (double)bytes;

    b->out->root_block_bytes = bytes;
    b->out->root_blocks = (size_t)ranks * (turns < 1 ? 1 : turns > 8 ? 8 : (size_t)turns);
}

static double measure_roots(struct bench *b, bool rotating, double *entering_Bps)
{
    struct mover *m = &b->mover;
    size_t blocks = b->out->root_blocks;

    m->pattern.bytes = b->out->root_block_bytes;
    pattern_roots(&m->pattern, b->comm->size, b->comm->rank, blocks, rotating);
    m->n_group = b->comm->size;
    for (int r = 0; r < m->n_group; r++)
        m->group[r] = r;
    double seconds = mover_move(m, NULL);

    *entering_Bps = (double)pattern_roots_entering(&b->nodes, blocks, rotating) *
                    (double)m->pattern.bytes / seconds;
    return seconds;
}

static enum status measure_congestion(struct bench *b)
{
    size_t n = b->options->repeat;
    double ignored;
    enum status st;

    size_blocks(b);
    pattern_release(&b->mover.pattern);
    st = comm_share(b->comm, pattern_init(&b->mover.pattern,
                                          b->out->root_blocks * (size_t)b->comm->size));
    if (st != ST_OK)
        return st;
    (void)measure_roots(b, true, &ignored); /* connects all ranks */
    for (size_t i = 0; i < n; i++) {
        double one_s = measure_roots(b, false, &b->values[0][i]);
        double turns_s = measure_roots(b, true, &b->values[1][i]);

        b->values[2][i] = one_s / turns_s;
    }
    b->out->congested_Bps = bench_spread_of(b->values[0], n);
    b->out->rotating_Bps = bench_spread_of(b->values[1], n);
    b->out->congestion = bench_spread_of(b->values[2], n);
    tell(b);
    return ST_OK;
}

/* ---- sums, barrier, agreement ---- */

static void measure_sums(struct bench *b)
{
    float *buffer = (float *)b->mover.buffer[1];
    bool adds = b->comm->rank == 0; /* alone: its worker shares memory with no other */
    size_t n = b->options->repeat;

    if (adds)
        (void)bench_sum_Bps(buffer, b->comm->size); /* touches the memory */
    for (size_t i = 0; i < n; i++)
        b->values[0][i] = adds ? bench_sum_Bps(buffer, b->comm->size) : 0;
    comm_sum(b->comm, b->values[0], n);
    b->out->sum_Bps = bench_spread_of(b->values[0], n);
}

static double measure_agreement(struct bench *b)
{
    enum { ROUNDS = 20 };
    double start_s = clock_s();
    double mean_s;

    for (int i = 0; i < ROUNDS; i++) {
        double five[5] = {0};

        comm_sum(b->comm, five, 5);
    }
    mean_s = (clock_s() - start_s) / (double)ROUNDS;
    comm_max(b->comm, &mean_s, 1);
    return mean_s;
}

static void measure_rounds(struct bench *b)
{
    size_t n = b->options->repeat;

    for (size_t i = 0; i < n; i++) {
        b->values[0][i] = mover_barriers(&b->mover);
        b->values[1][i] = measure_agreement(b);
    }
    b->out->barrier_s = bench_spread_of(b->values[0], n);
    b->out->agreement_s = bench_spread_of(b->values[1], n);
    tell(b);
}

/* ---- all together ---- */

static size_t buffer_bytes_for(const struct network_options *o)
{
    size_t most = BENCH_SUM_FLOATS * sizeof(float);

    for (size_t i = 0; i < o->n_sizes; i++)
        most = max_size(most, bench_window(o->sizes[i]) * o->sizes[i]);
    return most;
}

static enum status prepare(struct bench *b)
{
    enum status st =
        bench_nodes_init(&b->nodes, b->comm->size, comm_host_numbers(b->comm));

    if (st == ST_OK)
        st = pattern_init(&b->mover.pattern, MOST_MESSAGES);
    for (int i = 0; i < N_VALUES && st == ST_OK; i++)
        st = memory_alloc(b->options->repeat, sizeof *b->values[i], "figures",
                          &b->values[i]);
    return st;
}

static enum status measure_all(struct bench *b)
{
    enum status st;

    b->out->hosts = b->nodes.hosts;
    b->out->links_join_hosts = b->nodes.hosts > 1;
    measure_latency(b);
    measure_sizes(b);
    summarise_sizes(b->out);
    measure_hosts(b);
    st = measure_congestion(b);
    if (st != ST_OK)
        return st;
    measure_sums(b);
    measure_rounds(b);
    return ST_OK;
}

enum status comm_bench_network(struct comm *c, const struct network_options *o,
                               bench_progress progress, void *arg,
                               struct network_figures *out)
{
    enum { OTHER_PHASES = 4 };
    struct bench b = {.comm = c,
                      .options = o,
                      .out = out,
                      .progress = progress,
                      .arg = arg,
                      .total = (double)(o->n_sizes + OTHER_PHASES)};
    enum status st;

    *out = (struct network_figures){.ranks = c->size};
    if (c->size == 1)
        return fail(ST_USAGE, "found one rank, which has no network; needs two or more: "
                              "mpirun -n P weft bench network");
    st = mover_init(&b.mover, c, buffer_bytes_for(o));
    if (st == ST_OK)
        st = comm_share(c, prepare(&b));
    if (st == ST_OK)
        st = measure_all(&b);
    mover_release(&b.mover);
    for (int i = 0; i < N_VALUES; i++)
        free(b.values[i]);
    bench_nodes_release(&b.nodes);
    return st;
}
