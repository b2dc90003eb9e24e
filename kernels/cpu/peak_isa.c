/* peak_isa.c - chains of multiply-adds that fill the units and stay in registers; see peak.h. */
#include "kernels/cpu/peak.h"

#include "kernels/cpu/vec.h"

#ifdef TN_ISA_avx512
enum { CHAINS = 12 };
#else
enum { CHAINS = 6 }; /* of two registers each */
#endif

static float burn(int64_t n, double *flops_out)
{
    tn_v x = tn_v_set(0.999f), y = tn_v_set(0.001f), r[CHAINS];
    float out[TN_VL];
    for (int i = 0; i < CHAINS; i++) r[i] = tn_v_set((float)i);
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < CHAINS; i++) r[i] = tn_v_fma(r[i], x, y);
    for (int i = 1; i < CHAINS; i++) r[0] = tn_v_add(r[0], r[i]);
    tn_v_store(out, r[0]);
    *flops_out = 2.0 * TN_VL * CHAINS * (double)n;
    return out[0];
}

extern const tn_peak_fns TN_ISA_NAME(tn_peak_fns);
const tn_peak_fns TN_ISA_NAME(tn_peak_fns) = {burn};
