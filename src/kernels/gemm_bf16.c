/* SPDX-License-Identifier: MIT */
/* gemm_bf16.c - picks the bf16 products for this CPU, and their sizes. */
#include "kernels/gemm_bf16.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/dispatch.h"
#include "kernels/gemm_bf16_isa.h"

/* Slowest first. */
static const struct {
    const struct gemm_bf16 *table;
    enum isa isa;
    bool pairs; /* needs AVX512_BF16 */
} choices[] = {
    {&gemm_bf16_generic, ISA_GENERIC, false},
#ifdef WEFT_KERNELS_X86
    {&gemm_bf16_avx2, ISA_AVX2, false},
    {&gemm_bf16_avx512, ISA_AVX512, false},
    {&gemm_bf16_avx512_bf16, ISA_AVX512, true},
#endif
};

enum { CHOICES = sizeof choices / sizeof *choices };

static bool multiplies_pairs(void)
{
#ifdef WEFT_KERNELS_X86
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

/* VDPBF16PS makes two products where an fp32 instruction makes one. AMD's processors and
 * Cooper Lake issue it as often as that one; Intel's later ones, made for AMX, a quarter
 * as often, so that fp32 arithmetic is twice as fast there. */
static bool multiplies_pairs_fast(void)
{
#ifdef WEFT_KERNELS_X86
    return multiplies_pairs() &&
           (__builtin_cpu_is("amd") || __builtin_cpu_is("cooperlake"));
#else
    return false;
#endif
}

static bool choice_usable(size_t i)
{
    return isa_usable(choices[i].isa) && (!choices[i].pairs || multiplies_pairs());
}

static const struct gemm_bf16 *choose_best(void)
{
    const struct gemm_bf16 *best = NULL;

    for (size_t i = 0; i < CHOICES; i++)
        if (choice_usable(i) && (!choices[i].pairs || multiplies_pairs_fast()))
            best = choices[i].table;
    return best;
}

static const struct gemm_bf16 *choose_named(const char *name)
{
    for (size_t i = 0; i < CHOICES; i++)
        if (choice_usable(i) && strcmp(choices[i].table->name, name) == 0)
            return choices[i].table;
    return NULL;
}

enum status gemm_bf16_select(const char *name, const struct gemm_bf16 **out)
{
    const char *from = name ? "" : "WEFT_ISA: ";
    char usable[64] = "";

    if (!name)
        name = getenv("WEFT_ISA");
    *out = name && *name ? choose_named(name) : choose_best();
    if (*out)
        return ST_OK;
    for (size_t i = 0; i < CHOICES; i++)
        if (choice_usable(i)) {
            size_t used = strlen(usable);

            snprintf(usable + used, sizeof usable - used, "%s%s", used ? ", " : "",
                     choices[i].table->name);
        }
    return fail(ST_USAGE, "%sno bf16 products for instruction set '%s'; this CPU has: %s",
                from, name, usable);
}

size_t gemm_bf16_packed_pairs(size_t out, size_t in)
{
    return round_up(out, BF16_PANEL) * round_up(in, BF16_PANEL) / 2;
}

/* A panel of the right side, the left side in whole groups, and with bf16 output all
 * partial sums. */
size_t gemm_bf16_work_bytes(size_t rows, size_t columns, size_t depth, bool bf16_output)
{
    size_t words = min_size(round_up(depth, BF16_PANEL), BF16_DEPTH_WORDS),
           left = (rows + BF16_MAX_TILE_ROWS) * words, right = BF16_PANEL * words,
           sums = bf16_output && depth > BF16_DEPTH_WORDS ? rows * columns : 0;

    return round_up((left + right) * sizeof(float), CACHE_LINE) +
           round_up(sums * sizeof(float), CACHE_LINE);
}
