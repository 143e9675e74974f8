/* SPDX-License-Identifier: MIT */
/* plan_figures --model SPEC --ranks P [options]: what the plan of a run says before it
 * begins, to the byte and for every rank, as one JSON object a rank. Options are those of
 * `weft train` that decide about it, and --hosts with the host number of each rank where
 * ranks of a host share memory. The tests hold the traffic of runs against it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "engine/engine.h"
#include "model/shape.h"

enum { MOST_RANKS = 64 };

struct words {
    const char *model, *hosts, *block_bytes;
    size_t ranks, batch, accum, roots;
    int strategy, engine, rounds, wire, split_embedding, host_memory, layout;
};

static void parse(int argc, char **argv, struct words *w)
{
    struct option_row rows[] = {
        {"model", OPTION_TEXT, &w->model, "SPEC", "", 0, 0},
        {"ranks", OPTION_SIZE, &w->ranks, "P", "", 0, 0},
        {"hosts", OPTION_TEXT, &w->hosts, "N,N,...", "", 0, 0},
        {"batch", OPTION_SIZE, &w->batch, "N", "", 0, 0},
        {"accum", OPTION_SIZE, &w->accum, "N", "", 0, 0},
        {"strategy", OPTION_CHOICE, &w->strategy,
         "auto|central|reduce-broadcast|reduce-scatter|allreduce", "", 0, 0},
        {"engine", OPTION_CHOICE, &w->engine, "direct|collective", "", 0, 0},
        {"rounds", OPTION_CHOICE, &w->rounds, "auto|flat|recursive", "", 0, 0},
        {"roots", OPTION_SIZE, &w->roots, "N", "", 0, 0},
        {"wire", OPTION_CHOICE, &w->wire, "fp32|bf16", "", 0, 0},
        {"split-embedding", OPTION_CHOICE, &w->split_embedding, "on|off", "", 0, 0},
        {"host-memory", OPTION_CHOICE, &w->host_memory, "on|off", "", 0, 0},
        {"layout", OPTION_CHOICE, &w->layout, "production|storage", "", 0, 0},
        {"block-bytes", OPTION_TEXT, &w->block_bytes, "N|auto|one", "", 0, 0},
        {0},
    };
    char **rest;
    int n_rest;

    if (options_parse(rows, argc, argv, &rest, &n_rest) != ST_OK || n_rest > 0 ||
        !w->model || w->ranks < 1 || w->ranks > MOST_RANKS) {
        fprintf(stderr, "plan_figures: %s\n", fail_text());
        exit(2);
    }
}

static struct engine_options engine_options(const struct words *w)
{
    struct engine_options o = {.batch = w->batch,
                               .accum = w->accum,
                               .workers = 1,
                               .train = true,
                               .layout = (enum layout_order)w->layout,
                               .strategy = (enum strategy)w->strategy,
                               .schedule = (enum grid_schedule)w->rounds,
                               .roots = (int)w->roots,
                               .exchange = (enum exchange_engine)w->engine,
                               .wire = (enum exchange_wire)w->wire,
                               .split_embedding = w->split_embedding == 0,
                               .host_memory = w->host_memory == 0,
                               .overlap = true};

    o.one_block = !strcmp(w->block_bytes, "one");
    if (!o.one_block && strcmp(w->block_bytes, "auto") != 0)
        o.block_bytes = strtoull(w->block_bytes, NULL, 10);
    if (shape_parse(w->model, 0, &o.shape) != ST_OK) {
        fprintf(stderr, "plan_figures: %s\n", fail_text());
        exit(2);
    }
    o.seq = o.shape.T;
    return o;
}

static const int *read_hosts(const struct words *w)
{
    static int hosts[MOST_RANKS];
    const char *at = w->hosts;

    for (size_t r = 0; w->hosts && r < w->ranks; r++) {
        hosts[r] = atoi(at);
        at = strchr(at, ',');
        at = at ? at + 1 : "";
    }
    return w->hosts ? hosts : NULL;
}

int main(int argc, char **argv)
{
    struct words w = {.block_bytes = "auto", .batch = 1, .accum = 1, .roots = 1};
    struct engine_plan p;

    parse(argc, argv, &w);
    struct engine_options o = engine_options(&w);
    const int *hosts = read_hosts(&w);

    for (int r = 0; r < (int)w.ranks; r++) {
        if (engine_make_plan(&o, r, (int)w.ranks, hosts, &p) != ST_OK) {
            fprintf(stderr, "plan_figures: %s\n", fail_text());
            return 1;
        }
        printf("{\"blocks\": %zu, \"rounds\": %d, \"params\": %zu, \"grads\": %zu, "
               "\"moments\": %zu, \"scratch\": %zu, \"reduce_bytes\": %" PRIu64
               ", \"return_bytes\": %" PRIu64 "}\n",
               p.blocks, p.rounds, p.params, p.grads, p.moments, p.scratch,
               p.reduce_bytes, p.return_bytes);
    }
    return 0;
}
