/* attention_bwd.c - gradients of q, k and v. Operands: do, q, k, v, o, lse, then positions and
 * documents as forward. dK and dV sum over the queries: pending where the queries' positions are
 * split (context parallelism). */
#include "graph/op.h"
#include "graph/program.h"

static double flops(const tn_graph *g, const tn_node *n)
{
    const tn_value *q = &g->values[tn_node_in(g, n, 1)], *v = &g->values[tn_node_in(g, n, 3)];
    double pairs =
        (double)tn_value_elements(q) / (double)q->dim[3].extent * (double)v->dim[1].extent;
    double f = 2.0 * pairs * (3.0 * (double)q->dim[3].extent + 2.0 * (double)v->dim[3].extent);
    return tn_node_attr_int(n, "causal") ? f / 2 : f;
}

/* Of heads that ranks share each rank has a part of the sum only: fp32, until kv_reduce. */
static tn_status dtype(tn_infer *t)
{
    for (int i = 1; i < 3; i++)
        if (tn_node_shares_heads(t->g, t->in[1 + i])) t->out[i].dtype = TN_F32;
    return TN_OK;
}

const tn_op tn_op_attention_bwd = {
    .name = "attention_bwd",
    .sig = "b s (g r) v!, b s (g r) k!, b t! g k!, b t! g v!, b s (g r) v!, b s (g r), b s, b s, b "
           "t!, b t! "
           "-> b s (g r) k, b t g k, b t g v",
    .attrs = "causal=1 scale=0.0 window=0",
    .linear = 1u << 0,
    .dtype = dtype,
    .flops = flops,
};
