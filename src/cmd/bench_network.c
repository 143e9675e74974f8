/* SPDX-License-Identifier: MIT */
/* weft bench network: what the network between the ranks can do, as a table and as the
 * file that plans and other benchmarks read. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/progress.h"
#include "cmd/bench.h"
#include "comm/comm_bench.h"

enum { FORMAT_VERSION = 1 };

/* ---- table ---- */

/* One row: `scale` from the figure's unit to the printed one. */
static void print_row(const char *what, struct bench_spread s, double scale,
                      const char *unit)
{
    if (!isfinite(s.median))
        return;
    printf("%-38s %10.4g %-5s %10.4g .. %.4g\n", what, s.median * scale, unit,
           s.least * scale, s.most * scale);
}

static void print_value(const char *what, double value, double scale, const char *unit)
{
    if (isfinite(value))
        printf("%-38s %10.4g %s\n", what, value * scale, unit);
}

static void print_sizes(const struct network_figures *f)
{
    printf("\n%10s %12s   %-28s %-28s %12s\n", "message", "latency us", "one way MB/s",
           "both ways MB/s, each", "CPU us");
    for (size_t i = 0; i < f->n_sizes; i++) {
        const struct network_size *s = &f->sizes[i];
        char bytes[16], one[64], both[64], latency[32] = "-";

        if (isfinite(s->latency_s.median))
            (void)snprintf(latency, sizeof latency, "%.4g", 1e6 * s->latency_s.median);
        (void)snprintf(one, sizeof one, "%.4g (%.4g .. %.4g)",
                       1e-6 * s->one_way_Bps.median, 1e-6 * s->one_way_Bps.least,
                       1e-6 * s->one_way_Bps.most);
        (void)snprintf(both, sizeof both, "%.4g (%.4g .. %.4g)",
                       1e-6 * s->both_ways_Bps.median, 1e-6 * s->both_ways_Bps.least,
                       1e-6 * s->both_ways_Bps.most);
        printf("%10s %12s   %-28s %-28s %12.4g\n",
               bench_format_bytes((double)s->bytes, bytes, sizeof bytes), latency, one,
               both, 1e6 * s->message_s.median);
    }
    if (f->is_cut)
        printf("longer messages are left out: one would take over a second\n");
}

static void print_table(struct comm *c, const struct network_figures *f)
{
    const char *node = f->links_join_hosts ? "hosts" : "ranks";
    char what[64], bytes[16];

    printf("network of %d ranks on %d host%s, %s; links join %s\n\n", f->ranks, f->hosts,
           f->hosts == 1 ? "" : "s", comm_library(c), node);
    printf("%-38s %10s %-5s %10s .. %s\n", "", "median", "", "least", "most");
    (void)snprintf(what, sizeof what, "latency between %s, one way", node);
    print_row(what, f->latency_s, 1e6, "us");
    print_row("a link, both ways, each direction", f->bandwidth_Bps, 1e-6, "MB/s");
    print_row("a link, one way", f->one_way_Bps, 1e-6, "MB/s");
    if (f->links_join_hosts) {
        print_row("latency inside a host, one way", f->host_latency_s, 1e6, "us");
        print_row("inside a host, each rank", f->host_bandwidth_Bps, 1e-6, "MB/s");
    }
    (void)snprintf(what, sizeof what, "all to one root, into its link");
    print_row(what, f->congested_Bps, 1e-6, "MB/s");
    print_row("all to roots in turn, into a link", f->rotating_Bps, 1e-6, "MB/s");
    print_row("time with one root / with roots in turn", f->congestion, 1, "");
    print_row("sum of contributions, one worker", f->sum_Bps, 1e-6, "MB/s");
    print_value("CPU time of a message", f->message_s, 1e6, "us");
    print_value("CPU time of a MB", f->byte_s, 1e12, "us");
    print_row("barrier", f->barrier_s, 1e6, "us");
    print_row("agreement", f->agreement_s, 1e6, "us");
    print_sizes(f);
    printf("\nroots: %zu blocks of %s from every rank; CPU: of a rank, for a message it "
           "sends or receives\n",
           f->root_blocks,
           bench_format_bytes((double)f->root_block_bytes, bytes, sizeof bytes));
}

/* ---- JSON ---- */

static void set_spread(json_t *root, json_t *spreads, const char *name,
                       struct bench_spread s)
{
    json_object_set_new(root, name, bench_number(s.median));
    json_object_set_new(spreads, name,
                        json_pack("[o, o]", bench_number(s.least), bench_number(s.most)));
}

static json_t *sizes_json(const struct network_figures *f)
{
    json_t *list = json_array();

    for (size_t i = 0; i < f->n_sizes; i++) {
        const struct network_size *s = &f->sizes[i];
        json_t *row = json_pack("{s:I}", "bytes", (json_int_t)s->bytes);
        json_t *spreads = json_object();

        set_spread(row, spreads, "latency_s", s->latency_s);
        set_spread(row, spreads, "Bps", s->one_way_Bps);
        set_spread(row, spreads, "both_ways_Bps", s->both_ways_Bps);
        set_spread(row, spreads, "message_s", s->message_s);
        json_object_set_new(row, "spread", spreads);
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *figures_json(struct comm *c, const struct network_figures *f)
{
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:s, s:i, s:i, s:s}", "format", "weft-network", "version",
        FORMAT_VERSION, "weft", WEFT_VERSION, "library", comm_library(c), "ranks",
        f->ranks, "hosts", f->hosts, "links", f->links_join_hosts ? "hosts" : "ranks");
    json_t *spreads = json_object();

    if (!root)
        return NULL;
    set_spread(root, spreads, "latency_s", f->latency_s);
    set_spread(root, spreads, "bandwidth_Bps", f->bandwidth_Bps);
    set_spread(root, spreads, "one_way_bandwidth_Bps", f->one_way_Bps);
    set_spread(root, spreads, "congested_bandwidth_Bps", f->congested_Bps);
    set_spread(root, spreads, "rotating_bandwidth_Bps", f->rotating_Bps);
    set_spread(root, spreads, "congestion", f->congestion);
    set_spread(root, spreads, "host_latency_s", f->host_latency_s);
    set_spread(root, spreads, "host_bandwidth_Bps", f->host_bandwidth_Bps);
    set_spread(root, spreads, "sum_Bps", f->sum_Bps);
    json_object_set_new(root, "message_s", bench_number(f->message_s));
    json_object_set_new(root, "byte_s", bench_number(f->byte_s));
    set_spread(root, spreads, "barrier_s", f->barrier_s);
    set_spread(root, spreads, "agreement_s", f->agreement_s);
    json_object_set_new(root, "root_block_bytes",
                        json_integer((json_int_t)f->root_block_bytes));
    json_object_set_new(root, "root_blocks", json_integer((json_int_t)f->root_blocks));
    json_object_set_new(root, "spread", spreads);
    json_object_set_new(root, "sizes", sizes_json(f));
    return root;
}

/* ---- the command ---- */

static void show_progress(void *arg, double done, double total)
{
    (void)total;
    progress_update(arg, done, NULL);
}

static enum status measure(struct comm *c, const struct network_options *o, bool quiet,
                           const char *json)
{
    struct network_figures figures;
    struct progress progress;
    enum status st = ST_OK;

    if (json && comm_rank(c) == 0)
        st = bench_check_output(json);
    st = comm_agree(c, st);
    if (st != ST_OK)
        return st;
    progress_begin(&progress, "bench network", "figure", (double)o->n_sizes + 4,
                   !quiet && comm_rank(c) == 0 && comm_size(c) > 1);
    st = comm_agree(c, comm_bench_network(c, o, show_progress, &progress, &figures));
    if (st != ST_OK)
        return st;
    progress_end(&progress, (double)o->n_sizes + 4);
    if (comm_rank(c) == 0) {
        print_table(c, &figures);
        if (json)
            st = bench_write_json(figures_json(c, &figures), json);
    }
    return comm_agree(c, st);
}

static enum status check(struct network_options *o, const char *sizes)
{
    enum status st =
        bench_read_sizes("bytes", sizes, 1, NETWORK_MAX_BYTES, o->sizes, &o->n_sizes);

    _Static_assert((int)NETWORK_MAX_SIZES >= (int)BENCH_LIST_MOST, "no room for a list");
    for (size_t i = 1; st == ST_OK && i < o->n_sizes; i++)
        if (o->sizes[i] <= o->sizes[i - 1])
            st = fail(ST_USAGE, "--bytes: found '%s', needs ascending sizes", sizes);
    if (st == ST_OK && (o->repeat < 1 || o->repeat > 1000))
        st = fail(ST_USAGE, "--repeat: found %zu, needs 1 to 1000", o->repeat);
    return st;
}

static void print_help(const struct option_row *table)
{
    printf(
        "usage: mpirun -n P weft bench network [--json FILE] [--bytes LIST] [--repeat "
        "N]\n"
        "\nMeasures the network between the ranks of this job: latency, bandwidth by "
        "message\nsize, what happens when all send to one root, and the CPU time that "
        "messages cost.\nLink figures are those of a host, however many ranks it has "
        "(of a rank, when all\nshare one host). --network of plans and other benchmarks "
        "reads the JSON file.\n\n"
        "example: mpirun -n 4 weft bench network --json net.json\n\noptions:\n");
    options_print_help(table);
}

enum status bench_network(int argc, char **argv, int *exit_code)
{
    struct network_options o = {.repeat = 5};
    const char *json = NULL;
    const char *sizes = "64..64M";
    bool quiet = false, help = false;
    struct option_row table[] = {
        {"json", OPTION_TEXT, &json, "FILE", "write the figures there as well", 0, 0},
        {"bytes", OPTION_TEXT, &sizes, "LIST",
         "message sizes: 64,1M or 64..64M in steps of four", 0, 0},
        {"repeat", OPTION_SIZE, &o.repeat, "N", "repetitions of each measurement", 0, 0},
        {"quiet", OPTION_SWITCH, &quiet, NULL, "no progress", 0, 0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0}};
    struct comm *comm;
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "bench network: found '%s', needs options only", rest[0]);
    if (st == ST_OK && help) {
        print_help(table);
        return ST_OK;
    }
    if (st == ST_OK)
        st = check(&o, sizes);
    enum status started = comm_start(&comm);
    if (started != ST_OK)
        return started;
    st = comm_agree(comm, st);
    if (st == ST_OK)
        st = measure(comm, &o, quiet, json);
    comm_stop(comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
