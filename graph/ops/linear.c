/* linear.c - y_i = x W_i^T for one or more weights W_i [f_i, d] on one input: one GEMM, one input
 * gradient. out_f32: the product is stored in fp32 whatever the operands' dtype (logits of a loss
 * chunk). */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    if (tn_infer_attr(t, "out_f32").u.i) return tn_infer_dtype_f32(t);
    return TN_OK;
}

static double flops(const tn_graph *g, const tn_node *n)
{
    double sum = 0;
    const tn_value *x = &g->values[tn_node_in(g, n, 0)];
    for (int i = 0; i < n->n_out; i++)
        sum += 2.0 * (double)tn_value_elements(&g->values[n->out0 + i]) *
               (double)x->dim[x->rank - 1].extent;
    return sum;
}

static tn_status vjp(tn_vjp *v)
{
    int32_t in[TN_MAX_OPERANDS];
    int n = 0;
    for (int i = 0; i < v->n->n_out; i++)
        if (v->dy[i] >= 0) in[n++] = v->dy[i];
    for (int i = 0, k = n; i < v->n->n_out; i++)
        if (v->dy[i] >= 0) in[k++] = v->in[1 + i];
    if (v->wanted[0])
        TN_TRY(tn_vjp_add(v, TN_OP_linear_bwd_x, TN_PHASE_B, 2 * n, in, 0, NULL, &v->dx[0]));
    for (int i = 0; i < v->n->n_out; i++) {
        int32_t w[2] = {v->dy[i], v->in[0]};
        if (v->dy[i] >= 0 && v->wanted[1 + i])
            TN_TRY(tn_vjp_add(v, TN_OP_linear_bwd_w, TN_PHASE_W, 2, w, 0, NULL, &v->dx[1 + i]));
    }
    return TN_OK;
}

const tn_op tn_op_linear = {
    .name = "linear",
    .sig = "... d, {f d}+ -> {... f}+",
    .attrs = "out_f32=0",
    .linear = 1u << 0,
    .dtype = dtype,
    .vjp = vjp,
    .flops = flops,
};
