/* sandbox.c - what a recipe's text may name: a whitelist, strict globals, and the few functions
 * that need a guard.
 *
 * The global table of a state is an empty one: its metatable reads from the whitelist and refuses
 * every write, so nobody can change what another file uses; libraries stand behind the same kind of
 * table. Functions that are not here are absent on purpose: os, io, debug, package, coroutine,
 * collectgarbage, load of anything but text, dofile, loadfile, string.dump, warn.
 */
#include "engine/base/text.h"
#include "lua/state.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------ strict tables */

static const char *const absent[][2] = {
    {"os", "a recipe cannot reach processes, files or the clock"},
    {"io", "a recipe cannot read or write files"},
    {"debug", "a recipe cannot look into its host"},
    {"package", "require finds the recipe's own folder and what titan ships"},
    {"coroutine", "a recipe runs from top to bottom"},
    {"dofile", "use require"},
    {"loadfile", "use require"},
    {"loadstring", "use load"},
    {"unpack", "use table.unpack"},
    {"collectgarbage", "memory is collected by itself"},
    {"warn", "use print"},
    {"_G", "globals cannot be changed; use a local table"},
    {"setfenv", "Lua 5.4 has none"},
    {"getfenv", "Lua 5.4 has none"},
    {"Replicate", "titan writes nn.R"},
    {"Shard", "titan writes nn.S(d)"},
    {"Partial", "titan writes nn.P"},
};

/* The nearest key of the table at index t. */
static tn_text_short hint(lua_State *L, int t, const char *word)
{
    const char *names[128];
    int n = 0;
    luaL_checkstack(L, 4, "names");
    t = lua_absindex(L, t);
    for (lua_pushnil(L); lua_next(L, t); lua_pop(L, 1)) {
        if (lua_type(L, -2) == LUA_TSTRING && n < TN_COUNT(names)) names[n++] = lua_tostring(L, -2);
    }
    return tn_text_hint(word, names, n);
}

static int missing_global(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TSTRING)
        return luaL_error(L, "globals have names; use a local table");
    const char *name = lua_tostring(L, 2);
    for (int i = 0; i < TN_COUNT(absent); i++) {
        if (strcmp(name, absent[i][0]) == 0)
            return luaL_error(L, "'%s' is not available in a recipe; %s", name, absent[i][1]);
    }
    return luaL_error(L, "undefined name '%s'%s", name, hint(L, lua_upvalueindex(1), name).s);
}

static int write_global(lua_State *L)
{
    const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "?";
    return luaL_error(L, "'%s' would be a global; write 'local %s = ...'", name, name);
}

static int missing_function(lua_State *L)
{
    const char *library = lua_tostring(L, lua_upvalueindex(1));
    const char *name = luaL_tolstring(L, 2, NULL);
    return luaL_error(L, "there is no %s.%s%s", library, name,
                      hint(L, lua_upvalueindex(2), name).s);
}

static int write_library(lua_State *L)
{
    return luaL_error(L, "%s cannot be changed; use a local table",
                      lua_tostring(L, lua_upvalueindex(1)));
}

/* Replaces the table on the top by an empty one that reads from it and cannot be written. */
static void lock(lua_State *L, lua_CFunction write, const char *name)
{
    lua_newtable(L);
    lua_createtable(L, 0, 3);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pushstring(L, name);
    lua_pushcclosure(L, write, 1);
    lua_setfield(L, -2, "__newindex");
    lua_pushliteral(L, "locked");
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    lua_remove(L, -2);
}

/* ------------------------------------------------------------ guarded functions */

/* After a limit was passed no pcall holds an error up. */
static int finish_pcall(lua_State *L, int st, int first)
{
    if (st != LUA_OK && tn_host_of(L)->over) return lua_error(L);
    if (st == LUA_OK) return lua_gettop(L) - first + 1;
    lua_pushboolean(L, 0);
    lua_insert(L, -2);
    return 2;
}

static int f_pcall(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_pushboolean(L, 1);
    lua_insert(L, 1);
    return finish_pcall(L, lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0), 1);
}

/* A limit's error comes out of a hook, where no hook runs: the recipe's handler must not. */
static int run_handler(lua_State *L)
{
    if (tn_host_of(L)->over) return 1;
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

static int f_xpcall(lua_State *L)
{
    luaL_checktype(L, 2, LUA_TFUNCTION);
    lua_pushvalue(L, 2);
    lua_pushcclosure(L, run_handler, 1);
    lua_replace(L, 2);
    lua_pushboolean(L, 1);
    lua_pushvalue(L, 1);
    lua_rotate(L, 3, 2); /* f, handler, true, f, arguments */
    return finish_pcall(L, lua_pcall(L, lua_gettop(L) - 4, LUA_MULTRET, 2), 3);
}

static int f_setmetatable(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_argexpected(L, lua_isnil(L, 2) || lua_istable(L, 2), 2, "nil or table");
    lua_settop(L, 2);
    if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL)
        return luaL_error(L, "cannot change a protected metatable");
    if (lua_istable(L, 2)) {
        lua_pushliteral(L, "__gc");
        if (lua_rawget(L, 2) != LUA_TNIL)
            return luaL_error(L, "a recipe cannot have finalizers (__gc)");
        lua_pop(L, 1);
    }
    lua_setmetatable(L, 1);
    return 1;
}

/* load(text [, name [, "t" [, environment]]]) */
static int f_load(lua_State *L)
{
    size_t n;
    luaL_argexpected(L, lua_type(L, 1) == LUA_TSTRING, 1, "text");
    const char *text = lua_tolstring(L, 1, &n);
    const char *name = luaL_optstring(L, 2, "=load");
    bool own = !lua_isnone(L, 4);
    if (n && text[0] == LUA_SIGNATURE[0])
        return luaL_error(L, "load takes text; precompiled Lua is refused");
    if (luaL_loadbufferx(L, text, n, name, "t") != LUA_OK) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    if (own) {
        lua_pushvalue(L, 4);
        if (!lua_setupvalue(L, -2, 1)) lua_pop(L, 1);
    }
    return 1;
}

static int f_print(lua_State *L)
{
    int n = lua_gettop(L);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (int i = 1; i <= n; i++) {
        if (i > 1) luaL_addchar(&b, '\t');
        luaL_tolstring(L, i, NULL);
        luaL_addvalue(&b);
    }
    luaL_pushresult(&b);
    if (tn_host_of(L)->o.print) tn_host_of(L)->o.print(lua_tostring(L, -1));
    return 0;
}

static int f_randomseed(lua_State *L)
{
    luaL_checkany(L, 1); /* without a number it would take the time */
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 0);
    return 0;
}

/* The library's own, but it says where it would not fit (and does not count to 2^63 for an empty
 * text). */
static int f_rep(lua_State *L)
{
    size_t n, between;
    luaL_checklstring(L, 1, &n);
    lua_Integer times = luaL_checkinteger(L, 2);
    luaL_optlstring(L, 3, "", &between);
    double bytes = (double)times * ((double)n + (double)between);
    if (bytes > (double)tn_host_of(L)->o.memory_bytes)
        return luaL_error(L, "string.rep: a text of %f MiB is more than a recipe may hold",
                          bytes / (1 << 20));
    if (bytes <= 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    lua_call(L, lua_gettop(L) - 1, 1);
    return 1;
}

/* ------------------------------------------------------------ pairs, in an order */

typedef struct key {
    int kind, at; /* 0 number, 1 text, 2 any other; where it was found */
    lua_Number number;
    const char *text;
    size_t n;
} key;

static int by_key(const void *pa, const void *pb)
{
    const key *a = pa, *b = pb;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    if (a->kind == 0 && a->number != b->number) return a->number < b->number ? -1 : 1;
    if (a->kind == 1) {
        int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
        if (c) return c;
        if (a->n != b->n) return a->n < b->n ? -1 : 1;
    }
    return a->at < b->at ? -1 : a->at > b->at;
}

static int next_pair(lua_State *L)
{
    lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
    for (;;) {
        lua_settop(L, 1);
        if (lua_rawgeti(L, lua_upvalueindex(1), ++i) == LUA_TNIL) return 1;
        lua_pushvalue(L, -1);
        if (lua_rawget(L, 1) == LUA_TNIL) continue; /* cleared while we walk */
        lua_pushinteger(L, i);
        lua_replace(L, lua_upvalueindex(2));
        return 2;
    }
}

/* Pushes a list of the keys of the table at 1: numbers, then texts, each ascending, then what else
 * there is. */
static void sorted_keys(lua_State *L)
{
    int n = 0;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) n++;
    key *keys = lua_newuserdatauv(L, (size_t)n * sizeof *keys + 1, 0);
    lua_createtable(L, n, 0);
    int found = lua_gettop(L), i = 0;
    for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
        key *k = &keys[i];
        int type = lua_type(L, -2);
        *k = (key){.kind = type == LUA_TNUMBER ? 0 : type == LUA_TSTRING ? 1 : 2, .at = ++i};
        if (k->kind == 0) k->number = lua_tonumber(L, -2);
        if (k->kind == 1) k->text = lua_tolstring(L, -2, &k->n);
        lua_pushvalue(L, -2);
        lua_rawseti(L, found, i);
    }
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    lua_createtable(L, n, 0);
    for (i = 0; i < n; i++) {
        lua_rawgeti(L, found, keys[i].at);
        lua_rawseti(L, -2, i + 1);
    }
}

static int f_pairs(lua_State *L)
{
    luaL_checkany(L, 1);
    if (luaL_getmetafield(L, 1, "__pairs") != LUA_TNIL) {
        lua_pushvalue(L, 1);
        lua_call(L, 1, 3);
        return 3;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    sorted_keys(L);
    lua_pushinteger(L, 0);
    lua_pushcclosure(L, next_pair, 2);
    lua_pushvalue(L, 1);
    lua_pushnil(L);
    return 3;
}

/* ------------------------------------------------------------ opening */

static const char *const whitelist[] = {
    "assert", "error",  "getmetatable", "ipairs",   "next",     "rawequal", "rawget",
    "rawlen", "rawset", "select",       "tonumber", "tostring", "type",     "_VERSION",
};

static const luaL_Reg own[] = {
    {"load", f_load},   {"pairs", f_pairs},   {"pcall", f_pcall},
    {"print", f_print}, {"xpcall", f_xpcall}, {"setmetatable", f_setmetatable},
    {NULL, NULL},
};

/* library table on the top: its function `name` now goes through `guard`, which has the original as
 * upvalue 1. */
static void guard(lua_State *L, const char *name, lua_CFunction guarded)
{
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, guarded, 1);
    lua_setfield(L, -2, name);
}

/* whitelist table on the top: adds library `name`, locked. */
static void add_library(lua_State *L, const char *name, lua_CFunction open)
{
    lua_pushcfunction(L, open);
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
    if (strcmp(name, "string") == 0) {
        lua_pushnil(L);
        lua_setfield(L, -2, "dump");
        guard(L, "rep", f_rep);
        lua_pushliteral(L, "");
        lua_getmetatable(L, -1);
        lua_pushliteral(L, "locked");
        lua_setfield(L, -2, "__metatable");
        lua_pop(L, 2);
    } else if (strcmp(name, "math") == 0) {
        lua_getfield(L, -1, "randomseed");
        lua_pushinteger(L, 0);
        lua_call(L, 1, 0);
        guard(L, "randomseed", f_randomseed);
    }
    lua_createtable(L, 0, 1);
    lua_pushstring(L, name);
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, missing_function, 2);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lock(L, write_library, name);
    lua_setfield(L, -2, name);
}

int tn_sandbox_open(lua_State *L)
{
    lua_newtable(L); /* the whitelist */
    lua_pushcfunction(L, luaopen_base);
    lua_pushliteral(L, "_G");
    lua_call(L, 1, 1);
    for (int i = 0; i < TN_COUNT(whitelist); i++) {
        lua_getfield(L, -1, whitelist[i]);
        lua_setfield(L, -3, whitelist[i]);
    }
    lua_pop(L, 1);
    luaL_setfuncs(L, own, 0);
    add_library(L, "string", luaopen_string);
    add_library(L, "table", luaopen_table);
    add_library(L, "math", luaopen_math);
    add_library(L, "utf8", luaopen_utf8);
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, -2);
    lua_pushcclosure(L, missing_global, 1);
    lua_setfield(L, -2, "__index");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, "titan globals"); /* modules.c adds require */
    lock(L, write_global, "globals");
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    return 0;
}
