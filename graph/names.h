/* names.h - the text names of a graph's values, and a small map from names to numbers.
 *
 * A value is named by its node's module path and op, "#k" for the k-th of its kind from the second
 * on, ":i" for output i > 0: %layers.0.attention.rope#2, %layers.0.attention_norm.rmsnorm:1.
 * Inserting a layer or a node renames nothing else, so that two dumps diff well. */
#ifndef TN_GRAPH_NAMES_H
#define TN_GRAPH_NAMES_H
#include "graph/graph.h"

TN_C_BEGIN

/* Open addressing; keys stay the caller's. Zero-initialised is empty. */
typedef struct tn_names {
    const char **key;
    int64_t *number;
    int64_t n, capacity;
} tn_names;
tn_status tn_names_put(tn_names *m, const char *key, int64_t number) TN_MUST_USE; /* replaces */
bool tn_names_find(const tn_names *m, const char *key, int64_t *out);
void tn_names_fini(tn_names *m);

/* How much of a module path names its layer: "layers.3" of "layers.3.attention", "norm" of "norm".
 */
size_t tn_names_layer(const char *path);

/* By value; texts in `arena`. */
tn_status tn_names_build(const tn_graph *g, tn_arena *arena, const char ***out) TN_MUST_USE;

TN_C_END
#endif
