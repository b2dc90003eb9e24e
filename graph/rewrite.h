/* rewrite.h - how a pass emits its new graph: one walk in order, a map from old values to new ones.
 */
#ifndef TN_GRAPH_REWRITE_H
#define TN_GRAPH_REWRITE_H
#include "graph/graph.h"

TN_C_BEGIN

typedef struct tn_rewrite {
    const tn_graph *old;
    tn_graph *g;  /* new */
    int32_t *map; /* old value -> new value, -1 while it has none */
} tn_rewrite;

/* An empty graph with the old one's settings. End with tn_rewrite_finish (hands the graph over) or
 * tn_rewrite_drop. */
tn_status tn_rewrite_begin(const tn_graph *old, tn_rewrite *r) TN_MUST_USE;
tn_graph *tn_rewrite_finish(tn_rewrite *r);
void tn_rewrite_drop(tn_rewrite *r);

/* Emits the old node as it is, with mapped operands; checked again by the constructor. */
tn_status tn_rewrite_copy(tn_rewrite *r, int64_t node) TN_MUST_USE;

/* A description of the old node with mapped operands (`in`: room for its operands, `attrs`: 16), to
 * be changed and added. */
void tn_rewrite_describe(const tn_rewrite *r, int64_t node, int32_t *in, tn_named_attr *attrs,
                         tn_node_desc *out);

/* Adds d for the old node and maps its outputs to the new node's first outputs; carries order and
 * flags over. */
tn_status tn_rewrite_add(tn_rewrite *r, int64_t node, const tn_node_desc *d) TN_MUST_USE;

/* Derived use lists of a graph: users[first[v] .. first[v+1]) are the nodes that read value v,
 * ascending. */
typedef struct tn_uses {
    int64_t *first;
    int32_t *users;
} tn_uses;
tn_status tn_uses_build(const tn_graph *g, tn_uses *out) TN_MUST_USE;
void tn_uses_fini(tn_uses *u);
static inline int64_t tn_uses_count(const tn_uses *u, int64_t v)
{
    return u->first[v + 1] - u->first[v];
}

TN_C_END
#endif
