/* infer.c - shapes, dtypes and types of a node from its factor string (op.h, DESIGN.md 4 and 5).
 *
 * A factor instance is a loop index of this node: one per ellipsis dim, one per shared letter, one
 * per repeat for letters that occur only inside braces. Every dim of every operand names its
 * factors; extents, units and axis lists meet there. */
#include "graph/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    F_ELLIPSIS = 0,
    F_SHARED = TN_MAX_RANK,
    F_LOCAL = F_SHARED + TN_SIG_FACTORS,
    MAX_REPEATS = 16
};
enum { N_FACTORS = F_LOCAL + MAX_REPEATS * TN_SIG_FACTORS };

typedef struct factor {
    int64_t extent; /* -1: not known yet */
    int64_t units;
    bool plain; /* a dim of its own in the operand that has the units */
    uint8_t n_axes;
    uint8_t axes[TN_N_AXES];
    int16_t operand; /* which operand gave the axes */
} factor;

typedef struct place { /* one operand: its pattern and repeat */
    const tn_sig_operand *o;
    int rep;
} place;

struct tn_bind {
    const tn_sig *sig;
    int repeats, n_ellipsis;
    place in[TN_MAX_OPERANDS];
    factor f[N_FACTORS];
};

static place operand_place(const tn_bind *b, int i)
{
    return b->in[i];
}

static void place_operands(tn_bind *b, int n_in)
{
    const tn_sig *s = b->sig;
    for (int p = 0, i = 0; p < s->n_in; p++)
        for (int rep = 0; rep < (s->in[p].repeat ? b->repeats : 1) && i < n_in; rep++)
            b->in[i++] = (place){&s->in[p], rep};
}

static place output_place(const tn_bind *b, int i)
{
    const tn_sig *s = b->sig;
    for (int p = 0; p < s->n_out; p++) {
        int n = s->out[p].repeat ? b->repeats : 1;
        if (i < n) return (place){&s->out[p], i};
        i -= n;
    }
    return (place){&s->out[s->n_out - 1], 0}; /* variable_out: more of the last */
}

static int letter_id(const tn_bind *b, int letter, int rep)
{
    if (b->sig->shared & 1u << letter) return F_SHARED + letter;
    return F_LOCAL + rep * TN_SIG_FACTORS + letter;
}

/* The factors of dim d of an operand, outer to inner; 0 for an ellipsis dim means exactly one. */
static int dim_factors(const tn_bind *b, place p, int d, int id[3], bool *whole)
{
    int ell = p.o->ellipsis ? b->n_ellipsis : 0;
    *whole = false;
    if (d < ell) {
        id[0] = F_ELLIPSIS + d;
        return 1;
    }
    const tn_sig_dim *sd = &p.o->dim[d - ell];
    *whole = sd->whole;
    for (int i = 0; i < sd->n; i++) id[i] = letter_id(b, sd->factor[i], p.rep);
    return sd->n;
}

tn_status tn_infer_bad(const tn_infer *t, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    const char *path = t->d->path && t->d->path[0] ? t->d->path : "graph";
    TN_FAIL(TN_BAD_INPUT, "%s: %s: %s", path, tn_op_name(t->d->op), buf);
}

tn_status tn_infer_like(tn_infer *t)
{
    const tn_value *like = t->d->like;
    t->out[0].rank = like->rank;
    memcpy(t->out[0].dim, like->dim, sizeof like->dim);
    for (int d = 0; d < like->rank; d++)
        if (like->dim[d].extent < 1)
            return tn_infer_bad(t, "extent %lld in dim %d; at least 1",
                                (long long)like->dim[d].extent, d);
    return TN_OK;
}

void tn_infer_factor(tn_infer *t, char letter, int64_t extent)
{
    t->bind->f[F_SHARED + letter - 'a'].extent = extent;
}

/* ------------------------------------------------------------ shapes */

static tn_status meet_extent(tn_infer *t, int operand, int dim, int id, int64_t extent)
{
    factor *f = &t->bind->f[id];
    if (f->extent < 0) f->extent = extent;
    if (f->extent != extent)
        return tn_infer_bad(t, "operand %d has extent %lld in dim %d where %lld is needed", operand,
                            (long long)extent, dim, (long long)f->extent);
    return TN_OK;
}

static tn_status meet_units(tn_infer *t, int operand, int dim, int id, bool plain, int64_t units)
{
    factor *f = &t->bind->f[id];
    if (!units) return TN_OK;
    if (f->units && f->units != units)
        return tn_infer_bad(t,
                            "dim %d of operand %d is cut in %lld units, elsewhere in %lld; declare "
                            "both with the same nn.heads",
                            dim, operand, (long long)units, (long long)f->units);
    f->units = units;
    f->plain |= plain;
    return TN_OK;
}

static tn_status solve_composite(tn_infer *t, int operand, int dim, const int *id, int n,
                                 int64_t extent)
{
    int64_t known = 1;
    int unknown = -1;
    for (int i = 0; i < n; i++) {
        int64_t e = t->bind->f[id[i]].extent;
        if (e >= 0) known *= e;
        else if (unknown >= 0)
            return tn_infer_bad(t, "dim %d of operand %d: its factors are not determined", dim,
                                operand);
        else unknown = id[i];
    }
    if (unknown >= 0 && known > 0 && extent % known == 0) {
        t->bind->f[unknown].extent = extent / known;
        return TN_OK;
    }
    if (unknown < 0 && known == extent) return TN_OK;
    return tn_infer_bad(t, "dim %d of operand %d has extent %lld, which is not a multiple of %lld",
                        dim, operand, (long long)extent, (long long)known);
}

static tn_status bind_ranks(tn_infer *t)
{
    tn_bind *b = t->bind;
    b->n_ellipsis = -1;
    for (int i = 0; i < t->n_in; i++) {
        place p = operand_place(b, i);
        int extra = t->in[i]->rank - p.o->n_dims;
        if (!p.o->ellipsis) {
            if (extra)
                return tn_infer_bad(t, "operand %d has rank %d where %d is needed", i,
                                    t->in[i]->rank, p.o->n_dims);
            continue;
        }
        if (b->n_ellipsis < 0) b->n_ellipsis = extra;
        if (extra < 0 || extra != b->n_ellipsis)
            return tn_infer_bad(t, "operand %d has rank %d where %d is needed", i, t->in[i]->rank,
                                p.o->n_dims + (b->n_ellipsis < 0 ? 0 : b->n_ellipsis));
    }
    if (b->n_ellipsis < 0) b->n_ellipsis = 0;
    return TN_OK;
}

/* composites = false: plain dims; true: the composite ones, when the plain ones are known. */
static tn_status bind_extents(tn_infer *t, bool composites)
{
    for (int i = 0; i < t->n_in; i++) {
        place p = operand_place(t->bind, i);
        for (int d = 0; d < t->in[i]->rank; d++) {
            int id[3];
            bool whole;
            int n = dim_factors(t->bind, p, d, id, &whole);
            const tn_dim *dim = &t->in[i]->dim[d];
            if ((n > 1) != composites) continue;
            if (n == 1) TN_TRY(meet_extent(t, i, d, id[0], dim->extent));
            else TN_TRY(solve_composite(t, i, d, id, n, dim->extent));
            TN_TRY(meet_units(t, i, d, id[0], n == 1, dim->units));
        }
    }
    return TN_OK;
}

/* The units of an output's composite dim: those of the operand that has the same one (the heads of
 * q for those of o), else its outermost factor. */
static int64_t composite_units(const tn_infer *t, const int *id, int n)
{
    for (int i = 0; i < t->n_in; i++)
        for (int d = 0; d < t->in[i]->rank; d++) {
            int other[3];
            bool whole;
            if (dim_factors(t->bind, operand_place(t->bind, i), d, other, &whole) != n) continue;
            if (!memcmp(id, other, (size_t)n * sizeof *id)) return t->in[i]->dim[d].units;
        }
    const factor *f = &t->bind->f[id[0]];
    return f->units ? f->units : f->extent;
}

static tn_status out_shape(tn_infer *t, int i)
{
    place p = output_place(t->bind, i);
    tn_value *v = &t->out[i];
    v->rank = (uint8_t)(p.o->n_dims + (p.o->ellipsis ? t->bind->n_ellipsis : 0));
    for (int d = 0; d < v->rank; d++) {
        int id[3];
        bool whole;
        int n = dim_factors(t->bind, p, d, id, &whole);
        const factor *f = &t->bind->f[id[0]];
        v->dim[d] = (tn_dim){1, f->units};
        for (int k = 0; k < n; k++) {
            if (t->bind->f[id[k]].extent < 0)
                return tn_infer_bad(t, "output %d: the extent of dim %d is not determined", i, d);
            v->dim[d].extent *= t->bind->f[id[k]].extent;
        }
        if (n > 1) v->dim[d].units = composite_units(t, id, n);
        else if (!f->plain && f->units == f->extent) v->dim[d].units = 0;
    }
    return TN_OK;
}

/* ------------------------------------------------------------ types */

static void axis_list(const tn_value *v, int dim, factor *out)
{
    tn_axis axes[TN_N_AXES];
    int n = tn_layout_axes(&v->layout, dim, axes);
    out->n_axes = (uint8_t)n;
    for (int i = 0; i < n; i++) out->axes[i] = (uint8_t)axes[i];
}

static bool same_axes(const factor *a, const factor *b)
{
    return a->n_axes == b->n_axes && !memcmp(a->axes, b->axes, a->n_axes);
}

static void collect_axes(tn_infer *t)
{
    for (int i = 0; i < t->n_in; i++) {
        place p = operand_place(t->bind, i);
        for (int d = 0; d < t->in[i]->rank; d++) {
            int id[3];
            bool whole;
            factor l = {0};
            dim_factors(t->bind, p, d, id, &whole);
            axis_list(t->in[i], d, &l);
            factor *f = &t->bind->f[id[0]];
            if (l.n_axes <= f->n_axes) continue;
            memcpy(f->axes, l.axes, sizeof l.axes);
            f->n_axes = l.n_axes;
            f->operand = (int16_t)i;
        }
    }
}

static const char *print_layout(const tn_value *v, char *buf, size_t size)
{
    tn_layout_print(&v->layout, buf, size);
    return buf;
}

static tn_status check_inner(tn_infer *t, const int *id, int n, const char *what, int i, int d)
{
    for (int k = 1; k < n; k++)
        if (t->bind->f[id[k]].n_axes)
            return tn_infer_bad(t,
                                "axis %s splits an inner factor of dim %d of %s %d; only the "
                                "outermost factor of a composite dim may be split",
                                tn_axis_name((tn_axis)t->bind->f[id[k]].axes[0]), d, what, i);
    return TN_OK;
}

static tn_status check_dim(tn_infer *t, int i, int d)
{
    int id[3];
    bool whole;
    factor l = {0};
    char a[96], b[96];
    int n = dim_factors(t->bind, operand_place(t->bind, i), d, id, &whole);
    const factor *f = &t->bind->f[id[0]];
    axis_list(t->in[i], d, &l);
    if (l.n_axes && whole)
        return tn_infer_bad(t,
                            "axis %s: dim %d of operand %d must stay whole but is split (%s); "
                            "gather it first (redistribute to R)",
                            tn_axis_name((tn_axis)l.axes[0]), d, i,
                            print_layout(t->in[i], a, sizeof a));
    if (!same_axes(&l, f))
        return tn_infer_bad(t,
                            "axis %s: operand %d is %s, operand %d is %s on the same loop (dim "
                            "%d); redistribute one of them to the other's placement",
                            tn_axis_name((tn_axis)(f->n_axes ? f->axes[0] : l.axes[0])), f->operand,
                            print_layout(t->in[f->operand], a, sizeof a), i,
                            print_layout(t->in[i], b, sizeof b), d);
    return check_inner(t, id, n, "operand", i, d);
}

static bool has_factor(const tn_infer *t, place p, int rank, int id)
{
    for (int d = 0; d < rank; d++) {
        int ids[3];
        bool whole;
        int n = dim_factors(t->bind, p, d, ids, &whole);
        for (int k = 0; k < n; k++)
            if (ids[k] == id) return true;
    }
    return false;
}

/* The factor of operand i that axis a splits, or -1. */
static int split_factor(const tn_infer *t, int i, int a)
{
    const tn_value *v = t->in[i];
    int id[3];
    bool whole;
    if (v->layout.type[a] != TN_TYPE_S) return -1;
    dim_factors(t->bind, operand_place(t->bind, i), v->layout.dim[a], id, &whole);
    return id[0];
}

typedef struct mix { /* the types on one axis of the operands that matter for one output */
    int n, p, v, last_p;
    bool r_grad, i_grad, r, i;
    int split, split_operand;
} mix;

static tn_status gather_mix(tn_infer *t, int a, int rep, mix *m)
{
    *m = (mix){.split = -1};
    for (int i = 0; i < t->n_in; i++) {
        place p = operand_place(t->bind, i);
        const tn_value *v = t->in[i];
        if (p.o->repeat && p.rep != rep) continue;
        m->n++;
        switch ((tn_type)v->layout.type[a]) {
        case TN_TYPE_R:
            m->r = true;
            m->r_grad |= v->grad;
            break;
        case TN_TYPE_I:
            m->i = true;
            m->i_grad |= v->grad;
            break;
        case TN_TYPE_V:
            m->v++;
            break;
        case TN_TYPE_P:
            m->p++;
            m->last_p = i;
            break;
        case TN_TYPE_S: {
            int f = split_factor(t, i, a);
            if (m->split >= 0 && m->split != f)
                return tn_infer_bad(t,
                                    "axis %s splits two different loops: dim %d of operand %d and "
                                    "another of operand %d; move one of them to another dim first",
                                    tn_axis_name((tn_axis)a), v->layout.dim[a], i,
                                    m->split_operand);
            m->split = f;
            m->split_operand = i;
            break;
        }
        }
    }
    return TN_OK;
}

static tn_status partial_type(tn_infer *t, int a, const mix *m, tn_type *out)
{
    const tn_op *op = tn_op_get(t->d->op);
    const char *axis = tn_axis_name((tn_axis)a);
    if (m->v || m->split >= 0)
        return tn_infer_bad(t,
                            "axis %s: P meets a value that differs by rank; reduce it first "
                            "(redistribute P to R, I or S)",
                            axis);
    if (m->i_grad && !(op->linear >> 31 & 1))
        return tn_infer_bad(t,
                            "axis %s: P meets I, whose gradient would come out as P; convert the I "
                            "operand (redistribute I to R) or reduce the P one",
                            axis);
    if (t->g->canonical && !op->partial)
        return tn_infer_bad(
            t,
            "axis %s: operand %d is a pending sum (P); reduce it where it is made (out_dst = R, I "
            "or S): in canonical mode only its reduction may read it",
            axis, m->last_p);
    bool joint = op->linear >> 31 & 1;
    if (joint && m->p == m->n) {
        *out = TN_TYPE_P;
        return TN_OK;
    }
    if (joint)
        return tn_infer_bad(
            t,
            "axis %s: P + a complete value would add it once per rank; reduce the P operand first",
            axis);
    if (m->p > 1)
        return tn_infer_bad(
            t,
            "axis %s: a product of two pending sums is not the sum of products; reduce one first",
            axis);
    if (!(op->linear >> m->last_p & 1))
        return tn_infer_bad(
            t,
            "axis %s: operand %d is a pending sum (P) and %s is not linear in it; reduce it first",
            axis, m->last_p, op->name);
    *out = TN_TYPE_P;
    return TN_OK;
}

static tn_status unsplit_type(tn_infer *t, int a, const mix *m, tn_type *out)
{
    const char *axis = tn_axis_name((tn_axis)a);
    if (m->p) return partial_type(t, a, m, out);
    if (m->r_grad && m->i_grad)
        return tn_infer_bad(t,
                            "axis %s: R mixed with I: their gradients differ (P and I); convert "
                            "the I operand (redistribute I to R)",
                            axis);
    if (m->v) *out = TN_TYPE_V;
    else if (m->i_grad) *out = TN_TYPE_I;
    else if (m->r_grad || m->r) *out = TN_TYPE_R;
    else *out = m->i ? TN_TYPE_I : TN_TYPE_R;
    if (m->v && m->i_grad)
        return tn_infer_bad(
            t, "axis %s: I mixed with V; convert the I operand (redistribute I to R)", axis);
    return TN_OK;
}

/* The type on axis a of output o as far as repeat rep decides it. */
static tn_status axis_type(tn_infer *t, int a, int o, int rep, tn_type *type_out)
{
    mix m;
    TN_TRY(gather_mix(t, a, rep, &m));
    if (m.split < 0) return unsplit_type(t, a, &m, type_out);
    if (m.p) {
        tn_type unused;
        return partial_type(t, a, &m, &unused);
    }
    if (m.i_grad)
        return tn_infer_bad(
            t, "axis %s: an I operand meets a split one; convert it first (redistribute I to R)",
            tn_axis_name((tn_axis)a));
    bool kept = has_factor(t, output_place(t->bind, o), t->out[o].rank, m.split);
    *type_out = kept ? TN_TYPE_S : TN_TYPE_P;
    return TN_OK;
}

static tn_status out_layout(tn_infer *t, int o)
{
    place p = output_place(t->bind, o);
    tn_value *v = &t->out[o];
    v->layout = tn_layout_all(TN_TYPE_R);
    for (int a = 0; a < TN_N_AXES; a++) {
        tn_type type = TN_TYPE_R, other;
        TN_TRY(axis_type(t, a, o, p.rep, &type));
        if (!p.o->repeat && t->bind->sig->n_repeat)
            for (int r = 1; r < t->bind->repeats; r++) {
                TN_TRY(axis_type(t, a, o, r, &other));
                if (other != type)
                    return tn_infer_bad(
                        t, "axis %s: the terms of the sum are %c and %c; place all operands alike",
                        tn_axis_name((tn_axis)a), tn_type_letter(type), tn_type_letter(other));
            }
        if (type != TN_TYPE_S) v->layout.type[a] = (uint8_t)type;
    }
    for (int d = 0; d < v->rank; d++) {
        int id[3];
        bool whole;
        int n = dim_factors(t->bind, p, d, id, &whole);
        const factor *f = &t->bind->f[id[0]];
        TN_TRY(check_inner(t, id, n, "output", o, d));
        for (int k = 0; k < f->n_axes; k++) tn_layout_shard(&v->layout, (tn_axis)f->axes[k], d);
    }
    return TN_OK;
}

tn_status tn_infer_layouts(tn_infer *t)
{
    collect_axes(t);
    for (int i = 0; i < t->n_in; i++)
        for (int d = 0; d < t->in[i]->rank; d++) TN_TRY(check_dim(t, i, d));
    for (int o = 0; o < t->n_out; o++) TN_TRY(out_layout(t, o));
    return TN_OK;
}

tn_status tn_infer_dtype_f32(tn_infer *t)
{
    for (int o = 0; o < t->n_out; o++) t->out[o].dtype = TN_F32;
    return TN_OK;
}

tn_status tn_infer_dtype_same(tn_infer *t)
{
    for (int i = 1; i < t->n_in; i++)
        if (t->in[i]->dtype != t->in[0]->dtype)
            return tn_infer_bad(t, "operand %d is %s, operand 0 is %s; they must be alike", i,
                                tn_dtype_name((tn_dtype)t->in[i]->dtype),
                                tn_dtype_name((tn_dtype)t->in[0]->dtype));
    return TN_OK;
}

tn_status tn_infer_dtype_cast(tn_infer *t)
{
    tn_dtype to;
    const char *name = tn_infer_attr(t, "dtype").u.s;
    if (!*name) return TN_OK;
    if (!tn_dtype_parse(name, &to) || to > TN_F16)
        return tn_infer_bad(t, "dtype '%s'; f32, bf16 or f16", name);
    if (t->in[0]->dtype > TN_F16)
        return tn_infer_bad(t, "%s is not cast", tn_dtype_name((tn_dtype)t->in[0]->dtype));
    t->out[0].dtype = (uint8_t)to;
    return TN_OK;
}

/* Sums that ranks hold parts of are fp32, and rounded once by what completes them (DESIGN.md 7
 * (10)). On an axis of one rank nothing is left to add. */
static void widen_pending(tn_infer *t)
{
    for (int o = 0; o < t->n_out; o++)
        for (int a = 0; a < TN_N_AXES; a++)
            if (t->out[o].layout.type[a] == TN_TYPE_P && t->g->mesh.size[a] > 1 &&
                (t->out[o].dtype == TN_BF16 || t->out[o].dtype == TN_F16))
                t->out[o].dtype = TN_F32;
}

tn_status tn_infer_placed(tn_infer *t)
{
    if (!t->d->layout) return tn_infer_bad(t, "needs a placement");
    tn_layout l = *t->d->layout;
    for (int a = 0; a < TN_N_AXES; a++)
        if (l.type[a] == TN_TYPE_S && l.dim[a] >= t->out[0].rank)
            return tn_infer_bad(t, "axis %s: S(%d) of a value with %d dims; the last dim is S(%d)",
                                tn_axis_name((tn_axis)a), l.dim[a], t->out[0].rank,
                                t->out[0].rank - 1);
    t->out[0].layout = l;
    return TN_OK;
}

tn_status tn_infer_run(tn_infer *t, const tn_sig *sig)
{
    tn_bind b; /* 14 KiB: only the factors of this node are set */
    const tn_op *op = tn_op_get(t->d->op);
    b.sig = sig;
    b.n_ellipsis = 0;
    t->bind = &b;
    if (!tn_sig_count(sig, t->n_in, &b.repeats, &t->n_out) || b.repeats > MAX_REPEATS)
        return tn_infer_bad(t, "%d operands do not fit its form '%s'", t->n_in, op->sig);
    if (op->variable_out) t->n_out = (int)tn_infer_attr(t, "outs").u.i;
    if (t->n_out < 1 || t->n_out > 8 + MAX_REPEATS) return tn_infer_bad(t, "%d outputs", t->n_out);
    for (int o = 0; o < t->n_out; o++) t->out[o] = (tn_value){.levels = 1};
    place_operands(&b, t->n_in);
    for (int i = 0; i < F_LOCAL + b.repeats * TN_SIG_FACTORS; i++) b.f[i] = (factor){.extent = -1};
    TN_TRY(bind_ranks(t));
    if (op->factors) TN_TRY(op->factors(t));
    TN_TRY(bind_extents(t, false));
    TN_TRY(bind_extents(t, true));
    for (int o = 0; o < t->n_out; o++) {
        t->out[o].dtype = t->n_in ? t->in[0]->dtype : TN_F32;
        for (int i = 0; i < t->n_in; i++) t->out[o].grad |= t->in[i]->grad;
        if (t->n_in) TN_TRY(out_shape(t, o));
    }
    if (op->dtype) TN_TRY(op->dtype(t));
    if (t->n_in && !op->layout) TN_TRY(tn_infer_layouts(t));
    if (op->shape) TN_TRY(op->shape(t));
    if (op->layout) TN_TRY(op->layout(t));
    widen_pending(t);
    return TN_OK;
}
