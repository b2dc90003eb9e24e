/* program_about.c - what others ask of nodes and programs: views, exchanges, sizes, shards. */
#include "graph/op.h"
#include "graph/program.h"

#include <string.h>

static bool casts(const tn_graph *g, const tn_node *n)
{
    return g->values[tn_node_in(g, n, 0)].dtype != g->values[n->out0].dtype;
}

bool tn_node_shares_heads(const tn_graph *g, const tn_value *v)
{
    return v->rank == 4 && v->dim[2].units > v->dim[2].extent &&
           v->layout.type[TN_AXIS_TP] == TN_TYPE_S && v->layout.dim[TN_AXIS_TP] == 2 &&
           g->mesh.size[TN_AXIS_TP] > v->dim[2].extent;
}

/* heads and merge_heads between elements cut in pieces of heads, and whole heads that ranks share.
 */
static bool joins_heads(const tn_graph *g, const tn_node *n)
{
    if (n->op == TN_OP_heads) return tn_node_shares_heads(g, &g->values[n->out0]);
    return n->op == TN_OP_merge_heads && tn_node_shares_heads(g, &g->values[tn_node_in(g, n, 0)]);
}

bool tn_node_is_view(const tn_graph *g, const tn_node *n)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    if (n->op == TN_OP_heads || n->op == TN_OP_merge_heads) return !joins_heads(g, n);
    if (n->op == TN_OP_unshard || n->op == TN_OP_redistribute || n->op == TN_OP_reduce ||
        n->op == TN_OP_kv_reduce)
        return !casts(g, n) && !tn_node_is_exchange(g, n);
    return op->view || n->op == TN_OP_unchunk;
}

bool tn_node_is_exchange(const tn_graph *g, const tn_node *n)
{
    if (joins_heads(g, n)) return true;
    if (n->op == TN_OP_kv_reduce) return tn_node_shares_heads(g, &g->values[n->out0]);
    if (n->op == TN_OP_send || n->op == TN_OP_recv) return true;
    bool places = n->op == TN_OP_unshard || n->op == TN_OP_redistribute || n->op == TN_OP_reduce;
    if (!places) return false;
    const tn_value *a = &g->values[tn_node_in(g, n, 0)], *b = &g->values[n->out0];
    for (int x = 0; x < TN_N_AXES; x++)
        if (tn_layout_moves(&a->layout, &b->layout, &g->mesh, (tn_axis)x)) return true;
    return false;
}

int64_t tn_program_value_bytes(const tn_graph *g, const tn_value *v)
{
    int64_t n = tn_dtype_bytes((tn_dtype)v->dtype);
    for (int d = 0; d < v->rank; d++)
        n *= tn_layout_largest(&v->layout, &g->mesh, d, v->dim[d].extent, v->dim[d].units);
    return (n + TN_PACK_ALIGN - 1) / TN_PACK_ALIGN * TN_PACK_ALIGN;
}

tn_status tn_program_state(const tn_program *p, const char *name, const tn_place **out)
{
    for (int64_t i = 0; i < p->g->n_nodes; i++) {
        const tn_node *n = &p->g->nodes[i];
        if (n->op != TN_OP_state || strcmp(tn_node_attr_text(n, "name"), name)) continue;
        *out = &p->places[n->out0];
        return TN_OK;
    }
    TN_FAIL(TN_FAILED, "program: state '%s' has no place in memory", name);
}

/* A segment for a microbatch: the loss chunks in it, if they lie there, as often as they run. */
static tn_status walk_segment(const tn_program *p, const tn_segment *s, int64_t microbatch,
                              int64_t chunks, tn_program_range range, void *user)
{
    if (p->chunk < s->begin || p->chunk_end > s->end)
        return range(user, s->begin, s->end, microbatch, 0);
    TN_TRY(range(user, s->begin, p->chunk, microbatch, 0));
    for (int64_t c = 0; c < chunks; c++) TN_TRY(range(user, p->chunk, p->chunk_end, microbatch, c));
    return range(user, p->chunk_end, s->end, microbatch, 0);
}

tn_status tn_program_walk(const tn_program *p, int64_t microbatches, int64_t chunks,
                          tn_program_range range, void *user)
{
    TN_TRY(range(user, 0, p->microbatch, 0, 0));
    for (int64_t i = 0; i < p->n_actions; i++) {
        const tn_action *a = &p->actions[i];
        if (a->microbatch < microbatches)
            TN_TRY(walk_segment(p, &p->segments[a->segment], a->microbatch, chunks, range, user));
    }
    return range(user, p->tail, p->n_entries, 0, 0);
}

int32_t tn_program_microbatches_walked(const tn_program *p)
{
    int32_t most = 2;
    for (int64_t i = 0; i < p->n_saved; i++)
        if (p->saved[i].n_slots >= most) most = p->saved[i].n_slots + 1;
    return most < p->g->n_microbatches ? most : (int32_t)p->g->n_microbatches;
}

tn_runs tn_program_runs(const tn_program *p, int32_t value)
{
    const tn_value *whole = &p->g->values[value], *mine = &p->local[value];
    const int64_t *begin = p->begin[value];
    if (whole->rank < 2)
        return (tn_runs){1, tn_value_elements(mine), whole->rank ? begin[0] : 0, 0};
    int64_t columns = whole->dim[1].extent;
    if (mine->dim[1].extent == columns)
        return (tn_runs){1, tn_value_elements(mine), begin[0] * columns, 0};
    return (tn_runs){mine->dim[0].extent, mine->dim[1].extent, begin[0] * columns + begin[1],
                     columns};
}
