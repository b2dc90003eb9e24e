/* lower.c - pass 3: cross entropy over vocabulary parts, the order of every sum, what is carried
 * and how many levels it needs; nodes that run once a step move to the front. */
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/program.h"
#include "graph/rewrite.h"
#include "graph/stages.h"

/* The parts of a sum over a parameter dim: only a dim that the tables place on an axis can be split
 * by a layout; the others are one chain (docs/decisions/0002-one-chain.md). */
static int param_parts(const tn_graph *g, const tn_node *n)
{
    tn_axis axes[TN_N_AXES];
    int n_x = n->op == TN_OP_linear_bwd_x ? n->n_in / 2 : 1;
    if (!g->canonical) return 1;
    for (int i = 0; i < n_x; i++) {
        const tn_value *x = &g->values[tn_node_in(g, n, i)];
        if (tn_layout_axes(&x->layout, x->rank - 1, axes)) return g->grid.tp;
    }
    return 1;
}

static bool sums_tokens(tn_op_id op)
{
    return op == TN_OP_linear_bwd_w || op == TN_OP_rmsnorm_bwd_w || op == TN_OP_embedding_bwd ||
           op == TN_OP_fold_leaves;
}

static int64_t dp_ranks(const tn_graph *g)
{
    return (int64_t)g->mesh.size[TN_AXIS_DP_REPLICATE] * g->mesh.size[TN_AXIS_DP_SHARD];
}

/* Rank d of dp owns part d of the step's rows, which is a whole node of the tree over lanes: lanes
 * / dp of them. */
tn_status tn_lower_tokens(const tn_graph *g, tn_arena *arena, const tn_order_tokens **out)
{
    int64_t dp = dp_ranks(g);
    tn_order_grid grid = g->canonical ? g->grid : (tn_order_grid){1, g->grid.seq, 1};
    grid.rows = grid.rows > dp ? (int)(grid.rows / dp) : 1;
    return tn_order_tokens_build(arena, grid, g->rows * g->n_microbatches / dp, g->seq, out);
}

/* Leaves of the token program that one run of this node covers, on one rank. */
static int64_t run_leaves(const tn_graph *g, const tn_node *n)
{
    const tn_value *x = &g->values[tn_node_in(g, n, 0)];
    int64_t rows = x->dim[0].extent / dp_ranks(g), seq = x->dim[1].extent;
    if (n->op == TN_OP_fold_leaves || seq == g->seq) return rows * g->grid.seq;
    return g->grid.seq * seq / g->seq;
}

typedef struct lowering {
    tn_rewrite r;
    tn_arena arena;
    const tn_order_tokens *tokens; /* of the step; NULL until a sum needs it */
} lowering;

static tn_status attach_tokens(lowering *w, tn_node *n)
{
    tn_graph *g = w->r.g;
    const tn_value *x = &g->values[tn_node_in(g, n, 0)];
    if (x->rank > 3)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: a gain that is shared by heads has no token order yet; normalise the "
                "whole dim",
                n->path, tn_op_name((tn_op_id)n->op));
    if (n->op != TN_OP_fold_leaves && g->seq > 0 && x->dim[1].extent != g->seq &&
        (x->dim[1].extent * g->grid.seq) % g->seq)
        TN_FAIL(
            TN_BAD_INPUT,
            "%s: %s: a chunk of %lld positions cuts a position part of the reduce grid (seq = %d)",
            n->path, tn_op_name((tn_op_id)n->op), (long long)x->dim[1].extent, g->grid.seq);
    if (x->rank < 2 || g->seq < 1 || run_leaves(g, n) < 1)
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: its tokens are no whole part of the step's %lld rows of %lld positions",
                n->path, tn_op_name((tn_op_id)n->op), (long long)g->rows, (long long)g->seq);
    n->order = TN_ORDER_OVER_TOKENS;
    if (!w->tokens) TN_TRY(tn_lower_tokens(g, &w->arena, &w->tokens));
    tn_value *v = &g->values[n->out0];
    v->carried = true;
    v->levels = (int8_t)tn_order_tokens_depth(w->tokens, run_leaves(g, n));
    if (n->op == TN_OP_fold_leaves)
        v->levels =
            (int8_t)(tn_order_tokens_depth(w->tokens, 1) + 1); /* all of its stack is memory */
    return TN_OK;
}

static tn_status attach(lowering *w, tn_node *n)
{
    if (n->op == TN_OP_linear || n->op == TN_OP_linear_add || n->op == TN_OP_linear_bwd_x) {
        n->order = TN_ORDER_OVER_PARAM;
        n->parts = (uint16_t)param_parts(w->r.g, n);
        return TN_OK;
    }
    return sums_tokens((tn_op_id)n->op) ? attach_tokens(w, n) : TN_OK;
}

static tn_status copy(lowering *w, int64_t i)
{
    TN_TRY(tn_rewrite_copy(&w->r, i));
    return attach(w, &w->r.g->nodes[w->r.g->n_nodes - 1]);
}

/* cross_entropy(logits, labels, inv) -> loss_merge(gathered loss_parts(logits, labels), labels) */
static tn_status expand_loss(tn_rewrite *r, int64_t i)
{
    int32_t in[TN_MAX_OPERANDS], parts;
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(r, i, in, attrs, &d);
    d.n_attrs = 0;
    d.n_in = 2;
    d.op = TN_OP_loss_parts;
    TN_TRY(tn_graph_add(r->g, &d, &parts));
    tn_layout whole = r->g->values[parts].layout;
    bool split = false;
    for (int a = 0; a < TN_N_AXES; a++)
        if (whole.type[a] == TN_TYPE_S && whole.dim[a] == r->g->values[parts].rank - 2) {
            whole.type[a] = TN_TYPE_I;
            whole.dim[a] = whole.order[a] = 0;
            split = true;
        }
    d.op = TN_OP_redistribute;
    d.layout = &whole;
    d.n_in = 1;
    d.in = &parts;
    if (split) TN_TRY(tn_graph_add(r->g, &d, &parts));
    int32_t merge_in[2] = {parts, in[1]};
    d.op = TN_OP_loss_merge;
    d.in = merge_in;
    d.n_in = 2;
    return tn_rewrite_add(r, i, &d);
}

/* dK and dV of shared heads are complete before anything else reads them. */
static tn_status reduce_shared(lowering *w, int64_t i)
{
    const tn_node *n = &w->r.old->nodes[i];
    for (int k = 1; n->op == TN_OP_attention_bwd && k < 3; k++) {
        int32_t v = w->r.map[n->out0 + k];
        if (!tn_node_shares_heads(w->r.g, &w->r.g->values[v])) continue;
        const tn_value *dq = &w->r.g->values[w->r.map[n->out0]];
        tn_named_attr attr = {"dtype", {.kind = 's', .u.s = tn_dtype_name((tn_dtype)dq->dtype)}};
        tn_node_desc d = {.op = TN_OP_kv_reduce,
                          .n_in = 1,
                          .in = &v,
                          .n_attrs = dq->dtype != w->r.g->values[v].dtype,
                          .attrs = &attr,
                          .path = n->path,
                          .phase = TN_PHASE_COMM,
                          .scope = (tn_scope)n->scope,
                          .stage = n->stage};
        TN_TRY(tn_graph_add(w->r.g, &d, &w->r.map[n->out0 + k]));
    }
    return TN_OK;
}

static bool split_positions(const tn_graph *g, const tn_value *x)
{
    tn_axis axes[TN_N_AXES];
    int n = x->rank > 1 ? tn_layout_axes(&x->layout, 1, axes) : 0;
    for (int i = 0; i < n; i++)
        if (g->mesh.size[axes[i]] > 1) return true;
    return false;
}

/* The gain's gradient over split positions: leaves, gathered, folded by every rank alike. */
static tn_status expand_gain(lowering *w, int64_t i)
{
    tn_rewrite *r = &w->r;
    int32_t in[TN_MAX_OPERANDS], leaves;
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(r, i, in, attrs, &d);
    d.n_attrs = 0;
    d.op = TN_OP_rmsnorm_leaves;
    TN_TRY(tn_graph_add(r->g, &d, &leaves));
    tn_layout whole = r->g->values[leaves].layout;
    for (int a = 0; a < TN_N_AXES; a++)
        if (whole.type[a] == TN_TYPE_S && whole.dim[a] == 1) {
            whole.type[a] = TN_TYPE_R;
            whole.dim[a] = whole.order[a] = 0;
        }
    d.op = TN_OP_redistribute;
    d.layout = &whole;
    d.n_in = 1;
    d.in = &leaves;
    TN_TRY(tn_graph_add(r->g, &d, &leaves));
    d.op = TN_OP_fold_leaves;
    TN_TRY(tn_rewrite_add(r, i, &d));
    return attach(w, &r->g->nodes[r->g->n_nodes - 1]);
}

/* The loss of the step, complete on every rank: behind the microbatches. */
static tn_status reduce_loss(tn_rewrite *r)
{
    for (int64_t i = 0; i < r->old->n_nodes; i++) {
        const tn_node *n = &r->old->nodes[i];
        if (n->op != TN_OP_loss_sum) continue;
        tn_layout whole = tn_layout_all(TN_TYPE_R);
        tn_named_attr grad = {"grad", {.kind = 'i', .u.i = 1}};
        for (int a = 0; a < TN_N_AXES; a++)
            if (r->old->values[n->out0].layout.type[a] != TN_TYPE_P)
                whole.type[a] = r->old->values[n->out0].layout.type[a];
        tn_node_desc d = {.op = TN_OP_redistribute,
                          .n_in = 1,
                          .in = &r->map[n->out0],
                          .n_attrs = 1,
                          .attrs = &grad,
                          .path = "loss",
                          .phase = TN_PHASE_COMM,
                          .scope = TN_SCOPE_TAIL,
                          .stage = n->stage,
                          .layout = &whole};
        int32_t loss;
        TN_TRY(tn_graph_add(r->g, &d, &loss));
        if (!n->stage) continue;
        d.in = &loss; /* every stage reports it */
        d.stage = TN_STAGE_ALL;
        TN_TRY(tn_graph_add(r->g, &d, NULL));
    }
    return TN_OK;
}

/* Tensor parallelism splits the query heads; the key/value heads are split with them, or shared by
 * whole ranks. */
static tn_status check_heads(const tn_graph *g, const tn_node *n)
{
    const tn_value *q = &g->values[tn_node_in(g, n, 0)], *k = &g->values[tn_node_in(g, n, 1)];
    int64_t tp = g->mesh.size[TN_AXIS_TP], heads = q->dim[2].extent, shared = k->dim[2].extent;
    if (n->op != TN_OP_attention || q->layout.type[TN_AXIS_TP] != TN_TYPE_S) return TN_OK;
    int64_t legal = tp;
    bool power = g->canonical; /* of two, to keep the bits */
    while (legal > heads || (legal % shared && shared % legal) || (power && (legal & (legal - 1))))
        legal--;
    if (legal == tp) return TN_OK;
    if (tp > heads)
        TN_FAIL(TN_BAD_INPUT,
                "%s: parallelism.tensor_parallel_degree: %lld ranks cannot split %lld query heads; "
                "the nearest is %lld",
                n->path, (long long)tp, (long long)heads, (long long)legal);
    TN_FAIL(TN_BAD_INPUT,
            "%s: parallelism.tensor_parallel_degree: %lld neither divides the %lld key/value heads "
            "nor is a multiple of them; the nearest is %lld",
            n->path, (long long)tp, (long long)shared, (long long)legal);
}

static tn_status emit(lowering *w, tn_scope first, tn_scope last)
{
    tn_rewrite *r = &w->r;
    for (int64_t i = 0; i < r->old->n_nodes; i++) {
        const tn_node *n = &r->old->nodes[i];
        if (n->scope < first || n->scope > last) continue;
        bool gain = n->op == TN_OP_rmsnorm_bwd_w &&
                    split_positions(r->old, &r->old->values[tn_node_in(r->old, n, 1)]);
        if (n->op == TN_OP_attention) TN_TRY(check_heads(r->old, n));
        if (n->op == TN_OP_cross_entropy) TN_TRY(expand_loss(r, i));
        else if (gain) TN_TRY(expand_gain(w, i));
        else TN_TRY(copy(w, i));
        TN_TRY(reduce_shared(w, i));
    }
    return TN_OK;
}

tn_status tn_pass_lower(const tn_graph *in, tn_graph **out)
{
    lowering w = {0};
    TN_TRY(tn_rewrite_begin(in, &w.r));
    tn_status st = emit(&w, TN_SCOPE_HEAD, TN_SCOPE_HEAD);
    if (!st) st = emit(&w, TN_SCOPE_MICROBATCH, TN_SCOPE_CHUNK);
    if (!st) st = reduce_loss(&w.r);
    if (!st) st = emit(&w, TN_SCOPE_TAIL, TN_SCOPE_TAIL);
    tn_arena_fini(&w.arena);
    if (st) {
        tn_rewrite_drop(&w.r);
        return st;
    }
    *out = tn_rewrite_finish(&w.r);
    return TN_OK;
}
