/* boundary.c - pass 5b: an exchange that adds pending sums becomes several where that moves fewer
 * bytes.
 *
 * (1) One exchange pulls each rank's part of the result from every member of the sum: nothing that
 *     only moves can receive less, so what has no sum stays one exchange whatever it changes.
 * (2) A sum over several axes, or over more than two ranks that all want it, is cheaper in steps:
 *     the exact planner finds them (graph/reshard.h). A sum that stays whole is reduced in shards,
 *     which are gathered.
 * (3) Canonical sums are reduced from the innermost axis outwards: the members stand in the order
 *     of their ranks and degrees are powers of two, so the balanced tree over all of them is the
 *     tree over the outer axis of the trees over the inner ones.
 * (4) Steps that move nothing join the next one, steps behind the last reduction become one. */
#include "graph/passes.h"
#include "graph/reshard.h"
#include "graph/rewrite.h"
#include "graph/traffic.h"

#include <string.h>

enum { MAX_LINKS = 2 * TN_RESHARD_STEPS };

typedef struct chain {
    int n;
    tn_layout after[MAX_LINKS];
    bool sums[MAX_LINKS]; /* the last one is where values are rounded to the stored dtype */
} chain;

static bool reduces(const tn_reshard_step *s)
{
    return s->kind == TN_RESHARD_ALL_REDUCE || s->kind == TN_RESHARD_REDUCE_SCATTER;
}

/* Where the sum of an all_reduce can rest in shards on the way; false if the value is too small. */
static bool shards(const tn_mesh *mesh, const tn_value *v, const tn_layout *before,
                   const tn_reshard_step *s, tn_layout *out)
{
    int64_t ranks = 1;
    for (int i = 0; i < s->n_axes; i++) ranks *= mesh->size[s->axes[i]];
    for (int d = 0; d < v->rank && ranks > 2; d++) {
        if (tn_layout_largest(before, mesh, d, v->dim[d].extent, v->dim[d].units) < ranks) continue;
        *out = *before;
        for (int i = 0; i < s->n_axes; i++) {
            out->type[s->axes[i]] = TN_TYPE_R; /* it leaves the sum, then joins the list of dim d */
            tn_layout_shard(out, (tn_axis)s->axes[i], d);
        }
        return true;
    }
    return false;
}

static void add_link(chain *c, const tn_layout *after, bool sums)
{
    c->after[c->n] = *after;
    c->sums[c->n++] = sums;
}

/* (2), (4) */
static void link(const tn_mesh *mesh, const tn_value *v, const tn_reshard *plan, chain *c)
{
    int last = -1;
    tn_layout now = v->layout, rest;
    *c = (chain){0};
    for (int i = 0; i < plan->n_steps; i++)
        if (reduces(&plan->step[i])) last = i;
    for (int i = 0; i <= last; i++) {
        const tn_reshard_step *s = &plan->step[i];
        bool still = s->kind == TN_RESHARD_SLICE || s->kind == TN_RESHARD_PAD;
        if (s->kind == TN_RESHARD_ALL_REDUCE && shards(mesh, v, &now, s, &rest)) {
            add_link(c, &rest, true);
            if (i < last) add_link(c, &s->after, false);
        } else if (!still) {
            add_link(c, &s->after, reduces(s));
        }
        now = s->after;
    }
    const tn_layout *goal = &plan->step[plan->n_steps - 1].after;
    if (c->n && !tn_layout_equal(&c->after[c->n - 1], goal)) add_link(c, goal, false);
}

/* One exchange by the slowest of its axes in each respect. */
static double seconds(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                      const tn_layout *to)
{
    tn_traffic_move m;
    double start = 0, hop = 0, per_byte = 0;
    if (!tn_traffic_of_move(mesh, v, to, &m)) return 0;
    for (int a = 0; a < TN_N_AXES; a++) {
        const tn_reshard_link *l = &links->axis[a];
        if (!(m.axes >> a & 1)) continue;
        if (l->start_s > start) start = l->start_s;
        if (l->hop_s > hop) hop = l->hop_s;
        if (1 / l->bytes_per_s > per_byte) per_byte = 1 / l->bytes_per_s;
    }
    return start + hop * (double)(m.ranks - 1) + (double)m.bytes * per_byte;
}

/* Is the chain worth its meetings? */
static bool pays(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                 const tn_layout *to, const chain *c)
{
    tn_value at = *v;
    double all = 0;
    for (int i = 0; i < c->n; i++) {
        all += seconds(mesh, links, &at, &c->after[i]);
        at.layout = c->after[i];
    }
    return c->n > 1 && all < seconds(mesh, links, v, to);
}

static bool may_split(const tn_graph *g, const tn_node *n)
{
    const tn_value *x = &g->values[tn_node_in(g, n, 0)], *y = &g->values[n->out0];
    bool sums = false;
    if ((n->op != TN_OP_redistribute && n->op != TN_OP_reduce) || x->dtype != TN_F32 || !x->rank)
        return false;
    for (int a = 0; a < TN_N_AXES; a++) {
        bool moves = tn_layout_moves(&x->layout, &y->layout, &g->mesh, (tn_axis)a);
        if (moves && y->layout.type[a] == TN_TYPE_P) return false;
        sums |= moves && x->layout.type[a] == TN_TYPE_P;
    }
    return sums;
}

/* The node again, once per link; all but the last reduction keep the dtype. */
static tn_status emit(tn_rewrite *r, int64_t i, const chain *c)
{
    int32_t in[1], out;
    tn_named_attr attrs[16];
    tn_node_desc d;
    int last = 0;
    for (int k = 0; k < c->n; k++)
        if (c->sums[k]) last = k;
    tn_rewrite_describe(r, i, in, attrs, &d);
    const tn_named_attr own = {"dtype", {.kind = 's', .u.s = tn_dtype_name(TN_F32)}};
    int n_attrs = d.n_attrs;
    for (int k = 0; k < c->n; k++) {
        bool early = k < last && d.op == TN_OP_redistribute;
        tn_named_attr more[16];
        for (int a = 0; a < n_attrs; a++)
            more[a] = early && !strcmp(attrs[a].name, "dtype") ? own : attrs[a];
        d.attrs = more;
        d.layout = &c->after[k];
        if (k == c->n - 1) return tn_rewrite_add(r, i, &d);
        TN_TRY(tn_graph_add(r->g, &d, &out));
        in[0] = out;
    }
    return TN_OK;
}

static tn_status boundary(tn_rewrite *r, int64_t i, const tn_reshard_links *links)
{
    const tn_graph *g = r->old;
    const tn_node *n = &g->nodes[i];
    tn_arena scratch = {0};
    tn_reshard plan;
    chain c = {0};
    if (!may_split(g, n)) return tn_rewrite_copy(r, i);
    const tn_value *x = &g->values[tn_node_in(g, n, 0)], *y = &g->values[n->out0];
    tn_status st = tn_reshard_plan(&g->mesh, links, x, &y->layout, &scratch, &plan);
    tn_arena_fini(&scratch);
    if (st) return st;
    link(&g->mesh, x, &plan, &c);
    return pays(&g->mesh, links, x, &y->layout, &c) ? emit(r, i, &c) : tn_rewrite_copy(r, i);
}

tn_status tn_pass_boundary(const tn_graph *in, const tn_reshard_links *links, tn_graph **out)
{
    tn_rewrite r;
    tn_reshard_links l = *links;
    l.inner_first = in->canonical;
    TN_TRY(tn_rewrite_begin(in, &r));
    tn_status st = TN_OK;
    for (int64_t i = 0; i < in->n_nodes && !st; i++) st = boundary(&r, i, &l);
    if (st) {
        tn_rewrite_drop(&r);
        return st;
    }
    *out = tn_rewrite_finish(&r);
    return TN_OK;
}
