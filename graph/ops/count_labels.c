/* count_labels.c - how many labels of the step are not -100: an integer sum, pending over the axes
 * that split the tokens. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    if (t->in[0]->dtype != TN_I32) return tn_infer_bad(t, "operand 0 must be i32 labels");
    return TN_OK;
}

const tn_op tn_op_count_labels = {
    .name = "count_labels",
    .sig = "... -> 1",
    .linear = 1u << 0,
    .dtype = dtype,
};
