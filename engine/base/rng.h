/* rng.h - random numbers without state: every value is a pure function of (seed, name, stream,
 * index).
 *
 * So a parameter has the same initial values on every layout, on any number of threads, and on
 * every machine: the generator is Philox4x32-10 (Salmon et al., SC 2011), its key made from (seed,
 * xxh64(name)), its counter is (index, stream), and all that follows is IEEE double arithmetic of
 * our own (no libm, whose last bits differ between machines).
 */
#ifndef TN_ENGINE_BASE_RNG_H
#define TN_ENGINE_BASE_RNG_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_rng {
    uint32_t key[2];
    uint64_t stream; /* 0 for parameters; an epoch, a step for what is drawn again and again */
} tn_rng;

tn_rng tn_rng_make(uint64_t seed, const char *name, uint64_t stream);

/* The four words at `index`. */
void tn_rng_words(tn_rng r, uint64_t index, uint32_t out[4]);

double tn_rng_uniform(tn_rng r, uint64_t index); /* in (0, 1): (k + 1/2) / 2^52 */
uint64_t tn_rng_below(tn_rng r, uint64_t index,
                      uint64_t n); /* in [0, n), n >= 1; bias below n / 2^64 */

/* Where element i of a shuffle of n elements comes from: a bijection of [0, n) for each (seed,
 * name, stream). Takes a few hundred nanoseconds and no memory: a Feistel network on the next power
 * of four, walked until it falls below n. */
uint64_t tn_rng_permute(tn_rng r, uint64_t n, uint64_t i);

/* How elements are drawn. TN_RNG_TRUNC_NORMAL is torch's trunc_normal_: normal(mean, std)
 * restricted to [lo, hi], absolute bounds, by the inverse of the distribution function. */
typedef enum tn_rng_kind {
    TN_RNG_CONSTANT,
    TN_RNG_UNIFORM,
    TN_RNG_NORMAL,
    TN_RNG_TRUNC_NORMAL
} tn_rng_kind;
typedef struct tn_rng_dist {
    tn_rng_kind kind;
    double mean, std; /* CONSTANT: mean; NORMAL, TRUNC_NORMAL: both */
    double lo, hi;    /* UNIFORM, TRUNC_NORMAL: lo < hi */
} tn_rng_dist;

/* out[i] = element first + i, rounded once to float. */
void tn_rng_fill(tn_rng r, const tn_rng_dist *dist, uint64_t first, int64_t n, float *out);

/* The standard normal distribution function and its inverse (p in (0, 1)), relative error about
 * 1e-15. */
double tn_rng_normal_cdf(double z);
double tn_rng_normal_inverse(double p);

TN_C_END
#endif
