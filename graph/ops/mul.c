/* mul.c - a * b, element by element. */
#include "graph/op.h"

static tn_status vjp(tn_vjp *v)
{
    for (int i = 0; i < 2; i++) {
        int32_t in[2] = {v->dy[0], v->in[1 - i]};
        if (v->wanted[i]) TN_TRY(tn_vjp_add(v, TN_OP_mul, TN_PHASE_B, 2, in, 0, NULL, &v->dx[i]));
    }
    return TN_OK;
}

const tn_op tn_op_mul = {
    .name = "mul",
    .sig = "..., ... -> ...",
    .dtype = tn_infer_dtype_same,
    .linear = 3u,
    .vjp = vjp,
    .reuse = {1},
    .cheap = true,
};
