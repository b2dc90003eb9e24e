/* linear_bwd_x.c - dx = sum over the weights of dy_i W_i. Leaf r of the sum chains part r of every
 * weight in turn (DESIGN.md 7 (4)). Operands: dy_1 .. dy_n, W_1 .. W_n. Stored as the weights are:
 * the gradient of logits is fp32. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[0].dtype = t->in[t->n_in / 2]->dtype;
    return TN_OK;
}

static double flops(const tn_graph *g, const tn_node *n)
{
    double f = 0;
    for (int i = n->n_in / 2; i < n->n_in; i++)
        f += (double)g->values[tn_node_in(g, n, i)].dim[0].extent;
    return 2.0 * (double)tn_value_elements(&g->values[n->out0]) * f;
}

const tn_op tn_op_linear_bwd_x = {
    .name = "linear_bwd_x",
    .sig = "{... f}+, {f d}+ -> ... d",
    .linear = 1u << 0,
    .dtype = dtype,
    .flops = flops,
};
