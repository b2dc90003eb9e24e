#include "graph/occupancy.h"

#include "graph/op.h"

const char *tn_occupancy_name(tn_occupancy_kind k)
{
    static const char *const names[TN_OCCUPANCY_KINDS] = {"activations", "gradients",
                                                          "weight_gradients", "gathered", "update"};
    return names[k];
}

tn_occupancy_kind tn_occupancy_of(const tn_program *p, const tn_buffer *b)
{
    const tn_graph *g = p->g;
    const tn_value *v = &g->values[b->value];
    const tn_node *n = &g->nodes[v->node];
    if (n->op == TN_OP_unshard) return TN_OCCUPANCY_GATHERED;
    if (n->phase == TN_PHASE_OPT) return TN_OCCUPANCY_UPDATE;
    if (n->phase == TN_PHASE_W || v->carried || n->op == TN_OP_reduce)
        return TN_OCCUPANCY_WEIGHT_GRADIENTS;
    if (n->phase == TN_PHASE_B) return TN_OCCUPANCY_GRADIENTS;
    return n->scope == TN_SCOPE_TAIL ? TN_OCCUPANCY_UPDATE : TN_OCCUPANCY_ACTIVATIONS;
}

/* Differences at the ticks where a buffer begins and ends, summed up on the way. */
tn_status tn_occupancy_build(const tn_program *p, tn_arena *arena, tn_occupancy **out)
{
    void *mem;
    int64_t n = p->g->n_nodes;
    TN_TRY(tn_arena_alloc(arena, (size_t)(n + 1) * sizeof(tn_occupancy), &mem));
    tn_occupancy *at = mem;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        if (b->region != TN_REGION_STEP || b->start >= b->end) continue;
        tn_occupancy_kind k = tn_occupancy_of(p, b);
        at[b->start].bytes[k] += b->bytes;
        at[b->end < n ? b->end : n].bytes[k] -= b->bytes;
    }
    for (int64_t t = 1; t <= n; t++)
        for (int k = 0; k < TN_OCCUPANCY_KINDS; k++) at[t].bytes[k] += at[t - 1].bytes[k];
    *out = at;
    return TN_OK;
}
