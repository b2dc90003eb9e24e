/* fold_leaves.c - leaves [rows, position parts, d] added in token order. */
#include "graph/op.h"

const tn_op tn_op_fold_leaves = {
    .name = "fold_leaves",
    .sig = "b s! d! -> d!",
    .linear = 1u << 0,
    .dtype = tn_infer_dtype_f32,
};
