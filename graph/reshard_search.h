/* reshard_search.h - the search behind graph/reshard.h: placements packed into 64 bits, the moves
 * between them, and the cheapest way from one to the other. Only graph/reshard*.c include this. */
#ifndef TN_GRAPH_RESHARD_SEARCH_H
#define TN_GRAPH_RESHARD_SEARCH_H
#include "graph/reshard.h"

TN_C_BEGIN

/* What an axis is: SHARD + d on dim d. */
enum {
    TN_RESHARD_COPIES = 0,
    TN_RESHARD_PENDING = 1,
    TN_RESHARD_SHARD = 2,
    TN_RESHARD_LISTS = 625 /* ordered lists of up to 4 axes, a digit to base 5 each */
};
_Static_assert(TN_N_AXES == 4, "LISTS holds every ordered list of 4 axes");

typedef struct tn_reshard_view { /* a packed placement, opened */
    int what[TN_N_AXES];
    int n[TN_MAX_RANK];
    int8_t list[TN_MAX_RANK][TN_N_AXES];
} tn_reshard_view;

typedef struct tn_reshard_move {
    uint8_t kind, n;
    uint8_t axes[TN_N_AXES]; /* moving axes, outer to inner */
    int8_t from, to;
} tn_reshard_move;

typedef struct tn_reshard_node {
    uint64_t state;
    double seconds;       /* from the start, or to the goal */
    int64_t bytes, local; /* received on the way; the block here */
    int32_t parent;       /* the node before, or behind */
    int32_t heap;         /* place in the queue; below 0: in none */
    tn_reshard_move by;   /* between the two */
} tn_reshard_node;

typedef struct tn_reshard_set { /* the link of a set of axes */
    int64_t ranks;
    double start_s, hop_s, s_per_byte;
} tn_reshard_set;

/* One direction: forward from the start, backward from the goal. */
typedef struct tn_reshard_side {
    tn_reshard_node *nodes;
    int32_t n_nodes, n_heap;
    int32_t *heap, *table;
} tn_reshard_side;

typedef struct tn_reshard_search {
    const tn_mesh *mesh;
    tn_reshard_set link[1 << TN_N_AXES];
    const tn_value *v;
    int n; /* moving axes */
    tn_axis axis[TN_N_AXES];
    int64_t size[TN_N_AXES];
    bool pads[TN_N_AXES]; /* becomes P, was not */
    bool sums[TN_N_AXES]; /* was P, is to be added */
    int64_t largest[TN_MAX_RANK][TN_RESHARD_LISTS];
    uint64_t start, goal;
    bool by_bytes, inner_first;
    double limit_s; /* of one axis after the other: nothing above it is worth a look */
    int64_t limit_bytes;
    int32_t cap_nodes, table_mask;
    tn_reshard_side side[2];
    int32_t meet[2]; /* node of either side where the best way yet joins; -1 */
    double best_s;
    int64_t best_bytes;
} tn_reshard_search;

/* A way: what holds behind each move, the start first. */
typedef struct tn_reshard_way {
    int n;
    const tn_reshard_node *at[TN_RESHARD_STEPS + 1]; /* for state and local */
    tn_reshard_move by[TN_RESHARD_STEPS + 1];        /* by[i] leads to at[i] */
} tn_reshard_way;

/* States and their blocks. */
uint64_t tn_reshard_search_place(uint64_t s, int a, int what, int order);
void tn_reshard_search_open(const tn_reshard_search *q, uint64_t s, tn_reshard_view *w);
int64_t tn_reshard_search_local(tn_reshard_search *q, const tn_reshard_view *w);
uint64_t tn_reshard_search_apply(const tn_reshard_view *w, uint64_t s, const tn_reshard_move *m);
static inline int tn_reshard_search_what(uint64_t s, int a)
{
    return (int)(s >> (6 * a) & 7);
}

/* What a move costs between blocks of these sizes. */
void tn_reshard_search_cost(const tn_reshard_search *q, const tn_reshard_move *m, int64_t before,
                            int64_t after, int64_t *bytes, double *seconds);

/* The fastest way, or the one with the fewest bytes (the fastest of these); false if none is within
 * the limit. TN_FAILED if it has more than TN_RESHARD_STEPS steps. */
tn_status tn_reshard_search_run(tn_reshard_search *q, bool by_bytes, bool *found,
                                tn_reshard_way *out) TN_MUST_USE;

TN_C_END
#endif
