/* cost.h - what a graph costs, as pure functions of it. */
#ifndef TN_GRAPH_COST_H
#define TN_GRAPH_COST_H
#include "graph/graph.h"

TN_C_BEGIN

typedef struct tn_cost {
    int64_t parameters;        /* elements, each shared one once */
    int64_t matmul_parameters; /* of them in linears: all but an embedding that is only looked up */
    double flops_per_token;    /* 6 matmul_parameters + 6 layers heads (qk + v) seq: TorchTitan's
                                  formula, no causal discount */
    double step_flops; /* what the graph's nodes do in one step, causal attention counted by half,
                          recompute included */
} tn_cost;

/* Of a training graph behind any pass. */
tn_cost tn_cost_of(const tn_graph *g);

/* Runs of a node per step. */
int64_t tn_cost_runs(const tn_graph *g, const tn_node *n);

TN_C_END
#endif
