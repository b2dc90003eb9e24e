#include "graph/cost.h"

#include "graph/op.h"
#include "graph/program.h"
#include "graph/traffic.h"

#include <math.h>
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

/* H100: products at 73 % of 989 TFLOP/s at best, memory at 90 % of 3.35 TB/s. A core of today's
 * CPUs: 105 GFLOP/s, 12 GB/s (steps of tests/bench/tiny.lua and 110m.lua, one thread: 6 % and 1 %
 * off). */
tn_cost_machine tn_cost_guess(const tn_mesh *mesh, bool gpu, int ranks_per_node)
{
    tn_cost_machine m = {.links = tn_reshard_guess(mesh, ranks_per_node), .gpu = gpu};
    m.flops_per_s = gpu ? 989e12 * 0.73 : 105e9;
    m.bytes_per_s = gpu ? 3.35e12 : 12e9;
    m.start_s = gpu ? 3e-6 : 1e-6;
    m.steal = gpu ? 0.1 : 0;
    for (int a = 0; a < TN_N_AXES && !gpu; a++)
        m.links.axis[a] = (tn_reshard_link){5e-6, 5e-6, 5e9};
    bool inside = (int64_t)mesh->pp * tn_mesh_ranks(mesh) <= ranks_per_node;
    m.stage = !gpu     ? (tn_reshard_link){5e-6, 0, 5e9}
              : inside ? (tn_reshard_link){6.6e-6, 0.6e-6, 370e9}
                       : (tn_reshard_link){6.6e-6, 2.7e-6, 45e9};
    return m;
}

void tn_cost_share(tn_cost_machine *m, double processors, int64_t ranks)
{
    m->flops_per_s *= processors;
    m->bytes_per_s *= processors > 1 ? (processors + 1) / 2 : processors; /* shared by all cores */
    m->start_s *= processors < 1 ? 1 / processors : 1;
    for (int a = 0; a <= TN_N_AXES && processors < 1; a++) {
        tn_reshard_link *l = a < TN_N_AXES ? &m->links.axis[a] : &m->stage;
        l->start_s += 30e-6 * (double)ranks; /* who waits hands the core on: a switch each */
        l->bytes_per_s *= processors;
    }
}

/* The share of its rate that work of this size reaches (Isaev et al. 2023, Calculon's table,
 * between its steps by the logarithm). */
static double reached(double size, const double (*table)[2], int n)
{
    if (size <= table[0][0]) return table[0][1];
    for (int i = 1; i < n; i++) {
        if (size >= table[i][0]) continue;
        double at = log(size / table[i - 1][0]) / log(table[i][0] / table[i - 1][0]);
        return table[i - 1][1] + at * (table[i][1] - table[i - 1][1]);
    }
    return table[n - 1][1];
}

static double product_share(double flops)
{
    static const double table[][2] = {{1e7, 0.1}, {1e9, 0.6}, {16e9, 0.9}, {128e9, 0.95}};
    return reached(flops, table, TN_COUNT(table));
}

static double memory_share(double bytes)
{
    static const double table[][2] = {{1e5, 0.3}, {1e6, 0.6}, {10e6, 0.75}, {100e6, 0.9}};
    return reached(bytes, table, TN_COUNT(table));
}

static double local_bytes(const tn_graph *g, int32_t v)
{
    const tn_value *x = &g->values[v];
    double n = (double)tn_dtype_bytes((tn_dtype)x->dtype);
    for (int d = 0; d < x->rank; d++)
        n *= (double)tn_layout_largest(&x->layout, &g->mesh, d, x->dim[d].extent, x->dim[d].units);
    return n;
}

/* By the slowest of its axes in each respect; a CPU's exchange also adds and writes its result. */
static double exchange_seconds(const tn_graph *g, const tn_node *n, const tn_cost_machine *m)
{
    tn_traffic_move t;
    double start = 0, hops = 0, per_byte = 0;
    if (!tn_traffic_of_node(g, n, &t)) return m->start_s;
    for (int x = 0; x < TN_N_AXES; x++) {
        const tn_reshard_link *l = &m->links.axis[x];
        if (!(t.axes >> x & 1)) continue;
        if (l->start_s > start) start = l->start_s;
        hops += l->hop_s * (g->mesh.size[x] - 1);
        if (1 / l->bytes_per_s > per_byte) per_byte = 1 / l->bytes_per_s;
    }
    double own = m->gpu ? 0 : local_bytes(g, n->out0);
    return start + hops + ((double)t.bytes + own) * per_byte;
}

/* Attention reaches less than a product of its size, its gradient less still. */
static double rate(const tn_node *n)
{
    return n->op == TN_OP_attention ? 0.75 : n->op == TN_OP_attention_bwd ? 0.6 : 1;
}

double tn_cost_seconds(const tn_graph *g, const tn_node *n, const tn_cost_machine *m)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    double bytes = 0, split = 1;
    if (!n->n_in || tn_node_is_view(g, n)) return 0;
    if (n->op == TN_OP_send) /* a CPU writes into the receiver's memory itself */
        return m->start_s +
               (m->gpu ? 0 : local_bytes(g, tn_node_in(g, n, 0)) / m->stage.bytes_per_s);
    if (tn_node_is_exchange(g, n)) return exchange_seconds(g, n, m);
    for (int i = 0; i < n->n_in; i++) bytes += local_bytes(g, tn_node_in(g, n, i));
    for (int i = 0; i < n->n_out; i++) bytes += local_bytes(g, n->out0 + i);
    for (int x = 0; x < TN_N_AXES; x++) {
        bool shares = false; /* the ranks of this axis do parts of the work */
        for (int i = 0; i < n->n_in; i++)
            shares |= g->values[tn_node_in(g, n, i)].layout.type[x] == TN_TYPE_S;
        if (shares) split *= g->mesh.size[x];
    }
    double flops = op->flops ? op->flops(g, n) / split : 0, work = flops / m->flops_per_s / rate(n),
           memory = bytes / m->bytes_per_s;
    if (m->gpu) {
        work /= product_share(flops);
        memory /= memory_share(bytes);
    }
    return m->start_s + (work > memory ? work : memory);
}

/* ------------------------------------------------------------ a step */

typedef struct walk {
    const tn_graph *g;
    const tn_cost_machine *m;
    double *ready;           /* by value */
    double at[TN_N_STREAMS]; /* when a stream is free */
    double compute_s, exchange_s;
} walk;

static double clock_of(const walk *w)
{
    double most = 0;
    for (int s = 0; s < TN_N_STREAMS; s++)
        if (w->at[s] > most) most = w->at[s];
    return most;
}

static void one(walk *w, const tn_node *n)
{
    double begin = 0, cost = tn_cost_seconds(w->g, n, w->m);
    for (int i = 0; i < n->n_in; i++) {
        double t = w->ready[tn_node_in(w->g, n, i)];
        if (t > begin) begin = t;
    }
    if (cost > 0) {
        bool exchange = tn_node_is_exchange(w->g, n);
        tn_stream s = w->m->gpu ? tn_program_stream(w->g, n) : TN_STREAM_COMPUTE;
        if (w->at[s] > begin) begin = w->at[s];
        w->at[s] = begin + cost;
        if (exchange && w->m->gpu) w->at[TN_STREAM_COMPUTE] += cost * w->m->steal;
        *(exchange ? &w->exchange_s : &w->compute_s) += cost;
        begin += cost;
    }
    for (int i = 0; i < n->n_out; i++) w->ready[n->out0 + i] = begin;
}

static void range(walk *w, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last; i++) one(w, &w->g->nodes[i]);
}

/* `n` runs, all behind the second as long as that. */
static void repeat(walk *w, int64_t n, void (*body)(walk *w, const int64_t *bounds),
                   const int64_t *bounds)
{
    for (int64_t i = 0; i < n && i < 2; i++) {
        walk was = *w;
        double begun = clock_of(w);
        body(w, bounds);
        if (i == 0 || n <= 2) continue;
        double more = (double)(n - 2), took = clock_of(w) - begun;
        for (int s = 0; s < TN_N_STREAMS; s++) w->at[s] += more * took;
        for (int64_t v = 0; v < w->g->n_values; v++)
            if (w->ready[v] > begun) w->ready[v] += more * took;
        w->compute_s += more * (w->compute_s - was.compute_s);
        w->exchange_s += more * (w->exchange_s - was.exchange_s);
    }
}

static void chunk(walk *w, const int64_t *b)
{
    range(w, b[1], b[2]);
}

/* Nodes [b[0], b[3]) with the loss chunks [b[1], b[2]) among them. */
static void microbatch(walk *w, const int64_t *b)
{
    range(w, b[0], b[1]);
    repeat(w, w->g->n_chunks, chunk, b);
    range(w, b[2], b[3]);
}

static void find_chunks(const tn_graph *g, int64_t b[4])
{
    b[1] = b[0];
    while (b[1] < b[3] && g->nodes[b[1]].scope != TN_SCOPE_CHUNK) b[1]++;
    b[2] = b[1];
    while (b[2] < b[3] && g->nodes[b[2]].scope == TN_SCOPE_CHUNK) b[2]++;
}

static tn_status begin(walk *w, const tn_graph *g, const tn_cost_machine *m)
{
    void *mem;
    TN_TRY(tn_alloc((size_t)(g->n_values + 1) * sizeof(double), &mem));
    *w = (walk){.g = g, .m = m, .ready = mem};
    return TN_OK;
}

static tn_cost_step finish(walk *w)
{
    double all = clock_of(w);
    tn_free(w->ready);
    return (tn_cost_step){all, w->compute_s, w->exchange_s, all - w->compute_s,
                          w->at[TN_STREAM_COMPUTE]};
}

tn_status tn_cost_range(const tn_graph *g, const tn_cost_machine *m, int64_t first, int64_t last,
                        tn_cost_step *out)
{
    walk w;
    int64_t b[4] = {first, 0, 0, last};
    TN_TRY(begin(&w, g, m));
    find_chunks(g, b);
    microbatch(&w, b);
    *out = finish(&w);
    return TN_OK;
}

tn_status tn_cost_walk(const tn_graph *g, const tn_cost_machine *m, tn_cost_step *out)
{
    walk w;
    int64_t n = g->n_nodes, b[4] = {0};
    TN_TRY(begin(&w, g, m));
    while (b[0] < n && g->nodes[b[0]].scope == TN_SCOPE_HEAD) b[0]++;
    b[3] = b[0];
    while (b[3] < n && g->nodes[b[3]].scope != TN_SCOPE_TAIL) b[3]++;
    find_chunks(g, b);
    range(&w, 0, b[0]);
    repeat(&w, g->n_microbatches, microbatch, b);
    range(&w, b[3], n);
    *out = finish(&w);
    return TN_OK;
}
