/* stages.h - which pipeline stage a node belongs to.
 *
 * A module of a pipeline is a layer ("layers.3": the path up to its first number) or what stands in
 * front of or behind the layers ("tok_embeddings", "norm", "output": the first word of the path).
 * Stages are assigned to the traced graph; every later pass hands them on. A parameter lives on the
 * stage of its first use. What depends on no parameter (inputs, their pieces, counts, rotary
 * tables) belongs to TN_STAGE_ALL: every stage that needs it makes it itself. Nodes without a
 * module (the loss, pieces of it) belong to the last stage of their operands. */
#ifndef TN_GRAPH_STAGES_H
#define TN_GRAPH_STAGES_H
#include "graph/graph.h"
#include "graph/schedule.h"

TN_C_BEGIN

enum { TN_STAGE_ALL = -1 };

/* The modules of a traced graph in the order of forward; in `arena`. */
tn_status tn_stages_modules(const tn_graph *g, tn_arena *arena, tn_schedule_module **out,
                            int32_t *n_out) TN_MUST_USE;

TN_C_END
#endif
