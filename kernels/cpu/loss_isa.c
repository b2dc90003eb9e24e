/* loss_isa.c - see loss.h; built once per instruction set. */
#include "graph/order.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/vec.h"

/* Below every logit, and safe in subtractions. */
static const float LOWEST = -3.402823466e38f;

static float part_max(const float *z, int64_t n)
{
    tn_v lowest = tn_v_set(LOWEST), m0 = lowest, m1 = lowest;
    int64_t i = 0;
    for (; i + 2 * TN_VL <= n; i += 2 * TN_VL) {
        m0 = tn_v_max(m0, tn_v_load(z + i));
        m1 = tn_v_max(m1, tn_v_load(z + i + TN_VL));
    }
    m0 = tn_v_max(m0, m1);
    for (; i < n; i += TN_VL) {
        tn_vmask t = tn_v_mask(n - i);
        m0 = tn_v_max(m0, tn_v_select(t, tn_v_load_mask(z + i, t), lowest));
    }
    return tn_v_hmax(m0);
}

static float part_sum(const float *z, int64_t n, float max)
{
    tn_v m = tn_v_set(max), s = tn_v_zero();
    int64_t i = 0;
    for (; i + TN_VL <= n; i += TN_VL) s = tn_v_add(s, tn_v_exp(tn_v_sub(tn_v_load(z + i), m)));
    if (i < n) {
        tn_vmask t = tn_v_mask(n - i);
        tn_v e = tn_v_exp(tn_v_sub(tn_v_load_mask(z + i, t), m));
        s = tn_v_add(s, tn_v_select(t, e, tn_v_zero()));
    }
    return tn_v_sum(s);
}

static void parts(const tn_loss_parts_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *z = a->logits + row * a->v_count;
        for (int64_t p = 0; p < a->part_count; p++) {
            int64_t lo = tn_order_cut(a->vocab, 0, a->part_begin + p, a->parts) - a->v_begin;
            int64_t n = tn_order_cut(a->vocab, 0, a->part_begin + p + 1, a->parts) - a->v_begin - lo;
            int64_t label = a->labels[row] - a->v_begin - lo;
            float *s = a->stats + (row * a->part_count + p) * 3;
            s[0] = n ? part_max(z + lo, n) : LOWEST;
            s[1] = n ? part_sum(z + lo, n, s[0]) : 0.0f;
            s[2] = a->labels[row] >= 0 && label >= 0 && label < n ? z[lo + label] : 0.0f;
        }
    }
}

TN_VI float exp1(float x)
{
    return tn_v_first(tn_v_exp(tn_v_set(x)));
}

/* a = a and b merged; an empty side (s = 0) passes the other through. */
static void merge_pair(float *a, const float *b)
{
    a[2] = a[2] + b[2];
    if (b[1] == 0.0f) return;
    if (a[1] == 0.0f) {
        a[0] = b[0];
        a[1] = b[1];
        return;
    }
    float m = a[0] > b[0] ? a[0] : b[0];
    float left = a[1] * exp1(a[0] - m), right = b[1] * exp1(b[0] - m);
    a[1] = left + right;
    a[0] = m;
}

static void merge(const tn_loss_merge_args *a, int64_t begin, int64_t end)
{
    float s[TN_LOSS_MAX_PARTS][3];
    for (int64_t row = begin; row < end; row++) {
        memcpy(s, a->stats + row * a->parts * 3, (size_t)a->parts * sizeof s[0]);
        for (int64_t h = 1; h < a->parts; h *= 2)
            for (int64_t i = 0; i + h < a->parts; i += 2 * h) merge_pair(s[i], s[i + h]);
        a->lse[row] = s[0][0] + tn_v_first(tn_v_log(tn_v_set(s[0][1])));
        a->nll[row] = a->labels[row] < 0 ? 0.0f : a->lse[row] - s[0][2];
    }
}

static void backward(const tn_loss_grad_args *a, int64_t begin, int64_t end)
{
    tn_v c = tn_v_set(*a->coefficient);
    for (int64_t row = begin; row < end; row++) {
        const float *z = a->logits + row * a->v_count;
        float *g = a->grad + row * a->v_count;
        if (a->labels[row] < 0) {
            memset(g, 0, (size_t)a->v_count * sizeof *g);
            continue;
        }
        int64_t label = a->labels[row] - a->v_begin, i = 0;
        float at_label = label >= 0 && label < a->v_count ? z[label] : 0.0f;
        tn_v l = tn_v_set(a->lse[row]);
        for (; i + TN_VL <= a->v_count; i += TN_VL) tn_v_store(g + i, tn_v_mul(tn_v_exp(tn_v_sub(tn_v_load(z + i), l)), c));
        if (i < a->v_count) {
            tn_vmask t = tn_v_mask(a->v_count - i);
            tn_v_store_mask(g + i, t, tn_v_mul(tn_v_exp(tn_v_sub(tn_v_load_mask(z + i, t), l)), c));
        }
        if (label >= 0 && label < a->v_count) g[label] = (exp1(at_label - a->lse[row]) - 1.0f) * *a->coefficient;
    }
}

extern const tn_loss_fns TN_ISA_NAME(tn_loss_fns);
const tn_loss_fns TN_ISA_NAME(tn_loss_fns) = {parts, merge, backward};
