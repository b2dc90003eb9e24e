/* linear_bwd_w.c - dW [f, d] = sum over tokens of dy x, in token order. `...` split: pending over
 * dp and cp, which is the data-parallel gradient reduction. Operands: dy, x. */
#include "graph/op.h"

static double flops(const tn_graph *g, const tn_node *n)
{
    const tn_value *dy = &g->values[tn_node_in(g, n, 0)];
    return 2.0 * (double)tn_value_elements(dy) * (double)g->values[n->out0].dim[1].extent;
}

const tn_op tn_op_linear_bwd_w = {
    .name = "linear_bwd_w",
    .sig = "... f, ... d -> f d",
    .linear = 3u,
    .dtype = tn_infer_dtype_f32,
    .flops = flops,
};
