/* rope_isa.c - rotates the heads of some tokens; see rope.h. */
#include "kernels/cpu/rope.h"

#include "kernels/cpu/vec.h"

TN_VI void rotate(tn_v x0, tn_v x1, tn_v c, tn_v s, tn_v minus_s, tn_v *y0, tn_v *y1)
{
    *y0 = tn_v_fma(x0, c, tn_v_mul(x1, minus_s));
    *y1 = tn_v_fma(x1, c, tn_v_mul(x0, s));
}

static void apply(const tn_rope_args *a, int64_t begin, int64_t end)
{
    const int64_t d = a->d, half = d / 2;
    const float sign = a->inverse ? -1.0f : 1.0f;
    for (int64_t t = begin; t < end; t++) {
        const float *table = a->table + a->positions[t] * d;
        const float *x = a->x + t * a->x_stride;
        float *y = a->y + t * a->y_stride;
        for (int64_t i = 0; i < half; i += TN_VL) {
            const tn_vmask m = tn_v_mask(half - i);
            const bool whole = half - i >= TN_VL;
            tn_v c = tn_v_load_mask(table + i, m),
                 s = tn_v_mul(tn_v_load_mask(table + half + i, m), tn_v_set(sign));
            tn_v minus_s = tn_v_mul(s, tn_v_set(-1.0f)), y0, y1;
            for (int64_t h = 0; h < a->heads; h++) {
                const float *p = x + h * d + i;
                float *q = y + h * d + i;
                if (whole) {
                    rotate(tn_v_load(p), tn_v_load(p + half), c, s, minus_s, &y0, &y1);
                    tn_v_store(q, y0);
                    tn_v_store(q + half, y1);
                } else {
                    rotate(tn_v_load_mask(p, m), tn_v_load_mask(p + half, m), c, s, minus_s, &y0,
                           &y1);
                    tn_v_store_mask(q, m, y0);
                    tn_v_store_mask(q + half, m, y1);
                }
            }
        }
    }
}

extern const tn_rope_fns TN_ISA_NAME(tn_rope_fns);
const tn_rope_fns TN_ISA_NAME(tn_rope_fns) = {apply};
