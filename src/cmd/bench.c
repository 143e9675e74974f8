/* SPDX-License-Identifier: MIT */
/* weft bench: one subcommand a thing that is measured. */
#include "cmd/bench.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "base/memory.h"
#include "base/options.h"
#include "cmd/cmd.h"

static const struct {
    const char *name;
    enum status (*run)(int argc, char **argv, int *exit_code);
    const char *summary;
} table[] = {
    {"network", bench_network,
     "latency, bandwidth, congestion and CPU time of messages between ranks"},
    {"gemm", bench_gemm, "the matrix products of a training step beside the ceiling"},
    {"kernels", bench_kernels, "every kernel, for every instruction set of this CPU"},
    {"step", bench_step, "training steps: speed, memory, and where the time goes"},
    {"update", bench_update,
     "the training step with each strategy, engine, layout and block size"},
};
enum { N_BENCHES = sizeof table / sizeof table[0] };

const char *bench_name(size_t i)
{
    return i < N_BENCHES ? table[i].name : NULL;
}

static void print_overview(void)
{
    printf("usage: weft bench NAME [OPTIONS]\n\nMeasures this machine; figures go to "
           "stdout, with --json to a file as well.\n\n");
    for (size_t i = 0; i < N_BENCHES; i++)
        printf("  %-10s %s\n", table[i].name, table[i].summary);
    printf("\n'weft bench NAME --help' lists the options of one of them.\n\n"
           "example: weft bench step --model gpt2 --batch 4 --seq 256\n\noptions:\n");
}

static enum status unknown(const char *name)
{
    char words[256] = "";
    char near[64];
    size_t used = 0;

    for (size_t i = 0; i < N_BENCHES; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s%s",
                                 i > 0 ? "|" : "", table[i].name);
    if (nearest_word(name, words, near, sizeof near))
        return fail(ST_USAGE, "bench %s: no such benchmark; did you mean '%s'?", name,
                    near);
    return fail(ST_USAGE, "bench %s: no such benchmark; see 'weft bench --help'", name);
}

/* Without the name of a benchmark only --help means something. */
static enum status run_bare(int argc, char **argv)
{
    bool help = false;
    struct option_row rows[] = {{"help", OPTION_SWITCH, &help, NULL, "this text", 0, 0},
                                {0}};
    char **rest;
    int n_rest;
    enum status st = options_parse(rows, argc, argv, &rest, &n_rest);

    if (st != ST_OK)
        return st;
    if (!help)
        return fail(ST_USAGE,
                    "bench: needs what to measure; 'weft bench --help' lists it");
    print_overview();
    options_print_help(rows);
    return ST_OK;
}

enum status cmd_bench(int argc, char **argv, int *exit_code)
{
    if (argc < 2 || argv[1][0] == '-')
        return run_bare(argc, argv);
    for (size_t i = 0; i < N_BENCHES; i++)
        if (!strcmp(table[i].name, argv[1]))
            return table[i].run(argc - 1, argv + 1, exit_code);
    return unknown(argv[1]);
}

/* ---- lists ---- */

/* One number with k, M or G after it, up to `end`. */
static bool read_size(const char *text, const char *end, size_t *out)
{
    static const char units[] = "kKMG";
    static const int shifts[] = {10, 10, 20, 30};
    char *after;
    int shift = 0;

    errno = 0;
    unsigned long long v = strtoull(text, &after, 10);

    if (after == text || errno || text[0] < '0' || text[0] > '9')
        return false;
    const char *unit = after < end && *after ? strchr(units, *after) : NULL;

    if (unit) {
        shift = shifts[unit - units];
        after++;
    }
    if (after != end || v > SIZE_MAX >> shift)
        return false;
    *out = (size_t)v << shift;
    return true;
}

static enum status bad_list(const char *option, const char *text, size_t least,
                            size_t greatest)
{
    char low[16], high[16];

    return fail(ST_USAGE,
                "--%s: found '%s', needs up to %d numbers from %s to %s: 64,1M,16M or "
                "64..16M",
                option, text, BENCH_LIST_MOST,
                bench_format_bytes((double)least, low, sizeof low),
                bench_format_bytes((double)greatest, high, sizeof high));
}

enum status bench_read_sizes(const char *option, const char *text, size_t least,
                             size_t greatest, size_t *out, size_t *n)
{
    const char *dots = strstr(text, "..");

    *n = 0;
    if (dots) {
        size_t last;

        if (!read_size(text, dots, &out[0]) ||
            !read_size(dots + 2, dots + strlen(dots), &last) || out[0] < least ||
            last < out[0] || last > greatest)
            return bad_list(option, text, least, greatest);
        for (*n = 1; out[*n - 1] < last && *n < BENCH_LIST_MOST; ++*n)
            out[*n] = out[*n - 1] > last / 4 ? last : 4 * out[*n - 1];
        return ST_OK;
    }
    for (const char *p = text;; p++) {
        const char *end = p + strcspn(p, ",");

        if (*n == BENCH_LIST_MOST || !read_size(p, end, &out[*n]) || out[*n] < least ||
            out[*n] > greatest)
            return bad_list(option, text, least, greatest);
        ++*n;
        p = end;
        if (!*p)
            return ST_OK;
    }
}

/* Index of the word text[0 .. length) in `words`, or -1. */
static int find_word(const char *words, const char *text, size_t length)
{
    int index = 0;

    for (const char *w = words; *w; index++) {
        size_t n = strcspn(w, "|");

        if (n == length && !strncmp(w, text, n))
            return index;
        w += n + (w[n] == '|');
    }
    return -1;
}

enum status bench_read_words(const char *option, const char *text, const char *words,
                             int *out, size_t *n)
{
    *n = 0;
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, ",");
        int word = find_word(words, p, length);

        for (size_t i = 0; i < *n; i++)
            if (out[i] == word)
                word = -1;
        if (word < 0 || *n == BENCH_LIST_MOST)
            return fail(ST_USAGE, "--%s: found '%s', needs one or several of %s", option,
                        text, words);
        out[(*n)++] = word;
        p += length;
        if (!*p)
            return ST_OK;
    }
}

/* ---- output ---- */

enum status bench_check_output(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
    enum status st = ST_OK;

    if (!folder)
        return fail(ST_NOMEM, "--json %s: no memory", path);
    if (!path[0] || (slash && !slash[1]) || file_is_folder(path))
        st = fail(ST_USAGE, "--json: found '%s', needs the name of a file", path);
    else if (access(slash ? folder : ".", W_OK) != 0)
        st = fail(ST_IO, "--json %s: cannot write there: %s", path, strerror(errno));
    free(folder);
    return st;
}

enum status bench_write_json(json_t *root, const char *path)
{
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    size_t n = text ? strlen(text) : 0;
    enum status st;

    json_decref(root);
    if (!text)
        return fail(ST_NOMEM, "%s: no memory for the figures", path);
    text[n] = '\n'; /* in place of the final 0: the length goes along */
    st = file_write_all(path, text, n + 1);
    free(text);
    return st;
}

json_t *bench_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

const char *bench_format_bytes(double bytes, char *buf, size_t buf_bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;

    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof *units; unit++)
        bytes /= 1024;
    (void)snprintf(buf, buf_bytes, "%.3g %s", bytes, units[unit]);
    return buf;
}
