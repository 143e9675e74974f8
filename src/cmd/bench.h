/* bench.h - what the subcommands of `weft bench` share. */
#ifndef WEFT_CMD_BENCH_H
#define WEFT_CMD_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "comm/comm.h"

/* argv[0] is "bench NAME"; otherwise as in cmd.h. */
enum status bench_network(int argc, char **argv, int *exit_code);
enum status bench_gemm(int argc, char **argv, int *exit_code);
enum status bench_kernels(int argc, char **argv, int *exit_code);
enum status bench_step(int argc, char **argv, int *exit_code);
enum status bench_update(int argc, char **argv, int *exit_code);

/* Names of the benchmarks, in the order of the overview; NULL behind the last. */
const char *bench_name(size_t i);

/* Reads "64,1M,16M" or "64..64M" (in steps of four) into out[most]; each value in
 * [least, greatest]. `option` is for the error text. Returns ST_OK, ST_USAGE. */
enum { BENCH_LIST_MOST = 32 };
MUST_USE enum status bench_read_sizes(const char *option, const char *text, size_t least,
                                      size_t greatest, size_t *out, size_t *n);

/* Reads "flat,recursive" into indices of `words` (separated by '|'), each once. */
MUST_USE enum status bench_read_words(const char *option, const char *text,
                                      const char *words, int *out, size_t *n);

/* The folder of a result file is there and can be written: told before, not after. */
MUST_USE enum status bench_check_output(const char *path);

/* Writes an object as a file, whole or not at all; takes the reference. */
MUST_USE enum status bench_write_json(json_t *root, const char *path);

/* A number, null where it is not finite. */
json_t *bench_number(double x);

/* "64 B", "256 KiB", "7.6 MiB"; buf >= 16 bytes. */
const char *bench_format_bytes(double bytes, char *buf, size_t buf_bytes);

#endif
