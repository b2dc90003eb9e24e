/* listing.h - the graph as JSON, for programs: what text.h prints, taken apart.
 *
 *   {"titan": 1, "mesh": {"pp": 1, "dp_replicate": 1, ...}, "step": {"rows": 8, ...},
 *    "sums": {"canonical": true, "tp": 8, "seq": 8, "rows": 8},
 *    "nodes": [{"op": "linear", "path": "layers.0.attention", "phase": "F", "scope": "microbatch",
 *               "stage": 0, "in": ["a", "b"], "flops": 1.0e6, "attrs": {"eps": 1e-6},
 *               "out": [{"name": "c", "dtype": "f32", "shape": [8, 512], "units": [0, 0],
 *                        "placement": "{dp:0 cp:1 tp:R}", "carried": 0,
 *                        "layout": {"dp_replicate": "S(0)", ..., "tp": "R"}}]}]} */
#ifndef TN_GRAPH_LISTING_H
#define TN_GRAPH_LISTING_H
#include "engine/base/text.h"
#include "graph/graph.h"

TN_C_BEGIN

/* Only nodes at or below the module path `under` (NULL: all). */
tn_status tn_listing_print(const tn_graph *g, const char *under, tn_text *out) TN_MUST_USE;

TN_C_END
#endif
