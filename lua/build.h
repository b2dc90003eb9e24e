/* build.h - from an open recipe to static programs: batch arithmetic, loss chunks, trace, passes.
 *
 * Everything here is known before a byte of the model's size is allocated; all rules that a recipe
 * breaks are reported at once. */
#ifndef TN_LUA_BUILD_H
#define TN_LUA_BUILD_H
#include "graph/cost.h"
#include "graph/passes.h"
#include "graph/program.h"
#include "lua/recipe.h"
#include "lua/trace.h"

TN_C_BEGIN

typedef struct tn_shape {
    tn_mesh mesh;
    int64_t dp;             /* ranks that have rows of their own */
    int64_t rows, seq;      /* of one microbatch of one of them */
    int64_t cache;          /* positions that a decoder keeps */
    int64_t n_microbatches; /* per step */
    int64_t rounds;         /* forwards of local_batch_size rows they are; less with a pipeline */
    int64_t chunks;         /* loss chunks per microbatch; 0: chosen */
    tn_recompute recompute;
    int64_t recompute_every; /* k of every k-th layer */
    tn_unshard unshard;
    int unshard_ranks;
} tn_shape;

/* The mesh of `world` ranks that the recipe's degrees make (dp_shard -1 fills it; world 0: the
 * smallest). Every rule that is broken is reported, with the nearest legal values. */
tn_status tn_build_mesh(tn_recipe *r, int64_t world, tn_mesh *out) TN_MUST_USE;

typedef enum tn_build_kind {
    TN_BUILD_TRAIN,
    TN_BUILD_EVAL,
    TN_BUILD_LOGITS,
    TN_BUILD_DECODE, /* logits of the next positions, keys and values kept in states */
    TN_BUILD_PREFILL /* the same without logits: hidden */
} tn_build_kind;

/* Sees the graph behind every pass, and the seconds it took; "trace" first. */
typedef tn_status (*tn_build_watch)(void *user, const char *pass, const tn_graph *g,
                                    double seconds);

typedef struct tn_build_options {
    tn_build_kind kind;
    tn_shape shape;
    int rank;             /* of the world */
    const char *until;    /* stop behind this pass (NULL: all) */
    tn_build_watch watch; /* NULL: none */
    void *user;
} tn_build_options;

/* training.* and activation_checkpoint.* as numbers; checks their arithmetic. */
tn_status tn_build_shape(const tn_recipe *r, const tn_mesh *mesh, tn_shape *out) TN_MUST_USE;

/* loss.chunks against the rows and positions of a microbatch. */
tn_status tn_build_check_chunks(const tn_recipe *r) TN_MUST_USE;

/* The graph behind the last pass (the caller's): of rank's pipeline stages, where there are any. */
tn_status tn_build_graph(tn_recipe *r, const tn_build_options *o, tn_graph **out) TN_MUST_USE;

/* One program for each pipeline rank: that of any of its ranks; o->rank's own has its coordinates.
 */
typedef struct tn_programs {
    int n, mine;
    tn_program **of;
    struct tn_stage_plan *stages; /* NULL: no pipeline */
    tn_cost cost;                 /* of all stages */
    int result_of;                /* which one holds the logits, and as which value; -1: none */
    int32_t result;
} tn_programs;
tn_status tn_build_programs(tn_recipe *r, const tn_build_options *o, tn_programs *out) TN_MUST_USE;
void tn_build_destroy(tn_programs *p);

/* Names of the passes in order, NULL behind the last. */
extern const char *const tn_build_passes[];

/* Group of each parameter and the groups themselves, by optimizer.groups and the optimizer's own
 * settings (the last group). Patterns are POSIX extended regular expressions, searched in the name.
 * A pattern without a match is an error. */
typedef struct tn_groups tn_groups;
tn_status tn_groups_create(const tn_recipe *r, tn_groups **out) TN_MUST_USE;
void tn_groups_destroy(tn_groups *q);
int tn_groups_count(const tn_groups *q);
const tn_optimizer_group *tn_groups_get(const tn_groups *q, int i);
int tn_groups_of(void *groups, const char *param);
tn_status tn_groups_check(const tn_groups *q, const tn_graph *g) TN_MUST_USE;

/* The one value of the program whose producer is `op` (output `out`), -1 if there is none. */
int32_t tn_build_find(const tn_graph *g, tn_op_id op, int out);

TN_C_END
#endif
