/* loss_sum.c - the exact sum of the tokens' losses, carried over chunks and microbatches (DESIGN.md
 * 7 (13)). */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[0].dtype = TN_EXACT;
    t->out[0].carried = true;
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    /* The seed: the loss gradient is made inside cross_entropy's vjp from lse and the count; any
     * value marks the path. */
    v->dx[0] = v->in[0];
    return TN_OK;
}

const tn_op tn_op_loss_sum = {
    .name = "loss_sum",
    .sig = "... -> 1",
    .linear = 1u << 0,
    .dtype = dtype,
    .vjp = vjp,
    .partial = true,
};
