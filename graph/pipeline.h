/* pipeline.h - pass 7: what one pipeline rank runs of the whole graph, in which order, and what it
 * gets from and gives to the other pipeline ranks.
 *
 * The rank's graph holds the nodes of its stages and those of TN_STAGE_ALL that they need. Where a
 * node reads what a stage of another rank makes, the value is sent once to that rank: `send` stands
 * there, `recv` here, both with the number of the channel. Its nodes of a microbatch are cut into
 * segments, one or more for each stage; the action list says which segment runs for which
 * microbatch. Sends stand at a segment's end, receives at its begin, as the simulator of schedule.h
 * assumes.
 *
 * Mail: the sender writes into the receiver's memory, so a channel needs as many slots as messages
 * may lie there unread at once. That number follows from the lists alone: when a rank sends, what
 * it has received so far proves how far the receiver has come (a vector clock over actions). With
 * so many slots no sender ever waits, and no list that the validator accepts can hang.
 *
 * Forward-only lists (evaluation) are as good as complete ones. */
#ifndef TN_GRAPH_PIPELINE_H
#define TN_GRAPH_PIPELINE_H
#include "graph/graph.h"
#include "graph/schedule.h"

TN_C_BEGIN

typedef struct tn_segment {
    int64_t begin, end; /* nodes of the rank's graph */
    int32_t stage;
} tn_segment;

typedef struct tn_action {
    int32_t segment, microbatch;
} tn_action;

/* A channel that begins or ends at this rank. Its flags and its slots lie in the receiver's mail;
 * a flag takes a cache line. */
typedef struct tn_mail {
    int32_t node, value; /* its send or recv in this rank's graph; what is sent, what is received */
    int32_t channel, peer; /* peer: the other pipeline rank */
    int32_t n_slots;
    int64_t flags, slots; /* offsets in the receiver's mail */
    int64_t slot_bytes;
    const int32_t *slot; /* by microbatch; one entry outside of microbatches */
    bool arrives;
} tn_mail;

enum { TN_MAIL_FLAG_BYTES = 64 };

typedef struct tn_pipeline {
    int32_t n_ranks, rank; /* pipeline ranks */
    int64_t n_segments, n_actions, n_mails;
    tn_segment *segments;
    tn_action *actions;
    tn_mail *mails;
    int64_t *mail_bytes; /* by pipeline rank: what its mail takes */
    int64_t *origin;     /* by node of the rank's graph: the node of the whole graph; sends and
                            receives have that of the value's producer */
    tn_arena arena;
} tn_pipeline;

void tn_pipeline_destroy(tn_pipeline *p); /* NULL is fine */

/* Every channel has one sender and one receiver, which agree about peer, slots, place, type and
 * extents; and the ranks come to the end of their lists. plans, graphs: of all pipeline ranks. */
tn_status tn_pipeline_verify(const tn_pipeline *const *plans, const tn_graph *const *graphs,
                             int n) TN_MUST_USE;

TN_C_END
#endif
