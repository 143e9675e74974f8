/* SPDX-License-Identifier: MIT */
#include "cmd/bench_machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cmd/bench.h"
#include "engine/peak.h"
#include "kernels/ceiling.h"
#include "kernels/kernels.h"
#include "task/task.h"

/* ---- ceilings ---- */

static size_t configured(int name)
{
    long value = sysconf(name);

    return value > 0 ? (size_t)value : 0;
}

size_t machine_memory_bytes(void)
{
    size_t wanted = max_size((size_t)512 << 20, 2 * configured(_SC_LEVEL3_CACHE_SIZE));
    size_t available = configured(_SC_AVPHYS_PAGES) * configured(_SC_PAGESIZE);

    return available ? min_size(wanted, available / 4) : wanted;
}

size_t machine_cache_bytes(void)
{
    size_t cache = configured(_SC_LEVEL2_CACHE_SIZE);

    return (cache ? cache : (size_t)1 << 20) / 2;
}

size_t machine_cores(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
}

/* One worker's part of the memory, cut into arrays of n elements. */
struct stream {
    enum ceiling_pattern pattern;
    float *base;
    size_t n;
    double *Bps;
};

static void do_fill(void *args, struct task_event event)
{
    struct stream *s = args;

    (void)event;
    for (size_t i = 0; i < s->n; i++)
        s->base[i] = 1;
}

static void do_stream(void *args, struct task_event event)
{
    struct stream *s = args;

    (void)event;
    *s->Bps = ceiling_bandwidth(NULL, s->pattern, s->base, s->base + s->n,
                                s->base + 2 * s->n, s->n, 0.06);
}

/* All workers at once, each in its part of the memory. Returns the sum of the rates. */
static double on_parts(int workers, task_body body, enum ceiling_pattern pattern,
                       size_t arrays, float *base, size_t floats, double *Bps)
{
    size_t part = floats / (size_t)workers;
    double sum = 0;

    for (int i = 0; i < workers; i++) {
        struct stream s = {pattern, base + (size_t)i * part, part / arrays, &Bps[i]};

        task_spawn(&(struct task){
            .label = "bandwidth", .body = body, .args = &s, .args_bytes = sizeof s});
    }
    task_wait_all();
    for (int i = 0; i < workers; i++)
        sum += Bps[i];
    return sum;
}

static enum status measure_memory(int workers, struct machine *m)
{
    const struct {
        enum ceiling_pattern pattern;
        size_t arrays;
        double *Bps;
    } loops[] = {{CEILING_READ, 1, &m->read_Bps},
                 {CEILING_COPY, 2, &m->copy_Bps},
                 {CEILING_TRIAD, 3, &m->triad_Bps},
                 {CEILING_UPDATE, 2, &m->update_Bps}};
    size_t n = m->memory_bytes / sizeof(float);
    double *Bps = NULL;
    void *base = NULL;
    enum status st = memory_map(n * sizeof(float), "memory to measure", &base);

    if (st == ST_OK)
        st = memory_alloc((size_t)workers, sizeof *Bps, "figures", &Bps);
    if (st == ST_OK) {
        (void)on_parts(workers, do_fill, CEILING_READ, 1, base, n, Bps);
        for (size_t i = 0; i < sizeof loops / sizeof *loops; i++)
            *loops[i].Bps = on_parts(workers, do_stream, loops[i].pattern,
                                     loops[i].arrays, base, n, Bps);
    }
    free(Bps);
    memory_unmap(base, n * sizeof(float));
    return st;
}

static const size_t touch_bytes = (size_t)32 << 20, page_bytes = 4096;

/* Bytes a second at which pages are had that nobody has touched. */
static double touch(char *fresh)
{
    double start_s = clock_thread_cpu_s();

    for (size_t i = 0; i < touch_bytes; i += page_bytes)
        *(volatile char *)(fresh + i) = 1;
    return (double)touch_bytes / (clock_thread_cpu_s() - start_s);
}

static enum status measure_touch(struct machine *m)
{
    void *huge = NULL;
    char *small = mmap(NULL, touch_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    enum status st = small == MAP_FAILED
                         ? fail(ST_NOMEM, "no memory for %zu bytes", touch_bytes)
                         : memory_map(touch_bytes, "memory to touch", &huge);

    if (st == ST_OK) {
        (void)madvise(small, touch_bytes, MADV_NOHUGEPAGE);
        m->touch_Bps = touch(small);
        m->touch_huge_Bps = touch(huge);
    }
    if (small != MAP_FAILED)
        munmap(small, touch_bytes);
    memory_unmap(huge, touch_bytes);
    return st;
}

enum status machine_measure(int workers, size_t memory_bytes, struct machine *out)
{
    const double seconds = 0.02;
    struct peak peak;

    peak_measure(workers, seconds, true, &peak);
    *out = (struct machine){.workers = workers,
                            .fma_flops = peak.fma_flops,
                            .bf16_flops = peak.bf16_flops,
                            .memory_bytes = memory_bytes};
    enum status st = measure_memory(workers, out);

    return st == ST_OK ? measure_touch(out) : st;
}

void machine_print(const struct machine *m)
{
    char bytes[16], bf16[32] = "none";

    if (m->bf16_flops > 0)
        (void)snprintf(bf16, sizeof bf16, "%.1f GF/s", 1e-9 * m->bf16_flops);
    printf("ceilings of %d worker%s: multiply-adds %.1f GF/s, bf16 dot products %s;\n"
           "  memory (%s) read %.1f, copy %.1f, triad %.1f, update %.1f GB/s;\n"
           "  first touch %.2f GB/s by pages of 4 KiB (%.1f us each), %.1f GB/s by huge "
           "ones\n\n",
           m->workers, m->workers == 1 ? "" : "s", 1e-9 * m->fma_flops, bf16,
           bench_format_bytes((double)m->memory_bytes, bytes, sizeof bytes),
           1e-9 * m->read_Bps, 1e-9 * m->copy_Bps, 1e-9 * m->triad_Bps,
           1e-9 * m->update_Bps, 1e-9 * m->touch_Bps,
           1e6 * (double)page_bytes / m->touch_Bps, 1e-9 * m->touch_huge_Bps);
}

json_t *machine_json(const struct machine *m)
{
    return json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:f, s:f}", "workers",
                     m->workers, "fma_flops", m->fma_flops, "bf16_flops", m->bf16_flops,
                     "read_Bps", m->read_Bps, "copy_Bps", m->copy_Bps, "triad_Bps",
                     m->triad_Bps, "update_Bps", m->update_Bps, "memory_bytes",
                     (json_int_t)m->memory_bytes, "touch_Bps", m->touch_Bps,
                     "touch_huge_Bps", m->touch_huge_Bps);
}

/* ---- the model ---- */

enum status bench_model_read(struct bench_model *m, bool seq_is_set)
{
    const size_t most = (size_t)1 << 24;
    enum status st = shape_parse(m->spec, 0, &m->shape);

    if (st != ST_OK)
        return st;
    if (m->seq == 0 || (!seq_is_set && m->seq > m->shape.T))
        m->seq = m->shape.T;
    if (m->threads == 0)
        m->threads = machine_cores();
    if (m->seq > m->shape.T)
        return fail(ST_USAGE, "--seq: found %zu, needs at most the model's %zu", m->seq,
                    m->shape.T);
    if (m->batch < 1 || m->batch > most / m->seq)
        return fail(ST_USAGE, "--batch: found %zu, needs 1 to %zu for sequences of %zu",
                    m->batch, most / m->seq, m->seq);
    if (m->threads > 1024)
        return fail(ST_USAGE, "--threads: found %zu, needs 1 to 1024", m->threads);
    return ST_OK;
}

const char *bench_model_text(const struct bench_model *m, char *buf, size_t buf_bytes)
{
    const struct shape *s = &m->shape;

    (void)snprintf(buf, buf_bytes, "L=%zu H=%zu C=%zu T=%zu V=%zu, B=%zu T=%zu", s->L,
                   s->H, s->C, s->T, s->V, m->batch, m->seq);
    return buf;
}

void bench_model_json(json_t *root, const struct bench_model *m)
{
    const struct shape *s = &m->shape;

    json_object_set_new(root, "model",
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "L", (json_int_t)s->L,
                                  "H", (json_int_t)s->H, "C", (json_int_t)s->C, "T",
                                  (json_int_t)s->T, "V", (json_int_t)s->V, "parameters",
                                  (json_int_t)shape_parameters(s)));
    json_object_set_new(root, "batch", json_integer((json_int_t)m->batch));
    json_object_set_new(root, "seq", json_integer((json_int_t)m->seq));
    json_object_set_new(root, "threads", json_integer((json_int_t)m->threads));
}

/* ---- running ---- */

enum status bench_begin(const struct bench_command *c, int argc, char **argv, bool *done)
{
    char **rest;
    int n_rest;
    enum status st = options_parse(c->table, argc, argv, &rest, &n_rest);

    *done = false;
    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "bench %s: found '%s', needs options only", c->name, rest[0]);
    if (st != ST_OK)
        return st;
    if (*c->help) {
        printf("%s\noptions:\n", c->about);
        options_print_help(c->table);
        *done = true;
        return ST_OK;
    }
    return *c->json ? bench_check_output(*c->json) : ST_OK;
}

enum status bench_start_alone(const char *name, struct comm **comm, int *exit_code)
{
    enum status st = comm_start(comm);

    if (st != ST_OK || comm_size(*comm) == 1)
        return st;
    st = comm_agree(*comm, fail(ST_USAGE, "bench %s: found %d ranks, needs one", name,
                                comm_size(*comm)));
    comm_stop(*comm);
    *comm = NULL;
    *exit_code = status_exit_code(st);
    return ST_OK;
}

/* ---- figures ---- */

void bench_set_spread(json_t *root, const char *name, struct bench_spread s)
{
    json_t *spreads = json_object_get(root, "spread");

    if (!spreads) {
        spreads = json_object();
        json_object_set_new(root, "spread", spreads);
    }
    json_object_set_new(root, name, bench_number(s.median));
    json_object_set_new(spreads, name,
                        json_pack("[o, o]", bench_number(s.least), bench_number(s.most)));
}
