#include "lua/view.h"

#include "graph/text.h"
#include "lua/inspect.h"
#include "lua/report.h"
#include "lua/state.h"

#include <stdio.h>
#include <string.h>

static const char view_key; /* its address: the view in the registry */

tn_view *tn_view_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &view_key);
    tn_view *v = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return v;
}

/* ------------------------------------------------------------ the recipe */

static void drop(tn_view *v)
{
    if (v->planned) tn_session_close(&v->s);
    else tn_recipe_close(v->recipe);
    v->recipe = NULL;
    v->open = v->planned = false;
}

static tn_status open_recipe(tn_view *v)
{
    tn_recipe_options o = {.path = v->path,
                           .overrides = v->settings,
                           .n_overrides = v->n_settings,
                           .host = v->a->host};
    o.host.seconds = v->a->host.seconds;
    tn_recipe *r;
    TN_TRY(tn_recipe_open(&o, &r));
    drop(v);
    v->recipe = r;
    v->open = true;
    return TN_OK;
}

static tn_status plan(tn_view *v)
{
    tn_mesh mesh;
    if (v->planned) return TN_OK;
    int64_t world = v->world ? v->world : tn_recipe_int(v->recipe, "job.world");
    TN_TRY(
        tn_build_mesh(v->recipe, world, &mesh)); /* what is wrong with it keeps the recipe open */
    tn_status st = tn_session_plan(v->recipe, true, world, &v->s);
    if (st) { /* the session has taken the recipe */
        tn_session_close(&v->s);
        v->recipe = NULL;
        v->open = false;
        return st;
    }
    v->planned = true;
    return TN_OK;
}

tn_session *tn_view_session(lua_State *L, tn_view *v)
{
    tn_status st = TN_OK;
    if (!v->path)
        (void)tn_host_fail(L, TN_BAD_INPUT,
                           "no recipe is open; open(\"recipes/llama3_debug.lua\") opens one");
    if (!v->open) st = open_recipe(v);
    if (!st) st = plan(v);
    if (st) (void)tn_host_raise(L, st);
    return &v->s;
}

static const char *keep(lua_State *L, tn_view *v, const char *text)
{
    const char *out = NULL;
    tn_status st = tn_arena_text(&v->names, text, &out);
    if (st) (void)tn_host_raise(L, st);
    return out;
}

/* The text before '=': a later setting of the same key replaces an earlier one. */
static bool same_key(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && !strncmp(a, b, n);
}

/* Tries what the view says now; what was before when it does not work. */
static int try_it(lua_State *L, tn_view *v, const tn_view *before)
{
    tn_status st = v->path ? open_recipe(v) : TN_OK;
    if (!st && v->path) st = plan(v);
    if (!st) return 0;
    char why[2048];
    tn_error_take(why, sizeof why);
    v->path = before->path;
    v->world = before->world;
    v->n_settings = before->n_settings;
    memcpy(v->settings, before->settings, sizeof v->settings);
    drop(v);
    return tn_host_raise(L, tn_error_give(st, why));
}

/* open(path) */
static int f_open(lua_State *L)
{
    tn_view *v = tn_view_of(L), before = *v;
    v->path = keep(L, v, luaL_checkstring(L, 1));
    v->n_settings = 0;
    return try_it(L, v, &before);
}

/* set(setting ...) */
static int f_set(lua_State *L)
{
    tn_view *v = tn_view_of(L), before = *v;
    if (!v->path) (void)tn_view_session(L, v);
    for (int i = 1; i <= lua_gettop(L); i++) {
        const char *text = luaL_checkstring(L, i);
        int k = 0;
        luaL_argcheck(L, strchr(text, '='), i, "a setting is written \"section.key=value\"");
        while (k < v->n_settings && !same_key(v->settings[k], text)) k++;
        if (k == TN_VIEW_SETTINGS)
            return tn_host_fail(L, TN_BAD_INPUT, "set: more than %d settings", TN_VIEW_SETTINGS);
        v->settings[k] = keep(L, v, text);
        if (k == v->n_settings) v->n_settings++;
    }
    return try_it(L, v, &before);
}

/* world(n); 0: what the recipe says */
static int f_world(lua_State *L)
{
    tn_view *v = tn_view_of(L), before = *v;
    v->world = luaL_checkinteger(L, 1);
    luaL_argcheck(L, v->world >= 0 && v->world <= 1 << 20, 1, "a number of ranks");
    return try_it(L, v, &before);
}

/* ------------------------------------------------------------ answers */

static tn_text *begin(tn_view *v)
{
    tn_text_cut(&v->text, 0);
    v->text.failed = false;
    return &v->text;
}

static int answer(lua_State *L, tn_view *v, tn_status st)
{
    if (!st) st = tn_text_end(&v->text);
    if (st) return tn_host_raise(L, st);
    lua_pushlstring(L, tn_text_str(&v->text), (size_t)v->text.n_bytes);
    return 1;
}

static int f_plan(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    tn_session *s = tn_view_session(L, v);
    return answer(L, v, tn_report_plan(s, begin(v)));
}

/* mesh([rank]) */
static int f_mesh(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    tn_session *s = tn_view_session(L, v);
    const tn_mesh *mesh = &s->shape.mesh;
    int node = tn_inspect_node(s->recipe);
    tn_text *out = begin(v);
    tn_status st = TN_OK;
    tn_inspect_mesh(mesh, node, out);
    if (!lua_isnoneornil(L, 1)) st = tn_inspect_rank(mesh, node, luaL_checkinteger(L, 1), out);
    return answer(L, v, st);
}

/* Whose graph has the value: that of the rank's stage, else the first of any. */
static tn_status graph_of(const tn_session *s, const char *name, int64_t *rank,
                          const tn_graph **out)
{
    int64_t ranks = tn_mesh_ranks(&s->shape.mesh);
    char first[2048] = "";
    int32_t id;
    tn_status st = TN_OK;
    if (*rank >= ranks * s->trains.n)
        TN_FAIL(TN_BAD_INPUT, "rank %lld: the layout has %lld ranks; 0 to %lld", (long long)*rank,
                (long long)(ranks * s->trains.n), (long long)(ranks * s->trains.n) - 1);
    for (int i = 0; i < s->trains.n; i++) {
        if (*rank >= 0 && *rank / ranks != i) continue;
        *out = s->trains.of[i]->g;
        st = tn_inspect_find(*out, name, &id);
        if (st && st != TN_BAD_INPUT) return st;
        if (st && !first[0]) tn_error_take(first, sizeof first);
        if (st) continue;
        if (*rank < 0) *rank = i * ranks;
        return TN_OK;
    }
    return tn_error_give(st, first);
}

/* layout(name [, rank]) */
static int f_layout(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    const char *name = luaL_checkstring(L, 1);
    int64_t rank = luaL_optinteger(L, 2, -1);
    tn_session *s = tn_view_session(L, v);
    const tn_graph *g;
    tn_text *out = begin(v);
    tn_status st = graph_of(s, name, &rank, &g);
    return answer(L, v, st ? st : tn_inspect_value(g, name, rank, out));
}

/* move(name, to [, from [, rank]]) */
static int f_move(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    const char *name = luaL_checkstring(L, 1), *goal = luaL_checkstring(L, 2),
               *from = luaL_optstring(L, 3, NULL);
    int64_t rank = luaL_optinteger(L, 4, -1);
    tn_session *s = tn_view_session(L, v);
    const tn_graph *g;
    tn_text *out = begin(v);
    tn_layout to;
    int32_t id;
    tn_status st = graph_of(s, name, &rank, &g);
    if (!st) st = tn_inspect_find(g, name, &id);
    if (st) return tn_host_raise(L, st);
    tn_value x = g->values[id];
    if (from) st = tn_inspect_place(s->recipe, "move: from", from, x.rank, &x.layout);
    if (!st) st = tn_inspect_place(s->recipe, "move: to", goal, x.rank, &to);
    if (st) return tn_host_raise(L, st);
    tn_reshard_links links = tn_reshard_guess(&g->mesh, tn_inspect_node(s->recipe));
    return answer(L, v, tn_inspect_move(&g->mesh, &links, &x, &to, rank, out));
}

/* graph(path [, pass [, pipeline rank]]): lines as `titan graph` prints them */
static int f_graph(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    const char *path = luaL_optstring(L, 1, NULL), *pass = luaL_optstring(L, 2, NULL);
    lua_Integer which = luaL_optinteger(L, 3, 0);
    tn_session *s = tn_view_session(L, v);
    tn_text *out = begin(v);
    luaL_argcheck(L, which >= 0 && which < s->trains.n, 3, "no such pipeline rank");
    if (!pass) return answer(L, v, tn_graph_print(s->trains.of[which]->g, path, out));
    int k = 0;
    while (tn_build_passes[k] && strcmp(tn_build_passes[k], pass)) k++;
    luaL_argcheck(L, tn_build_passes[k], 2, "no such pass; trace, lower, fuse, storage, ...");
    tn_build_options o = {.kind = TN_BUILD_TRAIN,
                          .shape = s->shape,
                          .until = pass,
                          .rank = (int)(which * tn_mesh_ranks(&s->shape.mesh))};
    tn_graph *g;
    tn_status st = tn_build_graph(s->recipe, &o, &g);
    if (!st) {
        st = tn_graph_print(g, path, out);
        tn_graph_destroy(g);
    }
    return answer(L, v, st);
}

/* config() -> the resolved recipe as Lua */
static int f_config(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    lua_pushstring(L, tn_recipe_config(tn_view_session(L, v)->recipe));
    return 1;
}

/* diff(run, run): prints what `titan diff` does. That they differ is an answer, no error. */
static int f_diff(lua_State *L)
{
    const char *paths[2] = {luaL_checkstring(L, 1), luaL_checkstring(L, 2)};
    tn_args a = {.paths = paths, .n_paths = 2};
    tn_status st = tn_command_diff(&a);
    if (st == TN_FAILED && !strncmp(tn_error_text(), "diff: ", 6)) {
        tn_error_clear();
        return 0;
    }
    return st ? tn_host_raise(L, st) : 0;
}

/* ------------------------------------------------------------ life */

static int open_module(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"open", f_open},     {"set", f_set},       {"world", f_world}, {"plan", f_plan},
        {"mesh", f_mesh},     {"layout", f_layout}, {"move", f_move},   {"graph", f_graph},
        {"config", f_config}, {"diff", f_diff},     {NULL, NULL},
    };
    luaL_newlib(L, functions);
    tn_view_add_tables(L);
    return 1;
}

void tn_view_open(lua_State *L, tn_view *v)
{
    lua_pushlightuserdata(L, v);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &view_key);
    tn_host_preload(L, "titan.view", open_module);
}

void tn_view_close(tn_view *v)
{
    drop(v);
    tn_text_fini(&v->text);
    tn_arena_fini(&v->names);
}
