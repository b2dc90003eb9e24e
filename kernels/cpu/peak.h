/* peak.h - the most multiply-adds per second that this CPU's fp32 units do, measured: what a
 * model's use of the machine (MFU) is compared with. */
#ifndef TN_KERNELS_CPU_PEAK_H
#define TN_KERNELS_CPU_PEAK_H
#include "kernels/cpu/isa.h"

typedef struct tn_peak_fns {
    float (*burn)(int64_t n, double *flops_out); /* n rounds of independent chains in registers */
} tn_peak_fns;

/* FLOP/s of one core with the widest instructions of this machine; some 10 ms the first time,
 * remembered after. */
double tn_peak_core(void);

#endif
