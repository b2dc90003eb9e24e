#include "lua/model.h"

#include "checkpoints/hf_config.h"
#include "lua/state.h"

#include <string.h>

/* ------------------------------------------------------------ config.json into Lua */

static const char box_name[] = "titan.config";

static int free_box(lua_State *L)
{
    tn_hf_config_free(lua_touserdata(L, 1));
    return 0;
}

/* A box that frees what it holds even if pushing it raises for memory. */
static tn_hf_config *new_box(lua_State *L)
{
    tn_hf_config *box = lua_newuserdatauv(L, sizeof *box, 0);
    *box = (tn_hf_config){0};
    if (luaL_newmetatable(L, box_name)) {
        lua_pushcfunction(L, free_box);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    return box;
}

/* Objects and lists become tables, null becomes nil. */
static void push_json(lua_State *L, const tn_json *j)
{
    int64_t i = 0;
    double x = 0;
    bool b = false;
    luaL_checkstack(L, 4, "nested JSON");
    switch (tn_json_kind_of(j)) {
    case TN_JSON_NULL:
        lua_pushnil(L);
        break;
    case TN_JSON_BOOL:
        (void)tn_json_bool(j, &b);
        lua_pushboolean(L, b);
        break;
    case TN_JSON_INT:
        (void)tn_json_int(j, &i);
        lua_pushinteger(L, i);
        break;
    case TN_JSON_REAL:
        (void)tn_json_number(j, &x);
        lua_pushnumber(L, x);
        break;
    case TN_JSON_STRING:
        lua_pushstring(L, tn_json_string(j));
        break;
    case TN_JSON_ARRAY:
        lua_newtable(L);
        for (int64_t k = 0; k < tn_json_count(j); k++) {
            push_json(L, tn_json_at(j, k));
            lua_rawseti(L, -2, k + 1);
        }
        break;
    case TN_JSON_OBJECT:
        lua_newtable(L);
        for (tn_json_pair p = tn_json_first(j); p.key; p = tn_json_next(p)) {
            lua_pushstring(L, p.key);
            push_json(L, p.value);
            lua_rawset(L, -3);
        }
        break;
    }
}

/* { type, theta, section, params }: both generations of keys in one form (checkpoints/hf_config.h).
 */
static void push_rope(lua_State *L, const tn_hf_config_rope *rope)
{
    lua_newtable(L);
    lua_pushstring(L, rope->type);
    lua_setfield(L, -2, "type");
    lua_pushnumber(L, rope->theta);
    lua_setfield(L, -2, "theta");
    lua_pushstring(L, rope->section);
    lua_setfield(L, -2, "section");
    if (rope->params) push_json(L, rope->params);
    else lua_newtable(L);
    lua_setfield(L, -2, "params");
}

int tn_model_read_config(lua_State *L)
{
    const char *dir = luaL_checkstring(L, 1);
    tn_hf_config *box = new_box(L);
    tn_hf_config_rope rope;
    tn_status st = tn_hf_config_read(dir, box);
    if (!st) st = tn_hf_config_rope_find(box, 10000.0, &rope);
    if (st) return tn_host_raise(L, st);
    push_json(L, box->root);
    push_rope(L, &rope);
    tn_hf_config_free(box);
    return 2;
}

/* ------------------------------------------------------------ questions to the prelude */

typedef struct question {
    tn_recipe *recipe;
    const char *module, *function, *arg; /* arg may be NULL */
    tn_arena *arena;
    int n_out;
    const char *out[2];
    tn_status st;
} question;

/* module.function(model, arg) -> n_out texts (nil reads as ""), copied into the arena. */
static int ask(lua_State *L)
{
    question *q = lua_touserdata(L, 1);
    tn_host_require(L, q->module);
    lua_getfield(L, -1, q->function);
    tn_recipe_push_model(L, q->recipe);
    if (q->arg) lua_pushstring(L, q->arg);
    lua_call(L, q->arg ? 2 : 1, q->n_out);
    for (int i = 0; i < q->n_out; i++) {
        const char *text = luaL_optstring(L, i - q->n_out, "");
        tn_status st = tn_arena_text(q->arena, text, &q->out[i]);
        if (st) return tn_host_raise(L, st);
    }
    return 0;
}

static tn_status ask_one(tn_recipe *r, const char *module, const char *function, const char *arg,
                         tn_arena *arena, const char **out)
{
    question q = {.recipe = r,
                  .module = module,
                  .function = function,
                  .arg = arg,
                  .arena = arena,
                  .n_out = 1};
    TN_TRY(tn_host_call(tn_recipe_host(r), ask, &q));
    *out = q.out[0];
    return TN_OK;
}

tn_status tn_model_hf_name(tn_recipe *r, const char *name, tn_arena *arena, const char **out)
{
    return ask_one(r, "titan.hf", "name", name, arena, out);
}

tn_status tn_model_titan_name(tn_recipe *r, const char *hf_name, tn_arena *arena, const char **out)
{
    return ask_one(r, "titan.hf", "titan_name", hf_name, arena, out);
}

tn_status tn_model_config_json(tn_recipe *r, tn_dtype dtype, tn_arena *arena, const char **out)
{
    return ask_one(r, "titan.hf", "config_json", tn_dtype_name(dtype), arena, out);
}

tn_status tn_model_hf_dir(tn_recipe *r, tn_arena *arena, const char **out)
{
    return ask_one(r, "titan.family", "hf_dir", NULL, arena, out);
}

tn_status tn_model_name(tn_recipe *r, tn_arena *arena, const char **family, const char **flavour)
{
    question q = {
        .recipe = r, .module = "titan.family", .function = "name", .arena = arena, .n_out = 2};
    TN_TRY(tn_host_call(tn_recipe_host(r), ask, &q));
    *family = q.out[0];
    *flavour = q.out[1];
    return TN_OK;
}

typedef struct key_question {
    tn_recipe *recipe;
    const char *key;
    int64_t out;
} key_question;

static int ask_int(lua_State *L)
{
    key_question *q = lua_touserdata(L, 1);
    tn_host_require(L, "titan.family");
    lua_getfield(L, -1, "value");
    tn_recipe_push_model(L, q->recipe);
    lua_pushstring(L, q->key);
    lua_call(L, 2, 1);
    q->out = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
    return 0;
}

tn_status tn_model_int(tn_recipe *r, const char *key, int64_t *out)
{
    key_question q = {.recipe = r, .key = key};
    TN_TRY(tn_host_call(tn_recipe_host(r), ask_int, &q));
    *out = q.out;
    return TN_OK;
}
