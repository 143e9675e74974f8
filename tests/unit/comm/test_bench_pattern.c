/* SPDX-License-Identifier: MIT */
/* What `weft bench network` measures, without a network: every message that is sent is
 * received, one root and roots in turn move the same bytes, pairs are apart. */
#include "base/memory.h"
#include "comm/comm_bench_private.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST_RANKS = 12, CAPACITY = 4096 };

/* Patterns of all ranks of one measurement. */
struct job {
    struct bench_nodes nodes;
    struct pattern p[MOST_RANKS];
};

static void job_init(struct job *j, int ranks, const int *host)
{
    assert_int_equal(bench_nodes_init(&j->nodes, ranks, host), ST_OK);
    for (int r = 0; r < ranks; r++)
        assert_int_equal(pattern_init(&j->p[r], CAPACITY), ST_OK);
}

static void job_release(struct job *j)
{
    for (int r = 0; r < j->nodes.ranks; r++)
        pattern_release(&j->p[r]);
    bench_nodes_release(&j->nodes);
}

static size_t count_peers(const int *peers, size_t n, int peer)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += peers[i] == peer;
    return count;
}

/* What a sends to b is what b receives from a, and nobody sends to itself. */
static void assert_matched(const struct job *j)
{
    for (int a = 0; a < j->nodes.ranks; a++) {
        assert_int_equal(count_peers(j->p[a].to, j->p[a].n_to, a), 0);
        for (int b = 0; b < j->nodes.ranks; b++)
            assert_int_equal(count_peers(j->p[a].to, j->p[a].n_to, b),
                             count_peers(j->p[b].from, j->p[b].n_from, a));
    }
}

static size_t sent_by_all(const struct job *j)
{
    size_t n = 0;

    for (int r = 0; r < j->nodes.ranks; r++)
        n += j->p[r].n_to;
    return n;
}

static const int alone[] = {0, 1, 2, 3, 4, 5, 6};
static const int even[] = {0, 0, 1, 1, 2, 2};
static const int uneven[] = {0, 1, 0, 1, 1, 2, 1};
static const int one_host[] = {0, 0, 0, 0, 0};

static const struct {
    const int *host;
    int ranks, nodes, hosts;
} jobs[] = {{alone, 7, 7, 7},
            {alone, 2, 2, 2},
            {even, 6, 3, 3},
            {uneven, 7, 3, 3},
            {one_host, 5, 5, 1}};
enum { N_JOBS = sizeof jobs / sizeof jobs[0] };

static void nodes_are_hosts_or_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_JOBS; i++) {
        struct bench_nodes n;

        assert_int_equal(bench_nodes_init(&n, jobs[i].ranks, jobs[i].host), ST_OK);
        assert_int_equal(n.nodes, jobs[i].nodes);
        assert_int_equal(n.hosts, jobs[i].hosts);
        for (int r = 0; r < n.ranks; r++)
            assert_int_equal(n.node[r], n.hosts > 1 ? n.host[r] : r);
        bench_nodes_release(&n);
    }
}

static void pairs_are_apart_and_cover_all_nodes(void **state)
{
    (void)state;
    for (int nodes = 2; nodes <= 9; nodes++) {
        int met[9] = {0};

        for (size_t i = 0; i < 20; i++) {
            int a, b;

            bench_pair(nodes, i, &a, &b);
            assert_true(a >= 0 && a < nodes && b >= 0 && b < nodes && a != b);
            met[a]++;
            met[b]++;
        }
        for (int n = 0; n < nodes; n++)
            assert_true(met[n] > 0);
    }
}

static void streams_join_two_nodes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_JOBS; i++)
        for (int ways = 1; ways <= 2; ways++)
            for (int most = 1; most <= 3; most++) {
                struct job j;
                int a, b, pairs = 0;

                job_init(&j, jobs[i].ranks, jobs[i].host);
                bench_pair(j.nodes.nodes, 0, &a, &b);
                for (int r = 0; r < j.nodes.ranks; r++)
                    pairs = pattern_stream(&j.p[r], &j.nodes, r, a, b, ways, most, 9);
                int in_a = bench_members(&j.nodes, j.nodes.node, a, NULL);
                int in_b = bench_members(&j.nodes, j.nodes.node, b, NULL);
                int fewer = in_a < in_b ? in_a : in_b;

                assert_int_equal(pairs, fewer < most ? fewer : most);
                assert_matched(&j);
                assert_int_equal(sent_by_all(&j), (size_t)(9 * ways * pairs));
                for (int r = 0; r < j.nodes.ranks; r++)
                    for (size_t k = 0; k < j.p[r].n_to; k++)
                        assert_int_not_equal(j.nodes.node[r], j.nodes.node[j.p[r].to[k]]);
                job_release(&j);
            }
}

static void rings_stay_inside_a_host(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_JOBS; i++) {
        struct job j;

        job_init(&j, jobs[i].ranks, jobs[i].host);
        for (size_t turn = 0; turn < 4; turn++) {
            int host = bench_shared_host(&j.nodes, turn);

            if (host < 0) {
                assert_int_equal(jobs[i].ranks, jobs[i].hosts);
                break;
            }
            int members = bench_members(&j.nodes, j.nodes.host, host, NULL);

            assert_true(members > 1);
            for (int r = 0; r < j.nodes.ranks; r++)
                pattern_ring(&j.p[r], &j.nodes, r, host, 3);
            assert_matched(&j);
            assert_int_equal(sent_by_all(&j), (size_t)(3 * members));
            for (int r = 0; r < j.nodes.ranks; r++)
                assert_int_equal(j.p[r].n_to, j.nodes.host[r] == host ? 3 : 0);
        }
        job_release(&j);
    }
}

/* Messages that enter a node, counted one by one. */
static size_t entering(const struct job *j)
{
    size_t most = 0;

    for (int node = 0; node < j->nodes.nodes; node++) {
        size_t n = 0;

        for (int r = 0; r < j->nodes.ranks; r++)
            for (size_t i = 0; i < j->p[r].n_from; i++)
                n += j->nodes.node[r] == node && j->nodes.node[j->p[r].from[i]] != node;
        most = max_size(most, n);
    }
    return most;
}

static void roots_get_every_block_from_all(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_JOBS; i++)
        for (int rotating = 0; rotating <= 1; rotating++) {
            size_t ranks = (size_t)jobs[i].ranks;
            size_t blocks = 3 * ranks;
            struct job j;

            job_init(&j, jobs[i].ranks, jobs[i].host);
            for (int r = 0; r < j.nodes.ranks; r++)
                pattern_roots(&j.p[r], j.nodes.ranks, r, blocks, rotating);
            assert_matched(&j);
            /* The same bytes either way. */
            assert_int_equal(sent_by_all(&j), blocks * (ranks - 1));
            for (int r = 0; r < j.nodes.ranks; r++) {
                size_t rooted = rotating ? 3 : r == 0 ? blocks : 0;

                assert_int_equal(j.p[r].n_from, rooted * (ranks - 1));
            }
            assert_int_equal(pattern_roots_entering(&j.nodes, blocks, rotating),
                             entering(&j));
            job_release(&j);
        }
}

static void windows_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(bench_window(1), BENCH_WINDOW_MOST);
    assert_int_equal(bench_window((size_t)1 << 20), 16);
    assert_int_equal(bench_window(NETWORK_MAX_BYTES), 2);
    assert_int_equal(bench_peer_window((size_t)1 << 20), 3);
    assert_int_equal(bench_peer_window(NETWORK_MAX_BYTES), 3);
    assert_true(bench_peer_window(64) > BENCH_WINDOW_MOST);
}

static void spreads_are_order_statistics(void **state)
{
    double odd[] = {3, 1, 2};
    double four[] = {4, 1, 3, 2};
    double single[] = {7};

    (void)state;
    struct bench_spread s = bench_spread_of(odd, 3);
    assert_true(s.median == 2 && s.least == 1 && s.most == 3);
    s = bench_spread_of(four, 4);
    assert_true(s.median == 2.5 && s.least == 1 && s.most == 4);
    s = bench_spread_of(single, 1);
    assert_true(s.median == 7 && s.least == 7 && s.most == 7);
    assert_true(isnan(bench_spread_of(NULL, 0).median));
}

static void sums_are_timed(void **state)
{
    float *buffer = calloc(BENCH_SUM_FLOATS, sizeof *buffer);

    (void)state;
    assert_non_null(buffer);
    for (int ranks = 2; ranks <= 40; ranks += 19) {
        double rate = bench_sum_Bps(buffer, ranks);

        assert_true(isfinite(rate) && rate > 1e6 && rate < 1e13);
    }
    free(buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_hosts_or_ranks),
        cmocka_unit_test(pairs_are_apart_and_cover_all_nodes),
        cmocka_unit_test(streams_join_two_nodes),
        cmocka_unit_test(rings_stay_inside_a_host),
        cmocka_unit_test(roots_get_every_block_from_all),
        cmocka_unit_test(windows_are_bounded),
        cmocka_unit_test(spreads_are_order_statistics),
        cmocka_unit_test(sums_are_timed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
