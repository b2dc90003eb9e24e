/* state.c - a parameter, buffer or optimizer moment: lives as long as the process.
 *
 * Its first content is a pure function of (seed, name, element index) and these attributes: zeros,
 * ones, normal(0, std), trunc_normal(0, std) cut at +-bound absolute (0: 2.0, PyTorch's default),
 * rope (cos then sin of position * frequency). */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    const tn_value *like = t->d->like;
    const char *kind = tn_infer_attr(t, "kind").u.s;
    if (!like) return tn_infer_bad(t, "needs dims and a dtype");
    if (!like->rank)
        return tn_infer_bad(t, "'%s' has no dims; at least 1", tn_infer_attr(t, "name").u.s);
    t->out[0].rank = like->rank;
    memcpy(t->out[0].dim, like->dim, sizeof like->dim);
    t->out[0].dtype = like->dtype;
    t->out[0].grad = !strcmp(kind, "param") || !strcmp(kind, "moment");
    for (int d = 0; d < like->rank; d++)
        if (like->dim[d].extent < 1)
            return tn_infer_bad(t, "'%s' has extent %lld in dim %d; at least 1",
                                tn_infer_attr(t, "name").u.s, (long long)like->dim[d].extent, d);
    return TN_OK;
}

const tn_op tn_op_state = {
    .name = "state",
    .sig = "-> ...",
    .attrs = "name= kind=param init=zeros std=0.0 bound=0.0 theta=0.0 factor=0.0 low=0.0 high=0.0 "
             "original=0",
    .shape = shape,
    .layout = tn_infer_placed,
};
