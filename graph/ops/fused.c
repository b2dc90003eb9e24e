/* fused.c - a chain of pointwise ops in one pass over memory, made by the fuse pass. `prog` is its
 * program, the text of graph/fuse.h: it rounds where the unfused values were stored, so that no bit
 * changes. */
#include "graph/op.h"

const tn_op tn_op_fused = {
    .name = "fused",
    .sig = "{...}+ -> ...",
    .dtype = tn_infer_dtype_same,
    .attrs = "prog= outs=1",
    .reuse = {1},
    .variable_out = true,
    .cheap = true,
};
