/* cache.c - keys or values of a decoder that are kept: the new ones [b s g k] are written into the
 * state [b t g k] at their positions; the result is the state. Positions outside of it are dropped. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    if (t->in[0]->dtype != t->in[1]->dtype)
        return tn_infer_bad(t, "the cache is %s, what is kept %s",
                            tn_dtype_name((tn_dtype)t->in[0]->dtype),
                            tn_dtype_name((tn_dtype)t->in[1]->dtype));
    if (t->in[2]->dtype != TN_I32) return tn_infer_bad(t, "operand 2 must be i32 positions");
    return TN_OK;
}

const tn_op tn_op_cache = {
    .name = "cache",
    .sig = "b t! g k!, b s! g k!, b s! -> b t! g k!",
    .dtype = dtype,
    .reuse = {1},
    .reuse_must = true,
};
