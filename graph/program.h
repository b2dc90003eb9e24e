/* program.h - the static program of one rank class: the graph after all passes, where every value
 * lies, and the flat list of entries that the executor walks (DESIGN.md 6, passes 8 to 11).
 *
 * Run order: entries [0, microbatch) once; then the actions in their order, each one segment for
 * one microbatch, and in it [chunk, chunk_end) for every loss chunk; entries [tail, n) once.
 * Without a pipeline there is one segment, [microbatch, tail), and an action for every microbatch.
 *
 * A value that one segment makes and another reads is saved: it has a slot for each microbatch that
 * may be on its way. A place is base[region] + offset + microbatch * microbatch_stride + chunk *
 * chunk_stride + slot of the microbatch * slot_bytes. */
#ifndef TN_GRAPH_PROGRAM_H
#define TN_GRAPH_PROGRAM_H
#include "graph/graph.h"
#include "graph/pack.h"
#include "graph/pipeline.h"

TN_C_BEGIN

/* Lifetimes: process (parameters, moments, buffers), plan (inputs), step (everything else); mail is
 * where other pipeline ranks put what they send. */
typedef enum tn_region {
    TN_REGION_PROCESS,
    TN_REGION_PLAN,
    TN_REGION_STEP,
    TN_REGION_MAIL,
    TN_N_REGIONS
} tn_region;

typedef struct tn_place {
    int8_t region;
    int32_t buffer; /* values of one buffer share memory (views, in-place results) */
    int32_t saved;  /* 1 + which of the program's tn_saved has its slots; 0: one place */
    int64_t offset, level_bytes; /* level i of a carried sum lies at offset + i * level_bytes */
    int64_t microbatch_stride, chunk_stride, slot_bytes;
} tn_place;

/* Slots of what segment `from` makes and the segments `to` read; or of a channel. */
typedef struct tn_saved {
    int32_t from, n_to, n_slots;
    int32_t *to;         /* ascending */
    const int32_t *slot; /* by microbatch */
} tn_saved;

typedef struct tn_buffer {
    int8_t region;
    int32_t value;      /* the first value that lived in it: its name in reports */
    int32_t last_user;  /* node */
    int64_t start, end; /* ticks [start, end): node indices */
    int64_t bytes, offset;
} tn_buffer;

/* Orders of entries that may overlap: computation, and what each class of communicator does. */
typedef enum tn_stream {
    TN_STREAM_COMPUTE,
    TN_STREAM_TENSOR,
    TN_STREAM_GATHER,
    TN_STREAM_REDUCE,
    TN_STREAM_SEND, /* between pipeline ranks */
    TN_STREAM_RECV,
    TN_N_STREAMS
} tn_stream;

enum { TN_MEETS_BEFORE = 1, TN_MEETS_BEHIND = 2 };

typedef struct tn_entry {
    int32_t node;
    uint8_t stream; /* tn_stream */
    uint8_t
        meets; /* of an exchange: it begins, and ends, a meeting of its ranks (graph/meetings.h) */
} tn_entry;

/* Every run of `entry` waits for the latest run of `after`, an entry of another stream, that was
 * started before it (graph/events.h). */
typedef struct tn_event {
    int32_t entry, after;
} tn_event;

typedef struct tn_program {
    tn_graph *g;                   /* owned; global extents */
    int at[TN_N_AXES];             /* coordinates of this rank */
    tn_value *local;               /* by value: as in g, with this rank's extents */
    int64_t (*begin)[TN_MAX_RANK]; /* by value and dim: where its shard begins */
    int64_t n_entries, microbatch, chunk, chunk_end, tail;
    tn_entry *entries;
    int64_t n_events;
    tn_event *events;      /* by entry, ascending */
    tn_pipeline *pipeline; /* owned; NULL: none */
    int64_t n_segments, n_actions, n_saved;
    tn_segment *segments; /* entries instead of nodes */
    const tn_action *actions;
    tn_saved *saved;
    tn_place *places; /* by value */
    int64_t n_buffers;
    tn_buffer *buffers;
    int64_t region_bytes[TN_N_REGIONS];
    tn_pack_result pack; /* of the step region */
    tn_arena arena;
} tn_program;

/* Passes 8, 9, 11: streams, lifetimes and aliases, offsets, the entry list. Takes graph and
 * pipeline over (also when it fails). rank: of the ranks of a stage. All of them get the same
 * places: buffers are as large as the largest shard. keep: values that must still be there at the
 * end of the program (the loss, logits). */
tn_status tn_program_build(tn_graph *g, tn_pipeline *pipeline, int rank, int n_keep,
                           const int32_t *keep, tn_program **out) TN_MUST_USE;
void tn_program_destroy(tn_program *p); /* NULL is fine */

/* Pass 10, from the entries alone: every read finds what its producer wrote, nothing overlaps what
 * is live. */
tn_status tn_program_verify(const tn_program *p) TN_MUST_USE;

/* The place of the state of that name; TN_FAILED: it has none. */
tn_status tn_program_state(const tn_program *p, const char *name, const tn_place **out) TN_MUST_USE;

/* Where a place lies in its region. */
static inline int64_t tn_program_offset(const tn_program *p, const tn_place *at, int64_t microbatch,
                                        int64_t chunk)
{
    int64_t slot = !at->saved ? 0 : p->saved[at->saved - 1].slot[microbatch];
    return at->offset + microbatch * at->microbatch_stride + chunk * at->chunk_stride +
           slot * at->slot_bytes;
}

/* A walk in run order: entries [begin, end) in this iteration. */
typedef tn_status (*tn_program_range)(void *user, int64_t begin, int64_t end, int64_t microbatch,
                                      int64_t chunk);

/* The whole program: the actions of the first `microbatches`, every loss chunk `chunks` times. */
tn_status tn_program_walk(const tn_program *p, int64_t microbatches, int64_t chunks,
                          tn_program_range range, void *user) TN_MUST_USE;

/* How many microbatches a walk over the program must follow to have seen all there is: two without
 * a pipeline; with one as many as any value has slots, and one more. */
int32_t tn_program_microbatches_walked(const tn_program *p);

/* Of the largest shard of any rank, rounded up to the packer's alignment. */
int64_t tn_program_value_bytes(const tn_graph *g, const tn_value *v);

/* A rank's shard of a value of one or two dims as equal runs: run i of n holds `run` elements, in
 * the whole from first + i * stride, here from i * run on. */
typedef struct tn_runs {
    int64_t n, run, first, stride;
} tn_runs;
tn_runs tn_program_runs(const tn_program *p, int32_t value);

bool tn_node_is_view(const tn_graph *g,
                     const tn_node *n); /* output 0 is operand 0's memory: no entry */
bool tn_node_is_exchange(const tn_graph *g,
                         const tn_node *n); /* moves data between ranks of this mesh */

tn_stream tn_program_stream(const tn_graph *g, const tn_node *n);

/* The value [b s h k] has fewer heads than tensor-parallel ranks: ranks that share a head hold the
 * same one. */
bool tn_node_shares_heads(const tn_graph *g, const tn_value *v);

TN_C_END
#endif
