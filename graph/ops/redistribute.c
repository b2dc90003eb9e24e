/* redistribute.c - the same tensor in another place: any number of axes change at once (reference:
 * docs/layouts.md, types).
 *
 * Per axis: S to R, I, S; P to R, I, S; R and I to S; I to R. The transitions that only arise as
 * gradients of these (S, R, I to P; R to I) need `grad`: they zero-pad or keep one copy. On an axis
 * of size 1 nothing moves, but the types change. `dtype`: what a pending sum, which is fp32, is
 * rounded to. */
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

/* The gradient is stored as the values are, on that side where they are not pending. */
static tn_status vjp(tn_vjp *v)
{
    const tn_value *x = &v->g->values[v->in[0]], *y = &v->g->values[v->n->out0];
    tn_dtype to = (tn_dtype)(x->dtype == TN_F32 ? y->dtype : x->dtype);
    tn_named_attr attrs[2] = {{"grad", {.kind = 'i', .u.i = 1}},
                              {"dtype", {.kind = 's', .u.s = tn_dtype_name(to)}}};
    int n = v->g->values[v->dy[0]].dtype == to ? 1 : 2;
    tn_layout place = tn_layout_of_gradient(&x->layout);
    v->layout = &place;
    return tn_vjp_add(v, TN_OP_redistribute, TN_PHASE_B, 1, v->dy, n, attrs, &v->dx[0]);
}

const tn_op tn_op_redistribute = {
    .name = "redistribute",
    .sig = "... -> ...",
    .attrs = "grad=0 dtype=",
    .dtype = tn_infer_dtype_cast,
    .layout = layout,
    .vjp = vjp,
    .partial = true,
    .view = true,
};
