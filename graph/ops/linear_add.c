/* linear_add.c - y = add + x W^T: a linear whose reduction moves nothing (every axis it is pending
 * on has size 1), with the residual added after the root of its sum. Made by the fuse pass.
 * Operands: x, W, add. */
#include "graph/op.h"

static tn_status layout(tn_infer *t)
{
    t->n_in = 2;
    tn_status st = tn_infer_layouts(t);
    t->n_in = 3;
    TN_TRY(st);
    const tn_layout *sum = &t->out[0].layout, *add = &t->in[2]->layout;
    for (int a = 0; a < TN_N_AXES; a++) {
        bool same = sum->type[a] == add->type[a] && sum->dim[a] == add->dim[a] &&
                    sum->order[a] == add->order[a];
        if (!same && !(sum->type[a] == TN_TYPE_P && t->g->mesh.size[a] == 1))
            return tn_infer_bad(
                t, "axis %s: the product is %c, what is added is %c; reduce the product first",
                tn_axis_name((tn_axis)a), tn_type_letter((tn_type)sum->type[a]),
                tn_type_letter((tn_type)add->type[a]));
    }
    t->out[0].layout = *add;
    return TN_OK;
}

static double flops(const tn_graph *g, const tn_node *n)
{
    const tn_value *x = &g->values[tn_node_in(g, n, 0)];
    return 2.0 * (double)tn_value_elements(&g->values[n->out0]) *
           (double)x->dim[x->rank - 1].extent;
}

const tn_op tn_op_linear_add = {
    .name = "linear_add",
    .sig = "... d, f d, ... f -> ... f",
    .layout = layout,
    .flops = flops,
    .reuse = {3},
};
