#include "lua/recipe.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"
#include "lua/state.h"
#include "lua/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_RECIPE = 1 << 20, MAX_KEY = 256 };

typedef enum kind { KIND_UNSET, KIND_BOOL, KIND_INT, KIND_NUM, KIND_TEXT, KIND_LIST } kind;

typedef struct entry {
    const char *key, *where;
    kind kind;
    int count; /* of KIND_LIST */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
    } u;
} entry;

struct tn_recipe {
    tn_host *host;
    tn_arena arena;
    entry *entries;
    int64_t n_entries;
    const char *name, *folder, *config, *device;
};

/* ------------------------------------------------------------ opening */

typedef struct open_job {
    tn_recipe *r;
    const tn_recipe_options *o;
    const tn_host_source *source;
} open_job;

static const char model_key; /* its address: the model description in the registry */

/* Copies the text at the top of the stack into the recipe. */
static const char *keep_text(lua_State *L, tn_recipe *r)
{
    const char *out = NULL;
    tn_status st = tn_arena_text(&r->arena, luaL_checkstring(L, -1), &out);
    if (st) (void)tn_host_raise(L, st);
    return out;
}

/* { name, value, where } at the top of the stack. */
static void keep_entry(lua_State *L, tn_recipe *r, entry *e)
{
    lua_rawgeti(L, -1, 1);
    e->key = keep_text(L, r);
    lua_rawgeti(L, -2, 3);
    e->where = keep_text(L, r);
    switch (lua_rawgeti(L, -3, 2)) {
    case LUA_TNIL:
        e->kind = KIND_UNSET;
        break;
    case LUA_TBOOLEAN:
        e->kind = KIND_BOOL;
        e->u.b = lua_toboolean(L, -1);
        break;
    case LUA_TNUMBER:
        e->kind = lua_isinteger(L, -1) ? KIND_INT : KIND_NUM;
        if (e->kind == KIND_INT) e->u.i = lua_tointeger(L, -1);
        else e->u.f = lua_tonumber(L, -1);
        break;
    case LUA_TSTRING:
        e->kind = KIND_TEXT;
        e->u.s = keep_text(L, r);
        break;
    default:
        e->kind = KIND_LIST;
        e->count = (int)lua_rawlen(L, -1);
    }
    lua_pop(L, 3);
}

/* The table that titan.resolve's finish returned, at the top of the stack. */
static void keep_result(lua_State *L, tn_recipe *r)
{
    void *mem = NULL;
    lua_getfield(L, -1, "model");
    lua_rawsetp(L, LUA_REGISTRYINDEX, &model_key);
    lua_getfield(L, -1, "device");
    r->device = keep_text(L, r);
    lua_getfield(L, -2, "text");
    r->config = keep_text(L, r);
    lua_getfield(L, -3, "flat");
    int64_t n = (int64_t)lua_rawlen(L, -1);
    tn_status st = tn_arena_alloc(&r->arena, (size_t)n * sizeof *r->entries, &mem);
    if (st) (void)tn_host_raise(L, st);
    r->entries = mem;
    for (int64_t i = 0; i < n; i++) {
        lua_rawgeti(L, -1, i + 1);
        keep_entry(L, r, &r->entries[i]);
        lua_pop(L, 1);
    }
    r->n_entries = n;
}

static int open_in_lua(lua_State *L)
{
    open_job *job = lua_touserdata(L, 1);
    tn_host_preload(L, "titan.trace", tn_trace_open);
    tn_host_require(L, "titan.resolve");
    lua_getfield(L, -1, "finish");
    tn_host_compile(L, '@', job->source);
    lua_call(L, 0, 1);
    lua_createtable(L, job->o->n_overrides, 0);
    for (int i = 0; i < job->o->n_overrides; i++) {
        lua_pushstring(L, job->o->overrides[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_pushstring(L, job->r->name);
    lua_call(L, 3, 1);
    keep_result(L, job->r);
    return 0;
}

static tn_status read_recipe(const tn_recipe_options *o, char **out, int64_t *n_out)
{
    struct stat info;
    void *copy;
    if (!o->path) {
        *n_out = (int64_t)strlen(o->text);
        TN_TRY(tn_alloc((size_t)*n_out + 1, &copy));
        *out = memcpy(copy, o->text, (size_t)*n_out);
        return TN_OK;
    }
    if (strcmp(o->path, "-") == 0)
        return tn_file_read_input(MAX_RECIPE, "that is no recipe", out, n_out);
    if (stat(o->path, &info)) return tn_file_error(o->path, "open");
    if (S_ISDIR(info.st_mode))
        TN_FAIL(TN_BAD_INPUT, "%s: a folder; name the recipe's file", o->path);
    if (!S_ISREG(info.st_mode))
        TN_FAIL(TN_BAD_INPUT, "%s: not a regular file; `titan -` reads standard input", o->path);
    return tn_file_read(o->path, MAX_RECIPE, out, n_out);
}

static tn_status set_names(tn_recipe *r, const tn_recipe_options *o)
{
    bool file = o->path && strcmp(o->path, "-");
    const char *name = file ? o->path : o->path ? "standard input" : o->name;
    const char *slash = file ? strrchr(o->path, '/') : NULL;
    void *folder = NULL;
    size_t n = slash ? (size_t)(slash - o->path) : 0;
    TN_TRY(tn_arena_text(&r->arena, name, &r->name));
    TN_TRY(tn_arena_alloc(&r->arena, n + 2, &folder));
    if (n) memcpy(folder, o->path, n);
    else memcpy(folder, slash ? "/" : ".", 1);
    r->folder = folder;
    return TN_OK;
}

static tn_status open_recipe(const tn_recipe_options *o, tn_recipe *r)
{
    open_job job = {.r = r, .o = o};
    char *text = NULL;
    int64_t n = 0;
    TN_TRY(set_names(r, o));
    TN_TRY(read_recipe(o, &text, &n));
    tn_status st = tn_host_open(&o->host, o->path ? r->folder : NULL, &r->host);
    if (st) {
        tn_free(text);
        return st;
    }
    TN_TRY(tn_host_keep(r->host, r->name, text, (size_t)n, &job.source));
    return tn_host_call(r->host, open_in_lua, &job);
}

tn_status tn_recipe_open(const tn_recipe_options *options, tn_recipe **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_recipe), &mem));
    tn_recipe *r = mem;
    tn_status st = open_recipe(options, r);
    if (st) {
        tn_recipe_close(r);
        return st;
    }
    *out = r;
    return TN_OK;
}

void tn_recipe_close(tn_recipe *r)
{
    if (!r) return;
    tn_host_close(r->host);
    tn_arena_fini(&r->arena);
    tn_free(r);
}

/* ------------------------------------------------------------ reading */

/* A recipe has some 150 entries and each is read a few times before the first step: a linear scan.
 */
static const entry *find(const tn_recipe *r, const char *key)
{
    for (int64_t i = 0; i < r->n_entries; i++) {
        if (strcmp(r->entries[i].key, key) == 0) return &r->entries[i];
    }
    return NULL;
}

static const entry *get(const tn_recipe *r, const char *key)
{
    static const entry none = {.key = "", .where = ""};
    const entry *e = find(r, key);
    assert(e && "the schema has no such key");
    return e ? e : &none;
}

/* Item i of a list; the value itself where a key may be one text or a list. */
static const entry *get_at(const tn_recipe *r, const char *key, int i)
{
    char item[MAX_KEY];
    const entry *e = get(r, key);
    if (e->kind != KIND_LIST) return e;
    snprintf(item, sizeof item, "%s[%d]", key, i + 1);
    e = get(r, item);
    if (e->kind != KIND_LIST) return e;
    snprintf(item, sizeof item, "%s[%d][1]", key, i + 1); /* { "b.txt", weight = 2 } */
    return get(r, item);
}

static int64_t as_int(const entry *e)
{
    assert(e->kind == KIND_INT || e->kind == KIND_UNSET);
    return e->kind == KIND_INT ? e->u.i : 0;
}

static double as_num(const entry *e)
{
    assert(e->kind == KIND_INT || e->kind == KIND_NUM || e->kind == KIND_UNSET);
    return e->kind == KIND_NUM ? e->u.f : (double)as_int(e);
}

static const char *as_text(const entry *e)
{
    assert(e->kind == KIND_TEXT || e->kind == KIND_UNSET);
    return e->kind == KIND_TEXT ? e->u.s : "";
}

bool tn_recipe_is_set(const tn_recipe *r, const char *key)
{
    const entry *e = find(r, key);
    return e && e->kind != KIND_UNSET;
}

bool tn_recipe_is_text(const tn_recipe *r, const char *key)
{
    return get(r, key)->kind == KIND_TEXT;
}

int64_t tn_recipe_int(const tn_recipe *r, const char *key)
{
    return as_int(get(r, key));
}

double tn_recipe_num(const tn_recipe *r, const char *key)
{
    return as_num(get(r, key));
}

bool tn_recipe_bool(const tn_recipe *r, const char *key)
{
    const entry *e = get(r, key);
    assert(e->kind == KIND_BOOL || e->kind == KIND_UNSET);
    return e->kind == KIND_BOOL && e->u.b;
}

const char *tn_recipe_text(const tn_recipe *r, const char *key)
{
    return as_text(get(r, key));
}

int tn_recipe_count(const tn_recipe *r, const char *key)
{
    const entry *e = get(r, key);
    return e->kind == KIND_LIST ? e->count : e->kind != KIND_UNSET;
}

int64_t tn_recipe_int_at(const tn_recipe *r, const char *key, int i)
{
    return as_int(get_at(r, key, i));
}

double tn_recipe_num_at(const tn_recipe *r, const char *key, int i)
{
    return as_num(get_at(r, key, i));
}

const char *tn_recipe_text_at(const tn_recipe *r, const char *key, int i)
{
    return as_text(get_at(r, key, i));
}

const char *tn_recipe_where(const tn_recipe *r, const char *key)
{
    return get(r, key)->where;
}

/* ------------------------------------------------------------ parameter groups */

int tn_recipe_groups(const tn_recipe *r)
{
    return tn_recipe_count(r, "optimizer.groups");
}

tn_recipe_group tn_recipe_group_default(const tn_recipe *r)
{
    return (tn_recipe_group){
        .pattern = "",
        .where = tn_recipe_where(r, "optimizer.groups"),
        .lr = tn_recipe_num(r, "optimizer.lr"),
        .beta1 = tn_recipe_num_at(r, "optimizer.betas", 0),
        .beta2 = tn_recipe_num_at(r, "optimizer.betas", 1),
        .eps = tn_recipe_num(r, "optimizer.eps"),
        .weight_decay = tn_recipe_num(r, "optimizer.weight_decay"),
        .momentum = tn_recipe_num(r, "optimizer.momentum"),
    };
}

static double group_num(const tn_recipe *r, int i, const char *key, double otherwise)
{
    char full[MAX_KEY];
    snprintf(full, sizeof full, "optimizer.groups[%d].%s", i + 1, key);
    return tn_recipe_is_set(r, full) ? tn_recipe_num(r, full) : otherwise;
}

tn_recipe_group tn_recipe_group_at(const tn_recipe *r, int i)
{
    char full[MAX_KEY];
    tn_recipe_group g = tn_recipe_group_default(r);
    snprintf(full, sizeof full, "optimizer.groups[%d].pattern", i + 1);
    g.pattern = tn_recipe_text(r, full);
    g.lr = group_num(r, i, "lr", g.lr);
    g.beta1 = group_num(r, i, "betas[1]", g.beta1);
    g.beta2 = group_num(r, i, "betas[2]", g.beta2);
    g.eps = group_num(r, i, "eps", g.eps);
    g.weight_decay = group_num(r, i, "weight_decay", g.weight_decay);
    g.momentum = group_num(r, i, "momentum", g.momentum);
    return g;
}

/* ------------------------------------------------------------ whole */

const char *tn_recipe_config(const tn_recipe *r)
{
    return r->config;
}

const char *tn_recipe_name(const tn_recipe *r)
{
    return r->name;
}

const char *tn_recipe_folder(const tn_recipe *r)
{
    return r->folder;
}

const char *tn_recipe_device(const tn_recipe *r)
{
    return r->device;
}

tn_host *tn_recipe_host(tn_recipe *r)
{
    return r->host;
}

void tn_recipe_push_model(lua_State *L, const tn_recipe *r)
{
    (void)r;
    lua_rawgetp(L, LUA_REGISTRYINDEX, &model_key);
}
