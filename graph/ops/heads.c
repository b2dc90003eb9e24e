/* heads.c - the last dim seen as heads of k elements. Only the heads may be split, and only where
 * the dim is declared so. */
#include "graph/op.h"

static tn_status factors(tn_infer *t)
{
    int64_t k = tn_infer_attr(t, "k").u.i;
    if (k < 1) return tn_infer_bad(t, "k = %lld; at least 1", (long long)k);
    tn_infer_factor(t, 'k', k);
    return TN_OK;
}

static tn_status shape(tn_infer *t)
{
    tn_axis axes[TN_N_AXES];
    int d = t->in[0]->rank - 1;
    if (tn_layout_axes(&t->in[0]->layout, d, axes) && !t->in[0]->dim[d].units)
        return tn_infer_bad(
            t,
            "axis %s splits a dim made of heads that is not declared so; declare it with nn.heads",
            tn_axis_name(axes[0]));
    int64_t heads = t->out[0].dim[2].extent, units = t->out[0].dim[2].units;
    if (units && heads % units && units % heads)
        return tn_infer_bad(
            t,
            "%lld heads of %lld elements in a dim that is cut in %lld units; declare it with "
            "nn.heads",
            (long long)heads, (long long)t->out[0].dim[3].extent, (long long)units);
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    return tn_vjp_add(v, TN_OP_merge_heads, TN_PHASE_B, 1, v->dy, 0, NULL, &v->dx[0]);
}

const tn_op tn_op_heads = {
    .name = "heads",
    .sig = "b s (h k) -> b s h k",
    .attrs = "k=0",
    .linear = 1u << 0,
    .factors = factors,
    .shape = shape,
    .vjp = vjp,
    .view = true,
    .partial = true,
};
