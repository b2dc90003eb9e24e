/* rmsnorm.c - y = x * r * w, r = 1 / sqrt(mean(x^2 over d) + eps)                   (Zhang &
 * Sennrich 2019, eq. 4) Fused because the five-op form reads x three times; backward needs r, so it
 * is a second output. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[1].dtype = TN_F32;
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    int32_t r = v->n->out0 + 1;
    int32_t in_x[4] = {v->dy[0], v->in[0], r, v->in[1]}, in_w[3] = {v->dy[0], v->in[0], r};
    if (v->wanted[0])
        TN_TRY(tn_vjp_add(v, TN_OP_rmsnorm_bwd, TN_PHASE_B, 4, in_x, 0, NULL, &v->dx[0]));
    if (v->wanted[1])
        TN_TRY(tn_vjp_add(v, TN_OP_rmsnorm_bwd_w, TN_PHASE_B, 3, in_w, 0, NULL, &v->dx[1]));
    return TN_OK;
}

const tn_op tn_op_rmsnorm = {
    .name = "rmsnorm",
    .sig = "... d!, d! -> ... d!, ...",
    .attrs = "eps=1e-5",
    .dtype = dtype,
    .vjp = vjp,
    .cheap = true,
};
