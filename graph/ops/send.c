/* send.c - hands this rank's shard to the same place of another pipeline rank (`to`). What is sent
 * under a channel is what `recv` of that channel returns there (graph/pipeline.h). The output
 * counts for nothing: every node makes a value. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    t->out[0].dtype = TN_I32;
    t->out[0].grad = false;
    return TN_OK;
}

static tn_status layout(tn_infer *t)
{
    t->out[0].layout = tn_layout_all(TN_TYPE_R);
    return TN_OK;
}

const tn_op tn_op_send = {
    .name = "send",
    .sig = "... -> 1",
    .attrs = "channel=0 to=0",
    .dtype = dtype,
    .layout = layout,
    .partial = true,
};
