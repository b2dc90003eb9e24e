/* kv_reduce.c - the gradient of keys or values whose heads several ranks share: each has the sum
 * over its own query heads, all get the sum over the ranks that share the head, in the tree of the
 * grid (DESIGN.md 7 (11)). Made by the lower pass where tensor parallelism exceeds the key/value
 * heads; it stands directly behind attention's gradient, which is fp32 there. */
#include "graph/op.h"

const tn_op tn_op_kv_reduce = {
    .name = "kv_reduce",
    .sig = "b s h k -> b s h k",
    .attrs = "dtype=",
    .dtype = tn_infer_dtype_cast,
    .linear = 1u << 0,
    .partial = true,
};
