/* SPDX-License-Identifier: MIT */
/* The table and the file of `weft bench update`. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/bench_update.h"
#include "comm/comm_bench.h"
#include "task/task.h"

enum { FORMAT_VERSION = 1 };

static const char *on_off(bool on)
{
    return on ? "on" : "off";
}

static const char *engine_name(const struct update_setup *s)
{
    return s->engine == EXCHANGE_DIRECT ? "direct" : "collective";
}

static const char *layout_name(enum layout_order layout)
{
    return layout == LAYOUT_PRODUCTION ? "production" : "storage";
}

static const char *schedule_name(const struct update_setup *s)
{
    static const char *const names[] = {"auto", "flat", "recursive"};

    return names[s->schedule];
}

static const char *wire_name(const struct update_setup *s)
{
    return s->wire == WIRE_FP32 ? "fp32" : "bf16";
}

static void strategy_text(const struct update_setup *s, char *buf, size_t buf_bytes)
{
    const char *name = strategy_ops(s->strategy)->name;

    if (s->one_root)
        (void)snprintf(buf, buf_bytes, "%s, one root", name);
    else if (s->roots > 1)
        (void)snprintf(buf, buf_bytes, "%s, %d roots", name, s->roots);
    else
        (void)snprintf(buf, buf_bytes, "%s", name);
}

const char *update_name(const struct update_setup *s, char *buf, size_t buf_bytes)
{
    char strategy[48], block[16] = "auto", nap[32] = "";

    strategy_text(s, strategy, sizeof strategy);
    if (s->one_block)
        (void)snprintf(block, sizeof block, "one");
    else if (s->block_bytes)
        bench_format_bytes((double)s->block_bytes, block, sizeof block);
    if (s->longest_nap_us != COMM_LONGEST_NAP_US)
        (void)snprintf(nap, sizeof nap, ", naps %d us", s->longest_nap_us);
    (void)snprintf(
        buf, buf_bytes, "%s, %s, %s, blocks %s%s%s%s%s%s%s%s", strategy, engine_name(s),
        layout_name(s->layout), block, s->schedule ? ", " : "",
        s->schedule ? schedule_name(s) : "", s->wire == WIRE_BF16 ? ", bf16" : "",
        s->split_embedding ? ", split" : "", s->host_memory ? ", shared memory" : "",
        s->overlap ? "" : ", no overlap", nap);
    return buf;
}

/* ---- figures of a row ---- */

static double median(double *values, size_t n)
{
    return bench_spread_of(values, n).median;
}

static const struct update_alone *alone_of(const struct update_bench *b,
                                           const struct update_row *row)
{
    const struct update_alone *a = b->alone;

    while (a->layout != row->setup.layout)
        a++;
    return a;
}

/* Time of the step without exchange: forward and backward, and of the update the share of
 * the busiest rank. */
static double alone_s(const struct update_bench *b, const struct update_row *row)
{
    const struct update_alone *a = alone_of(b, row);
    double gradients = median(a->gradients_s, a->n);
    double update = fmax(0, median(a->step_s, a->n) - gradients);

    return gradients + row->update_share * update;
}

static double compute_s(const struct update_bench *b, const struct update_row *row)
{
    return b->compute_s > 0 ? b->compute_s : alone_s(b, row);
}

static double wire_s(const struct update_bench *b, const struct update_row *row)
{
    return b->link_Bps > 0 ? row->busiest_link_bytes / b->link_Bps : NAN;
}

/* The step that the cost model expects; it knows nothing of a library's own messages. */
static double predicted_s(const struct update_bench *b, const struct update_row *row)
{
    struct engine_options o = update_engine_options(b, &row->setup);
    struct cost cost;

    if (!b->network || comm_size(b->comm) == 1 || o.exchange != EXCHANGE_DIRECT)
        return NAN;
    if (b->compute_s <= 0)
        o.compute_s = median(alone_of(b, row)->gradients_s, alone_of(b, row)->n);
    return cost_predict(&o, &b->cluster, &cost) == ST_OK ? cost.step_s : NAN;
}

static double balance(const struct update_row *row)
{
    return row->bytes > 0 ? row->most_bytes / row->bytes : 1;
}

/* The plan speaks of messages of our own; a library sends what it likes. */
static double predicted_bytes(const struct update_row *row)
{
    return row->setup.engine == EXCHANGE_DIRECT ? row->predicted_bytes : NAN;
}

/* ---- table ---- */

enum { N_COLUMNS = 10, CELL = 40 };

static const char *const column_names[N_COLUMNS] = {
    "strategy", "engine", "layout", "block",   "rounds",
    "wire",     "split",  "memory", "overlap", "nap us"};

static void fill_cells(const struct update_row *row, char cells[N_COLUMNS][CELL])
{
    const struct update_setup *s = &row->setup;

    strategy_text(s, cells[0], CELL);
    (void)snprintf(cells[1], CELL, "%s", engine_name(s));
    (void)snprintf(cells[2], CELL, "%s", layout_name(s->layout));
    bench_format_bytes(row->block_bytes, cells[3], CELL);
    (void)snprintf(cells[4], CELL, "%d %s", row->rounds, schedule_name(s));
    (void)snprintf(cells[5], CELL, "%s", wire_name(s));
    (void)snprintf(cells[6], CELL, "%s", on_off(s->split_embedding));
    (void)snprintf(cells[7], CELL, "%s", s->host_memory ? "shared" : "own");
    (void)snprintf(cells[8], CELL, "%s", on_off(s->overlap));
    (void)snprintf(cells[9], CELL, "%d", s->longest_nap_us);
}

/* Width of each column, 0 for one that says the same in all rows (but the first). */
static void measure_columns(const struct update_bench *b, size_t width[N_COLUMNS])
{
    char first[N_COLUMNS][CELL], cells[N_COLUMNS][CELL];
    bool differs[N_COLUMNS] = {true};

    fill_cells(&b->rows[0], first);
    for (int c = 0; c < N_COLUMNS; c++)
        width[c] = strlen(column_names[c]);
    for (size_t i = 0; i < b->n_rows; i++) {
        fill_cells(&b->rows[i], cells);
        for (int c = 0; c < N_COLUMNS; c++) {
            width[c] = max_size(width[c], strlen(cells[c]));
            differs[c] = differs[c] || strcmp(cells[c], first[c]) != 0;
        }
    }
    for (int c = 0; c < N_COLUMNS; c++)
        width[c] = differs[c] ? width[c] : 0;
}

static void print_cells(const size_t width[N_COLUMNS], char cells[N_COLUMNS][CELL])
{
    for (int c = 0; c < N_COLUMNS; c++)
        if (width[c] > 0)
            printf("%-*s  ", (int)width[c], cells[c]);
}

/* What all rows have in common. */
static void print_common(const struct update_bench *b, const size_t width[N_COLUMNS])
{
    char cells[N_COLUMNS][CELL];
    const char *comma = "all rows: ";

    fill_cells(&b->rows[0], cells);
    for (int c = 0; c < N_COLUMNS; c++)
        if (width[c] == 0) {
            printf("%s%s %s", comma, column_names[c], cells[c]);
            comma = ", ";
        }
    printf("\n");
}

static void print_head(const struct update_bench *b, const size_t width[N_COLUMNS])
{
    printf(
        "update of %s on %d rank%s of %d host%s, %s; B=%zu T=%zu accum=%zu, %d worker%s "
        "a rank, %s\n",
        b->model, comm_size(b->comm), comm_size(b->comm) == 1 ? "" : "s", b->hosts,
        b->hosts == 1 ? "" : "s", comm_library(b->comm), b->batch, b->seq, b->accum,
        b->workers, b->workers == 1 ? "" : "s", task_backend());
    print_common(b, width);
    if (b->compute_s > 0)
        printf("compute: simulated, %.4g s a step\n\n", b->compute_s);
    else
        printf(
            "compute: the step of each rank alone, all ranks at once, without exchange; "
            "of the update a\nrank's share\n\n");
    for (int c = 0; c < N_COLUMNS; c++)
        if (width[c] > 0)
            printf("%-*s  ", (int)width[c], column_names[c]);
    printf("%8s %17s %8s %8s %8s %8s %9s %9s %7s %7s %8s %8s %6s\n", "step s",
           "least .. most", "exposed", "hidden", "idle", "comm CPU", "MB/rank", "planned",
           "msgs", "balance", "compute", "wire", "/bound");
}

static void print_number(int width, int digits, double x)
{
    if (isfinite(x))
        printf(" %*.*f", width, digits, x);
    else
        printf(" %*s", width, "-");
}

static void print_row(struct update_bench *b, struct update_row *row)
{
    struct bench_spread step = bench_spread_of(row->figures[UPDATE_STEP], row->n);
    double compute = compute_s(b, row);
    double wire = wire_s(b, row);
    char range[32];

    (void)snprintf(range, sizeof range, "%.4f .. %.4f", step.least, step.most);
    printf("%8.4f %17s", step.median, range);
    for (int f = UPDATE_EXPOSED; f < UPDATE_FIGURES; f++)
        print_number(8, 4, median(row->figures[f], row->n));
    print_number(9, 3, 1e-6 * row->bytes);
    print_number(9, 3, 1e-6 * predicted_bytes(row));
    print_number(7, 0, row->messages);
    print_number(7, 2, balance(row));
    print_number(8, 4, compute);
    print_number(8, 4, wire);
    print_number(6, 2, step.median / (isfinite(wire) ? fmax(compute, wire) : compute));
    print_number(8, 4, predicted_s(b, row));
    printf("\n");
}

void update_print(struct update_bench *b)
{
    size_t width[N_COLUMNS];
    char cells[N_COLUMNS][CELL];

    measure_columns(b, width);
    print_head(b, width);
    for (size_t i = 0; i < b->n_rows; i++) {
        fill_cells(&b->rows[i], cells);
        print_cells(width, cells);
        print_row(b, &b->rows[i]);
    }
    printf("\n%zu step%s a row; exposed to comm CPU: means over ranks; /bound: step over "
           "the larger of compute%s\n",
           b->rows[0].n, b->rows[0].n == 1 ? "" : "s",
           b->link_Bps > 0 ? " and wire" : "; --network gives the wire");
}

/* ---- JSON ---- */

static json_t *setup_json(const struct update_bench *b, const struct update_row *row)
{
    const struct update_setup *s = &row->setup;

    return json_pack(
        "{s:s, s:s, s:s, s:f, s:I, s:i, s:s, s:i, s:b, s:b, s:b, s:s, s:b, s:i, s:i, "
        "s:s, "
        "s:s, s:I, s:I, s:I, s:i, s:i}",
        "strategy", strategy_ops(s->strategy)->name, "engine", engine_name(s), "layout",
        layout_name(s->layout), "block_bytes", row->block_bytes, "blocks",
        (json_int_t)row->blocks, "roots", s->roots, "schedule", schedule_name(s),
        "exchange_rounds", row->rounds, "one_root", s->one_root, "overlap", s->overlap,
        "split_embedding", s->split_embedding, "wire", wire_name(s), "host_memory",
        s->host_memory, "ranks", comm_size(b->comm), "hosts", b->hosts, "library",
        comm_library(b->comm), "model", b->model, "batch", (json_int_t)b->batch, "seq",
        (json_int_t)b->seq, "accum", (json_int_t)b->accum, "threads", b->workers,
        "longest_nap_us", s->longest_nap_us);
}

static void set(json_t *row, const char *name, double x)
{
    json_object_set_new(row, name, bench_number(x));
}

static json_t *row_json(struct update_bench *b, struct update_row *row)
{
    struct bench_spread step = bench_spread_of(row->figures[UPDATE_STEP], row->n);
    double compute = compute_s(b, row);
    double wire = wire_s(b, row);
    json_t *out = setup_json(b, row);

    set(out, "compute_s", compute);
    set(out, "alone_s", alone_s(b, row));
    set(out, "step_s", step.median);
    set(out, "step_s_min", step.least);
    set(out, "step_s_max", step.most);
    set(out, "exposed_s", median(row->figures[UPDATE_EXPOSED], row->n));
    set(out, "hidden_s", median(row->figures[UPDATE_HIDDEN], row->n));
    set(out, "idle_s", median(row->figures[UPDATE_IDLE], row->n));
    set(out, "comm_cpu_s", median(row->figures[UPDATE_COMM_CPU], row->n));
    set(out, "bytes_per_rank", row->bytes);
    set(out, "bytes_predicted", predicted_bytes(row));
    set(out, "messages", row->messages);
    set(out, "balance", balance(row));
    set(out, "link_bytes", row->busiest_link_bytes);
    set(out, "wire_bound_s", wire);
    set(out, "bound_s", isfinite(wire) ? fmax(compute, wire) : NAN);
    set(out, "predicted_s", predicted_s(b, row));
    set(out, "loss", row->loss);
    json_object_set_new(out, "steps", json_integer((json_int_t)row->n));
    json_object_set_new(out, "compute",
                        json_string(b->compute_s > 0 ? "simulated" : "real"));
    return out;
}

json_t *update_json(struct update_bench *b)
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:s, s:o, s:f}", "format",
                             "weft-bench-update", "version", FORMAT_VERSION, "weft",
                             WEFT_VERSION, "tasks", task_backend(), "bandwidth_Bps",
                             bench_number(b->link_Bps > 0 ? b->link_Bps : NAN),
                             "parameters", (double)shape_parameters(&b->shape));
    json_t *rows = json_array();

    for (size_t i = 0; i < b->n_rows; i++)
        json_array_append_new(rows, row_json(b, &b->rows[i]));
    json_object_set_new(root, "rows", rows);
    return root;
}
