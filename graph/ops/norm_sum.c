/* norm_sum.c - adds the squares of a gradient to the exact sum (second operand; absent: to zero). A
 * replicated parameter counts once. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[0].dtype = TN_EXACT;
    t->out[0].grad = false;
    if (t->n_in == 2 && t->in[1]->dtype != TN_EXACT)
        return tn_infer_bad(t, "operand 1 must be an exact sum");
    return TN_OK;
}

/* Pending on every axis: ranks that hold the same gradient leave its sum to the first of them. */
static tn_status layout(tn_infer *t)
{
    for (int a = 0; a < TN_N_AXES; a++)
        if (t->in[0]->layout.type[a] == TN_TYPE_P)
            return tn_infer_bad(t, "axis %s: the gradient is still pending; reduce it first",
                                tn_axis_name((tn_axis)a));
    t->out[0].layout = tn_layout_all(TN_TYPE_P);
    return TN_OK;
}

const tn_op tn_op_norm_sum = {
    .name = "norm_sum",
    .sig = "..., 1? -> 1",
    .dtype = dtype,
    .layout = layout,
    .reuse = {2},
    .reuse_must = true,
    .partial = true,
};
