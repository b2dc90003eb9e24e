/* clip.c - coefficient = min(1, max_norm / (norm + 1e-6)) of the exact sum of squares; 1 where
 * max_norm is 0. Outputs: coefficient, norm before clipping. */
#include "graph/op.h"

const tn_op tn_op_clip = {
    .name = "clip",
    .sig = "1 -> 1, 1",
    .attrs = "max_norm=1.0",
    .dtype = tn_infer_dtype_f32,
};
