/* input.c - what the data loader fills: int32 [rows of the step, positions] of tokens, labels,
 * positions or documents. */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    const tn_value *like = t->d->like;
    if (!like || like->rank != 2) return tn_infer_bad(t, "needs two dims: rows and positions");
    t->out[0].rank = like->rank;
    memcpy(t->out[0].dim, like->dim, sizeof like->dim);
    t->out[0].dtype = TN_I32;
    for (int d = 0; d < 2; d++)
        if (like->dim[d].extent < 1)
            return tn_infer_bad(t, "extent %lld in dim %d; at least 1",
                                (long long)like->dim[d].extent, d);
    return TN_OK;
}

const tn_op tn_op_input = {
    .name = "input",
    .sig = "-> ...",
    .attrs = "name=tokens",
    .shape = shape,
    .layout = tn_infer_placed,
};
