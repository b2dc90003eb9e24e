/* inspect.h - looking at a layout before it runs, for any number of ranks: the mesh with its folded
 * axes, a rank's coordinates and groups, where a parameter or an activation lies and which rank
 * holds which slice, how a value moves from one placement to another.
 *
 * Every function appends text of at most 80 columns (`titan plan` and the REPL print it) and reads
 * plain graphs and meshes: nothing of the model's size is allocated, no device is needed. Ranks are
 * those of the whole world, pipeline stages outermost. Errors are TN_BAD_INPUT with the nearest
 * name or legal value.
 */
#ifndef TN_LUA_INSPECT_H
#define TN_LUA_INSPECT_H
#include "engine/base/text.h"
#include "graph/graph.h"
#include "graph/reshard.h"
#include "lua/door.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* The ranks of a step: stages outermost. */
int64_t tn_inspect_ranks(const tn_mesh *mesh);

/* job.ranks_per_node, else 8. */
int tn_inspect_node(const tn_recipe *r);

/* The mesh drawn, one line per axis and folded axis; then the warnings. */
void tn_inspect_mesh(const tn_mesh *mesh, int ranks_per_node, tn_text *out);

/* Where the layout asks more of the network than it should, "WHAT; MEND" a line each; nothing if
 * all is well. */
void tn_inspect_warnings(const tn_mesh *mesh, int ranks_per_node, tn_text *out);

/* Coordinates of a rank and the members of its groups, per axis and folded axis. */
tn_status tn_inspect_rank(const tn_mesh *mesh, int ranks_per_node, int64_t rank,
                          tn_text *out) TN_MUST_USE;

/* A parameter by name, or what a module computes by its path or the value's own name (as `titan
 * graph` prints it): dtype, global shape, the order of axes on each dim, the slice of `rank`, and
 * who holds which slice. Of a graph behind any pass. */
tn_status tn_inspect_value(const tn_graph *g, const char *name, int64_t rank,
                           tn_text *out) TN_MUST_USE;
/* The value of that name that a boundary would move: the parameter, the module's last result. */
tn_status tn_inspect_find(const tn_graph *g, const char *name, int32_t *out) TN_MUST_USE;

/* The graphs of all pipeline ranks, one each. */
typedef struct tn_inspect_stages {
    const tn_graph *const *graphs;
    int n;
} tn_inspect_stages;
/* Which of them: that of `rank`, or, where rank is below 0, the first that has `name` (NULL: the
 * first), and its first rank. */
tn_status tn_inspect_choose(const tn_inspect_stages *s, const char *name, int64_t rank,
                            const tn_graph **out, int64_t *rank_out) TN_MUST_USE;

/* A placement as `titan graph` prints it, "{dp:0 cp:1 tp:R}", or as a sharding table writes it,
 * "ACT(P)", "{ dp = S(0), cp = R, tp = S(-1) }". `where` starts the message. */
tn_status tn_inspect_place(tn_recipe *r, const char *where, const char *text, int rank,
                           tn_layout *out) TN_MUST_USE;

/* From where v is to `to`: the cheapest steps with the bytes that a rank receives, its slice after
 * each, and what moving one axis after the other would take. */
tn_status tn_inspect_move(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                          const tn_layout *to, int64_t rank, tn_text *out) TN_MUST_USE;

/* The same for Lua, as functions of one table that return text: mesh([rank]), layout(name [,
 * rank]), move(name or { extents }, to [, from [, rank]]). Inside of tn_host_call, pushed; the
 * struct must outlive the table. */
typedef struct tn_inspect {
    tn_recipe *recipe;
    tn_inspect_stages stages;
    tn_text text; /* what the last call returned; tn_text_fini when all is over */
} tn_inspect;
void tn_inspect_push(lua_State *L, tn_inspect *q);

TN_C_END
#endif
