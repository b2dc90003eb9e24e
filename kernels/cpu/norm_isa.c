/* norm_isa.c - RMSNorm rows, and the gain's gradient by columns; see norm.h. */
#include "kernels/cpu/norm.h"

#include "kernels/cpu/bf16.h"

/* s += v^2 over the row: one accumulator, lane i holds the elements i mod 16. */
TN_VI float sum_squares(const bool bf16, const void *v, int64_t d)
{
    tn_v s = tn_v_zero();
    int64_t i = 0;
    for (; i + TN_VL <= d; i += TN_VL) {
        tn_v x = tn_v_get(v, i, bf16);
        s = tn_v_fma(x, x, s);
    }
    if (i < d) {
        tn_v x = tn_v_get_mask(v, i, tn_v_mask(d - i), bf16);
        s = tn_v_fma(x, x, s);
    }
    return tn_v_sum(s);
}

TN_VI float sum_squares_added(const bool bf16, const void *x, const void *add, void *h, int64_t d)
{
    tn_v s = tn_v_zero();
    int64_t i = 0;
    for (; i + TN_VL <= d; i += TN_VL) {
        tn_v v = tn_v_as(tn_v_add(tn_v_get(x, i, bf16), tn_v_get(add, i, bf16)), bf16);
        tn_v_put(h, i, v, bf16);
        s = tn_v_fma(v, v, s);
    }
    if (i < d) {
        tn_vmask m = tn_v_mask(d - i);
        tn_v v =
            tn_v_as(tn_v_add(tn_v_get_mask(x, i, m, bf16), tn_v_get_mask(add, i, m, bf16)), bf16);
        tn_v_put_mask(h, i, m, v, bf16);
        s = tn_v_fma(v, v, s);
    }
    return tn_v_sum(s);
}

TN_VI float inverse_root(float sum, float d, float eps)
{
    tn_v mean = tn_v_div(tn_v_set(sum), tn_v_set(d));
    return tn_v_first(tn_v_div(tn_v_set(1.0f), tn_v_sqrt(tn_v_add(mean, tn_v_set(eps)))));
}

TN_VI void forward_as(const bool bf16, const tn_norm_forward_args *a, int64_t begin, int64_t end)
{
    const int64_t d = a->d;
    const void *w = a->w;
    for (int64_t row = begin; row < end; row++) {
        const void *x = tn_v_at(a->x, row * d, bf16);
        float sum;
        if (a->add) {
            void *h = tn_v_from(a->h, row * d, bf16);
            sum = sum_squares_added(bf16, x, tn_v_at(a->add, row * d, bf16), h, d);
            x = h;
        } else {
            sum = sum_squares(bf16, x, d);
        }
        float r1 = inverse_root(sum, (float)d, a->eps);
        a->r[row] = r1;
        void *y = tn_v_from(a->y, row * d, bf16);
        tn_v r = tn_v_set(r1);
        int64_t i = 0;
        for (; i + TN_VL <= d; i += TN_VL) {
            tn_v n = tn_v_as(tn_v_mul(tn_v_get(x, i, bf16), r), bf16);
            tn_v_put(y, i, tn_v_mul(n, tn_v_get(w, i, bf16)), bf16);
        }
        if (i < d) {
            tn_vmask m = tn_v_mask(d - i);
            tn_v n = tn_v_as(tn_v_mul(tn_v_get_mask(x, i, m, bf16), r), bf16);
            tn_v_put_mask(y, i, m, tn_v_mul(n, tn_v_get_mask(w, i, m, bf16)), bf16);
        }
    }
}

static void forward(const tn_norm_forward_args *a, int64_t begin, int64_t end)
{
    if (a->bf16) forward_as(true, a, begin, end);
    else forward_as(false, a, begin, end);
}

TN_VI tn_v gradient(tn_v x, tn_v w, tn_v dy, tn_v r, tn_v minus_mean)
{
    return tn_v_mul(r, tn_v_fma(tn_v_mul(x, r), minus_mean, tn_v_mul(dy, w)));
}

TN_VI void backward_as(const bool bf16, const tn_norm_backward_args *a, int64_t begin, int64_t end)
{
    const int64_t d = a->d, whole = d / TN_VL * TN_VL;
    const tn_vmask m = tn_v_mask(d - whole);
    const void *w = a->w;
    for (int64_t row = begin; row < end; row++) {
        const void *x = tn_v_at(a->x, row * d, bf16), *dy = tn_v_at(a->dy, row * d, bf16),
                   *more = a->more ? tn_v_at(a->more, row * d, bf16) : NULL;
        void *dx = tn_v_from(a->dx, row * d, bf16);
        tn_v r = tn_v_set(a->r[row]), s = tn_v_zero();
        for (int64_t i = 0; i < whole; i += TN_VL)
            s = tn_v_fma(tn_v_mul(tn_v_get(dy, i, bf16), tn_v_get(w, i, bf16)),
                         tn_v_mul(tn_v_get(x, i, bf16), r), s);
        if (whole < d)
            s = tn_v_fma(
                tn_v_mul(tn_v_get_mask(dy, whole, m, bf16), tn_v_get_mask(w, whole, m, bf16)),
                tn_v_mul(tn_v_get_mask(x, whole, m, bf16), r), s);
        tn_v c = tn_v_div(tn_v_set(-tn_v_sum(s)), tn_v_set((float)d));
        for (int64_t i = 0; i < whole; i += TN_VL) {
            tn_v g =
                gradient(tn_v_get(x, i, bf16), tn_v_get(w, i, bf16), tn_v_get(dy, i, bf16), r, c);
            if (more) g = tn_v_add(tn_v_get(more, i, bf16), tn_v_as(g, bf16));
            tn_v_put(dx, i, g, bf16);
        }
        if (whole < d) {
            tn_v g = gradient(tn_v_get_mask(x, whole, m, bf16), tn_v_get_mask(w, whole, m, bf16),
                              tn_v_get_mask(dy, whole, m, bf16), r, c);
            if (more) g = tn_v_add(tn_v_get_mask(more, whole, m, bf16), tn_v_as(g, bf16));
            tn_v_put_mask(dx, whole, m, g, bf16);
        }
    }
}

static void backward(const tn_norm_backward_args *a, int64_t begin, int64_t end)
{
    if (a->bf16) backward_as(true, a, begin, end);
    else backward_as(false, a, begin, end);
}

/* acc[0 .. 16 n) += the tokens [k0, k1) of the columns at dy, x, in order. */
TN_VI void chain_columns(const bool bf16, const void *dy, const void *x, const float *r, int64_t d,
                         int64_t tokens, int n, tn_vmask last, float *acc)
{
    tn_v s[4];
    for (int j = 0; j < n; j++) s[j] = tn_v_load(acc + j * TN_VL);
    for (int64_t k = 0; k < tokens; k++) {
        tn_v rk = tn_v_set(r[k]);
        for (int j = 0; j < n - 1; j++)
            s[j] =
                tn_v_fma(tn_v_get(dy, k * d + j * TN_VL, bf16),
                         tn_v_as(tn_v_mul(tn_v_get(x, k * d + j * TN_VL, bf16), rk), bf16), s[j]);
        const int64_t at = k * d + (n - 1) * TN_VL;
        s[n - 1] =
            tn_v_fma(tn_v_get_mask(dy, at, last, bf16),
                     tn_v_as(tn_v_mul(tn_v_get_mask(x, at, last, bf16), rk), bf16), s[n - 1]);
    }
    for (int j = 0; j < n; j++) tn_v_store(acc + j * TN_VL, s[j]);
}

/* Eight tokens at a time over all columns: the rows are read in long stretches, the accumulators
 * rarely. */
TN_VI void chain_as(const bool bf16, const tn_norm_gain_args *a, int64_t begin, int64_t end,
                    int64_t k0, int64_t k1, float *acc)
{
    const int64_t d = a->d;
    for (int64_t k = k0; k < k1; k += 8) {
        const int64_t tokens = k1 - k < 8 ? k1 - k : 8;
        const float *r = a->r + k;
        int64_t i = begin;
        for (; i + 4 * TN_VL <= end; i += 4 * TN_VL)
            chain_columns(bf16, tn_v_at(a->dy, k * d + i, bf16), tn_v_at(a->x, k * d + i, bf16), r,
                          d, tokens, 4, tn_v_mask(TN_VL), acc + i - begin);
        for (; i < end; i += TN_VL)
            chain_columns(bf16, tn_v_at(a->dy, k * d + i, bf16), tn_v_at(a->x, k * d + i, bf16), r,
                          d, tokens, 1, tn_v_mask(end - i), acc + i - begin);
    }
}

static void chain(const tn_norm_gain_args *a, int64_t begin, int64_t end, int64_t k0, int64_t k1,
                  float *acc)
{
    if (a->bf16) chain_as(true, a, begin, end, k0, k1, acc);
    else chain_as(false, a, begin, end, k0, k1, acc);
}

typedef struct levels {
    float v[TN_ORDER_MAX_DEPTH][TN_NORM_GAIN_COLS];
    int low; /* levels below are in memory still, untouched */
} levels;

static void fetch(levels *l, const tn_norm_gain_args *a, int level, int64_t begin, int64_t cols)
{
    while (l->low > level) {
        l->low--;
        memcpy(l->v[l->low], a->stack[l->low] + begin, (size_t)cols * sizeof(float));
    }
}

static void gain(const tn_norm_gain_args *a, int64_t begin, int64_t end)
{
    const int64_t cols = end - begin, padded = (cols + TN_VL - 1) / TN_VL * TN_VL;
    levels l;
    l.low = a->run.depth_in;
    int depth = a->run.depth_in;
    bool more = false;
    for (int64_t n = 0; n < a->run.n; n++) {
        const tn_order_ins *ins = a->run.ins + n;
        if (ins->op == TN_ORDER_LEAF) {
            float *acc = l.v[more ? depth - 1 : depth++];
            if (!more) memset(acc, 0, (size_t)padded * sizeof(float));
            chain(a, begin, end, ins->k0, ins->k1, acc);
            more = ins->more;
            for (int64_t i = 0; i < padded && !more; i += TN_VL)
                tn_v_store(acc + i, tn_v_add(tn_v_load(acc + i), tn_v_zero()));
        } else {
            fetch(&l, a, depth - 2, begin, cols);
            depth--;
            float *left = l.v[depth - 1], *right = l.v[depth];
            for (int64_t i = 0; i < padded; i += TN_VL)
                tn_v_store(left + i, tn_v_add(tn_v_load(left + i), tn_v_load(right + i)));
        }
    }
    for (int i = l.low; i < depth; i++)
        memcpy(a->stack[i] + begin, l.v[i], (size_t)cols * sizeof(float));
}

extern const tn_norm_fns TN_ISA_NAME(tn_norm_fns);
const tn_norm_fns TN_ISA_NAME(tn_norm_fns) = {forward, backward, gain};
