/* loss_isa.c - cross entropy rows; see loss.h. A part is read twice, the second time from the
 * cache. */
#include "kernels/cpu/loss.h"

#include "graph/order.h"
#include "kernels/cpu/vec.h"

/* m and s of n > 0 logits. */
TN_VI void part_sum(const float *z, int64_t n, float *m_out, float *s_out)
{
    const int64_t whole = n / TN_VL * TN_VL;
    const tn_vmask last = tn_v_mask(n - whole);
    tn_v m = tn_v_set(z[0]), s = tn_v_zero();
    for (int64_t i = 0; i < whole; i += TN_VL) m = tn_v_max(m, tn_v_load(z + i));
    if (whole < n) m = tn_v_select(last, tn_v_max(m, tn_v_load_mask(z + whole, last)), m);
    *m_out = tn_v_hmax(m);
    m = tn_v_set(*m_out);
    for (int64_t i = 0; i < whole; i += TN_VL)
        s = tn_v_add(s, tn_v_exp(tn_v_sub(tn_v_load(z + i), m)));
    if (whole < n)
        s = tn_v_select(last, tn_v_add(s, tn_v_exp(tn_v_sub(tn_v_load_mask(z + whole, last), m))),
                        s);
    *s_out = tn_v_sum(s);
}

static void parts(const tn_loss_parts_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) {
        const float *z = a->logits + row * a->v_count;
        float *stats = a->stats + row * a->part_count * 3;
        for (int64_t p = a->part_begin; p < a->part_begin + a->part_count; p++, stats += 3) {
            const int64_t from = tn_order_cut(a->vocab, 0, p, a->parts),
                          to = tn_order_cut(a->vocab, 0, p + 1, a->parts);
            const int64_t label = a->labels[row];
            stats[0] = stats[1] = stats[2] = 0;
            if (from == to) continue;
            part_sum(z + from - a->v_begin, to - from, stats, stats + 1);
            if (label >= from && label < to) stats[2] = z[label - a->v_begin];
        }
    }
}

/* Slot a takes in slot b; lanes are rows. Only an empty part has s = 0. */
TN_VI void merge_two(tn_v *ma, tn_v *sa, tn_v mb, tn_v sb)
{
    const tn_vmask no_a = tn_v_eq(*sa, tn_v_zero()), no_b = tn_v_eq(sb, tn_v_zero());
    tn_v m = tn_v_max(*ma, mb);
    tn_v s = tn_v_add(tn_v_mul(*sa, tn_v_exp(tn_v_sub(*ma, m))),
                      tn_v_mul(sb, tn_v_exp(tn_v_sub(mb, m))));
    *ma = tn_v_select(no_a, mb, tn_v_select(no_b, *ma, m));
    *sa = tn_v_select(no_a, sb, tn_v_select(no_b, *sa, s));
}

/* Up to 16 rows. The label's logit stands in one part, the others hold 0: their sum is exact. */
static void merge_rows(int64_t rows, int64_t n_parts, const float *stats, const int32_t *labels,
                       float *nll, float *lse)
{
    tn_v m[TN_LOSS_MAX_PARTS], s[TN_LOSS_MAX_PARTS];
    float target[TN_VL] = {0}, counted[TN_VL] = {0};
    for (int64_t p = 0; p < n_parts; p++) {
        float m_row[TN_VL] = {0}, s_row[TN_VL] = {0};
        for (int64_t r = 0; r < rows; r++) {
            const float *x = stats + (r * n_parts + p) * 3;
            m_row[r] = x[0];
            s_row[r] = x[1];
            target[r] = target[r] + x[2];
        }
        m[p] = tn_v_load(m_row);
        s[p] = tn_v_load(s_row);
    }
    for (int64_t n = n_parts; n > 1; n /= 2)
        for (int64_t i = 0; i < n / 2; i++) {
            tn_v ma = m[2 * i], sa = s[2 * i];
            merge_two(&ma, &sa, m[2 * i + 1], s[2 * i + 1]);
            m[i] = ma;
            s[i] = sa;
        }
    for (int64_t r = 0; r < rows; r++) counted[r] = labels[r] < 0 ? 0.0f : 1.0f;
    /* a NaN among the logits stays one */
    const tn_v log_s = tn_v_select(tn_v_eq(s[0], s[0]), tn_v_log(s[0]), s[0]);
    const tn_v loss = tn_v_add(log_s, tn_v_sub(m[0], tn_v_load(target)));
    const tn_vmask here = tn_v_mask(rows), has_label = tn_v_eq(tn_v_load(counted), tn_v_set(1.0f));
    tn_v_store_mask(nll, here, tn_v_select(has_label, loss, tn_v_zero()));
    tn_v_store_mask(lse, here, tn_v_add(m[0], log_s));
}

static void merge(const tn_loss_merge_args *a, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row += TN_VL)
        merge_rows(end - row < TN_VL ? end - row : TN_VL, a->parts, a->stats + row * a->parts * 3,
                   a->labels + row, a->nll + row, a->lse + row);
}

TN_VI tn_v gradient(tn_v z, tn_v lse, tn_v hit, tn_v coefficient)
{
    return tn_v_mul(tn_v_sub(tn_v_exp(tn_v_sub(z, lse)), hit), coefficient);
}

static void backward(const tn_loss_grad_args *a, int64_t begin, int64_t end)
{
    const int64_t v = a->v_count, whole = v / TN_VL * TN_VL;
    const tn_v c = tn_v_set(*a->coefficient), zero = tn_v_zero();
    const tn_vmask last = tn_v_mask(v - whole);
    for (int64_t row = begin; row < end; row++) {
        const float *z = a->logits + row * v;
        const int64_t label = a->labels[row] - a->v_begin;
        float *dz = a->grad + row * v, at_label = 0;
        if (a->labels[row] < 0) {
            memset(dz, 0, (size_t)v * sizeof *dz);
            continue;
        }
        const tn_v lse = tn_v_set(a->lse[row]);
        if (label >= 0 && label < v)
            at_label = tn_v_first(gradient(tn_v_set(z[label]), lse, tn_v_set(1.0f), c));
        for (int64_t i = 0; i < whole; i += TN_VL)
            tn_v_store(dz + i, gradient(tn_v_load(z + i), lse, zero, c));
        if (whole < v)
            tn_v_store_mask(dz + whole, last,
                            gradient(tn_v_load_mask(z + whole, last), lse, zero, c));
        if (label >= 0 && label < v) dz[label] = at_label;
    }
}

extern const tn_loss_fns TN_ISA_NAME(tn_loss_fns);
const tn_loss_fns TN_ISA_NAME(tn_loss_fns) = {parts, merge, backward};
