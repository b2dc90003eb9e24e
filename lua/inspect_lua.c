/* inspect_lua.c - the functions of inspect.h for Lua: check, call, push. The text belongs to the
 * tn_inspect behind the functions, so that nothing is lost when Lua raises. */
#include "lua/inspect.h"
#include "lua/state.h"

static tn_inspect *self(lua_State *L)
{
    tn_inspect *q = lua_touserdata(L, lua_upvalueindex(1));
    tn_text_cut(&q->text, 0);
    q->text.failed = false;
    return q;
}

static int answer(lua_State *L, tn_inspect *q, tn_status st)
{
    if (!st) st = tn_text_end(&q->text);
    if (st) return tn_host_raise(L, st);
    lua_pushlstring(L, tn_text_str(&q->text), (size_t)q->text.n_bytes);
    return 1;
}

static const tn_mesh *mesh_of(const tn_inspect *q)
{
    return &q->stages.graphs[0]->mesh;
}

static int mesh(lua_State *L)
{
    tn_inspect *q = self(L);
    int node = tn_inspect_node(q->recipe);
    bool one = !lua_isnoneornil(L, 1);
    lua_Integer rank = one ? luaL_checkinteger(L, 1) : 0;
    tn_inspect_mesh(mesh_of(q), node, &q->text);
    return answer(L, q, one ? tn_inspect_rank(mesh_of(q), node, rank, &q->text) : TN_OK);
}

static int layout(lua_State *L)
{
    tn_inspect *q = self(L);
    const char *name = luaL_checkstring(L, 1);
    int64_t rank = luaL_optinteger(L, 2, -1);
    const tn_graph *g;
    tn_status st = tn_inspect_choose(&q->stages, name, rank, &g, &rank);
    return answer(L, q, st ? st : tn_inspect_value(g, name, rank, &q->text));
}

static void check_shape(lua_State *L, tn_value *v)
{
    lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
    luaL_argcheck(L, n >= 1 && n <= TN_MAX_RANK, 1, "a list of up to 6 extents");
    v->rank = (uint8_t)n;
    for (int d = 0; d < v->rank; d++) {
        lua_rawgeti(L, 1, d + 1);
        v->dim[d].extent = luaL_checkinteger(L, -1);
        luaL_argcheck(L, v->dim[d].extent > 0 && v->dim[d].extent <= TN_MAX_ELEMENTS, 1,
                      "extents are at least 1");
        lua_pop(L, 1);
    }
    luaL_argcheck(L, tn_value_elements(v) <= TN_MAX_ELEMENTS, 1, "too many elements");
}

static int move(lua_State *L)
{
    tn_inspect *q = self(L);
    tn_value v = {0};
    tn_layout to;
    int32_t id;
    tn_status st = TN_OK;
    bool shape = lua_istable(L, 1);
    const char *name = shape ? NULL : luaL_checkstring(L, 1), *goal = luaL_checkstring(L, 2),
               *from = shape ? luaL_checkstring(L, 3) : luaL_optstring(L, 3, NULL);
    int64_t rank = luaL_optinteger(L, 4, -1);
    const tn_graph *g;
    if (shape) check_shape(L, &v);
    st = tn_inspect_choose(&q->stages, name, rank, &g, &rank);
    if (!st && name && !(st = tn_inspect_find(g, name, &id))) v = g->values[id];
    if (!st && from) st = tn_inspect_place(q->recipe, "move: from", from, v.rank, &v.layout);
    if (!st) st = tn_inspect_place(q->recipe, "move: to", goal, v.rank, &to);
    if (st) return tn_host_raise(L, st);
    tn_reshard_links links = tn_reshard_guess(mesh_of(q), tn_inspect_node(q->recipe));
    return answer(L, q, tn_inspect_move(mesh_of(q), &links, &v, &to, rank, &q->text));
}

void tn_inspect_push(lua_State *L, tn_inspect *q)
{
    const luaL_Reg functions[] = {{"mesh", mesh}, {"layout", layout}, {"move", move}, {NULL, NULL}};
    lua_createtable(L, 0, 3);
    lua_pushlightuserdata(L, q);
    luaL_setfuncs(L, functions, 1);
}
