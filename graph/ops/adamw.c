/* adamw.c - Adam with decoupled weight decay (Loshchilov & Hutter 2019), PyTorch's formula;
 * decoupled = 0 is Adam with L2. Operands: parameter, gradient, first and second moment, clip
 * coefficient; parameter and moments are updated in place. */
#include "graph/op.h"

const tn_op tn_op_adamw = {
    .name = "adamw",
    .sig = "..., ..., ..., ..., 1 -> ..., ..., ...",
    .attrs = "group=0 lr=0.0 beta1=0.9 beta2=0.95 eps=1e-8 weight_decay=0.0 decoupled=1",
    .dtype = tn_infer_dtype_f32,
    .reuse = {1, 3, 4},
    .reuse_must = true,
};
