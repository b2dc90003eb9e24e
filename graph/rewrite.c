#include "graph/rewrite.h"

#include "graph/op.h"

tn_status tn_rewrite_begin(const tn_graph *old, tn_rewrite *r)
{
    void *mem;
    *r = (tn_rewrite){.old = old};
    TN_TRY(tn_alloc((size_t)(old->n_values + 1) * sizeof(int32_t), &mem));
    r->map = mem;
    for (int64_t i = 0; i < old->n_values; i++) r->map[i] = -1;
    tn_status st = tn_graph_create(&old->mesh, old->grid, old->canonical, &r->g);
    if (st) {
        tn_free(r->map);
        return st;
    }
    r->g->rows = old->rows;
    r->g->seq = old->seq;
    r->g->n_microbatches = old->n_microbatches;
    r->g->n_chunks = old->n_chunks;
    return TN_OK;
}

tn_graph *tn_rewrite_finish(tn_rewrite *r)
{
    tn_free(r->map);
    return r->g;
}

void tn_rewrite_drop(tn_rewrite *r)
{
    tn_free(r->map);
    tn_graph_destroy(r->g);
}

void tn_rewrite_describe(const tn_rewrite *r, int64_t node, int32_t *in, tn_named_attr *attrs,
                         tn_node_desc *out)
{
    const tn_node *n = &r->old->nodes[node];
    tn_op_id op = (tn_op_id)n->op;
    int n_attrs = tn_graph_attr_count(r->old, op);
    for (int i = 0; i < n->n_in; i++) in[i] = r->map[tn_node_in(r->old, n, i)];
    for (int i = 0; i < n_attrs; i++)
        attrs[i] = (tn_named_attr){tn_graph_attr_name(r->old, op, i), n->attrs[i]};
    /* the shared defaults of the old graph are the defaults of the new one */
    if (n_attrs && n->attrs == tn_graph_attr_default(r->old, op, 0)) n_attrs = 0;
    const tn_value *v = &r->old->values[n->out0];
    *out = (tn_node_desc){.op = op,
                          .n_in = n->n_in,
                          .in = in,
                          .n_attrs = n_attrs,
                          .attrs = attrs,
                          .path = n->path,
                          .phase = (tn_phase)n->phase,
                          .scope = (tn_scope)n->scope,
                          .stage = n->stage,
                          .layout = &v->layout,
                          .like = v};
}

tn_status tn_rewrite_add(tn_rewrite *r, int64_t node, const tn_node_desc *d)
{
    const tn_node *o = &r->old->nodes[node];
    int32_t first;
    TN_TRY(tn_graph_add(r->g, d, &first));
    tn_node *n = &r->g->nodes[r->g->n_nodes - 1];
    n->order = o->order;
    n->parts = o->parts;
    for (int i = 0; i < o->n_out && i < n->n_out; i++) {
        const tn_value *ov = &r->old->values[o->out0 + i];
        tn_value *v = &r->g->values[first + i];
        v->carried = ov->carried;
        v->levels = ov->levels;
        r->map[o->out0 + i] = first + i;
    }
    return TN_OK;
}

tn_status tn_rewrite_copy(tn_rewrite *r, int64_t node)
{
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[16];
    tn_node_desc d;
    tn_rewrite_describe(r, node, in, attrs, &d);
    return tn_rewrite_add(r, node, &d);
}

tn_status tn_uses_build(const tn_graph *g, tn_uses *out)
{
    void *a, *b;
    TN_TRY(tn_alloc((size_t)(g->n_values + 2) * sizeof(int64_t), &a));
    tn_status st = tn_alloc((size_t)(g->n_operands + 1) * sizeof(int32_t), &b);
    if (st) {
        tn_free(a);
        return st;
    }
    int64_t *first = a;
    int32_t *users = b;
    for (int64_t i = 0; i < g->n_operands; i++) first[g->operands[i] + 2]++;
    for (int64_t v = 0; v < g->n_values; v++) first[v + 2] += first[v + 1];
    for (int64_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in; i++)
            users[first[tn_node_in(g, &g->nodes[n], i) + 1]++] = (int32_t)n;
    *out = (tn_uses){first, users};
    return TN_OK;
}

void tn_uses_fini(tn_uses *u)
{
    tn_free(u->first);
    tn_free(u->users);
    *u = (tn_uses){0};
}
