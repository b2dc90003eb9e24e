/* unshard.c - a parameter as computation wants it: gathered from its storage shards and cast to the
 * compute dtype. Where neither moves anything it is a view. Made by the storage pass. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    tn_dtype to;
    const char *name = tn_infer_attr(t, "dtype").u.s;
    if (!tn_dtype_parse(name, &to)) return tn_infer_bad(t, "dtype '%s'; f32, bf16 or f16", name);
    t->out[0].dtype = (uint8_t)to;
    return TN_OK;
}

const tn_op tn_op_unshard = {
    .name = "unshard",
    .sig = "... -> ...",
    .attrs = "dtype=f32",
    .dtype = dtype,
    .layout = tn_infer_placed,
};
