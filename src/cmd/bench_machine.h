/* bench_machine.h - what the benchmarks of one rank share: ceilings of the machine,
 * measured in the same run, the model that is measured, and how figures are told.
 */
#ifndef WEFT_CMD_BENCH_MACHINE_H
#define WEFT_CMD_BENCH_MACHINE_H

#include <jansson.h>
#include <stddef.h>

#include "base/options.h"
#include "base/status.h"
#include "comm/comm_bench.h"
#include "model/shape.h"

/* ---- ceilings ---- */

/* What the workers do together, at the same time. */
struct machine {
    int workers;
    double fma_flops, bf16_flops; /* [flop/s]; bf16: 0 without the instruction */
    double read_Bps, copy_Bps, triad_Bps, update_Bps; /* memory; kernels/ceiling.h */
    size_t memory_bytes;                              /* that the patterns went through */
    /* One worker: first touch of pages of 4 KiB, and of huge ones. */
    double touch_Bps, touch_huge_Bps;
};

/* Takes about half a second.
 * Call     from the creator within task_run(), while no task is unfinished
 * In       memory_bytes: beyond the caches; that much is allocated meanwhile
 * Returns  ST_OK, ST_NOMEM */
MUST_USE enum status machine_measure(int workers, size_t memory_bytes,
                                     struct machine *out);
void machine_print(const struct machine *m);
json_t *machine_json(const struct machine *m);

/* Twice the largest cache or 512 MiB, but at most a quarter of the memory that is free.
 */
size_t machine_memory_bytes(void);
/* Half of a core's second-level cache. */
size_t machine_cache_bytes(void);
/* Cores that this process may use. */
size_t machine_cores(void);

/* ---- the model ---- */

struct bench_model {
    const char *spec;
    size_t batch, seq, threads;
    struct shape shape; /* out */
};

/* Checks and fills in: a sequence of 0 tokens, or the default one of a shorter model, is
 * the model's own; 0 threads are the cores. */
MUST_USE enum status bench_model_read(struct bench_model *m, bool seq_is_set);
/* "L=12 H=12 C=768 T=1024 V=50257, B=4 T=256"; buf >= 96 bytes */
const char *bench_model_text(const struct bench_model *m, char *buf, size_t buf_bytes);
/* Sets model, batch, seq and threads. */
void bench_model_json(json_t *root, const struct bench_model *m);

/* ---- running ---- */

/* What these benchmarks have in common: no arguments but options, --json that can be
 * written, one process.
 * Returns  the status to go on with; ST_OK and *done after --help */
struct bench_command {
    const char *name;  /* "gemm" */
    const char *about; /* usage and explanation, for --help */
    struct option_row *table;
    const char *const *json;
    const bool *help;
};
MUST_USE enum status bench_begin(const struct bench_command *c, int argc, char **argv,
                                 bool *done);
/* Starts MPI, which every engine needs, and refuses more than one rank (told once by
 * rank 0). To be ended with comm_stop().
 * Returns  ST_OK and *comm NULL: there were several ranks; *exit_code is set */
MUST_USE enum status bench_start_alone(const char *name, struct comm **comm,
                                       int *exit_code);

/* ---- figures ---- */

/* root[name] = median, root.spread[name] = [least, most] */
void bench_set_spread(json_t *root, const char *name, struct bench_spread s);

#endif
