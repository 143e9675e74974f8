/* dispatch.h - private to kernels: which instruction sets are built and usable. */
#ifndef WEFT_KERNELS_DISPATCH_H
#define WEFT_KERNELS_DISPATCH_H

#include "kernels/kernels.h"

enum isa { ISA_GENERIC, ISA_AVX2, ISA_AVX512, ISA_COUNT };

extern const struct kernels kernels_generic;
#ifdef WEFT_KERNELS_X86
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx512;
#endif

/* Rows of queries and of keys that attention takes at a time, and what it rounds head
 * widths up to: the workspace depends on them. */
enum { ATTENTION_TILE = 64, ATTENTION_ALIGN = 16 };

/* Built into this program and supported by CPU and operating system. */
bool isa_usable(enum isa isa);

/* The last usable one of the enum. */
enum isa isa_best(void);

/* The usable one of that name, or ISA_COUNT. */
enum isa isa_find(const char *name);

#endif
