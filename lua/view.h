/* view.h - what the REPL asks about a recipe: module titan.view of its Lua state, functions that
 * return texts and tables of numbers (lua/prelude/repl.lua draws them).
 *
 * The recipe lives in a host of its own, so that it can be opened again with other settings while
 * the user's variables stay. It is planned for view.world ranks when something first asks. */
#ifndef TN_LUA_VIEW_H
#define TN_LUA_VIEW_H
#include "engine/base/mem.h"
#include "lua/commands.h"
#include "lua/door.h"
#include "lua/session.h"

TN_C_BEGIN

enum { TN_VIEW_SETTINGS = 64 };

typedef struct tn_view {
    const tn_args *a;
    const char *path; /* NULL: no recipe is open */
    const char *settings[TN_VIEW_SETTINGS];
    int n_settings;
    int64_t world; /* 0: job.world */
    bool open, planned;
    tn_session s; /* of the open recipe; programs when it is planned */
    tn_recipe *recipe;
    tn_text text;   /* what the last call returned */
    tn_arena names; /* paths and settings */
} tn_view;

/* Makes `require "titan.view"` in h reach v, which must outlive h. */
void tn_view_open(lua_State *L, tn_view *v);
void tn_view_close(tn_view *v);

/* From Lua: raises where it cannot. The open recipe, planned. */
tn_session *tn_view_session(lua_State *L, tn_view *v);
tn_view *tn_view_of(lua_State *L);

/* view_tables.c: the functions that return tables, added to the table on the top. */
void tn_view_add_tables(lua_State *L);

TN_C_END
#endif
