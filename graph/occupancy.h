/* occupancy.h - what the step region holds at every tick, by kind of owner: the plan read as a
 * timeline. */
#ifndef TN_GRAPH_OCCUPANCY_H
#define TN_GRAPH_OCCUPANCY_H
#include "graph/program.h"

TN_C_BEGIN

typedef enum tn_occupancy_kind {
    TN_OCCUPANCY_ACTIVATIONS,
    TN_OCCUPANCY_GRADIENTS,
    TN_OCCUPANCY_WEIGHT_GRADIENTS,
    TN_OCCUPANCY_GATHERED, /* parameters in compute form */
    TN_OCCUPANCY_UPDATE,
    TN_OCCUPANCY_KINDS
} tn_occupancy_kind;

typedef struct tn_occupancy {
    int64_t bytes[TN_OCCUPANCY_KINDS];
} tn_occupancy;

const char *tn_occupancy_name(tn_occupancy_kind k); /* "activations" */
tn_occupancy_kind tn_occupancy_of(const tn_program *p, const tn_buffer *b);

/* Of every tick, 0 to the graph's number of nodes; in `arena`. */
tn_status tn_occupancy_build(const tn_program *p, tn_arena *arena, tn_occupancy **out) TN_MUST_USE;

/* The same by layer ("layers.3", "norm"; "step" without a module): the largest by name, the rest as
 * the last one. */
enum { TN_OCCUPANCY_OWNERS = 16 };
typedef struct tn_occupancy_owners {
    int n;
    const char *name[TN_OCCUPANCY_OWNERS];
    int64_t (*bytes)[TN_OCCUPANCY_OWNERS]; /* by tick */
} tn_occupancy_owners;
tn_status tn_occupancy_owners_build(const tn_program *p, tn_arena *arena,
                                    tn_occupancy_owners *out) TN_MUST_USE;

TN_C_END
#endif
