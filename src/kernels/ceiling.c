/* SPDX-License-Identifier: MIT */
#include "kernels/ceiling.h"

#include <stdbool.h>

#include "base/clock.h"
#include "kernels/ceiling_loops.h"
#include "kernels/dispatch.h"

const struct ceiling_loops *ceiling_loops_of(const char *name)
{
    static const struct ceiling_loops *const loops[ISA_COUNT] = {
        [ISA_GENERIC] = &ceiling_loops_generic,
#ifdef WEFT_KERNELS_X86
        [ISA_AVX2] = &ceiling_loops_avx2,
        [ISA_AVX512] = &ceiling_loops_avx512,
#endif
    };
    enum isa isa = name ? isa_find(name) : isa_best();

    return isa < ISA_COUNT ? loops[isa] : NULL;
}

/* What is repeated: `times` runs of it; returns its amount of work. */
struct load {
    double (*run)(const struct load *l, size_t times);
    const struct ceiling_loops *loops;
    enum ceiling_pattern pattern;
    float *a, *b, *c;
    size_t n;
};

/* A compiler must take this for a use. */
static void keep(float x)
{
    __asm__ volatile("" : : "g"(x) : "memory");
}

/* Work a second in the best span. A span is long enough for the clock; the first finds
 * out how many runs that takes, and warms up. */
static double best_rate(const struct load *l, double seconds)
{
    const double span_s = 250e-6;
    double end_s = clock_thread_cpu_s() + seconds, best = 0;
    size_t times = 1;
    bool again = true;

    while (again) {
        double start_s = clock_thread_cpu_s(), work = l->run(l, times);
        double now_s = clock_thread_cpu_s(), took_s = now_s - start_s;

        if (took_s < span_s && now_s < end_s) {
            times *= 2;
            continue;
        }
        if (took_s > 0 && work / took_s > best)
            best = work / took_s;
        again = now_s < end_s;
    }
    return best;
}

static double run_fma(const struct load *l, size_t times)
{
    float sum;
    double work = l->loops->fma(64 * times, 0.5f, &sum);

    keep(sum);
    return work;
}

double ceiling_fma(const char *isa, double seconds)
{
    struct load l = {.run = run_fma, .loops = ceiling_loops_of(isa)};

    require(l.loops);
    return best_rate(&l, seconds);
}

static double run_bf16(const struct load *l, size_t times)
{
    float sum = 0;
    double work = ceiling_bf16_loop(64 * times, &sum);

    (void)l;
    keep(sum);
    return work;
}

double ceiling_bf16(double seconds)
{
    struct load l = {.run = run_bf16};

    return run_bf16(&l, 1) > 0 ? best_rate(&l, seconds) : 0;
}

static double run_pattern(const struct load *l, size_t times)
{
    static const size_t words[] = {[CEILING_READ] = 1,
                                   [CEILING_COPY] = 2,
                                   [CEILING_TRIAD] = 3,
                                   [CEILING_UPDATE] = 3};

    for (size_t i = 0; i < times; i++)
        switch (l->pattern) {
        case CEILING_READ:
            keep(l->loops->read(l->a, l->n));
            break;
        case CEILING_COPY:
            l->loops->copy(l->b, l->a, l->n);
            break;
        case CEILING_TRIAD:
            l->loops->triad(l->c, l->a, l->b, 0.5f, l->n);
            break;
        case CEILING_UPDATE:
            l->loops->triad(l->b, l->a, l->b, 0.5f, l->n);
            break;
        }
    return (double)(times * l->n * sizeof(float) * words[l->pattern]);
}

double ceiling_bandwidth(const char *isa, enum ceiling_pattern pattern, float *a,
                         float *b, float *c, size_t n, double seconds)
{
    struct load l = {run_pattern, ceiling_loops_of(isa), pattern, a, b, c, n};

    require(l.loops && n > 0);
    (void)run_pattern(&l, 1);
    return best_rate(&l, seconds);
}
