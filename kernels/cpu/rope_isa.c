/* rope_isa.c - rotates the heads of some tokens; see rope.h. */
#include "kernels/cpu/rope.h"

#include "kernels/cpu/bf16.h"

TN_VI void rotate(tn_v x0, tn_v x1, tn_v c, tn_v s, tn_v minus_s, tn_v *y0, tn_v *y1)
{
    *y0 = tn_v_fma(x0, c, tn_v_mul(x1, minus_s));
    *y1 = tn_v_fma(x1, c, tn_v_mul(x0, s));
}

TN_VI void apply_as(const bool bf16, const tn_rope_args *a, int64_t begin, int64_t end)
{
    const int64_t d = a->d, half = d / 2;
    const float sign = a->inverse ? -1.0f : 1.0f;
    for (int64_t t = begin; t < end; t++) {
        const float *table = a->table + a->positions[t] * d;
        const void *x = tn_v_at(a->x, t * a->x_stride, bf16);
        void *y = tn_v_from(a->y, t * a->y_stride, bf16);
        for (int64_t i = 0; i < half; i += TN_VL) {
            const tn_vmask m = tn_v_mask(half - i);
            const bool whole = half - i >= TN_VL;
            tn_v c = tn_v_load_mask(table + i, m),
                 s = tn_v_mul(tn_v_load_mask(table + half + i, m), tn_v_set(sign));
            tn_v minus_s = tn_v_mul(s, tn_v_set(-1.0f)), y0, y1;
            for (int64_t at = i; at < a->heads * d; at += d) {
                if (whole) {
                    rotate(tn_v_get(x, at, bf16), tn_v_get(x, at + half, bf16), c, s, minus_s, &y0,
                           &y1);
                    tn_v_put(y, at, y0, bf16);
                    tn_v_put(y, at + half, y1, bf16);
                } else {
                    rotate(tn_v_get_mask(x, at, m, bf16), tn_v_get_mask(x, at + half, m, bf16), c,
                           s, minus_s, &y0, &y1);
                    tn_v_put_mask(y, at, m, y0, bf16);
                    tn_v_put_mask(y, at + half, m, y1, bf16);
                }
            }
        }
    }
}

static void apply(const tn_rope_args *a, int64_t begin, int64_t end)
{
    if (a->bf16) apply_as(true, a, begin, end);
    else apply_as(false, a, begin, end);
}

extern const tn_rope_fns TN_ISA_NAME(tn_rope_fns);
const tn_rope_fns TN_ISA_NAME(tn_rope_fns) = {apply};
