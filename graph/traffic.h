/* traffic.h - what an exchange is called and what it costs the network: pure functions of the
 * graph.
 *
 * Bytes are those that one rank receives from others, as engine/exchange.c pulls them: its part of
 * the result, once from every member of a pending sum and once from whoever holds it otherwise,
 * less what it holds itself. An exchange that changes several axes at once has one kind and a set
 * of axes; kinds go by what happens first: a pending sum that becomes a shard, one that becomes
 * whole, a shard that moves to another dim (or another place), a shard that becomes whole. */
#ifndef TN_GRAPH_TRAFFIC_H
#define TN_GRAPH_TRAFFIC_H
#include "engine/base/text.h"
#include "graph/graph.h"

TN_C_BEGIN

typedef enum tn_traffic_kind {
    TN_TRAFFIC_ALL_GATHER,
    TN_TRAFFIC_REDUCE_SCATTER,
    TN_TRAFFIC_ALL_REDUCE,
    TN_TRAFFIC_ALL_TO_ALL,
    TN_TRAFFIC_SEND_RECV,
    TN_TRAFFIC_KINDS
} tn_traffic_kind;

/* Sets of axes: bit a is tn_axis a, TN_TRAFFIC_PP the stages. */
enum { TN_TRAFFIC_PP = 1 << TN_N_AXES, TN_TRAFFIC_SETS = 2 << TN_N_AXES };

typedef struct tn_traffic_move {
    uint8_t kind, axes; /* kind, set of axes */
    int64_t ranks;      /* that meet */
    int64_t bytes;      /* the most that a rank receives, each time */
} tn_traffic_move;

typedef struct tn_traffic {
    int64_t count[TN_TRAFFIC_KINDS][TN_TRAFFIC_SETS]; /* exchanges in a step */
    int64_t bytes[TN_TRAFFIC_KINDS][TN_TRAFFIC_SETS]; /* a rank receives in a step */
} tn_traffic;

const char *tn_traffic_kind_name(tn_traffic_kind k); /* "all_gather" */
/* "tp", "dp" (dp_replicate and dp_shard), "dp_shard,cp"; by value, as in text.h. */
tn_text_short tn_traffic_axes(unsigned set);

/* One node; false where nothing travels between ranks. */
bool tn_traffic_of_node(const tn_graph *g, const tn_node *n, tn_traffic_move *out);

/* Of a value from one placement to another in one exchange. */
bool tn_traffic_of_move(const tn_mesh *mesh, const tn_value *from, const tn_layout *to,
                        tn_traffic_move *out);

/* A whole step: nodes [first, last) as often as they run. */
void tn_traffic_add(const tn_graph *g, int64_t first, int64_t last, tn_traffic *t);

TN_C_END
#endif
