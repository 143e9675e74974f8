/* SPDX-License-Identifier: MIT */
/* Predictions where the answer can be worked out by hand, and what must hold for any. */
#include "engine/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

/* A network that costs nothing but bytes over bandwidth. */
static struct network plain_network(double bandwidth_Bps)
{
    return (struct network){.ranks = 2,
                            .hosts = 2,
                            .bandwidth_Bps = bandwidth_Bps,
                            .congested_Bps = bandwidth_Bps,
                            .host_bandwidth_Bps = 1e13,
                            .sum_Bps = 1e13};
}

static struct engine_options job(enum strategy strategy, size_t block_bytes,
                                 double compute_s)
{
    struct engine_options o = {.batch = 2,
                               .seq = 64,
                               .accum = 1,
                               .workers = 2,
                               .train = true,
                               .strategy = strategy,
                               .block_bytes = block_bytes,
                               .overlap = true,
                               .compute_s = compute_s};

    assert_int_equal(shape_parse("L=6,H=6,C=384,T=64,V=4000", 0, &o.shape), ST_OK);
    return o;
}

static double param_bytes(const struct engine_options *o)
{
    struct layout l;
    double bytes;

    assert_int_equal(layout_init(&l, &o->shape, LAYOUT_PRODUCTION), ST_OK);
    bytes = (double)l.elems * sizeof(float);
    layout_release(&l);
    return bytes;
}

static struct cost predict(const struct engine_options *o, int ranks, int hosts,
                           struct network network)
{
    struct cost_cluster c = {ranks, hosts, network};
    struct cost cost;

    assert_int_equal(cost_predict(o, &c, &cost), ST_OK);
    assert_true(cost.step_s >= cost.compute_s * (1 - 1e-9));
    assert_true(cost.step_s >= cost.wire_bound_s * (1 - 1e-3));
    assert_true(cost.exposed_s >= 0 && cost.exposed_s <= cost.most_exposed_s + 1e-12);
    assert_true(cost.most_exposed_s <= cost.step_s);
    return cost;
}

static void expect_near(double found, double expected, double share)
{
    if (fabs(found - expected) > share * fabs(expected))
        fail_msg("found %.6g, needs %.6g within %.1f %%", found, expected, 100 * share);
}

/* ---- by hand ---- */

static void test_one_link(void **state)
{
    const double bandwidth = 50e6;
    struct engine_options o = job(STRATEGY_CENTRAL, 1 << 18, 0);
    double once = param_bytes(&o) / bandwidth;

    (void)state;
    /* All gradients one way, all parameters back. */
    struct cost c = predict(&o, 2, 2, plain_network(bandwidth));
    expect_near(c.step_s, 2 * once, 0.02);
    expect_near(c.wire_bound_s, once, 0.001);
    expect_near(c.exposed_s, c.step_s, 0.001);

    /* Compute in between hides nothing when they take turns. */
    o.overlap = false;
    o.compute_s = 0.5;
    c = predict(&o, 2, 2, plain_network(bandwidth));
    expect_near(c.step_s, 0.5 + 2 * once, 0.02);
    expect_near(c.exposed_s, 2 * once, 0.02);

    /* Half each way and at the same time when both own half of each block. */
    o = job(STRATEGY_REDUCE_SCATTER, 1 << 18, 0);
    expect_near(predict(&o, 2, 2, plain_network(bandwidth)).step_s, once, 0.02);
}

static void test_latency(void **state)
{
    struct network n = plain_network(1e13);
    struct engine_options o = job(STRATEGY_CENTRAL, 0, 0);

    (void)state;
    o.block_bytes = 64;
    o.one_block = true;
    n.latency_s = 0.01;
    /* Of reduction, return and agreement; what follows on a connection is under way. */
    expect_near(predict(&o, 2, 2, n).step_s, 0.01 + 0.01 + 0.01, 0.02);
    n.agreement_s = 0.51; /* 0.01 of it the latency of two ranks */
    expect_near(predict(&o, 2, 2, n).step_s, 0.53, 0.02);
}

static void test_one_rank(void **state)
{
    struct network n = plain_network(1e8);
    struct engine_options o = job(STRATEGY_REDUCE_BROADCAST, 1 << 20, 0.25);

    (void)state;
    n.latency_s = 1;
    n.message_s = 1;
    n.agreement_s = 1;
    struct cost c = predict(&o, 1, 1, n);
    assert_true(c.messages == 0 && c.sent_bytes == 0);
    assert_true(c.wire_bound_s == 0);
    expect_near(c.step_s, 0.25, 0.001);
    assert_true(c.exposed_s < 1e-6);
    /* Updates go before forward: 28 bytes a parameter where a sum moves 12. */
    n.sum_Bps = 1e9;
    double update_s = param_bytes(&o) / n.sum_Bps * 28 / 12 / o.workers;
    double squares_s = 0.25 * param_bytes(&o) / n.sum_Bps / o.workers;
    expect_near(predict(&o, 1, 1, n).step_s, 0.25 + update_s + squares_s, 0.05);
}

static void test_roots(void **state)
{
    const double bandwidth = 50e6;
    struct engine_options o = job(STRATEGY_REDUCE_BROADCAST, 1 << 17, 0);
    double once = param_bytes(&o) / bandwidth;

    (void)state;
    for (int P = 2; P <= 8; P += 2) {
        struct cost rotating = predict(&o, P, P, plain_network(bandwidth));

        o.one_root = true;
        struct cost one = predict(&o, P, P, plain_network(bandwidth));
        o.one_root = false;
        expect_near(rotating.step_s, 2 * once * (P - 1) / P, 0.12);
        expect_near(one.step_s, 2 * once * (P - 1), 0.02);
        /* All roots are busy: as many times as there are ranks. */
        expect_near(one.step_s / rotating.step_s, P, 0.12);
    }
}

/* A link that many send to may be slower. */
static void test_congestion(void **state)
{
    const double bandwidth = 50e6;
    struct engine_options o = job(STRATEGY_CENTRAL, 1 << 18, 0);
    struct network n = plain_network(bandwidth);
    double once = param_bytes(&o) / bandwidth;

    (void)state;
    n.hosts = 4;
    n.congested_Bps = bandwidth / 2;
    expect_near(predict(&o, 4, 4, n).step_s, 3 * (2 * once) + 3 * once, 0.05);
    expect_near(predict(&o, 2, 2, n).step_s, 2 * once, 0.02);
}

/* A part for each rank is what reduce-broadcast with all ranks as roots does. There all
 * ranks are simulated, here one stands for all. */
static void test_one_for_all(void **state)
{
    struct network n = network_assumed();
    struct engine_options all = job(STRATEGY_REDUCE_BROADCAST, 1 << 20, 0.1);
    struct engine_options one = job(STRATEGY_REDUCE_SCATTER, 1 << 20, 0.1);

    (void)state;
    n.bandwidth_Bps = n.congested_Bps = 100e6;
    for (int P = 2; P <= 12; P += 5) {
        all.roots = P;
        struct cost a = predict(&all, P, P, n);
        struct cost b = predict(&one, P, P, n);

        expect_near(b.step_s, a.step_s, 0.03);
        expect_near((double)b.sent_bytes, (double)a.sent_bytes, 0.001);
    }
}

/* ---- what passes over the links ---- */

static void check_bytes(const struct engine_options *o, int ranks, int hosts)
{
    struct cost_cluster cluster = {ranks, hosts, network_assumed()};
    struct cost c = predict(o, ranks, hosts, cluster.network);
    uint64_t most = 0;
    int *host;

    assert_int_equal(cost_hosts(&cluster, &host), ST_OK);
    for (int r = 0; r < ranks; r++) {
        struct engine_plan p;

        assert_int_equal(engine_make_plan(o, r, ranks, host, &p), ST_OK);
        if (p.reduce_bytes + p.return_bytes > most)
            most = p.reduce_bytes + p.return_bytes;
    }
    free(host);
    /* The plan counts what passes between ranks of a host too: sums that return. */
    if (hosts < ranks && o->strategy == STRATEGY_ALLREDUCE) {
        assert_true(c.sent_bytes < most);
        return;
    }
    /* Where one rank stands for all, parts are rounded to 64 bytes otherwise. */
    if (most == 0)
        assert_int_equal(c.sent_bytes, 0);
    else
        expect_near((double)c.sent_bytes, (double)most, 0.001);
}

static void test_bytes(void **state)
{
    static const int hosts_of[][2] = {{1, 1}, {2, 2}, {3, 3}, {7, 7}, {12, 12}};

    (void)state;
    for (int s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++)
        for (size_t i = 0; i < sizeof hosts_of / sizeof *hosts_of; i++) {
            struct engine_options o = job((enum strategy)s, 1 << 20, 0.01);

            check_bytes(&o, hosts_of[i][0], hosts_of[i][1]);
            o.wire = WIRE_BF16;
            o.layout = LAYOUT_STORAGE;
            check_bytes(&o, hosts_of[i][0], hosts_of[i][1]);
            o.host_memory = true;
            check_bytes(&o, 2 * hosts_of[i][0], hosts_of[i][1]);
        }
}

/* Ranks of a host share its link, and their memory when they may. */
static void test_hosts(void **state)
{
    const double bandwidth = 50e6;
    struct engine_options o = job(STRATEGY_REDUCE_SCATTER, 1 << 20, 0);
    double once = param_bytes(&o) / bandwidth;

    (void)state;
    o.host_memory = true;
    /* Each host sends half of everything, once for all of its ranks, and gets half back;
     * return likewise. */
    struct cost shared = predict(&o, 4, 2, plain_network(bandwidth));
    expect_near(shared.step_s, once, 0.03);
    /* Each rank for itself: of 4 parts it sends 2 elsewhere. */
    o.host_memory = false;
    struct cost alone = predict(&o, 4, 2, plain_network(bandwidth));
    expect_near(alone.step_s, 2 * once, 0.03);
    /* Inside one host nothing is on a wire. */
    o.host_memory = true;
    struct cost one = predict(&o, 3, 1, plain_network(bandwidth));
    assert_true(one.sent_bytes == 0 && one.step_s < 0.02 * once);
    /* Hosts of different numbers of ranks. */
    predict(&o, 5, 3, plain_network(bandwidth));
}

/* ---- what must hold ---- */

static void test_monotonic(void **state)
{
    (void)state;
    for (int s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++)
        for (int split = 0; split < 2; split++) {
            struct engine_options o = job((enum strategy)s, 1 << 19, 0.2);
            double before = (double)INFINITY;

            o.split_embedding = split;
            for (double bandwidth = 10e6; bandwidth < 1e10; bandwidth *= 2) {
                struct network n = network_assumed();

                n.bandwidth_Bps = n.congested_Bps = bandwidth;
                struct cost c = predict(&o, 4, 4, n);
                assert_true(c.step_s < before * 1.005);
                before = c.step_s;
                o.overlap = false;
                assert_true(predict(&o, 4, 4, n).step_s > c.step_s * 0.995);
                o.overlap = true;
            }
            /* A fast network hides all but the ends of the step. */
            assert_true(before < 0.25);
        }
}

/* wte's gradient leaves early and its rows come first: on a slow network all bytes count
 * alike, on one that compute can hide less is exposed. */
static void test_split(void **state)
{
    struct network n = network_assumed();
    struct engine_options o = job(STRATEGY_REDUCE_SCATTER, 1 << 19, 0.5);

    (void)state;
    n.bandwidth_Bps = n.congested_Bps = 200e6;
    struct cost whole = predict(&o, 4, 4, n);
    o.split_embedding = true;
    struct cost split = predict(&o, 4, 4, n);
    assert_true(split.exposed_s < 0.75 * whole.exposed_s);
    assert_true(split.sent_bytes > whole.sent_bytes);
    assert_true((double)split.sent_bytes < 1.1 * (double)whole.sent_bytes);
}

static void test_choice(void **state)
{
    struct cost_cluster c = {4, 4, network_assumed()};
    struct engine_options o = job((enum strategy)0, 0, 0.2);
    struct cost best;

    (void)state;
    c.network.bandwidth_Bps = c.network.congested_Bps = 100e6;
    assert_int_equal(cost_choose(&o, &c, &best), ST_OK);
    assert_true(o.strategy != STRATEGY_CENTRAL && o.strategy != 0);
    assert_true(o.block_bytes >= COST_LEAST_BLOCK && o.block_bytes <= COST_MOST_BLOCK);
    for (int s = STRATEGY_CENTRAL; s <= STRATEGY_ALLREDUCE; s++)
        for (size_t bytes = COST_LEAST_BLOCK; bytes <= COST_MOST_BLOCK; bytes *= 4) {
            struct engine_options other = job((enum strategy)s, bytes, 0.2);

            assert_true(predict(&other, 4, 4, c.network).step_s > best.step_s * 0.985);
        }
    /* What is given is kept. */
    o = job(STRATEGY_CENTRAL, 0, 0.2);
    assert_int_equal(cost_choose(&o, &c, &best), ST_OK);
    assert_int_equal(o.strategy, STRATEGY_CENTRAL);
    o = job((enum strategy)0, 1 << 19, 0.2);
    assert_int_equal(cost_choose(&o, &c, &best), ST_OK);
    assert_int_equal(o.block_bytes, 1 << 19);
}

static void test_refusals(void **state)
{
    struct engine_options o = job(STRATEGY_REDUCE_BROADCAST, 1 << 20, 0.1);
    struct cost_cluster c = {4, 5, network_assumed()};
    struct cost cost;

    (void)state;
    assert_int_equal(cost_predict(&o, &c, &cost), ST_USAGE);
    c.hosts = 0;
    assert_int_equal(cost_predict(&o, &c, &cost), ST_USAGE);
    c.hosts = 4;
    o.roots = 5;
    assert_int_equal(cost_predict(&o, &c, &cost), ST_USAGE);
    o.roots = 1;
    o.block_bytes = 63;
    assert_int_equal(cost_predict(&o, &c, &cost), ST_USAGE);
    /* Half a day of events. */
    c = (struct cost_cluster){4000, 4000, network_assumed()};
    o.block_bytes = 64;
    assert_int_equal(cost_predict(&o, &c, &cost), ST_USAGE);
}

/* 64 ranks and 500 blocks are to take well under a second. */
static void test_speed(void **state)
{
    struct engine_options o = job(STRATEGY_REDUCE_BROADCAST, 1 << 20, 1);
    clock_t begin = clock();

    (void)state;
    assert_int_equal(shape_parse("gpt2", 0, &o.shape), ST_OK);
    struct cost c = predict(&o, 64, 64, network_assumed());
    assert_true(c.blocks > 400 && c.blocks < 600);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 2);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_link),   cmocka_unit_test(test_latency),
        cmocka_unit_test(test_one_rank),   cmocka_unit_test(test_roots),
        cmocka_unit_test(test_congestion), cmocka_unit_test(test_one_for_all),
        cmocka_unit_test(test_bytes),      cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_monotonic),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_choice),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_speed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
