/* rmsnorm_bwd.c - dx = r * (dy * w - x * r^2 * mean(dy * w * x over d)) [+ add, the residual's
 * gradient, rounded as if apart]. Operands: dy, x, r, w [, add]. */
#include "graph/op.h"

const tn_op tn_op_rmsnorm_bwd = {
    .name = "rmsnorm_bwd",
    .sig = "... d!, ... d!, ..., d!, ... d!? -> ... d!",
    .linear = 1u << 0,
    .reuse = {1},
};
