/* reshard.h - the cheapest way from one placement of a tensor to another, any number of axes at
 * once.
 *
 * A plan is a sequence of steps. The search is exact (Dijkstra over packed placements, from both
 * ends) for these steps, each over one axis or over several at once, which cost one start: slice
 * copies
 * -> S(j), appended as the innermost axis of dim j; moves nothing all_gather      the innermost
 * axes of dim i -> copies all_to_all      the innermost axes of dim i -> innermost of dim j, in the
 * same order reduce_scatter  P -> innermost of dim j, in any order all_reduce      P -> copies
 *   permute         two axes of one size trade places, or two neighbours of one evenly cut dim;
 * each rank sends its block to one other pad             copies or S -> P where the destination
 * asks for P: zeros elsewhere; moves nothing Whether copies are called R or I does not matter here.
 * An axis that is V, or P on both sides, stays as it is. Axes of size 1 move nothing. The planner
 * does not look at the order of sums: what canonical mode adds together is the caller's business.
 *
 * Cost of a step over n ranks: start + hops * hop + bytes / bandwidth of its slowest axis; n - 1
 * hops, all_reduce twice as many, permute 1. Bytes are what a rank receives: (n - 1)/n of the
 * larger side, all_reduce twice that, permute the block. A plan receives never more bytes than
 * moving one axis after the other does: where the fastest way would, the plan is the one with the
 * fewest bytes.
 */
#ifndef TN_GRAPH_RESHARD_H
#define TN_GRAPH_RESHARD_H
#include "engine/base/text.h"
#include "graph/graph.h"

TN_C_BEGIN

enum { TN_RESHARD_STEPS = 24 };

typedef enum tn_reshard_kind {
    TN_RESHARD_SLICE,
    TN_RESHARD_ALL_GATHER,
    TN_RESHARD_ALL_TO_ALL,
    TN_RESHARD_REDUCE_SCATTER,
    TN_RESHARD_ALL_REDUCE,
    TN_RESHARD_PERMUTE,
    TN_RESHARD_PAD,
    TN_RESHARD_KINDS
} tn_reshard_kind;

typedef struct tn_reshard_link { /* of one axis */
    double start_s, hop_s, bytes_per_s;
} tn_reshard_link;

typedef struct tn_reshard_links {
    tn_reshard_link axis[TN_N_AXES];
    bool inner_first; /* pending axes are reduced from the innermost axis of the mesh outwards, so
                         that the balanced tree over all members stays what it is */
} tn_reshard_links;

typedef struct tn_reshard_step {
    uint8_t kind, n_axes;
    uint8_t axes[TN_N_AXES]; /* outer to inner */
    int8_t from, to;         /* dims, -1: none */
    int64_t bytes;           /* a rank receives */
    double seconds;
    tn_layout after;
} tn_reshard_step;

typedef struct tn_reshard {
    int n_steps;
    tn_reshard_step step[TN_RESHARD_STEPS];
    int64_t bytes;
    double seconds;
    int64_t peak_bytes;    /* the largest block of a rank on the way */
    int64_t by_axis_bytes; /* what one axis after the other would receive */
    double by_axis_s;
    int by_axis_steps, n_states; /* its steps; placements that the search looked at */
} tn_reshard;

const char *tn_reshard_kind_name(tn_reshard_kind k);

/* Guesses for a mesh whose axes of up to `ranks_per_node` ranks stay inside a node: 370 GB/s and
 * 0.6 us a hop there, 45 GB/s and 2.7 us between nodes, 6.6 us a start. */
tn_reshard_links tn_reshard_guess(const tn_mesh *mesh, int ranks_per_node);

/* From where v is to `to`. TN_BAD_INPUT if no sequence of steps leads there (V on one side only, a
 * dim that v lacks). The search's tables come from `scratch`, at most some 200 KiB for three dims.
 */
tn_status tn_reshard_plan(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                          const tn_layout *to, tn_arena *scratch, tn_reshard *out) TN_MUST_USE;

/* "all_gather tp of dim 1: 1.50 MiB, 12 us; slice dp_shard to dim 0"; "nothing moves". */
void tn_reshard_print(const tn_reshard *r, tn_text *out);

TN_C_END
#endif
