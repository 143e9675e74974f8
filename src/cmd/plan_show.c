/* SPDX-License-Identifier: MIT */
/* The answer of weft plan, for people and as JSON. */
#include "cmd/plan.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/utf8.h"

/* ---- for people ---- */

/* "64 KiB", "1.5 MiB" */
static const char *format_bytes(double bytes, char *out, size_t out_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;

    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    (void)snprintf(out, out_bytes, "%.4g %s", bytes, units[unit]);
    return out;
}

static const char *plural(size_t n)
{
    return n == 1 ? "" : "s";
}

static void print_job(const struct forecast *f)
{
    const struct shape *s = &f->o.shape;
    int P = f->cluster.ranks;

    printf("model     %s: L=%zu H=%zu C=%zu T=%zu V=%zu, %.2f M parameters\n", f->model,
           s->L, s->H, s->C, s->T, s->V, 1e-6 * (double)shape_parameters(s));
    printf("job       %d rank%s on %d host%s, %d worker%s each; %zu sequences x %zu "
           "tokens x %zu micro-batch%s a rank = %.0f tokens a step\n",
           P, plural((size_t)P), f->cluster.hosts, plural((size_t)f->cluster.hosts),
           f->o.workers, plural((size_t)f->o.workers), f->o.batch, f->o.seq, f->o.accum,
           f->o.accum == 1 ? "" : "es", forecast_tokens(f));
}

static void print_sources(const struct forecast *f)
{
    const struct network *n = &f->cluster.network;

    printf("network   ");
    if (f->network_file)
        printf("%s, measured with %s on %d host%s: ", f->network_file, n->library,
               n->hosts, plural((size_t)n->hosts));
    else
        printf("ASSUMED (--network FILE takes measured figures): ");
    printf("%.3g Gbit/s, %.3g us, %.3g Gbit/s when all send to one; sums %.3g GB/s a "
           "worker; %.3g us of CPU a message\n",
           8e-9 * n->bandwidth_Bps, 1e6 * n->latency_s, 8e-9 * n->congested_Bps,
           1e-9 * n->sum_Bps, 1e6 * n->message_s);
    printf("compute   %.4g s forward and backward, ", f->o.compute_s);
    if (f->compute_source == COMPUTE_GIVEN)
        printf("as given (%.4g GF/s a rank)\n", 1e-9 * f->rank_flops);
    else if (f->compute_source == COMPUTE_RATE_GIVEN)
        printf("from %.4g GF/s a rank, as given\n", 1e-9 * f->rank_flops);
    else
        printf("ASSUMED from %.4g GF/s a rank: 0.6 of what %d core%s like this "
               "machine's can do\n",
               1e-9 * f->rank_flops, f->o.workers, plural((size_t)f->o.workers));
}

static void print_takes(const struct forecast *f)
{
    const struct engine_plan *p = &f->plan;
    char block[32];
    char texts[32] = "";

    if (f->texts_bytes > 0)
        (void)snprintf(texts, sizeof texts, " + texts %.1f",
                       1e-6 * (double)f->texts_bytes);
    printf("\nblocks    %zu of %s, %s, %d round%s; busiest owner %.2f x the mean\n",
           p->blocks, format_bytes(p->block_bytes, block, sizeof block),
           strategy_ops(f->o.strategy)->name, p->rounds, plural((size_t)p->rounds),
           p->imbalance);
    printf("memory    rank 0: parameters %.1f + gradients %.1f + moments %.1f + "
           "activations %.1f + scratch %.1f%s + program %.1f = %.1f MB\n",
           1e-6 * (double)p->params, 1e-6 * (double)p->grads, 1e-6 * (double)p->moments,
           1e-6 * (double)p->activations, 1e-6 * (double)p->scratch, texts,
           1e-6 * (double)f->program_bytes,
           1e-6 * (double)(p->total + f->texts_bytes + f->program_bytes));
    printf("wire      a rank sends up to %.1f MB a step in %llu messages\n",
           1e-6 * (double)f->cost.sent_bytes, (unsigned long long)f->cost.messages);
}

static void print_step(const struct forecast *f)
{
    const struct cost *c = &f->cost;

    printf("step      %.4g s, %.0f tokens/s; no less than %.4g s for compute, %.4g s "
           "for the busiest link\n",
           c->step_s, forecast_tokens(f) / c->step_s, c->compute_s, c->wire_bound_s);
    printf("exposed   %.4g s (%.1f %% of the step) in which a rank waits for messages\n",
           c->exposed_s, 100 * c->exposed_s / c->step_s);
}

static void print_row(const char *what, size_t block_bytes, const struct forecast *f,
                      const struct cost *c, bool best)
{
    char block[32];

    (void)format_bytes((double)block_bytes, block, sizeof block);
    if (c->step_s > 0)
        printf("%-18s %8s %10.4g %10.4g %12.0f%s\n", what, f->o.one_block ? "one" : block,
               c->step_s, c->exposed_s, forecast_tokens(f) / c->step_s,
               best ? "  best" : "");
    else
        printf("%-18s %8s %10s %10s %12s\n", what, f->o.one_block ? "one" : block, "-",
               "-", "-");
}

static void print_tables(const struct forecast *f)
{
    bool left_out = false;

    printf("\n%-18s %8s %10s %10s %12s\n", "strategy", "block", "step s", "exposed s",
           "tokens/s");
    for (size_t i = 0; i < COST_STRATEGIES; i++) {
        print_row(strategy_ops(f->strategies[i])->name, f->strategy_block[i], f,
                  &f->strategy_cost[i], i == f->best_strategy);
        left_out = left_out || f->strategy_cost[i].step_s <= 0;
    }
    if (!f->o.one_block) {
        printf("\n%-18s %8s %10s %10s %12s\n", strategy_ops(f->o.strategy)->name, "block",
               "step s", "exposed s", "tokens/s");
        for (size_t i = COST_BLOCK_SIZES; i-- > 0;) {
            print_row("", (size_t)COST_MOST_BLOCK >> i, f, &f->block_cost[i],
                      i == f->best_block);
            left_out = left_out || f->block_cost[i].step_s <= 0;
        }
    }
    if (left_out)
        printf("\n- not worked out: too many messages to be the best\n");
}

void forecast_print(const struct forecast *f)
{
    print_job(f);
    print_sources(f);
    print_takes(f);
    print_step(f);
    if (f->tables)
        print_tables(f);
}

/* ---- JSON ---- */

static json_t *network_json(const struct forecast *f)
{
    const struct network *n = &f->cluster.network;

    return json_pack("{s:o, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "file",
                     f->network_file ? utf8_json(f->network_file) : json_null(),
                     "library", n->library, "latency_s", n->latency_s, "bandwidth_Bps",
                     n->bandwidth_Bps, "congested_bandwidth_Bps", n->congested_Bps,
                     "host_bandwidth_Bps", n->host_bandwidth_Bps, "sum_Bps", n->sum_Bps,
                     "message_s", n->message_s);
}

static json_t *memory_json(const struct forecast *f)
{
    const struct engine_plan *p = &f->plan;

    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "parameters",
                     (json_int_t)p->params, "gradients", (json_int_t)p->grads, "moments",
                     (json_int_t)p->moments, "activations", (json_int_t)p->activations,
                     "scratch", (json_int_t)p->scratch, "texts",
                     (json_int_t)f->texts_bytes, "program", (json_int_t)f->program_bytes,
                     "total", (json_int_t)(p->total + f->texts_bytes + f->program_bytes));
}

static json_t *job_json(const struct forecast *f)
{
    const struct engine_options *o = &f->o;
    const struct shape *s = &o->shape;

    return json_pack(
        "{s:s, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:i, s:i, s:i, s:I, s:I, s:I, s:f}",
        "model", f->model, "shape", "L", (json_int_t)s->L, "H", (json_int_t)s->H, "C",
        (json_int_t)s->C, "T", (json_int_t)s->T, "V", (json_int_t)s->V, "parameters",
        (json_int_t)shape_parameters(s), "ranks", f->cluster.ranks, "hosts",
        f->cluster.hosts, "threads", o->workers, "batch", (json_int_t)o->batch, "seq",
        (json_int_t)o->seq, "accum", (json_int_t)o->accum, "tokens", forecast_tokens(f));
}

static json_t *cost_json(const struct forecast *f, const struct cost *c)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I}", "step_s", c->step_s,
                     "exposed_s", c->exposed_s, "most_exposed_s", c->most_exposed_s,
                     "compute_s", c->compute_s, "wire_bound_s", c->wire_bound_s,
                     "tokens_per_s", forecast_tokens(f) / c->step_s, "sent_bytes",
                     (json_int_t)c->sent_bytes, "messages", (json_int_t)c->messages,
                     "blocks", (json_int_t)c->blocks);
}

static json_t *strategies_json(const struct forecast *f)
{
    json_t *list = json_array();

    for (size_t i = 0; i < COST_STRATEGIES; i++) {
        if (f->strategy_cost[i].step_s <= 0)
            continue;
        json_t *row = cost_json(f, &f->strategy_cost[i]);

        json_object_set_new(row, "strategy",
                            json_string(strategy_ops(f->strategies[i])->name));
        json_object_set_new(row, "block_bytes",
                            json_integer((json_int_t)f->strategy_block[i]));
        json_object_set_new(row, "best", json_boolean(i == f->best_strategy));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *blocks_json(const struct forecast *f)
{
    json_t *list = json_array();

    for (size_t i = COST_BLOCK_SIZES; i-- > 0;) {
        if (f->block_cost[i].step_s <= 0)
            continue;
        json_t *row = cost_json(f, &f->block_cost[i]);

        json_object_set_new(row, "block_bytes",
                            json_integer((json_int_t)COST_MOST_BLOCK >> i));
        json_object_set_new(row, "best", json_boolean(i == f->best_block));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *exchange_json(const struct forecast *f)
{
    static const char *const rounds[] = {"auto", "flat", "recursive"};
    const struct engine_options *o = &f->o;
    const struct engine_plan *p = &f->plan;

    return json_pack(
        "{s:s, s:I, s:I, s:f, s:f, s:i, s:s, s:i, s:b, s:s, s:b, s:b, s:s, s:b, s:I, "
        "s:I}",
        "strategy", strategy_ops(o->strategy)->name, "block_bytes",
        (json_int_t)(o->one_block ? 0 : o->block_bytes), "blocks", (json_int_t)p->blocks,
        "mean_block_bytes", p->block_bytes, "imbalance", p->imbalance, "rounds",
        p->rounds, "schedule", rounds[o->schedule], "roots", o->roots, "one_root",
        o->one_root, "wire", o->wire == WIRE_FP32 ? "fp32" : "bf16", "host_memory",
        o->host_memory, "split_embedding", o->split_embedding, "layout",
        o->layout == LAYOUT_PRODUCTION ? "production" : "storage", "overlap", o->overlap,
        "reduce_bytes", (json_int_t)p->reduce_bytes, "return_bytes",
        (json_int_t)p->return_bytes);
}

enum status forecast_print_json(const struct forecast *f)
{
    static const char *const sources[] = {"given", "rate", "this machine"};
    json_t *root = json_object();
    int failures = 0;

    failures += json_object_set_new(root, "job", job_json(f));
    failures += json_object_set_new(root, "exchange", exchange_json(f));
    failures += json_object_set_new(root, "network", network_json(f));
    failures += json_object_set_new(root, "compute_source",
                                    json_string(sources[f->compute_source]));
    failures += json_object_set_new(root, "flops_per_second", json_real(f->rank_flops));
    failures += json_object_set_new(root, "memory_bytes", memory_json(f));
    failures += json_object_set_new(root, "prediction", cost_json(f, &f->cost));
    if (f->tables) {
        failures += json_object_set_new(root, "strategies", strategies_json(f));
        failures += json_object_set_new(root, "block_sizes", blocks_json(f));
    }
    if (failures) {
        json_decref(root);
        return fail(ST_NOMEM, "plan: no memory for the figures");
    }
    (void)json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(root);
    return ST_OK;
}
