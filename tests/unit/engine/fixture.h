/* fixture.h - a small engine, run for a few steps, and what it leaves behind.
 *
 * Weights and gradients are compared as canonical vectors (model/tensors.h), whatever
 * their layout in memory was. Nothing is asserted inside engine_run: a failing assertion
 * would leave the team of workers.
 */
#ifndef WEFT_TESTS_ENGINE_FIXTURE_H
#define WEFT_TESTS_ENGINE_FIXTURE_H

#include "engine/engine.h"

/* The one rank; set by fixture_main. */
extern struct comm *fixture_comm;

struct CMUnitTest;
/* Settles runtime, kernels and MPI, then runs the tests. */
int fixture_main(const struct CMUnitTest *tests, size_t n);

/* One worker, production layout, blocks of 4 KiB, overlap, no clipping, decay 0.1. */
struct engine_options fixture_options(struct shape shape, size_t batch, size_t seq,
                                      size_t accum);
struct shape fixture_shape(size_t L, size_t H, size_t C, size_t T, size_t V);
struct engine *fixture_engine(const struct engine_options *o);

enum { FIXTURE_MAX_STEPS = 8 };

/* What happens in one engine_run: steps, with calls around each of them. */
struct trial {
    struct engine *engine;
    const float *start; /* canonical weights; NULL: initial weights of `seed` */
    uint64_t seed;
    size_t steps;
    double lr;
    void (*fill)(struct engine *e, size_t step, void *arg); /* the token buffers */
    void (*between)(struct engine *e, size_t step,
                    void *arg); /* before a step; or NULL */
    void *arg;
    bool gradients_only;                           /* engine_gradients instead of steps */
    struct step_result results[FIXTURE_MAX_STEPS]; /* out */
};
void fixture_run(struct trial *t);

/* Copies between memory and canonical vectors; the latter are the caller's to free. */
float *canonical_new(const struct layout *l, const float *memory);
void canonical_put(const struct layout *l, const float *canonical, float *memory);

/* Limit of a row of tests/golden/tolerances.csv. */
double fixture_limit(const char *name);

struct distance {
    double relative_l2; /* plain where the norm of what is expected is 0 */
    size_t worst;       /* element that differs most */
};
struct distance distance_of(const float *found, const float *expected, size_t n);

#endif
