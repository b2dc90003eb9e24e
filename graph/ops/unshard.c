/* unshard.c - a parameter as computation wants it: gathered from its storage shards and cast to the
 * compute dtype. Where neither moves anything it is a view. Made by the storage pass. */
#include "graph/op.h"

const tn_op tn_op_unshard = {
    .name = "unshard",
    .sig = "... -> ...",
    .attrs = "dtype=f32",
    .dtype = tn_infer_dtype_cast,
    .layout = tn_infer_placed,
};
