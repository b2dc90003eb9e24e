/* cast_isa.c - fp32 to bf16 and back; see cast.h. */
#include "kernels/cpu/cast.h"

#include "kernels/cpu/bf16.h"

static void narrow(uint16_t *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL) tn_v_narrow(y + i, tn_v_load(x + i));
    if (i < n) tn_v_narrow_mask(y + i, tn_v_mask(n - i), tn_v_load_mask(x + i, tn_v_mask(n - i)));
}

static void widen(float *y, const uint16_t *x, int64_t n)
{
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL) tn_v_store(y + i, tn_v_widen(x + i));
    if (i < n) tn_v_store_mask(y + i, tn_v_mask(n - i), tn_v_widen_mask(x + i, tn_v_mask(n - i)));
}

static void round_to_bf16(float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL) tn_v_store(x + i, tn_v_round_bf16(tn_v_load(x + i)));
    if (i < n) {
        tn_vmask m = tn_v_mask(n - i);
        tn_v_store_mask(x + i, m, tn_v_round_bf16(tn_v_load_mask(x + i, m)));
    }
}

extern const tn_cast_fns TN_ISA_NAME(tn_cast_fns);
const tn_cast_fns TN_ISA_NAME(tn_cast_fns) = {narrow, widen, round_to_bf16};
