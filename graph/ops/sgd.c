/* sgd.c - stochastic gradient descent with momentum, PyTorch's formula: weight decay is added to
 * the clipped gradient, the momentum buffer starts as the first gradient. Operands: parameter,
 * gradient, momentum, clip coefficient. */
#include "graph/op.h"

const tn_op tn_op_sgd = {
    .name = "sgd",
    .sig = "..., ..., ..., 1 -> ..., ...",
    .attrs = "group=0 lr=0.0 momentum=0.0 weight_decay=0.0",
    .dtype = tn_infer_dtype_f32,
    .reuse = {1, 3},
    .reuse_must = true,
};
