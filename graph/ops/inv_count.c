/* inv_count.c - 1 / count in fp32; 0 where the count is 0, so that a step without labels has loss
 * and gradient 0. */
#include "graph/op.h"

const tn_op tn_op_inv_count = {
    .name = "inv_count",
    .sig = "1 -> 1",
    .dtype = tn_infer_dtype_f32,
};
