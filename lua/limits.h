/* limits.h - which layouts can work: the rules that a recipe breaks are collected, each with where
 * it was said and the nearest legal values, and reported together (reference: limits of the
 * parallel dimensions, docs/layouts.md). */
#ifndef TN_LUA_LIMITS_H
#define TN_LUA_LIMITS_H
#include "graph/types.h"
#include "lua/recipe.h"

TN_C_BEGIN

typedef struct tn_limits {
    tn_recipe *r;
    char text[4000]; /* one rule a line; the first becomes the error, the others its notes */
} tn_limits;

/* "WHERE: KEY: " and the text "WHAT; MEND". */
void tn_limits_add(tn_limits *q, const char *key, const char *fmt, ...) TN_PRINTF(3, 4);
/* A check that reports through the error record: its lines join when st says that it failed. A
 * failure that is none of the user's ends the collection: it is returned. */
tn_status tn_limits_take(tn_limits *q, tn_status st) TN_MUST_USE;
tn_status tn_limits_end(const tn_limits *q) TN_MUST_USE; /* TN_OK if no rule is broken */

/* What this build cannot do yet: context and expert parallelism. Those degrees count as 1 from here
 * on. */
void tn_limits_later(tn_limits *q, tn_mesh *m);
/* The degrees against the ranks; `fills`: dp_shard was not said. */
tn_status tn_limits_world(tn_limits *q, const tn_mesh *m, int64_t world, bool fills) TN_MUST_USE;
/* tp against heads and, where the same bits are promised, the degrees against the reduce grid. */
tn_status tn_limits_degrees(tn_limits *q, const tn_mesh *m) TN_MUST_USE;
/* Rows of a step against the ranks that share them. */
void tn_limits_batch(tn_limits *q, const tn_mesh *m);
/* What ranks keep of a gathered parameter, as a number of ranks. */
void tn_limits_reshard(tn_limits *q, const tn_mesh *m);
/* Stages, schedule and microbatches of a pipeline. */
tn_status tn_limits_pipeline(tn_limits *q, const tn_mesh *m) TN_MUST_USE;

TN_C_END
#endif
