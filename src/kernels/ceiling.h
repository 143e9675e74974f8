/* ceiling.h - the most that a core and the memory behind it can do: what measured speeds
 * are held against.
 *
 * Each function runs a loop of nothing but the operations it names, on the calling
 * thread, for about `seconds` of its CPU time, and returns the rate of the best of many
 * short spans: others use the machine too, and a ceiling is no average. For what several
 * cores do together, several threads call at the same time. Unlike kernels these read
 * the clock.
 *
 * isa is a name that kernels_select() accepts on this machine, or NULL for the best.
 */
#ifndef WEFT_KERNELS_CEILING_H
#define WEFT_KERNELS_CEILING_H

#include <stddef.h>

/* Single-precision multiply-adds in registers [flop/s]; one counts as two operations.
 * Fused where the instruction set has it. */
double ceiling_fma(const char *isa, double seconds);

/* Dot products of bf16 pairs added to single precision (VDPBF16PS) [flop/s]; 0 where
 * the CPU has no such instruction. */
double ceiling_bf16(double seconds);

enum ceiling_pattern { CEILING_READ, CEILING_COPY, CEILING_TRIAD, CEILING_UPDATE };

/* Bytes that the program reads and writes, per second: what a store fetches first is not
 * counted. READ: sum of a; COPY: b = a; TRIAD: c = a + 0.5 b (Stream, McCalpin, 1995);
 * UPDATE: b = a + 0.5 b, which writes what it has read.
 * Shapes   a, b, c [n], n >= 1; b and c are needed by the patterns that name them. What
 *          is larger than the caches measures memory.
 * Cost     at least two passes over the arrays */
double ceiling_bandwidth(const char *isa, enum ceiling_pattern pattern, float *a,
                         float *b, float *c, size_t n, double seconds);

#endif
