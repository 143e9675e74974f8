/* rng.h - random numbers as pure functions of (seed, stream, counter).
 *
 * There is no generator state: the i-th number of a stream can be asked for by anyone in
 * any order, which is what makes initial weights and the sampler the same bits for any
 * number of ranks and threads, and a resumed run the same run.
 *
 * The mixer is the finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014), applied to each word in turn.
 */
#ifndef WEFT_BASE_RNG_H
#define WEFT_BASE_RNG_H

#include <stdint.h>

/* 64 well-mixed bits. */
uint64_t rng_bits(uint64_t seed, uint64_t stream, uint64_t counter);

/* Uniform in [0, 1), 53 bits. */
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);

/* Standard normal (Box-Muller, in double, each call uses two uniforms of its own). */
double rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);

/* Element i of a pseudo-random permutation of 0..n-1 chosen by (seed, stream): a Feistel
 * network over the next power of four, walked until the value falls below n (Black,
 * Rogaway, "Ciphers with arbitrary finite domains", 2002). O(1) memory, expected < 4
 * rounds of the walk.
 * In       0 <= i < n, n >= 1 */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t n, uint64_t i);

#endif
