/* rope.c - rotary position embedding, halves rotated (Su et al. 2021; Hugging Face's convention).
 * Operands: x, positions, table [positions, k]: cos of the k/2 frequencies, then sin. inverse: the
 * transposed rotation. */
#include "graph/op.h"

static tn_status shape(tn_infer *t)
{
    const tn_value *x = t->in[0], *table = t->in[2];
    if (x->dim[3].extent % 2)
        return tn_infer_bad(t, "head dim %lld is odd; it must be even",
                            (long long)x->dim[3].extent);
    if (table->dim[1].extent != x->dim[3].extent)
        return tn_infer_bad(t, "the table has %lld columns where the head dim is %lld",
                            (long long)table->dim[1].extent, (long long)x->dim[3].extent);
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    int32_t in[3] = {v->dy[0], v->in[1], v->in[2]};
    tn_named_attr inv = {"inverse", {.kind = 'i', .u.i = !tn_node_attr_int(v->n, "inverse")}};
    return tn_vjp_add(v, TN_OP_rope, TN_PHASE_B, 3, in, 1, &inv, &v->dx[0]);
}

const tn_op tn_op_rope = {
    .name = "rope",
    .sig = "b s h k!, b s, p! c! -> b s h k!",
    .attrs = "inverse=0",
    .linear = 1u << 0,
    .shape = shape,
    .vjp = vjp,
    .reuse = {1},
};
