/* loss_merge.c - the parts of a row merged in the tree of the grid: nll and log-sum-exp. Operands:
 * parts, labels. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[1].grad = false;
    return tn_infer_dtype_f32(t);
}

const tn_op tn_op_loss_merge = {
    .name = "loss_merge",
    .sig = "... p! c!, ... -> ..., ...",
    .dtype = dtype,
};
