/* place.h - layouts as sharding tables write them: { dp = S(0), cp = S(1), tp = R }, or a spec
 * where axes share a dim.
 *
 * A table is turned into a tn_layout for a tensor of a given rank, or refused: an unknown axis, an
 * axis without a placement, S out of rank, two axes on one dim without a spec. Nothing here raises
 * a Lua error except for memory.
 */
#ifndef TN_LUA_PLACE_H
#define TN_LUA_PLACE_H
#include "graph/graph.h"
#include "lua/door.h"

TN_C_BEGIN

/* `where` starts the message: "layers.0.attention: in_src of x". The table is at stack index `t`.
 */
tn_status tn_place_read(lua_State *L, int t, int rank, const char *where,
                        tn_layout *out) TN_MUST_USE;

/* A value against what a table says of it: TN_BAD_INPUT names the axis, both types and the mend.
 * For integers R and I are one type (types.md 2.7: no gradient can tell them apart). */
tn_status tn_place_check(const tn_value *v, const tn_layout *want, const char *where) TN_MUST_USE;

/* Where positions [b s] must lie to describe the first two dims of `like`: its S axes on them, R
 * elsewhere. */
tn_layout tn_place_follow(const tn_value *like, int rank);

TN_C_END
#endif
