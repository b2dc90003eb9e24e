/* unchunk.c - the whole of which the operand is this iteration's piece: its producer writes
 * straight into the place. */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    int64_t rows = tn_infer_attr(t, "rows").u.i, seq = tn_infer_attr(t, "seq").u.i;
    const tn_dim *d = t->in[0]->dim;
    const char *over = tn_infer_attr(t, "over").u.s;
    if (strcmp(over, "chunk") && strcmp(over, "microbatch"))
        return tn_infer_bad(t, "over = '%s'; chunk or microbatch", over);
    if (t->in[0]->rank < 2) return tn_infer_bad(t, "needs rows and positions");
    if (rows < 1 || seq < 1 || rows % d[0].extent || seq % d[1].extent)
        return tn_infer_bad(t, "pieces of %lld x %lld do not tile %lld x %lld",
                            (long long)d[0].extent, (long long)d[1].extent, (long long)rows,
                            (long long)seq);
    t->out[0].dim[0].extent = rows;
    t->out[0].dim[1].extent = seq;
    return TN_OK;
}

const tn_op tn_op_unchunk = {
    .name = "unchunk",
    .sig = "... -> ...",
    .attrs = "over=chunk rows=0 seq=0",
    .linear = 1u << 0,
    .shape = shape,
    .partial = true,
};
