/* exact.h - sums of floats, and of their squares, without rounding: no order exists, and any shard
 * fits (DESIGN.md 7 (13)).
 *
 * The sum is a fixed-point number that every float and every square of one fits into: limb i counts
 * units of 2^(32 i - 320). Between calls limbs 0 .. 18 lie in [0, 2^32), the last one carries the
 * sign; so equal sums have equal bytes, however they came about. Up to 2^63 values. A NaN or an
 * infinity is remembered and decides the result.
 */
#ifndef TN_KERNELS_CPU_EXACT_H
#define TN_KERNELS_CPU_EXACT_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

enum { TN_EXACT_LIMBS = 20, TN_EXACT_UNIT = -320 };

/* Plain memory: may be copied, sent, compared; all zero is the empty sum. */
typedef struct tn_exact {
    int64_t limb[TN_EXACT_LIMBS];
    uint64_t special; /* what was met: 1 NaN, 2 +Inf, 4 -Inf */
} tn_exact;

/* Adds n values, or their squares. */
size_t tn_exact_scratch(int n_threads);
void tn_exact_add(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n);
void tn_exact_add_squares(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n);
void tn_exact_merge(tn_exact *sum, const tn_exact *other);

/* The sum, rounded once, to nearest even. */
double tn_exact_get(const tn_exact *sum);
static inline double tn_exact_get_squares(const tn_exact *sum)
{
    return tn_exact_get(sum); /* squares are counted in the same units */
}

/* ---- between exact.c and exact_isa.c ---- */

/* limbs += m 2^(e), before tn_exact_carry; at most 2^30 times in between. e >= TN_EXACT_UNIT */
void tn_exact_put(tn_exact *sum, int64_t m, int e);
void tn_exact_carry(tn_exact *sum);

/* Once per instruction set: adds x[0 .. n) to a sum that is carried before and after. */
typedef struct tn_exact_fns {
    void (*values)(tn_exact *sum, const float *x, int64_t n);
    void (*squares)(tn_exact *sum, const float *x, int64_t n);
} tn_exact_fns;

TN_C_END
#endif
