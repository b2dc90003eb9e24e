/* exact_add.c - two exact sums in one: of pipeline stages, which hold different parameters. */
#include "graph/op.h"

static tn_status dtype(tn_infer *t)
{
    for (int i = 0; i < 2; i++)
        if (t->in[i]->dtype != TN_EXACT)
            return tn_infer_bad(t, "operand %d must be an exact sum", i);
    return TN_OK;
}

const tn_op tn_op_exact_add = {
    .name = "exact_add",
    .sig = "1, 1 -> 1",
    .linear = 1u << 31,
    .dtype = dtype,
};
