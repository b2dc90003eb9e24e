/* merge_heads.c - heads and their elements as one dim again. */
#include "graph/op.h"

static tn_status vjp(tn_vjp *v)
{
    tn_named_attr k = {"k", {.kind = 'i', .u.i = v->g->values[v->in[0]].dim[3].extent}};
    return tn_vjp_add(v, TN_OP_heads, TN_PHASE_B, 1, v->dy, 1, &k, &v->dx[0]);
}

const tn_op tn_op_merge_heads = {
    .name = "merge_heads",
    .sig = "b s h k -> b s (h k)",
    .linear = 1u << 0,
    .vjp = vjp,
    .view = true,
    .partial = true,
};
