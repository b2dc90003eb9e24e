/* add.c - a + b. Jointly linear: pending sums may be added to pending sums, never to complete
 * values. */
#include "graph/op.h"

static tn_status vjp(tn_vjp *v)
{
    for (int i = 0; i < 2; i++)
        if (v->wanted[i]) v->dx[i] = v->dy[0];
    return TN_OK;
}

const tn_op tn_op_add = {
    .name = "add",
    .sig = "..., ... -> ...",
    .dtype = tn_infer_dtype_same,
    .linear = 1u << 31,
    .vjp = vjp,
    .reuse = {1},
    .cheap = true,
};
