/* redistribute.c - the same tensor in another place: any number of axes change at once (reference:
 * docs/layouts.md, types).
 *
 * Per axis: S to R, I, S; P to R, I, S; R and I to S; I to R. The transitions that only arise as
 * gradients of these (S, R, I to P; R to I) need `grad`: they zero-pad or keep one copy. On an axis
 * of size 1 nothing moves, but the types change. */
#include "graph/op.h"

static bool legal(tn_type src, tn_type dst, bool grad)
{
    static const bool plain[5][5] = {
        /*         R      I      V      P      S */
        /* R */ {true, false, false, false, true},
        /* I */ {true, true, false, false, true},
        /* V */ {false, false, true, false, false},
        /* P */ {true, true, false, true, true},
        /* S */ {true, true, false, false, true},
    };
    if (plain[src][dst]) return true;
    return grad &&
           ((src != TN_TYPE_V && dst == TN_TYPE_P) || (src == TN_TYPE_R && dst == TN_TYPE_I));
}

static tn_status layout(tn_infer *t)
{
    bool grad = tn_infer_attr(t, "grad").u.i != 0;
    TN_TRY(tn_infer_placed(t));
    for (int a = 0; a < TN_N_AXES; a++) {
        tn_type src = (tn_type)t->in[0]->layout.type[a], dst = (tn_type)t->out[0].layout.type[a];
        if (!legal(src, dst, grad))
            return tn_infer_bad(t, "axis %s: no transition from %c to %c; from %c legal are %s",
                                tn_axis_name((tn_axis)a), tn_type_letter(src), tn_type_letter(dst),
                                tn_type_letter(src),
                                src == TN_TYPE_R   ? "R, S"
                                : src == TN_TYPE_V ? "V"
                                                   : "R, I, S");
    }
    return TN_OK;
}

static tn_status vjp(tn_vjp *v)
{
    tn_named_attr grad = {"grad", {.kind = 'i', .u.i = 1}};
    tn_layout to = tn_layout_of_gradient(&v->g->values[v->in[0]].layout);
    v->layout = &to;
    return tn_vjp_add(v, TN_OP_redistribute, TN_PHASE_B, 1, v->dy, 1, &grad, &v->dx[0]);
}

const tn_op tn_op_redistribute = {
    .name = "redistribute",
    .sig = "... -> ...",
    .attrs = "grad=0",
    .layout = layout,
    .vjp = vjp,
    .partial = true,
    .view = true,
};
