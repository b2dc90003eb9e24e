/* schedule.h - the pipeline's action lists: in which order each pipeline rank runs forward and
 * backward of its stages for each microbatch. Pure functions: generators, a table (CSV), the one
 * validator and simulator, and layers cut into stages.
 *
 * An action stands as in TorchTitan's tables, <stage><op><microbatch>:
 *     F forward   I input gradient   W weight gradient   B both at once
 * A list says order only; time follows from it: an action starts when its rank is free and what it
 * needs has come, F(s, m) needs F(s-1, m);  B(s, m) needs F(s, m) and B(s+1, m);  W(s, m) needs
 * B(s, m), from another rank one hop later; sends occupy nobody. An F opens the saved set of
 * (stage, microbatch), its W closes it. Times are integer ticks, so bubbles can be compared with
 * closed forms exactly.
 *
 * Closed forms, f, b, w in ticks of one stage, v stages per rank, p ranks, m microbatches, no hops,
 * all stages alike (tests/unit/test_schedule.c proves each to the tick; peak counts saved sets of
 * one stage and one microbatch):
 *
 *     schedule               STEP bubble                most saved sets on a rank    where
 *     GPipe                  (p-1)(f+b+w)               m
 *     1F1B                   (p-1)(f+b+w)               min(m, p); rank r: p-r
 *     Interleaved1F1B        (p-1)(f+b+w)               2(p-1) + (v-1)p + 1, or mv   p divides m
 *     LoopedBFS              (p-1)(f+b+w)               mv                           m >= p
 *     ZBH1                   (p-1) max(f, b, f+b-w)     p                            m >= p
 *     InterleavedZeroBubble  (p-1) max(f, b, f+b-w)     pv                           p divides m
 *     ZBVZeroBubble          (p-1) f                    2p                           f = b = w, m
 * >= 2p-1
 *
 * STEP is the makespan less the busiest rank's work; SPAN is what the rank that is longest under
 * way takes from its own first action to its last, less the same. ZBH1: the usual formula
 * (p-1)(f+b-w) is the part where w <= min(f, b). Beyond, no list with p saved sets can reach it:
 * rank 0 runs p forwards at most before its first backward, which cannot start before pf + (p-1)b.
 */
#ifndef TN_GRAPH_SCHEDULE_H
#define TN_GRAPH_SCHEDULE_H
#include "engine/base/base.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

TN_C_BEGIN

typedef enum tn_schedule_kind {
    TN_SCHEDULE_F,  /* forward */
    TN_SCHEDULE_B,  /* input gradient: I in tables */
    TN_SCHEDULE_W,  /* weight gradient */
    TN_SCHEDULE_BW, /* both at once: B in tables */
} tn_schedule_kind;

typedef struct tn_schedule_action {
    uint8_t kind;
    int32_t stage, microbatch;
} tn_schedule_action;

enum { TN_SCHEDULE_MAX_CELLS = 1 << 24 }; /* stages x microbatches */

typedef struct tn_schedule_list {
    int64_t n, capacity;
    tn_schedule_action *actions;
} tn_schedule_list;

typedef struct tn_schedule {
    int32_t n_ranks, n_stages, n_microbatches;
    int32_t *rank_of;        /* by stage */
    tn_schedule_list *lists; /* by rank */
} tn_schedule;

/* "3I12"; an action that is out of bounds is printed all the same. */
tn_text_short tn_schedule_text(tn_schedule_action a);

/* Empty lists. rank_of: by stage; NULL: stage s on rank s mod n_ranks. Refuses what is below 1 and
 * stages that the ranks cannot share evenly. */
tn_status tn_schedule_create(int32_t n_ranks, int32_t n_stages, int32_t n_microbatches,
                             const int32_t *rank_of, tn_schedule **out) TN_MUST_USE;
void tn_schedule_destroy(tn_schedule *s); /* NULL is fine */

/* Behind what the rank has. Bounds are the check's business, so that tables and Lua may be wrong
 * and learn why. */
tn_status tn_schedule_add(tn_schedule *s, int32_t rank, tn_schedule_action a) TN_MUST_USE;

/* Where the stages of V-style schedules are: rank r owns stages r and 2 n_ranks - 1 - r. */
int32_t tn_schedule_v_rank(int32_t n_ranks, int32_t stage);

/* ---- by name ---- */

/* What a name means. TorchTitan's names; its InterleavedZeroBubble has two stages per rank or more,
 * with one it is ZB-H1, which also has a name of its own. */
typedef struct tn_schedule_type {
    const char *name;
    bool splits;                                    /* input and weight gradients apart */
    bool v_style;                                   /* else stage s lies on rank s mod n_ranks */
    int32_t min_stages, max_stages, default_stages; /* per rank; max 0: any */
    bool whole_rounds; /* with several stages per rank, ranks must divide microbatches */
    bool grows;        /* saved sets grow with the number of microbatches */
} tn_schedule_type;

const tn_schedule_type *tn_schedule_type_at(int i); /* NULL behind the last */
/* Fails with the nearest name; WHERE is parallelism.pipeline_parallel_schedule. */
tn_status tn_schedule_type_of(const char *name, const tn_schedule_type **out) TN_MUST_USE;

/* Ticks of one microbatch on one stage. */
typedef struct tn_schedule_time {
    int64_t f, b, w;
} tn_schedule_time;

typedef struct tn_schedule_costs {
    const tn_schedule_time *stages; /* by stage; NULL: one tick each */
    int64_t hop;                    /* from rank to rank */
} tn_schedule_costs;

typedef struct tn_schedule_options {
    const char *name;
    int32_t n_ranks, stages_per_rank, n_microbatches;
    const tn_schedule_costs
        *costs; /* NULL: one tick each, no hops. Only the zero-bubble schedules look at it. */
} tn_schedule_options;

/* The lists of a named schedule; what does not fit is refused with the nearest values that do. */
tn_status tn_schedule_generate(const tn_schedule_options *o, tn_schedule **out) TN_MUST_USE;

/* ---- the validator ---- */

/* Every stage on its rank, F, I and W of each (stage, microbatch) once and in that order; and in
 * canonical mode the weight gradients of a stage in increasing microbatch order (docs/design.md,
 * canonical reductions 8). All faults at once: the first is the error, the next ones are notes.
 * WHERE is "pipeline schedule". */
tn_status tn_schedule_check(const tn_schedule *s, bool canonical) TN_MUST_USE;

typedef struct tn_schedule_event {
    int64_t start, end; /* ticks */
    int32_t slot; /* of the saved set: microbatch mod slots[stage] where sets end in the order they
                     began */
} tn_schedule_event;

typedef struct tn_schedule_use { /* of a rank */
    int64_t busy, first, last;   /* ticks of work; start of its first action, end of its last */
    int32_t peak;                /* saved sets live at once */
} tn_schedule_use;

typedef struct tn_schedule_report {
    int64_t makespan, ideal;          /* ideal: work of the busiest rank */
    int64_t step_bubble, span_bubble; /* see above */
    int32_t peak;                     /* of the rank that has most */
    const tn_schedule_use *ranks;
    const int32_t *slots;                   /* by stage: saved sets live at once */
    const tn_schedule_event *const *events; /* by rank, in list order */
    tn_arena arena;
} tn_schedule_report;

/* Checks and runs the lists. Costs as in the options; they must not be negative, and their sum must
 * stay below 2^60. A deadlock names the ranks that wait in a circle, where each stands and what
 * for. */
tn_status tn_schedule_simulate(const tn_schedule *s, const tn_schedule_costs *costs, bool canonical,
                               tn_schedule_report *out) TN_MUST_USE;
void tn_schedule_report_fini(tn_schedule_report *r);

/* ---- as a table ---- */

/* One row per rank, cells divided by commas, an empty cell is idle (and says nothing: order is
 * all). Blanks around cells are legal, an empty last row is ignored. Stages, microbatches and the
 * stages' ranks follow from the cells. `where` is a file name or a key. Not yet checked. */
tn_status tn_schedule_parse(const char *where, const char *text, int64_t n_bytes,
                            tn_schedule **out) TN_MUST_USE;
void tn_schedule_print(const tn_schedule *s, tn_text *out);

/* A table or a Lua list beside what the recipe says. */
tn_status tn_schedule_fits(const tn_schedule *s, const char *where, int32_t n_ranks,
                           int32_t n_microbatches) TN_MUST_USE;

/* ---- layers to stages ---- */

typedef struct tn_schedule_module {
    const char *name; /* "tok_embeddings", "layers.0", "norm" */
    bool layer;
} tn_schedule_module;

typedef struct tn_schedule_names {
    int32_t n;
    const char *const *names;
} tn_schedule_names;

typedef struct tn_schedule_split_options {
    int32_t n_modules;
    const tn_schedule_module *modules; /* in the order of forward: some, the layers, some */
    const tn_schedule_type *type;      /* NULL: a table, which knows its stages */
    int32_t n_ranks, n_stages;         /* n_stages: of a table; else 0 */
    int32_t layers_per_stage;          /* 0: the type's stages per rank */
    int32_t first_less,
        last_less;   /* layers that the modules before and behind the layers count as */
    int32_t n_parts; /* explicit names, one list per stage; 0: by weight */
    const tn_schedule_names *parts;
} tn_schedule_split_options;

typedef struct tn_schedule_stages {
    int32_t n_stages, per_rank;
    int32_t *first_module; /* n_stages + 1: stage s holds modules [first_module[s], first_module[s +
                              1]) */
    int32_t *n_layers;     /* by stage */
} tn_schedule_stages;

/* Every module in exactly one stage, in order, none empty. By weight: first_less + layers +
 * last_less are shared evenly, the first stages take what is over; the first stage holds first_less
 * layers less, the last one last_less less, perhaps none at all. All violated rules at once, with
 * the nearest legal values of the keys that would mend them. */
tn_status tn_schedule_split(const tn_schedule_split_options *o,
                            tn_schedule_stages *out) TN_MUST_USE;
void tn_schedule_stages_fini(tn_schedule_stages *s);

TN_C_END
#endif
