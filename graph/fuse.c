/* fuse.c - pass 4. A fused node rounds wherever the unfused value was stored, so fusing never
 * changes a bit.
 *
 * (a) a linear with one weight, read only by an add (through views): linear_add.
 * (b) rmsnorm_bwd read only by the add of a residual's gradient: its fifth operand.
 * (c) runs of pointwise nodes of one size that depend on each other: one `fused` node. A unary
 * function of forward that only fused nodes of backward read is computed again there instead of
 * being saved (silu(gate) of SwiGLU). */
#include "graph/fuse.h"

#include "graph/op.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

#include <stdio.h>
#include <string.h>

typedef struct fuser {
    tn_rewrite r;
    tn_uses uses;
    int32_t *partner; /* by old node: -1; of an add: the linear or rmsnorm_bwd it swallows; of a
                         swallowed node: -2 */
} fuser;

static bool pointwise(const tn_node *n)
{
    switch ((tn_op_id)n->op) {
    case TN_OP_add:
    case TN_OP_mul:
    case TN_OP_scale:
    case TN_OP_unary:
    case TN_OP_unary_bwd:
        return true;
    default:
        return false;
    }
}

/* A view through which a fusion may look: nothing moves on this mesh. */
static bool still(const tn_graph *g, const tn_node *n)
{
    if (n->op != TN_OP_redistribute) return false;
    const tn_value *a = &g->values[tn_node_in(g, n, 0)], *b = &g->values[n->out0];
    if (a->dtype != b->dtype) return false;
    for (int x = 0; x < TN_N_AXES; x++)
        if (a->layout.type[x] != b->layout.type[x] && g->mesh.size[x] > 1) return false;
    return true;
}

/* The producer behind still views that only this chain reads; -1 where someone else reads on the
 * way. */
static int32_t behind(const fuser *f, int32_t value)
{
    const tn_graph *g = f->r.old;
    for (;;) {
        int32_t p = g->values[value].node;
        if (tn_uses_count(&f->uses, value) != 1) return -1;
        if (!still(g, &g->nodes[p])) return p;
        value = tn_node_in(g, &g->nodes[p], 0);
    }
}

static void swallow(fuser *f, int64_t add, int32_t node, int32_t value)
{
    const tn_graph *g = f->r.old;
    f->partner[add] = node;
    f->partner[node] = -2;
    for (int32_t p = g->values[value].node; p != node;
         p = g->values[tn_node_in(g, &g->nodes[p], 0)].node)
        f->partner[p] = -2;
}

static void match_add(fuser *f, int64_t i)
{
    const tn_graph *g = f->r.old;
    const tn_node *n = &g->nodes[i];
    if (n->op != TN_OP_add || n->scope != TN_SCOPE_MICROBATCH) return;
    for (int k = 1; k >= 0; k--) {
        int32_t v = tn_node_in(g, n, k), p = behind(f, v);
        if (p < 0 || g->nodes[p].scope != n->scope || f->partner[p] != -1) continue;
        const tn_node *q = &g->nodes[p];
        bool linear = q->op == TN_OP_linear && q->n_in == 2 && !tn_node_attr_int(q, "out_f32");
        bool norm = q->op == TN_OP_rmsnorm_bwd && q->n_in == 4;
        if (!linear && !norm) continue;
        if (norm && !tn_layout_equal(&g->values[v].layout, &g->values[q->out0].layout)) continue;
        swallow(f, i, p, v);
        return;
    }
}

static tn_status emit_partner(fuser *f, int64_t i)
{
    const tn_graph *g = f->r.old;
    int32_t in[TN_MAX_OPERANDS], p = f->partner[i];
    tn_named_attr attrs[16];
    tn_node_desc d;
    const tn_node *add = &g->nodes[i], *q = &g->nodes[p];
    tn_rewrite_describe(&f->r, p, in, attrs, &d);
    int other = behind(f, tn_node_in(g, add, 1)) == p ? 0 : 1;
    in[d.n_in++] = f->r.map[tn_node_in(g, add, other)];
    if (q->op == TN_OP_linear) {
        d.op = TN_OP_linear_add;
        d.n_attrs = 0;
    }
    TN_TRY(tn_rewrite_add(&f->r, i, &d));
    f->r.g->nodes[f->r.g->n_nodes - 1].order = q->order;
    f->r.g->nodes[f->r.g->n_nodes - 1].parts = q->parts;
    return TN_OK;
}

/* ------------------------------------------------------------ pointwise groups */

enum { MAX_AGAIN = 4 };

typedef struct group {
    tn_fuse_prog prog;
    int32_t reg_value[TN_FUSE_MAX_INS]; /* old value of each register */
    int32_t in_value[TN_FUSE_MAX_IN];   /* old value of each input */
} group;

static int find_reg(const group *q, int32_t value)
{
    for (int i = 0; i < q->prog.n; i++)
        if (q->reg_value[i] == value) return i;
    return -1;
}

/* A unary of forward whose input backward reads anyway: computing it again there costs no memory.
 */
static bool cheap(const fuser *f, int32_t value)
{
    const tn_graph *g = f->r.old;
    const tn_node *p = &g->nodes[g->values[value].node];
    if (p->op != TN_OP_unary || p->phase != TN_PHASE_F) return false;
    int32_t x = tn_node_in(g, p, 0);
    for (int64_t u = f->uses.first[x]; u < f->uses.first[x + 1]; u++)
        if (g->nodes[f->uses.users[u]].op == TN_OP_unary_bwd) return true;
    return false;
}

/* Does this node of backward compute the value again? Not a long chain of them: its group would not
 * hold it. */
static bool again(const fuser *f, int32_t value, const tn_node *user)
{
    const tn_graph *g = f->r.old;
    int depth = 0;
    if (user->phase == TN_PHASE_F || user->scope == TN_SCOPE_TAIL) return false;
    for (; cheap(f, value); value = tn_node_in(g, &g->nodes[g->values[value].node], 0))
        if (++depth > MAX_AGAIN) return false;
    return depth > 0;
}

static bool add_ins(const fuser *f, group *q, int64_t node, const tn_node *user);

static bool operand(const fuser *f, group *q, int32_t value, const tn_node *user, int *out)
{
    int r = find_reg(q, value);
    if (r < 0 && again(f, value, user)) {
        if (!add_ins(f, q, f->r.old->values[value].node, user)) return false;
        r = find_reg(q, value);
    }
    if (r >= 0) {
        *out = r;
        return true;
    }
    for (int i = 0; i < q->prog.n_in; i++)
        if (q->in_value[i] == value) {
            *out = -1 - i;
            return true;
        }
    if (q->prog.n_in == TN_FUSE_MAX_IN) return false;
    q->in_value[q->prog.n_in] = value;
    *out = -1 - q->prog.n_in++;
    return true;
}

static bool add_ins(const fuser *f, group *q, int64_t node, const tn_node *user)
{
    const tn_graph *g = f->r.old;
    const tn_node *n = &g->nodes[node];
    tn_fuse_ins s = {.op = (tn_op_id)n->op, .n_in = n->n_in};
    for (int k = 0; k < n->n_in; k++)
        if (!operand(f, q, tn_node_in(g, n, k), user, &s.in[k])) return false;
    if (q->prog.n == TN_FUSE_MAX_INS) return false;
    if (n->op == TN_OP_unary || n->op == TN_OP_unary_bwd)
        snprintf(s.f, sizeof s.f, "%s", tn_node_attr_text(n, "f"));
    if (n->op == TN_OP_scale) s.by = tn_node_attr_num(n, "by");
    q->reg_value[q->prog.n] = n->out0;
    q->prog.ins[q->prog.n++] = s;
    return true;
}

static bool like(const tn_graph *g, const tn_node *a, const tn_node *b)
{
    const tn_value *x = &g->values[a->out0], *y = &g->values[b->out0];
    return pointwise(b) && a->phase == b->phase && a->scope == b->scope && a->stage == b->stage &&
           x->dtype == y->dtype && tn_value_elements(x) == tn_value_elements(y) &&
           x->rank == y->rank && tn_layout_equal(&x->layout, &y->layout);
}

static bool connected(const fuser *f, const group *q, const tn_node *n)
{
    for (int k = 0; k < n->n_in; k++) {
        int32_t v = tn_node_in(f->r.old, n, k);
        if (find_reg(q, v) >= 0) return true;
        for (int i = 0; i < q->prog.n_in; i++)
            if (q->in_value[i] == v) return true;
    }
    return false;
}

/* Is the value read by a node outside of [begin, end) that does not compute it again itself? What
 * nobody reads is a result of the whole graph. */
static bool leaves(const fuser *f, int32_t value, int64_t begin, int64_t end)
{
    const tn_graph *g = f->r.old;
    for (int64_t u = f->uses.first[value]; u < f->uses.first[value + 1]; u++) {
        int32_t user = f->uses.users[u];
        if (user >= begin && user < end) continue;
        if (pointwise(&g->nodes[user]) && f->partner[user] == -1 &&
            again(f, value, &g->nodes[user]))
            continue;
        return true;
    }
    return tn_uses_count(&f->uses, value) == 0;
}

/* The outputs of the group of nodes [begin, end): registers into `out`, which has room for all of
 * them. */
static int outputs(const fuser *f, const group *q, int64_t begin, int64_t end, int *out)
{
    int n = 0;
    for (int i = 0; i < q->prog.n; i++) {
        int64_t node = f->r.old->values[q->reg_value[i]].node;
        if (node >= begin && node < end && leaves(f, q->reg_value[i], begin, end)) out[n++] = i;
    }
    return n;
}

/* The longest run of nodes from i that makes one group; *end is behind it. */
static void collect(const fuser *f, int64_t i, group *q, int64_t *end)
{
    const tn_graph *g = f->r.old;
    group next = {0};
    int out[TN_FUSE_MAX_INS];
    *q = next;
    *end = i;
    for (int64_t k = i;
         k < g->n_nodes && f->partner[k] == -1 && like(g, &g->nodes[i], &g->nodes[k]); k++) {
        if (k > i && !connected(f, &next, &g->nodes[k])) break;
        if (!add_ins(f, &next, k, &g->nodes[k])) break;
        if (outputs(f, &next, i, k + 1, out) > TN_FUSE_MAX_OUT)
            continue; /* a later node may be the last to read one */
        *q = next;
        *end = k + 1;
    }
}

static tn_status emit_group(fuser *f, group *q, int64_t begin, int64_t end)
{
    const tn_graph *g = f->r.old;
    int32_t in[TN_FUSE_MAX_IN], out;
    char text[512];
    q->prog.n_out = outputs(f, q, begin, end, q->prog.out);
    for (int i = 0; i < q->prog.n_in; i++) in[i] = f->r.map[q->in_value[i]];
    tn_fuse_print(&q->prog, text, sizeof text);
    const tn_node *n = &g->nodes[begin];
    tn_named_attr attrs[2] = {{"prog", {.kind = 's', .u.s = text}},
                              {"outs", {.kind = 'i', .u.i = q->prog.n_out}}};
    tn_node_desc d = {.op = TN_OP_fused,
                      .n_in = q->prog.n_in,
                      .in = in,
                      .n_attrs = 2,
                      .attrs = attrs,
                      .path = n->path,
                      .phase = (tn_phase)n->phase,
                      .scope = (tn_scope)n->scope,
                      .stage = n->stage};
    TN_TRY(tn_graph_add(f->r.g, &d, &out));
    for (int i = 0; i < q->prog.n_out; i++) f->r.map[q->reg_value[q->prog.out[i]]] = out + i;
    return TN_OK;
}

static tn_status run(fuser *f)
{
    const tn_graph *g = f->r.old;
    for (int64_t i = 0; i < g->n_nodes; i++) match_add(f, i);
    for (int64_t i = 0; i < g->n_nodes;) {
        group q = {0};
        int64_t end = i;
        if (f->partner[i] == -2) {
            i++;
            continue;
        }
        if (f->partner[i] >= 0) {
            TN_TRY(emit_partner(f, i++));
            continue;
        }
        if (pointwise(&g->nodes[i]) && g->nodes[i].scope != TN_SCOPE_TAIL) collect(f, i, &q, &end);
        if (end > i && q.prog.n >= 2) {
            TN_TRY(emit_group(f, &q, i, end));
            i = end;
            continue;
        }
        TN_TRY(tn_rewrite_copy(&f->r, i++));
    }
    return TN_OK;
}

tn_status tn_pass_fuse(const tn_graph *in, tn_graph **out)
{
    fuser f = {0};
    void *mem;
    TN_TRY(tn_rewrite_begin(in, &f.r));
    tn_status st = tn_uses_build(in, &f.uses);
    if (!st) st = tn_alloc((size_t)(in->n_nodes + 1) * sizeof(int32_t), &mem);
    if (!st) {
        f.partner = mem;
        for (int64_t i = 0; i < in->n_nodes; i++) f.partner[i] = -1;
        st = run(&f);
    }
    tn_free(f.partner);
    tn_uses_fini(&f.uses);
    if (st) {
        tn_rewrite_drop(&f.r);
        return st;
    }
    *out = tn_rewrite_finish(&f.r);
    return TN_OK;
}
