/* SPDX-License-Identifier: MIT */
/* weft check: does this machine compute, schedule and communicate right? Each line is one
 * thing that training relies on, tried here and now; under mpirun on every rank. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/rng.h"
#include "cmd/cmd.h"
#include "comm/comm.h"
#include "kernels/kernels.h"
#include "kernels/ref/ref.h"
#include "task/task.h"

/* A kernel with a larger normalised error is called wrong: ten times what tests allow. */
static const double kernel_limit = 1e-4;

enum { ROWS = 37, C = 48, HEADS = 3, BUFFER = ROWS * 4 * C };

/* Inputs, the kernel's answer, and the definition's answer in double. */
struct bench {
    float in[4][BUFFER], out[BUFFER];
    double in_d[4][BUFFER], out_d[BUFFER];
};

static void fill(struct bench *b)
{
    for (uint64_t k = 0; k < 4; k++) {
        for (uint64_t i = 0; i < BUFFER; i++) {
            b->in[k][i] = (float)rng_normal(1, k, i);
            b->in_d[k][i] = (double)b->in[k][i];
        }
    }
}

/* |got - wanted| / |wanted| in the Euclidean norm; infinite for NaN. */
static double error_of(const struct bench *b, size_t n)
{
    double difference = 0;
    double size = 0;

    for (size_t i = 0; i < n; i++) {
        double d = (double)b->out[i] - b->out_d[i];

        difference += d * d;
        size += b->out_d[i] * b->out_d[i];
    }
    double e = sqrt(difference / (size > 0 ? size : 1));
    return isfinite(e) ? e : INFINITY;
}

static double try_gemm(struct bench *b, const struct kernels *k)
{
    (void)k;
    gemm(false, true, ROWS, C, 2 * C, b->in[0], 2 * C, b->in[1], 2 * C, 0, b->out, C);
    ref_matmul_d(false, true, ROWS, C, 2 * C, b->in_d[0], 2 * C, b->in_d[1], 2 * C, 0,
                 b->out_d, C);
    return error_of(b, ROWS * C);
}

static double try_layernorm(struct bench *b, const struct kernels *k)
{
    float mean[ROWS], rstd[ROWS];
    double mean_d[ROWS], rstd_d[ROWS];

    k->layernorm_fwd(b->out, mean, rstd, b->in[0], b->in[1], b->in[2], ROWS, C);
    ref_layernorm_fwd_d(b->out_d, mean_d, rstd_d, b->in_d[0], b->in_d[1], b->in_d[2],
                        ROWS, C);
    return error_of(b, ROWS * C);
}

static double try_gelu(struct bench *b, const struct kernels *k)
{
    k->gelu_fwd(b->out, b->in[0], BUFFER);
    ref_gelu_fwd_d(b->out_d, b->in_d[0], BUFFER);
    return error_of(b, BUFFER);
}

static double try_attention(struct bench *b, const struct kernels *k)
{
    float lse[ROWS];
    double lse_d[HEADS * ROWS];
    float *work = calloc(attention_work_elems(ROWS, C / HEADS), sizeof *work);
    double *p = calloc(HEADS * ROWS * ROWS, sizeof *p);
    double e = INFINITY;

    if (work && p) {
        ref_attention_fwd_d(b->out_d, lse_d, p, b->in_d[0], ROWS, C, HEADS);
        for (size_t h = 0; h < HEADS; h++)
            k->attention_fwd(b->out, lse, b->in[0], ROWS, C, HEADS, h, work);
        e = error_of(b, ROWS * C);
    }
    free(work);
    free(p);
    return e;
}

static enum status check_kernels(const struct kernels *k)
{
    static const struct {
        const char *name;
        double (*run)(struct bench *b, const struct kernels *k);
    } rows[] = {{"matrix product", try_gemm},
                {"layer-norm", try_layernorm},
                {"gelu", try_gelu},
                {"attention", try_attention}};
    struct bench *b;
    enum status st = memory_alloc(1, sizeof *b, "check", &b);

    if (st != ST_OK)
        return st;
    fill(b);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && st == ST_OK; i++) {
        double e = rows[i].run(b, k);

        if (!(e < kernel_limit))
            st = fail(ST_BUG,
                      "%s (%s, %s): error %.3g against the definition, needs below "
                      "%.0e",
                      rows[i].name, k->isa, gemm_library(), e, kernel_limit);
    }
    free(b);
    return st;
}

static int cores_of_this_rank(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

/* One line of the report; every rank must agree that it holds. */
static enum status report(struct comm *c, const char *what, const char *how,
                          enum status st, double started)
{
    st = comm_agree(c, st);
    if (comm_rank(c) == 0)
        printf("%-8s %-14s %s (%.2f s)\n", st == ST_OK ? "ok" : "FAILED", what, how,
               clock_s() - started);
    return st;
}

static enum status run(struct comm *c, int workers, const char *isa)
{
    const struct kernels *k = NULL;
    char text[160];
    double start = clock_s();
    enum status worst = ST_OK;
    enum status st = kernels_select(isa, &k);

    if (st == ST_OK)
        st = check_kernels(k);
    (void)snprintf(text, sizeof text, "%s; products by %s", k ? k->isa : "none",
                   gemm_library());
    st = report(c, "kernels", text, st, start);
    worst = st < worst ? st : worst;

    start = clock_s();
    (void)snprintf(text, sizeof text, "%s, %d worker%s", task_backend(), workers,
                   workers == 1 ? "" : "s");
    st = report(c, "tasks", text, task_self_test(workers), start);
    worst = st < worst ? st : worst;

    start = clock_s();
    (void)snprintf(text, sizeof text, "%s, %d rank%s", comm_library(c), comm_size(c),
                   comm_size(c) == 1 ? "" : "s");
    st = report(c, "communication", text, comm_self_test(c), start);
    worst = st < worst ? st : worst;

    double fewest = -cores_of_this_rank();
    comm_max(c, &fewest, 1);
    if (comm_rank(c) == 0)
        printf("%-8s %-14s %d core%s for each rank%s\n",
               (int)-fewest < workers ? "warning" : "ok", "binding", (int)-fewest,
               (int)-fewest == 1 ? "" : "s",
               (int)-fewest < workers ? ": workers share cores; start mpirun with "
                                        "--bind-to none or --map-by slot:PE=N"
                                      : "");
    return worst;
}

enum status cmd_check(int argc, char **argv, int *exit_code)
{
    size_t threads = 2;
    const char *isa = NULL;
    bool help = false;
    struct option_row table[] = {
        {"threads", OPTION_SIZE, &threads, "N", "workers a rank to test with", 0, 0},
        {"isa", OPTION_TEXT, &isa, "NAME", "kernels to test: generic, avx2, avx512", 0,
         0},
        {"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
        {0},
    };
    struct comm *comm;
    char **rest;
    int n_rest;
    enum status st = options_parse(table, argc, argv, &rest, &n_rest);

    if (st == ST_OK && n_rest > 0)
        st = fail(ST_USAGE, "check: found '%s', needs options only", rest[0]);
    if (st == ST_OK && (threads < 1 || threads > 1024))
        st = fail(ST_USAGE, "--threads: found %zu, needs 1 to 1024", threads);
    if (st == ST_OK && help) {
        printf(
            "usage: weft check [--threads N]\n       mpirun -n P weft check\n\n"
            "Tests kernels against their definitions, the task runtime, the MPI library "
            "and\nhow ranks are bound to cores.\n\n"
            "example: mpirun -n 2 weft check\n\noptions:\n");
        options_print_help(table);
        return ST_OK;
    }
    enum status started = comm_start(&comm);
    if (started != ST_OK)
        return started;
    gemm_init();
    st = comm_agree(comm, st);
    if (st == ST_OK)
        st = run(comm, (int)threads, isa);
    comm_stop(comm);
    *exit_code = status_exit_code(st);
    return ST_OK;
}
