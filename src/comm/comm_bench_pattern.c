/* SPDX-License-Identifier: MIT */
/* Which messages a measurement is made of, and the figures that need no network. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/comm_bench_private.h"
#include "comm/exchange_private.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

struct bench_spread bench_spread_of(double *values, size_t n)
{
    if (n == 0)
        return (struct bench_spread){NAN, NAN, NAN};
    qsort(values, n, sizeof *values, compare);
    return (struct bench_spread){(values[(n - 1) / 2] + values[n / 2]) / 2, values[0],
                                 values[n - 1]};
}

/* ---- nodes ---- */

enum status bench_nodes_init(struct bench_nodes *n, int ranks, const int *host)
{
    enum status st;

    *n = (struct bench_nodes){.ranks = ranks};
    st = memory_alloc((size_t)ranks, sizeof *n->host, "hosts", &n->host);
    if (st == ST_OK)
        st = memory_alloc((size_t)ranks, sizeof *n->node, "nodes", &n->node);
    for (int r = 0; r < ranks && st == ST_OK; r++) {
        n->host[r] = host[r];
        if (host[r] >= n->hosts)
            n->hosts = host[r] + 1;
    }
    for (int r = 0; r < ranks && st == ST_OK; r++)
        n->node[r] = n->hosts > 1 ? host[r] : r;
    n->nodes = n->hosts > 1 ? n->hosts : ranks;
    return st;
}

void bench_nodes_release(struct bench_nodes *n)
{
    free(n->host);
    free(n->node);
    *n = (struct bench_nodes){0};
}

int bench_members(const struct bench_nodes *n, const int *of, int g, int *out)
{
    int count = 0;

    for (int r = 0; r < n->ranks; r++) {
        if (of[r] != g)
            continue;
        if (out)
            out[count] = r;
        count++;
    }
    return count;
}

void bench_pair(int nodes, size_t i, int *a, int *b)
{
    /* With an even number of nodes the second half of the pairs repeats the first. */
    int different = nodes % 2 ? nodes : nodes / 2;

    *a = (int)(i % (size_t)different);
    *b = (*a + nodes / 2) % nodes;
}

int bench_shared_host(const struct bench_nodes *n, size_t i)
{
    int shared = 0;

    for (int h = 0; h < n->hosts; h++)
        shared += bench_members(n, n->host, h, NULL) > 1;
    if (shared == 0)
        return -1;
    for (int h = 0, left = (int)(i % (size_t)shared);; h++)
        if (bench_members(n, n->host, h, NULL) > 1 && left-- == 0)
            return h;
}

/* ---- patterns ---- */

enum status pattern_init(struct pattern *p, size_t capacity)
{
    enum status st;

    *p = (struct pattern){.capacity = capacity};
    st = memory_alloc(capacity, sizeof *p->to, "messages", &p->to);
    return st == ST_OK ? memory_alloc(capacity, sizeof *p->from, "messages", &p->from)
                       : st;
}

void pattern_release(struct pattern *p)
{
    free(p->to);
    free(p->from);
    *p = (struct pattern){0};
}

static void add_to(struct pattern *p, int peer)
{
    require(p->n_to < p->capacity);
    p->to[p->n_to++] = peer;
}

static void add_from(struct pattern *p, int peer)
{
    require(p->n_from < p->capacity);
    p->from[p->n_from++] = peer;
}

/* Place of a rank among those of its group. */
static int place_in(const int *of, int rank)
{
    int place = 0;

    for (int r = 0; r < rank; r++)
        place += of[r] == of[rank];
    return place;
}

/* The rank with that place in group g. */
static int rank_at(const struct bench_nodes *n, const int *of, int g, int place)
{
    for (int r = 0; r < n->ranks; r++)
        if (of[r] == g && place-- == 0)
            return r;
    bug("no such place in group %d", g);
}

int pattern_stream(struct pattern *p, const struct bench_nodes *n, int rank, int a, int b,
                   int ways, int most_pairs, size_t count)
{
    int in_a = bench_members(n, n->node, a, NULL);
    int in_b = bench_members(n, n->node, b, NULL);
    int pairs = in_a < in_b ? in_a : in_b;
    int own = n->node[rank];
    int place = place_in(n->node, rank);

    pairs = pairs < most_pairs ? pairs : most_pairs;
    p->n_to = p->n_from = 0;
    if ((own != a && own != b) || place >= pairs)
        return pairs;
    int partner = rank_at(n, n->node, own == a ? b : a, place);

    for (size_t i = 0; i < count; i++) {
        if (own == a || ways == 2)
            add_to(p, partner);
        if (own == b || ways == 2)
            add_from(p, partner);
    }
    return pairs;
}

void pattern_ring(struct pattern *p, const struct bench_nodes *n, int rank, int host,
                  size_t count)
{
    int members = bench_members(n, n->host, host, NULL);
    int place = place_in(n->host, rank);

    p->n_to = p->n_from = 0;
    if (n->host[rank] != host)
        return;
    int after = rank_at(n, n->host, host, (place + 1) % members);
    int before = rank_at(n, n->host, host, (place + members - 1) % members);

    for (size_t i = 0; i < count; i++) {
        add_to(p, after);
        add_from(p, before);
    }
}

void pattern_roots(struct pattern *p, int ranks, int rank, size_t blocks, bool rotating)
{
    p->n_to = p->n_from = 0;
    for (size_t b = 0; b < blocks; b++) {
        int root = rotating ? (int)(b % (size_t)ranks) : 0;

        if (rank != root)
            add_to(p, root);
        for (int i = 1; i < ranks && rank == root; i++)
            add_from(p, (root + i) % ranks);
    }
}

size_t pattern_roots_entering(const struct bench_nodes *n, size_t blocks, bool rotating)
{
    size_t most = 0;

    for (int node = 0; node < n->nodes; node++) {
        size_t inside = (size_t)bench_members(n, n->node, node, NULL);
        size_t outside = (size_t)n->ranks - inside;
        /* Roots take turns a whole number of times. */
        size_t rooted = rotating             ? blocks / (size_t)n->ranks * inside
                        : n->node[0] == node ? blocks
                                             : 0;

        most = max_size(most, rooted * outside);
    }
    return most;
}

size_t bench_window(size_t bytes)
{
    const size_t window_bytes = (size_t)16 << 20;

    return max_size(2, min_size(BENCH_WINDOW_MOST, window_bytes / bytes));
}

size_t bench_peer_window(size_t bytes)
{
    const size_t least = 3;
    const size_t peer_bytes = (size_t)3 << 20;

    return max_size(least, peer_bytes / bytes);
}

/* ---- sums ---- */

enum { MOST_TERMS = 15 };

/* Adds the contributions of one block; returns how many bytes of them. */
static size_t add_block(float *buffer, size_t n_terms, size_t elems, double *squares)
{
    float *own = buffer + n_terms * elems;
    struct squares s = {{0}};

    for (size_t i = 0; i < elems; i += SUM_TILE) {
        struct sum_term terms[MOST_TERMS];

        for (size_t k = 0; k < n_terms; k++)
            terms[k] = (struct sum_term){.values = buffer + k * elems + i};
        sum_terms(own + i, terms, n_terms, n_terms / 2, SUM_TILE);
        squares_add(&s, own + i, SUM_TILE);
    }
    *squares += squares_total(&s);
    return n_terms * elems * sizeof *own;
}

double bench_sum_Bps(float *buffer, int ranks)
{
    const double enough_s = 0.02;
    size_t n_terms = min_size((size_t)ranks - 1, MOST_TERMS);
    size_t elems = BENCH_SUM_FLOATS / (n_terms + 1) / SUM_TILE * SUM_TILE;
    double squares = 0;
    double start_s = clock_s();
    double bytes = 0;

    do
        bytes += (double)add_block(buffer, n_terms, elems, &squares);
    while (clock_s() - start_s < enough_s);
    require(squares >= 0); /* keeps the additions from being left out */
    return bytes / (clock_s() - start_s);
}
