/* loss_parts.c - per vocabulary part of the reduce grid (m, s, target): maximum, sum of exp(logit -
 * m), the label's logit. Operands: logits, labels. Output [..., parts, 3]; a split vocabulary
 * splits the parts. (DESIGN.md 7 (12)) */
#include "graph/op.h"

static tn_status factors(tn_infer *t)
{
    tn_infer_factor(t, 'c', 3);
    return TN_OK;
}

static tn_status shape(tn_infer *t)
{
    t->out[0].dim[t->out[0].rank - 2] = (tn_dim){.extent = t->g->grid.tp};
    return TN_OK;
}

const tn_op tn_op_loss_parts = {
    .name = "loss_parts",
    .sig = "... v, ... -> ... v c",
    .factors = factors,
    .dtype = tn_infer_dtype_f32,
    .shape = shape,
};
