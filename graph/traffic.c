#include "graph/traffic.h"

#include "engine/base/text.h"
#include "graph/cost.h"
#include "graph/program.h"

#include <stdio.h>

const char *tn_traffic_kind_name(tn_traffic_kind k)
{
    static const char *const names[TN_TRAFFIC_KINDS] = {"all_gather", "reduce_scatter",
                                                        "all_reduce", "all_to_all", "send_recv"};
    return names[k];
}

tn_text_short tn_traffic_axes(unsigned set)
{
    tn_text_short t = {""};
    unsigned dp = 1u << TN_AXIS_DP_REPLICATE | 1u << TN_AXIS_DP_SHARD;
    size_t n = 0;
    if (set & TN_TRAFFIC_PP) n += (size_t)snprintf(t.s, sizeof t.s, "pp");
    for (int a = 0; a < TN_N_AXES; a++) {
        if (!(set >> a & 1)) continue;
        bool both = a == TN_AXIS_DP_REPLICATE && (set & dp) == dp;
        n += (size_t)snprintf(t.s + n, sizeof t.s - n, "%s%s", n ? "," : "",
                              both ? "dp" : tn_axis_name((tn_axis)a));
        a += both;
    }
    return t;
}

/* ------------------------------------------------------------ one exchange */

static int64_t elements(const tn_value *v, const tn_layout *l, const tn_mesh *mesh, const int *at,
                        int64_t *begin, int64_t *count)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++) {
        count[d] = tn_layout_local(l, mesh, at, d, v->dim[d].extent, v->dim[d].units, &begin[d]);
        n *= count[d];
    }
    return n;
}

/* What the rank at `at` receives. */
static int64_t received(const tn_mesh *mesh, const tn_value *v, const tn_layout *to, int64_t sums,
                        const int *at)
{
    int64_t a[TN_MAX_RANK], b[TN_MAX_RANK], na[TN_MAX_RANK], nb[TN_MAX_RANK], own = 1;
    elements(v, &v->layout, mesh, at, a, na);
    int64_t mine = elements(v, to, mesh, at, b, nb);
    for (int d = 0; d < v->rank; d++) {
        int64_t lo = a[d] > b[d] ? a[d] : b[d],
                hi = a[d] + na[d] < b[d] + nb[d] ? a[d] + na[d] : b[d] + nb[d];
        own *= hi > lo ? hi - lo : 0;
    }
    return (sums * mine - own) * tn_dtype_bytes((tn_dtype)v->dtype);
}

/* On many ranks those at the corners stand for all: shards differ by a unit at most. */
static int64_t most_received(const tn_mesh *mesh, const tn_value *v, const tn_layout *to,
                             int64_t sums)
{
    enum { FEW = 16 };
    int64_t most = 0;
    int ranks = tn_mesh_ranks(mesh);
    for (int k = 0; k < FEW; k++) {
        int at[TN_N_AXES];
        tn_mesh_coordinates(mesh, k % ranks, at);
        for (int x = 0; x < TN_N_AXES && ranks > FEW; x++)
            at[x] = k >> x & 1 ? mesh->size[x] - 1 : 0;
        int64_t n = received(mesh, v, to, sums, at);
        if (n > most) most = n;
    }
    return most;
}

bool tn_traffic_of_move(const tn_mesh *mesh, const tn_value *from, const tn_layout *to,
                        tn_traffic_move *out)
{
    bool scatters = false, reduces = false, turns = false;
    tn_traffic_move m = {.ranks = 1};
    int64_t sums = 1;
    for (int x = 0; x < TN_N_AXES; x++) {
        tn_type a = (tn_type)from->layout.type[x], b = (tn_type)to->type[x];
        if (!tn_layout_moves(&from->layout, to, mesh, (tn_axis)x)) continue;
        if (b == TN_TYPE_P || (a != TN_TYPE_P && a != TN_TYPE_S)) continue;
        m.axes |= (uint8_t)(1u << x);
        m.ranks *=
            a == TN_TYPE_S ? tn_layout_parts(&from->layout, mesh, (tn_axis)x) : mesh->size[x];
        if (a == TN_TYPE_P) sums *= mesh->size[x];
        scatters |= a == TN_TYPE_P && b == TN_TYPE_S;
        reduces |= a == TN_TYPE_P;
        turns |= a == TN_TYPE_S && b == TN_TYPE_S;
    }
    if (!m.axes) return false;
    m.kind = scatters  ? TN_TRAFFIC_REDUCE_SCATTER
             : reduces ? TN_TRAFFIC_ALL_REDUCE
             : turns   ? TN_TRAFFIC_ALL_TO_ALL
                       : TN_TRAFFIC_ALL_GATHER;
    m.bytes = most_received(mesh, from, to, sums);
    *out = m;
    return true;
}

/* Key/value heads on more ranks than there are heads: gathered before use, their gradients added
 * over the ranks that share one. */
static bool shared_heads(const tn_graph *g, const tn_node *n, tn_traffic_move *out)
{
    const tn_value *a = &g->values[tn_node_in(g, n, 0)], *b = &g->values[n->out0];
    const tn_value *heads = a->rank == 4 ? a : b;
    int64_t tp = g->mesh.size[TN_AXIS_TP], share = tp / heads->dim[2].extent, block = 1;
    if (n->op == TN_OP_merge_heads) return false; /* each rank keeps what it has */
    for (int d = 0; d < heads->rank; d++)
        block *= tn_layout_largest(&heads->layout, &g->mesh, d, heads->dim[d].extent,
                                   heads->dim[d].units);
    block *= tn_dtype_bytes((tn_dtype)a->dtype);
    bool reduces = n->op == TN_OP_kv_reduce;
    *out = (tn_traffic_move){.kind = reduces ? TN_TRAFFIC_ALL_REDUCE : TN_TRAFFIC_ALL_GATHER,
                             .axes = 1u << TN_AXIS_TP,
                             .ranks = share,
                             .bytes = reduces ? (share - 1) * block : block - block / share};
    return true;
}

bool tn_traffic_of_node(const tn_graph *g, const tn_node *n, tn_traffic_move *out)
{
    if (n->op == TN_OP_recv) {
        const tn_value *v = &g->values[n->out0];
        *out = (tn_traffic_move){.kind = TN_TRAFFIC_SEND_RECV,
                                 .axes = TN_TRAFFIC_PP,
                                 .ranks = 2,
                                 .bytes = tn_dtype_bytes((tn_dtype)v->dtype)};
        for (int d = 0; d < v->rank; d++)
            out->bytes *=
                tn_layout_largest(&v->layout, &g->mesh, d, v->dim[d].extent, v->dim[d].units);
        return true;
    }
    if (!tn_node_is_exchange(g, n) || n->op == TN_OP_send) return false;
    if (n->op == TN_OP_heads || n->op == TN_OP_merge_heads || n->op == TN_OP_kv_reduce)
        return shared_heads(g, n, out);
    return tn_traffic_of_move(&g->mesh, &g->values[tn_node_in(g, n, 0)], &g->values[n->out0].layout,
                              out);
}

void tn_traffic_add(const tn_graph *g, int64_t first, int64_t last, tn_traffic *t)
{
    for (int64_t i = first; i < last; i++) {
        tn_traffic_move m;
        if (!tn_traffic_of_node(g, &g->nodes[i], &m)) continue;
        int64_t runs = tn_cost_runs(g, &g->nodes[i]);
        t->count[m.kind][m.axes] += runs;
        t->bytes[m.kind][m.axes] += runs * m.bytes;
    }
}
