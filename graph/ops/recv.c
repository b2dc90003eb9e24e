/* recv.c - a value that another pipeline rank (`from`) made and sent under the same channel; it
 * lies in this rank's mail, where the sender put it (graph/pipeline.h). */
#include "graph/op.h"

static tn_status shape(tn_infer *t)
{
    const tn_value *like = t->d->like;
    if (!like) return tn_infer_bad(t, "needs dims and a dtype");
    t->out[0].dtype = like->dtype;
    t->out[0].grad = like->grad;
    return tn_infer_like(t);
}

const tn_op tn_op_recv = {
    .name = "recv",
    .sig = "-> ...",
    .attrs = "channel=0 from=0",
    .shape = shape,
    .layout = tn_infer_placed,
};
