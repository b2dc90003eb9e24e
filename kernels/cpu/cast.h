/* cast.h - copies between fp32 and bf16: to bf16 rounded to nearest even, to fp32 exact. */
#ifndef TN_KERNELS_CPU_CAST_H
#define TN_KERNELS_CPU_CAST_H
#include "kernels/cpu/isa.h"

TN_C_BEGIN

/* y = x, n elements each; apart, or the same address where the formats agree. */
typedef struct tn_cast_args {
    int64_t n;
    const void *x;
    bool x_bf16;
    void *y;
    bool y_bf16;
} tn_cast_args;

void tn_cast_run(const tn_cpu *cpu, const tn_cast_args *a); /* by all threads */
void tn_cast_block(tn_isa isa, const tn_cast_args *a);      /* by the calling one */

/* From cast_isa.c, once per instruction set. round: x as bf16 would keep it. */
typedef struct tn_cast_fns {
    void (*narrow)(uint16_t *y, const float *x, int64_t n);
    void (*widen)(float *y, const uint16_t *x, int64_t n);
    void (*round)(float *x, int64_t n);
} tn_cast_fns;
const tn_cast_fns *tn_cast_table(tn_isa isa);

TN_C_END
#endif
