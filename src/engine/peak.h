/* peak.h - what the workers of a rank could do at most: mfu is the share of it that
 * training's operations make. */
#ifndef WEFT_ENGINE_PEAK_H
#define WEFT_ENGINE_PEAK_H

#include <stdbool.h>

struct peak {
    double fma_flops;  /* single-precision multiply-adds [flop/s], all workers together */
    double bf16_flops; /* bf16 dot products; 0: not measured, or not there */
};

/* Measures all workers at the same time, since cores that work together may be slower
 * than one alone.
 * In       seconds a worker, for each of the two; bf16 false: fma_flops only
 * Call     LOCAL; from the creator, within task_run, while no task is unfinished */
void peak_measure(int workers, double seconds, bool bf16, struct peak *out);

#endif
