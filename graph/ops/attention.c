/* attention.c - softmax(q k^T * scale) v over the visible keys, flash style (Dao et al. 2022):
 * never the whole score matrix.
 *
 * Operands: q, k, v, then position and document of queries and of keys. A query sees a key of its
 * own document that is not behind it (causal) and not `window` or more before it (0: no window).
 * scale 0: 1/sqrt(head dim). Second output: log-sum-exp. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[1].dtype = TN_F32;
    for (int i = 3; i < 7; i++)
        if (t->in[i]->dtype != TN_I32) return tn_infer_bad(t, "operand %d must be i32", i);
    return TN_OK;
}

static double flops(const tn_graph *g, const tn_node *n)
{
    const tn_value *q = &g->values[tn_node_in(g, n, 0)], *v = &g->values[tn_node_in(g, n, 2)];
    double pairs =
        (double)tn_value_elements(q) / (double)q->dim[3].extent * (double)v->dim[1].extent;
    double f = 2.0 * pairs * (double)(q->dim[3].extent + v->dim[3].extent);
    return tn_node_attr_int(n, "causal") ? f / 2 : f;
}

static tn_status vjp(tn_vjp *v)
{
    int32_t o = v->n->out0, first;
    int32_t in[10] = {v->dy[0], v->in[0], v->in[1], v->in[2], o,
                      o + 1,    v->in[3], v->in[4], v->in[5], v->in[6]};
    tn_named_attr attrs[3] = {{"causal", {.kind = 'i', .u.i = tn_node_attr_int(v->n, "causal")}},
                              {"scale", {.kind = 'f', .u.f = tn_node_attr_num(v->n, "scale")}},
                              {"window", {.kind = 'i', .u.i = tn_node_attr_int(v->n, "window")}}};
    TN_TRY(tn_vjp_add(v, TN_OP_attention_bwd, TN_PHASE_B, 10, in, 3, attrs, &first));
    for (int i = 0; i < 3; i++) v->dx[i] = first + i;
    return TN_OK;
}

const tn_op tn_op_attention = {
    .name = "attention",
    .sig = "b s (g r) k!, b t! g k!, b t! g v!, b s, b s, b t!, b t! -> b s (g r) v, b s (g r)",
    .attrs = "causal=1 scale=0.0 window=0",
    .dtype = dtype,
    .vjp = vjp,
    .flops = flops,
};
