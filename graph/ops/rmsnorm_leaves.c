/* rmsnorm_leaves.c - the gain's gradient where the positions of a row are split over ranks: per row
 * and position part of the reduce grid, the chain over its tokens. Ranks send their leaves,
 * fold_leaves adds them in order (DESIGN.md 7 (6)). Operands: dy, x, r. */
#include "graph/op.h"

static tn_status shape(tn_infer *t)
{
    t->out[0].dim[1] = (tn_dim){.extent = t->g->grid.seq};
    return TN_OK;
}

const tn_op tn_op_rmsnorm_leaves = {
    .name = "rmsnorm_leaves",
    .sig = "b s d!, b s d!, b s -> b s d",
    .linear = 1u << 0,
    .dtype = tn_infer_dtype_f32,
    .shape = shape,
};
