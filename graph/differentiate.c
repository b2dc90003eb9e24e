/* differentiate.c - reverse sweep through the same constructor (pass 2, DESIGN.md 6).
 *
 * (1) Input and weight gradients are separate nodes from birth; gradients of a loss chunk stay in
 * its scope. (2) Contributions to one value are collected by use and added in trace order, each
 * complete (DESIGN.md 7 (9)). (3) A parameter's contributions are not added here: each use has its
 * own accumulator, reduced first, added afterwards. (4) The type of every contribution equals the
 * gradient type of its value. */
#include "graph/op.h"
#include "graph/passes.h"
#include "graph/rewrite.h"

#include <string.h>

typedef struct contribution {
    int32_t grad;
    int32_t next; /* the one of the next use in trace order, -1 */
} contribution;

typedef struct sweep {
    tn_rewrite r;
    int32_t *head; /* by new value: first contribution, -1 */
    contribution *items;
    int64_t n_items, cap_items;
    int64_t n_forward; /* values of the forward part */
} sweep;

tn_status tn_vjp_add(tn_vjp *v, tn_op_id op, tn_phase phase, int n_in, const int32_t *in,
                     int n_attrs, const tn_named_attr *attrs, int32_t *first_out)
{
    tn_node_desc d = {.op = op,
                      .n_in = n_in,
                      .in = in,
                      .n_attrs = n_attrs,
                      .attrs = attrs,
                      .path = v->n->path,
                      .phase = phase,
                      .scope = (tn_scope)v->n->scope,
                      .stage = v->n->stage,
                      .layout = v->layout};
    v->layout = NULL;
    return tn_graph_add(v->g, &d, first_out);
}

/* The sweep runs backwards, so a new contribution comes first in trace order. */
static tn_status contribute(sweep *s, const tn_node *n, int32_t value, int32_t grad)
{
    const tn_graph *g = s->r.g;
    tn_layout want = tn_layout_of_gradient(&g->values[value].layout);
    if (!tn_layout_equal(&want, &g->values[grad].layout)) {
        char a[96], b[96], c[96];
        tn_layout_print(&g->values[value].layout, c, sizeof c);
        tn_layout_print(&want, a, sizeof a);
        tn_layout_print(&g->values[grad].layout, b, sizeof b);
        TN_FAIL(TN_BAD_INPUT,
                "%s: %s: the gradient of its operand %s comes out as %s, it must be %s; "
                "redistribute the operand in forward",
                n->path, tn_op_name((tn_op_id)n->op), c, b, a);
    }
    TN_TRY(tn_grow((void **)&s->items, &s->cap_items, s->n_items + 1, sizeof *s->items));
    s->items[s->n_items] = (contribution){grad, s->head[value]};
    s->head[value] = (int32_t)s->n_items++;
    return TN_OK;
}

/* A sum of gradients is made on the earlier stage, whose backward comes later. */
static int earlier_stage(const tn_graph *g, int32_t a, int32_t b)
{
    int i = g->nodes[g->values[a].node].stage, k = g->nodes[g->values[b].node].stage;
    return i < k ? i : k;
}

/* The complete gradient of a value: its contributions added in trace order; -1 if there is none. */
static tn_status total(sweep *s, const tn_node *producer, int32_t value, int32_t *out)
{
    int32_t c = s->head[value], sum;
    *out = -1;
    if (c < 0) return TN_OK;
    sum = s->items[c].grad;
    for (c = s->items[c].next; c >= 0; c = s->items[c].next) {
        int32_t in[2] = {sum, s->items[c].grad};
        tn_node_desc d = {.op = TN_OP_add,
                          .n_in = 2,
                          .in = in,
                          .path = producer->path,
                          .phase = TN_PHASE_B,
                          .scope = (tn_scope)producer->scope,
                          .stage = earlier_stage(s->r.g, in[0], in[1])};
        TN_TRY(tn_graph_add(s->r.g, &d, &sum));
    }
    *out = sum;
    return TN_OK;
}

static tn_status sweep_node(sweep *s, int64_t index)
{
    tn_graph *g = s->r.g;
    const tn_node n = g->nodes[index];
    const tn_op *op = tn_op_get((tn_op_id)n.op);
    int32_t in[TN_MAX_OPERANDS], dy[TN_MAX_OPERANDS], dx[TN_MAX_OPERANDS];
    bool any_dy = false, any_dx = false;
    if (n.n_in == 0) return TN_OK;
    tn_vjp v = {.g = g, .n = &n, .in = in, .dy = dy, .dx = dx};
    for (int i = 0; i < n.n_in; i++) {
        in[i] = tn_node_in(g, &n, i);
        dx[i] = -1;
        any_dx |= v.wanted[i] = g->values[in[i]].grad;
    }
    if (!any_dx) return TN_OK;
    for (int i = 0; i < n.n_out; i++) {
        TN_TRY(total(s, &n, n.out0 + i, &dy[i]));
        any_dy |= dy[i] >= 0;
    }
    if (!any_dy) return TN_OK;
    if (!op->vjp)
        TN_FAIL(TN_BAD_INPUT, "%s: %s has no gradient; use it on values that need none", n.path,
                op->name);
    TN_TRY(op->vjp(&v));
    for (int i = n.n_in - 1; i >= 0; i--)
        if (v.wanted[i] && dx[i] >= 0) TN_TRY(contribute(s, &n, in[i], dx[i]));
    return TN_OK;
}

static tn_status reduce_param(sweep *s, int64_t index)
{
    tn_graph *g = s->r.g;
    const tn_node n = g->nodes[index];
    const char *name = tn_node_attr_text(&n, "name");
    int32_t sum = -1;
    if (strcmp(tn_node_attr_text(&n, "kind"), "param")) return TN_OK;
    if (s->head[n.out0] < 0)
        TN_FAIL(TN_BAD_INPUT, "%s: parameter '%s' is not used by the loss; use it or remove it",
                n.path, name);
    for (int32_t c = s->head[n.out0]; c >= 0; c = s->items[c].next) {
        tn_named_attr attr = {"param", {.kind = 's', .u.s = name}};
        tn_layout to = g->values[n.out0].layout;
        int32_t in[2] = {sum, s->items[c].grad}, one;
        tn_node_desc d = {.op = TN_OP_reduce,
                          .n_in = 1,
                          .in = in + 1,
                          .n_attrs = 1,
                          .attrs = &attr,
                          .path = n.path,
                          .phase = TN_PHASE_OPT,
                          .scope = TN_SCOPE_TAIL,
                          .stage = g->nodes[g->values[s->items[c].grad].node].stage,
                          .layout = &to};
        TN_TRY(tn_graph_add(g, &d, &one));
        in[1] = one;
        d = (tn_node_desc){.op = TN_OP_add,
                           .n_in = 2,
                           .in = in,
                           .path = n.path,
                           .phase = TN_PHASE_OPT,
                           .scope = TN_SCOPE_TAIL,
                           .stage = n.stage};
        if (sum < 0) sum = one;
        else TN_TRY(tn_graph_add(g, &d, &sum));
    }
    return TN_OK;
}

static tn_status run(sweep *s, int32_t loss)
{
    int64_t n_forward;
    for (int64_t i = 0; i < s->r.old->n_nodes; i++) TN_TRY(tn_rewrite_copy(&s->r, i));
    n_forward = s->r.g->n_nodes;
    s->n_forward = s->r.g->n_values;
    void *mem;
    TN_TRY(tn_alloc((size_t)(s->n_forward + 1) * sizeof(int32_t), &mem));
    s->head = mem;
    for (int64_t v = 0; v < s->n_forward; v++) s->head[v] = -1;
    TN_TRY(tn_grow((void **)&s->items, &s->cap_items, 1, sizeof *s->items));
    s->items[s->n_items++] = (contribution){s->r.map[loss], -1}; /* the seed */
    s->head[s->r.map[loss]] = 0;
    for (int64_t i = n_forward - 1; i >= 0; i--) TN_TRY(sweep_node(s, i));
    for (int64_t i = 0; i < n_forward; i++)
        if (s->r.g->nodes[i].op == TN_OP_state) TN_TRY(reduce_param(s, i));
    return TN_OK;
}

tn_status tn_pass_differentiate(const tn_graph *in, int32_t loss, tn_graph **out)
{
    sweep s = {0};
    const tn_value *v = &in->values[loss];
    for (int a = 0; a < TN_N_AXES; a++)
        if (v->layout.type[a] != TN_TYPE_I && v->layout.type[a] != TN_TYPE_P)
            TN_FAIL(TN_BAD_INPUT, "loss: axis %s: the loss is %c; it must be I or P on every axis",
                    tn_axis_name((tn_axis)a), tn_type_letter((tn_type)v->layout.type[a]));
    TN_TRY(tn_rewrite_begin(in, &s.r));
    tn_status st = run(&s, loss);
    tn_free(s.head);
    tn_free(s.items);
    if (st) {
        tn_rewrite_drop(&s.r);
        return st;
    }
    *out = tn_rewrite_finish(&s.r);
    return TN_OK;
}
