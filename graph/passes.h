/* passes.h - from the traced graph to the graph that is emitted (DESIGN.md 6): every pass is one
 * function of one file, pure, and leaves its input as it was. On success *out is a new graph of the
 * caller's. */
#ifndef TN_GRAPH_PASSES_H
#define TN_GRAPH_PASSES_H
#include "graph/cost.h"
#include "graph/pipeline.h"
#include "graph/reshard.h"

TN_C_BEGIN

/* OP keeps what products and attention made, and what a reduction completed; LAYERS recomputes
 * every k-th block fully: blocks k - 1, 2k - 1, ... */
typedef enum tn_recompute {
    TN_RECOMPUTE_NONE,
    TN_RECOMPUTE_FULL,
    TN_RECOMPUTE_OP,
    TN_RECOMPUTE_LAYERS
} tn_recompute;

typedef struct tn_optimizer_group {
    const char *pattern; /* Lua pattern or regular text is the host's business: `match` decides */
    double lr, beta1, beta2, eps, weight_decay, momentum;
} tn_optimizer_group;

typedef enum tn_optimizer { TN_OPTIMIZER_ADAMW, TN_OPTIMIZER_ADAM, TN_OPTIMIZER_SGD } tn_optimizer;

/* How long the compute copy of a parameter lives: ALWAYS gathered again for every direction of
 * every microbatch, NEVER dropped within a step. */
typedef enum tn_unshard { TN_UNSHARD_ALWAYS, TN_UNSHARD_ONCE } tn_unshard;

typedef struct tn_pass_options {
    tn_recompute recompute;
    int64_t recompute_every; /* k of TN_RECOMPUTE_LAYERS */
    tn_unshard unshard;
    int unshard_ranks; /* of TN_UNSHARD_ALWAYS: neighbours on dp_shard that keep a parameter in
                          pieces from forward to backward; 1: each keeps it whole; 0: none */
    tn_optimizer optimizer;
    int n_groups;
    const tn_optimizer_group *groups;
    int (*group_of)(void *user, const char *param); /* index into groups */
    void *user;
    double max_norm; /* 0: no clipping */
    tn_dtype compute;
    tn_cost_machine machine;
} tn_pass_options;

/* 2. Gradients of `loss` (an exact sum) for every parameter: gradient nodes behind the forward
 * ones, then one `reduce` per use of a parameter (scope TAIL, attribute param), added in trace
 * order. */
tn_status tn_pass_differentiate(const tn_graph *in, int32_t loss, tn_graph **out) TN_MUST_USE;

/* 3. Expands cross_entropy over its vocabulary parts, attaches the order of every sum, sets which
 * values are carried over microbatches and chunks and how many levels they need; HEAD nodes move to
 * the front. Refuses layouts that cannot keep the order. */
tn_status tn_pass_lower(const tn_graph *in, tn_graph **out) TN_MUST_USE;

/* The token order of one data-parallel rank's rows in the whole step: its node of the tree over
 * lanes. */
tn_status tn_lower_tokens(const tn_graph *g, tn_arena *arena,
                          const tn_order_tokens **out) TN_MUST_USE;

/* 4. Pointwise chains, norm + residual gradient, matmul + residual. Never changes bits. */
tn_status tn_pass_fuse(const tn_graph *in, tn_graph **out) TN_MUST_USE;

/* 5. Storage: fp32 master parameters and their UNSHARD, optimizer state, the exact norm, clipping,
 * the update. */
tn_status tn_pass_storage(const tn_graph *in, const tn_pass_options *o, tn_graph **out) TN_MUST_USE;

/* 5b. Exchanges that add pending sums become the steps that the planner finds, where those move
 * fewer bytes and the links make up for the further meetings. Never changes canonical bits. */
tn_status tn_pass_boundary(const tn_graph *in, const tn_reshard_links *links,
                           tn_graph **out) TN_MUST_USE;

/* 6. Recompute: clones the forward nodes of a block that its backward needs and that are not kept
 * in front of it. */
tn_status tn_pass_recompute(const tn_graph *in, const tn_pass_options *o,
                            tn_graph **out) TN_MUST_USE;

/* 8. Exchanges are moved to where they can run beside computation, by the cost model o->machine. */
tn_status tn_pass_overlap(const tn_graph *in, const tn_pass_options *o, tn_graph **out) TN_MUST_USE;

/* 1b. The traced graph with a stage for every node: module m is on stage s with
 * stages->first_module[s]
 * <= m < first_module[s + 1]. */
tn_status tn_pass_stages(const tn_graph *in, const tn_schedule_module *modules, int32_t n_modules,
                         const tn_schedule_stages *stages, tn_graph **out) TN_MUST_USE;

/* 7. Graph and plan of pipeline rank `rank`. The lists have been simulated. */
tn_status tn_pass_pipeline(const tn_graph *in, const tn_schedule *s, int rank, tn_graph **out,
                           tn_pipeline **plan_out) TN_MUST_USE;
TN_C_END
#endif
