/* rmsnorm_bwd_w.c - gradient of the gain: sum over tokens of dy * x * r, in token order. Operands:
 * dy, x, r. */
#include "graph/op.h"

const tn_op tn_op_rmsnorm_bwd_w = {
    .name = "rmsnorm_bwd_w",
    .sig = "... d!, ... d!, ... -> d!",
    .linear = 1u << 0,
    .dtype = tn_infer_dtype_f32,
};
