/* exact.h - order-free sums: one integer accumulator per exponent, so that no order exists and any shard fits (DESIGN.md 7 (13)).
 *
 * A float is m * 2^e with an integer m below 2^24; m is added to the bin of its exponent. Sums are exact as long as fewer than
 * 2^38 values go into one accumulator. A NaN or an infinity is remembered and is the result.
 */
#ifndef TN_KERNELS_CPU_EXACT_H
#define TN_KERNELS_CPU_EXACT_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

/* Plain memory: may be copied, sent, compared; all zero is the empty sum. bin[e]: sum of mantissas (squares: of squared
 * mantissas) of exponent field e, 128 bits, two's complement. */
typedef struct tn_exact {
    uint64_t lo[256], hi[256];
} tn_exact;

size_t tn_exact_scratch(int n_threads);

/* Adds n values, or their squares. A sum is of values or of squares, never of both. */
void tn_exact_add(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n);
void tn_exact_add_squares(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n);
void tn_exact_merge(tn_exact *sum, const tn_exact *other);

/* The sum, rounded once per bin and added from the smallest exponent on: a pure function of the accumulator. */
double tn_exact_get(const tn_exact *sum);
double tn_exact_get_squares(const tn_exact *sum);

TN_C_END
#endif
