/* dot.h - the graph as Graphviz DOT, for eyes: collapsed into boxes of one module, layer or stage,
 * or node by node around one place.
 *
 * Forward, backward, update and what runs once in front are boxes of their own, so that arrows lead
 * from top to bottom. An arrow between boxes says how many values it stands for and their bytes
 * (global extents); values that many boxes read are drawn as what they are, arrows. */
#ifndef TN_GRAPH_DOT_H
#define TN_GRAPH_DOT_H
#include "engine/base/text.h"
#include "graph/graph.h"

TN_C_BEGIN

typedef enum tn_dot_collapse {
    TN_DOT_NODES,
    TN_DOT_MODULE,
    TN_DOT_LAYER, /* "layers.3", or the first part of a path */
    TN_DOT_STAGE
} tn_dot_collapse;

typedef struct tn_dot_options {
    tn_dot_collapse collapse;
    const char *under; /* only nodes at or below this module path, and what they touch; NULL: all */
    const char *focus; /* the name of a value, as text.h prints it, or a module path; NULL: none */
    int depth;         /* of focus: arrows to follow, against them and along them */
} tn_dot_options;

/* TN_BAD_INPUT: no such value or module, with the nearest name. */
tn_status tn_dot_print(const tn_graph *g, const tn_dot_options *o, tn_text *out) TN_MUST_USE;

TN_C_END
#endif
