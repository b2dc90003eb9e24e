/* scale.c - x times a constant. */
#include "graph/op.h"

static tn_status vjp(tn_vjp *v)
{
    tn_named_attr by = {"by", {.kind = 'f', .u.f = tn_node_attr_num(v->n, "by")}};
    return tn_vjp_add(v, TN_OP_scale, TN_PHASE_B, 1, v->dy, 1, &by, &v->dx[0]);
}

const tn_op tn_op_scale = {
    .name = "scale",
    .sig = "... -> ...",
    .attrs = "by=1.0",
    .linear = 1u << 0,
    .vjp = vjp,
    .reuse = {1},
    .cheap = true,
};
