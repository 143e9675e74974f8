/* SPDX-License-Identifier: MIT */
/* dispatch.c - picks the table of kernels for this CPU, once at start. */
#include "kernels/dispatch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const struct kernels *const tables[ISA_COUNT] = {
    [ISA_GENERIC] = &kernels_generic,
#ifdef WEFT_KERNELS_X86
    [ISA_AVX2] = &kernels_avx2,
    [ISA_AVX512] = &kernels_avx512,
#endif
};

bool isa_usable(enum isa isa)
{
#ifdef WEFT_KERNELS_X86
    __builtin_cpu_init();
    if (isa >= ISA_AVX2 &&
        !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
          __builtin_cpu_supports("bmi2")))
        return false;
    if (isa >= ISA_AVX512 &&
        !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl")))
        return false;
#endif
    return isa < ISA_COUNT && tables[isa] != NULL;
}

enum isa isa_best(void)
{
    enum isa best = ISA_GENERIC;

    for (enum isa isa = ISA_GENERIC; isa < ISA_COUNT; isa++)
        if (isa_usable(isa))
            best = isa;
    return best;
}

enum isa isa_find(const char *name)
{
    for (enum isa isa = ISA_GENERIC; isa < ISA_COUNT; isa++)
        if (isa_usable(isa) && strcmp(tables[isa]->isa, name) == 0)
            return isa;
    return ISA_COUNT;
}

enum status kernels_select(const char *name, const struct kernels **out)
{
    const char *from = name ? "" : "WEFT_ISA: ";
    char usable[64] = "";
    enum isa isa;

    *out = NULL;
    if (!name)
        name = getenv("WEFT_ISA");
    isa = name && *name ? isa_find(name) : isa_best();
    if (isa < ISA_COUNT) {
        *out = tables[isa];
        return ST_OK;
    }
    for (isa = ISA_GENERIC; isa < ISA_COUNT; isa++)
        if (isa_usable(isa)) {
            size_t used = strlen(usable);

            snprintf(usable + used, sizeof usable - used, "%s%s", used ? ", " : "",
                     tables[isa]->isa);
        }
    return fail(ST_USAGE, "%sno kernels for instruction set '%s'; this CPU has: %s", from,
                name, usable);
}

/* attention.c is compiled several times; its workspace does not depend on which. Forward
 * needs less than backward: three whole matrices, delta, five tiles of head width, two
 * tiles of scores and the space to start on a cache line. */
size_t attention_work_elems(size_t T, size_t D)
{
    size_t tile = ATTENTION_TILE, width = round_up(D, ATTENTION_ALIGN),
           padded = round_up(T, tile);

    return 3 * padded * width + padded + 5 * tile * width + 2 * tile * tile + 16;
}

size_t cache_width(size_t D)
{
    return round_up(D, ATTENTION_ALIGN);
}
