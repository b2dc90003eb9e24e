/* unary_bwd.c - dx = dy * f'(x). Operands: dy, x. */
#include "graph/op.h"

const tn_op tn_op_unary_bwd = {
    .name = "unary_bwd",
    .sig = "..., ... -> ...",
    .dtype = tn_infer_dtype_same,
    .attrs = "f=silu",
    .linear = 1u << 0,
    .reuse = {1},
    .cheap = true,
};
