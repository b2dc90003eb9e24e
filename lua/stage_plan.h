/* stage_plan.h - from the recipe's pipeline keys to stages and action lists.
 *
 * A step is `rounds` forwards of local_batch_size rows, each cut into microbatches of
 * pipeline_parallel_microbatch_size. GPipe, breadth-first lists and tables are for one of them and
 * repeat, which bounds what is saved; the other schedules run once over all of them. */
#ifndef TN_LUA_STAGE_PLAN_H
#define TN_LUA_STAGE_PLAN_H
#include "graph/schedule.h"
#include "graph/stages.h"
#include "lua/build.h"

TN_C_BEGIN

typedef struct tn_stage_plan {
    tn_schedule *schedule; /* of the step */
    int32_t n_stages, n_modules;
    const char **module; /* by module, in the order of forward */
    int32_t *stage;      /* by module */
    int32_t *n_layers;   /* by stage */
    tn_arena arena;
} tn_stage_plan;

/* Stages of the traced graph and the lists of a step; forward_only for programs without backward.
 * All broken rules at once, with the nearest legal values. */
tn_status tn_stage_plan_make(const tn_recipe *r, const tn_shape *shape, bool forward_only,
                             const tn_graph *traced, tn_stage_plan **out,
                             tn_graph **staged_out) TN_MUST_USE;
/* The rules that can be looked at before a graph exists: stages by weight of `layers` layers
 * between an embedding and a head, the lists of `each` microbatches (0: not known, no lists). All
 * that are broken at once. */
tn_status tn_stage_plan_check(const tn_recipe *r, const tn_mesh *mesh, int64_t layers,
                              int64_t each) TN_MUST_USE;
void tn_stage_plan_destroy(tn_stage_plan *p); /* NULL is fine */

/* "2 ranks, 4 stages (Interleaved1F1B), 8 microbatches a step; layers by stage: 1 1 1 1, all 4". */
void tn_stage_plan_print(const tn_recipe *r, const tn_stage_plan *p, tn_text *out);

TN_C_END
#endif
