/* modules.c - where Lua text comes from: `require`, sources kept for messages, and the module
 * titan.host.
 *
 *   titan, titan.nn      SHARE/lua/prelude/titan.lua, nn.lua    (or a module written in C)
 *   my.block             FOLDER/my/block.lua                    the recipe's own folder, first
 *   models.llama3        SHARE/recipes/models/llama3.lua
 *
 * A name is made of letters, digits and underscores with dots between them, so it cannot climb; a
 * link that leads out of its folder is refused; only regular files of at most MAX_TEXT bytes are
 * read.
 */
#include "engine/base/file.h"
#include "engine/base/text.h"
#include "lua/state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_TEXT = 4 << 20, MAX_NAME = 200 };

#define LOADED "titan loaded"   /* name -> value; false while it loads */
#define PRELOAD "titan preload" /* name -> C function */

/* ------------------------------------------------------------ sources */

tn_status tn_host_keep(tn_host *h, const char *chunk, char *text, size_t n_bytes,
                       const tn_host_source **out)
{
    void *mem = NULL;
    const char *name = NULL;
    tn_status st = tn_arena_alloc(&h->arena, sizeof **out, &mem);
    if (!st) st = tn_arena_text(&h->arena, chunk, &name);
    if (st) {
        tn_free(text);
        return st;
    }
    tn_host_source *s = mem;
    *s = (tn_host_source){name, text, n_bytes, h->sources};
    *out = h->sources = s;
    return TN_OK;
}

void tn_host_compile(lua_State *L, char mark, const tn_host_source *source)
{
    const char *text = source->text, *chunk = source->chunk;
    size_t n = source->n_bytes;
    if (mark == '@' && !tn_host_of(L)->main) tn_host_of(L)->main = chunk;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) text += 3, n -= 3;
    if (n && text[0] == '#') { /* "#!/usr/bin/env titan": the line stays, for the line numbers */
        size_t skip = 0;
        while (skip < n && text[skip] != '\n') skip++;
        text += skip, n -= skip;
    }
    if (n && text[0] == LUA_SIGNATURE[0])
        (void)tn_host_fail(L, TN_BAD_INPUT, "%s: this is precompiled Lua; titan reads text only",
                           chunk);
    lua_pushfstring(L, "%c%s", mark, chunk);
    int st = luaL_loadbufferx(L, text, n, lua_tostring(L, -1), "t");
    if (st == LUA_ERRMEM) (void)lua_error(L);
    if (st != LUA_OK) {
        /* "short_src:LINE: what": Lua cuts long names, we do not */
        const char *said = lua_tostring(L, -1);
        size_t cut = strlen(chunk) < LUA_IDSIZE - 1 ? strlen(chunk) : LUA_IDSIZE - 1;
        bool placed = strlen(said) > cut && said[cut] == ':';
        (void)tn_host_fail(L, TN_BAD_INPUT, "%s%s%s", chunk, placed ? "" : ": ",
                           placed ? said + cut : said);
    }
    lua_remove(L, -2);
}

/* ------------------------------------------------------------ require */

typedef struct found {
    char path[PATH_MAX];  /* of the file */
    char chunk[PATH_MAX]; /* as errors name it */
    char mark;
} found;

static bool good_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME) return false;
    for (size_t i = 0; i < n; i++) {
        bool dot = name[i] == '.';
        if (!dot && !isalnum((unsigned char)name[i]) && name[i] != '_') return false;
        if (dot && (i == 0 || i + 1 == n || name[i + 1] == '.')) return false;
    }
    return true;
}

/* ROOT/a/b.lua for "a.b", if it is a regular file below ROOT. */
static bool look(lua_State *L, const char *root, const char *name, found *f)
{
    char real_root[PATH_MAX], real[PATH_MAX];
    struct stat info;
    int n = snprintf(f->path, sizeof f->path, "%s%s%s.lua", root, root[0] ? "/" : "", name);
    if (n < 0 || (size_t)n >= sizeof f->path) return false;
    for (char *p = f->path + strlen(root); p < f->path + n - 4; p++) {
        if (*p == '.') *p = '/';
    }
    if (stat(f->path, &info)) return false;
    if (!S_ISREG(info.st_mode))
        return tn_host_fail(L, TN_BAD_INPUT, "%s: not a regular file", f->path);
    if (!realpath(root[0] ? root : ".", real_root) || !realpath(f->path, real)) return false;
    size_t at = strlen(real_root);
    if (strncmp(real, real_root, at) || real[at] != '/')
        return tn_host_fail(L, TN_BAD_INPUT,
                            "%s: a link that leads out of its folder; copy the file", f->path);
    snprintf(f->chunk, sizeof f->chunk, "%s", f->path);
    f->mark = '@';
    return true;
}

static bool find(lua_State *L, const char *name, found *f)
{
    tn_host *h = tn_host_of(L);
    char root[PATH_MAX + 16];
    if (strcmp(name, "titan") == 0 || strncmp(name, "titan.", 6) == 0) {
        snprintf(root, sizeof root, "%s/lua/prelude", h->share);
        if (!look(L, root, name[5] ? name + 6 : name, f)) return false;
        snprintf(f->chunk, sizeof f->chunk, "%s", name);
        f->mark = '=';
        return true;
    }
    if (h->folder[0] && look(L, strcmp(h->folder, ".") == 0 ? "" : h->folder, name, f)) return true;
    snprintf(root, sizeof root, "%s/recipes", h->share);
    if (!look(L, root, name, f)) return false;
    snprintf(f->chunk, sizeof f->chunk, "%s", f->path + strlen(h->share) + 1);
    return true;
}

/* Pushes the chunk of module `name` as a function. */
static void load_module(lua_State *L, const char *name)
{
    tn_host *h = tn_host_of(L);
    char place[512];
    found f;
    char *text = NULL;
    int64_t n = 0;
    const tn_host_source *source = NULL;
    if (!find(L, name, &f)) {
        bool ours = strncmp(name, "titan.", 6) == 0;
        tn_host_place(L, place, sizeof place);
        (void)tn_host_fail(L, TN_BAD_INPUT, "%sno module '%s'; looked %s%s", place, name,
                           ours ? "among the modules that titan ships"
                                : "in the recipe's folder and in the shipped recipes",
                           ours ? "" : " (models.llama3, ...)");
    }
    tn_status st = tn_file_read(f.path, MAX_TEXT, &text, &n);
    if (!st) st = tn_host_keep(h, f.chunk, text, (size_t)n, &source);
    if (st) (void)tn_host_raise(L, st);
    tn_host_compile(L, f.mark, source);
}

static int f_require(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    lua_settop(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, LOADED); /* 2 */
    int known = lua_getfield(L, 2, name);
    if (known == LUA_TBOOLEAN && !lua_toboolean(L, -1))
        return luaL_error(L, "module '%s' requires itself; take apart what both need", name);
    if (known != LUA_TNIL) return 1;
    if (!good_name(name))
        return luaL_error(
            L, "'%s' is no module name; letters, digits and underscores with dots between them",
            name);
    lua_getfield(L, LUA_REGISTRYINDEX, PRELOAD);
    if (lua_getfield(L, -1, name) == LUA_TNIL) load_module(L, name);
    lua_pushboolean(L, 0);
    lua_setfield(L, 2, name);
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    if (!lua_toboolean(L, -1)) {
        lua_pushboolean(L, 1);
        lua_replace(L, -2);
    }
    lua_pushvalue(L, -1);
    lua_setfield(L, 2, name);
    return 1;
}

void tn_host_require(lua_State *L, const char *name)
{
    lua_pushcfunction(L, f_require);
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
}

void tn_host_preload(lua_State *L, const char *name, lua_CFunction open)
{
    lua_getfield(L, LUA_REGISTRYINDEX, PRELOAD);
    lua_pushcfunction(L, open);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

/* ------------------------------------------------------------ titan.host */

/* host.fail(text): an error whose text is complete, "WHERE: WHAT; MEND" */
static int f_fail(lua_State *L)
{
    return tn_host_fail(L, TN_BAD_INPUT, "%s", luaL_checkstring(L, 1));
}

/* host.place() -> chunk, line of the nearest caller outside the prelude; nothing if there is none
 */
static int f_place(lua_State *L)
{
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar); level++) {
        lua_getinfo(L, "Sl", &ar);
        if (ar.source[0] != '@') continue;
        lua_pushstring(L, ar.source + 1);
        lua_pushinteger(L, ar.currentline);
        return 2;
    }
    return 0;
}

/* host.main() -> the recipe's chunk */
static int f_main(lua_State *L)
{
    const char *chunk = tn_host_of(L)->main;
    lua_pushstring(L, chunk ? chunk : "recipe");
    return 1;
}

/* host.source(chunk) -> its text, or nil */
static int f_source(lua_State *L)
{
    const char *chunk = luaL_checkstring(L, 1);
    for (const tn_host_source *s = tn_host_of(L)->sources; s; s = s->older) {
        if (strcmp(s->chunk, chunk)) continue;
        lua_pushlstring(L, s->text, s->n_bytes);
        return 1;
    }
    lua_pushnil(L);
    return 1;
}

/* host.loaded() -> table of what require has loaded, by name */
static int f_loaded(lua_State *L)
{
    lua_getfield(L, LUA_REGISTRYINDEX, LOADED);
    return 1;
}

/* host.number(x) -> the shortest text that reads back to the same bits */
static int f_number(lua_State *L)
{
    lua_pushstring(L, tn_text_double(luaL_checknumber(L, 1)).s);
    return 1;
}

/* host.nearest(word, list) -> the item of the list that was probably meant, or nil */
static int f_nearest(lua_State *L)
{
    const char *words[256];
    const char *word = luaL_checkstring(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    int n = (int)lua_rawlen(L, 2);
    if (n > TN_COUNT(words)) n = TN_COUNT(words);
    luaL_checkstack(L, n, "words");
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        words[i] = luaL_checkstring(L, -1);
    }
    lua_pushstring(L, tn_text_nearest(word, words, n));
    return 1;
}

static int open_host_module(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"fail", f_fail},     {"place", f_place},     {"source", f_source}, {"loaded", f_loaded},
        {"number", f_number}, {"nearest", f_nearest}, {"main", f_main},     {NULL, NULL},
    };
    luaL_newlib(L, functions);
    return 1;
}

int tn_modules_open(lua_State *L)
{
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LOADED);
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, PRELOAD);
    tn_host_preload(L, "titan.host", open_host_module);
    lua_getfield(L, LUA_REGISTRYINDEX, "titan globals");
    lua_pushcfunction(L, f_require);
    lua_setfield(L, -2, "require");
    return 0;
}
