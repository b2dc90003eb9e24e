/* embedding.c - rows of a table. A split vocabulary gives a pending sum: rows outside the shard
 * contribute zero. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    if (t->in[0]->dtype != TN_I32) return tn_infer_bad(t, "operand 0 must be i32 ids");
    t->out[0].dtype = t->in[1]->dtype;
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    const tn_value *w = &v->g->values[v->in[1]];
    tn_named_attr vocab = {"vocab", {.kind = 'i', .u.i = w->dim[0].extent}};
    tn_layout l = tn_layout_of_gradient(&w->layout);
    int32_t in[2] = {v->in[0], v->dy[0]};
    v->layout = &l;
    return tn_vjp_add(v, TN_OP_embedding_bwd, TN_PHASE_W, 2, in, 1, &vocab, &v->dx[1]);
}

const tn_op tn_op_embedding = {
    .name = "embedding",
    .sig = "..., v d -> ... d",
    .linear = 1u << 1,
    .dtype = dtype,
    .vjp = vjp,
};
