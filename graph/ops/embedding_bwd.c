/* embedding_bwd.c - gradient of the table: per id, the sum over its tokens in token order
 * (DESIGN.md 7 (5)).
 *
 * The vocabulary occurs only in the output, so its split comes from the table's placement: each
 * rank makes its own rows. */
#include "graph/op.h"

static tn_status factors(tn_infer *t)
{
    int64_t vocab = tn_infer_attr(t, "vocab").u.i;
    if (vocab < 1) return tn_infer_bad(t, "vocab = %lld; at least 1", (long long)vocab);
    tn_infer_factor(t, 'v', vocab);
    return TN_OK;
}

static tn_status layout(tn_infer *t)
{
    TN_TRY(tn_infer_layouts(t));
    const tn_layout *want = t->d->layout;
    for (int a = 0; want && a < TN_N_AXES; a++)
        if (want->type[a] == TN_TYPE_S && want->dim[a] == 0 &&
            t->out[0].layout.type[a] == TN_TYPE_R)
            tn_layout_shard(&t->out[0].layout, (tn_axis)a, 0);
    return TN_OK;
}

const tn_op tn_op_embedding_bwd = {
    .name = "embedding_bwd",
    .sig = "..., ... d -> v d",
    .attrs = "vocab=0",
    .linear = 1u << 1,
    .factors = factors,
    .dtype = tn_infer_dtype_f32,
    .layout = layout,
};
