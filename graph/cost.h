/* cost.h - what a graph costs, as pure functions of it. */
#ifndef TN_GRAPH_COST_H
#define TN_GRAPH_COST_H
#include "graph/graph.h"
#include "graph/reshard.h"

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

/* What computes and what carries, per rank: guesses until a table is measured. The same on all
 * ranks of a run, since the order of exchanges follows from it. */
typedef struct tn_cost_machine {
    double flops_per_s, bytes_per_s, start_s; /* of products, of memory, of each node */
    bool gpu; /* small products and copies run below these rates; streams run beside each other */
    double steal; /* of an exchange's time that computation beside it loses */
    tn_reshard_links links;
    tn_reshard_link stage; /* to the next pipeline stage */
} tn_cost_machine;
tn_cost_machine tn_cost_guess(const tn_mesh *mesh, bool gpu, int ranks_per_node);
/* The same machine where a rank has `processors` of one host, perhaps less than one, and `ranks` of
 * them run there. CPUs only; not for what ranks must agree on. */
void tn_cost_share(tn_cost_machine *m, double processors, int64_t ranks);

/* One run of a node on a rank with the largest shards; of an exchange, from its meeting to its last
 * byte. 0 for what has no entry. */
double tn_cost_seconds(const tn_graph *g, const tn_node *n, const tn_cost_machine *m);

/* A step in the order of the graph: computation in turn, an exchange when what it reads is there
 * and its stream is free, computation when what it reads is there. On CPUs one after the other. */
typedef struct tn_cost_step {
    double seconds, compute_s, exchange_s, exposed_s; /* exposed: nothing is computed */
    double compute_end_s;                             /* the last computation ends */
} tn_cost_step;
tn_status tn_cost_walk(const tn_graph *g, const tn_cost_machine *m, tn_cost_step *out) TN_MUST_USE;

/* Nodes [first, last) once, loss chunks among them as often as they run. */
tn_status tn_cost_range(const tn_graph *g, const tn_cost_machine *m, int64_t first, int64_t last,
                        tn_cost_step *out) TN_MUST_USE;

TN_C_END
#endif
