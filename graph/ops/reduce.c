/* reduce.c - a parameter's gradient from pending to its storage shards, in fp32. Made by the
 * storage pass; on axes of size 1 a view. */
#include "graph/op.h"

const tn_op tn_op_reduce = {
    .name = "reduce",
    .attrs = "param=",
    .sig = "... -> ...",
    .dtype = tn_infer_dtype_f32,
    .layout = tn_infer_placed,
    .view = true,
    .partial = true,
};
