/* recv.c - a value that another pipeline rank (`from`) made and sent under the same channel; it
 * lies in this rank's mail, where the sender put it (graph/pipeline.h). */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    const tn_value *like = t->d->like;
    if (!like) return tn_infer_bad(t, "needs dims and a dtype");
    t->out[0].rank = like->rank;
    memcpy(t->out[0].dim, like->dim, sizeof like->dim);
    t->out[0].dtype = like->dtype;
    t->out[0].grad = like->grad;
    for (int d = 0; d < like->rank; d++)
        if (like->dim[d].extent < 1)
            return tn_infer_bad(t, "extent %lld in dim %d; at least 1",
                                (long long)like->dim[d].extent, d);
    return TN_OK;
}

const tn_op tn_op_recv = {
    .name = "recv",
    .sig = "-> ...",
    .attrs = "channel=0 from=0",
    .shape = shape,
    .layout = tn_infer_placed,
};
