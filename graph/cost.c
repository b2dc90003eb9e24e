#include "graph/cost.h"

#include "graph/op.h"
#include "graph/program.h"

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

/* ------------------------------------------------------------ seconds */

tn_cost_machine tn_cost_guess(const tn_mesh *mesh, bool gpu, int ranks_per_node)
{
    tn_cost_machine m = {.links = tn_reshard_guess(mesh, ranks_per_node)};
    m.flops_per_s = gpu ? 989e12 * 0.7 : 88e9; /* one core; ranks that have several ask for less
                                                  time of each, and of each exchange too */
    m.bytes_per_s = gpu ? 3.35e12 * 0.8 : 8e9;
    m.start_s = gpu ? 3e-6 : 1e-6;
    for (int a = 0; a < TN_N_AXES && !gpu; a++)
        m.links.axis[a] = (tn_reshard_link){5e-6, 5e-6, 5e9};
    return m;
}

static double local_bytes(const tn_graph *g, int32_t v)
{
    const tn_value *x = &g->values[v];
    double n = (double)tn_dtype_bytes((tn_dtype)x->dtype);
    for (int d = 0; d < x->rank; d++)
        n *= (double)tn_layout_largest(&x->layout, &g->mesh, d, x->dim[d].extent, x->dim[d].units);
    return n;
}

/* The slowest axis that moves, for the larger side. */
static double exchange_seconds(const tn_graph *g, const tn_node *n, const tn_cost_machine *m)
{
    int32_t in = tn_node_in(g, n, 0), out = n->out0;
    const tn_layout *a = &g->values[in].layout, *b = &g->values[out].layout;
    double bytes = local_bytes(g, in), start = 0, per_byte = 0;
    int64_t ranks = 1;
    if (local_bytes(g, out) > bytes) bytes = local_bytes(g, out);
    for (int x = 0; x < TN_N_AXES; x++) {
        const tn_reshard_link *l = &m->links.axis[x];
        bool moves = a->type[x] != b->type[x] || a->dim[x] != b->dim[x];
        if (g->mesh.size[x] < 2 || (!moves && n->op != TN_OP_kv_reduce)) continue;
        ranks *= g->mesh.size[x];
        if (l->start_s > start) start = l->start_s;
        start += l->hop_s * (g->mesh.size[x] - 1);
        if (1 / l->bytes_per_s > per_byte) per_byte = 1 / l->bytes_per_s;
    }
    return start + bytes * per_byte * (double)(ranks - 1) / (double)ranks;
}

double tn_cost_seconds(const tn_graph *g, const tn_node *n, const tn_cost_machine *m)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    double bytes = 0, split = 1;
    if (!n->n_in || tn_node_is_view(g, n)) return 0;
    if (tn_node_is_exchange(g, n)) return exchange_seconds(g, n, m);
    for (int i = 0; i < n->n_in; i++) bytes += local_bytes(g, tn_node_in(g, n, i));
    for (int i = 0; i < n->n_out; i++) bytes += local_bytes(g, n->out0 + i);
    for (int x = 0; x < TN_N_AXES; x++) {
        bool shares = false; /* the ranks of this axis do parts of the work */
        for (int i = 0; i < n->n_in; i++)
            shares |= g->values[tn_node_in(g, n, i)].layout.type[x] == TN_TYPE_S;
        if (shares) split *= g->mesh.size[x];
    }
    double work = op->flops ? op->flops(g, n) / split / m->flops_per_s : 0,
           memory = bytes / m->bytes_per_s;
    return m->start_s + (work > memory ? work : memory);
}
