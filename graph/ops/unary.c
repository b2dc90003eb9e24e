/* unary.c - y = f(x), element by element. gelu is the exact one (erf), gelu_tanh its approximation.
 */
#include "graph/op.h"

#include <string.h>

static tn_status shape(tn_infer *t)
{
    static const char *const names[] = {"silu",  "gelu",    "gelu_tanh", "relu",
                                        "relu2", "sigmoid", "tanh"};
    const char *f = tn_infer_attr(t, "f").u.s;
    for (int i = 0; i < TN_COUNT(names); i++)
        if (!strcmp(f, names[i])) return TN_OK;
    return tn_infer_bad(
        t, "no function '%s'; there are silu, gelu, gelu_tanh, relu, relu2, sigmoid, tanh", f);
}

static tn_status vjp(tn_vjp *v)
{
    int32_t in[2] = {v->dy[0], v->in[0]};
    tn_named_attr f = {"f", {.kind = 's', .u.s = tn_node_attr_text(v->n, "f")}};
    return tn_vjp_add(v, TN_OP_unary_bwd, TN_PHASE_B, 2, in, 1, &f, &v->dx[0]);
}

const tn_op tn_op_unary = {
    .name = "unary",
    .sig = "... -> ...",
    .attrs = "f=silu",
    .shape = shape,
    .vjp = vjp,
    .reuse = {1},
    .cheap = true,
};
