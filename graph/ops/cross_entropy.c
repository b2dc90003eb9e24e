/* cross_entropy.c - nll = lse(logits) - logits[label], 0 where the label is -100; lse second.
 * Operands: logits, labels, 1 / valid labels of the step (used by the gradient). A split vocabulary
 * is merged inside: the lower pass expands it. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    if (t->in[1]->dtype != TN_I32) return tn_infer_bad(t, "operand 1 must be i32 labels");
    t->out[1].grad = false;
    return tn_infer_dtype_f32(t);
}

static tn_status layout(tn_infer *t)
{
    TN_TRY(tn_infer_layouts(t));
    for (int o = 0; o < 2; o++)
        for (int a = 0; a < TN_N_AXES; a++)
            if (t->out[o].layout.type[a] == TN_TYPE_P) t->out[o].layout.type[a] = TN_TYPE_I;
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    int32_t in[4] = {v->in[0], v->in[1], v->n->out0 + 1, v->in[2]};
    return tn_vjp_add(v, TN_OP_loss_bwd, TN_PHASE_B, 4, in, 0, NULL, &v->dx[0]);
}

const tn_op tn_op_cross_entropy = {
    .name = "cross_entropy",
    .sig = "... v, ..., 1 -> ..., ...",
    .dtype = dtype,
    .layout = layout,
    .vjp = vjp,
};
