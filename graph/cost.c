#include "graph/cost.h"

#include "graph/op.h"

#include <string.h>

int64_t tn_cost_runs(const tn_graph *g, const tn_node *n)
{
    if (n->scope == TN_SCOPE_HEAD || n->scope == TN_SCOPE_TAIL) return 1;
    return n->scope == TN_SCOPE_CHUNK ? g->n_microbatches * g->n_chunks : g->n_microbatches;
}

/* The state behind views and UNSHARD. */
static int32_t source_of(const tn_graph *g, int32_t v)
{
    for (;;) {
        const tn_node *n = &g->nodes[g->values[v].node];
        if (n->op != TN_OP_unshard && n->op != TN_OP_redistribute) return v;
        v = tn_node_in(g, n, 0);
    }
}

static bool is_param(const tn_graph *g, int32_t v)
{
    const tn_node *n = &g->nodes[g->values[v].node];
    return n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
}

/* A parameter that no linear reads, but an embedding does. */
static bool only_looked_up(const tn_graph *g, int32_t param)
{
    bool looked_up = false;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->op == TN_OP_embedding && source_of(g, tn_node_in(g, n, 1)) == param)
            looked_up = true;
        if (n->op != TN_OP_linear && n->op != TN_OP_linear_add) continue;
        for (int k = 1; k < n->n_in; k++)
            if (source_of(g, tn_node_in(g, n, k)) == param) return false;
    }
    return looked_up;
}

tn_cost tn_cost_of(const tn_graph *g)
{
    tn_cost c = {0};
    double attention = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        const tn_op *op = tn_op_get((tn_op_id)n->op);
        if (op->flops) c.step_flops += op->flops(g, n) * (double)tn_cost_runs(g, n);
        if (n->op == TN_OP_state && is_param(g, n->out0)) {
            int64_t e = tn_value_elements(&g->values[n->out0]);
            c.parameters += e;
            if (g->values[n->out0].rank < 2 || !only_looked_up(g, n->out0))
                c.matmul_parameters += e;
        }
        if (n->op == TN_OP_attention && n->phase == TN_PHASE_F) {
            const tn_value *q = &g->values[tn_node_in(g, n, 0)],
                           *v = &g->values[tn_node_in(g, n, 2)];
            attention += (double)q->dim[2].extent * (double)(q->dim[3].extent + v->dim[3].extent) *
                         (double)g->seq;
        }
    }
    c.flops_per_token = 6.0 * (double)c.matmul_parameters + 6.0 * attention;
    return c;
}
