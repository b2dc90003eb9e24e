/* input.c - what the data loader fills: int32 [rows of the step, positions] of tokens, labels,
 * positions or documents. */
#include "graph/op.h"

static tn_status shape(tn_infer *t)
{
    const tn_value *like = t->d->like;
    if (!like || like->rank != 2) return tn_infer_bad(t, "needs two dims: rows and positions");
    t->out[0].dtype = TN_I32;
    return tn_infer_like(t);
}

const tn_op tn_op_input = {
    .name = "input",
    .sig = "-> ...",
    .attrs = "name=tokens",
    .shape = shape,
    .layout = tn_infer_placed,
};
