#include "lua/trace.h"

#include "engine/base/text.h"
#include "graph/op.h"
#include "lua/model.h"
#include "lua/place.h"
#include "lua/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ATTRS = 16, PATH_BYTES = 256, WHERE_BYTES = 384 };

/* One run of tn_trace_model. It lives on the C stack; the registry points to it while the Lua code
 * runs. */
typedef struct run {
    tn_recipe *recipe;
    const tn_trace_options *o;
    tn_graph *g;
    tn_scope scope;
    char path[PATH_BYTES];
    lua_Integer serial; /* values of other runs are refused */
    int32_t loss, logits;
} run;

typedef struct value {
    lua_Integer serial;
    int32_t id;
} value;

static const char value_name[] = "titan.value";
static char run_key, serial_key;

/* Raises "WHERE: WHAT; MEND" with the calls in the model that led here as context. */
static int refuse(lua_State *L, const char *fmt, ...) TN_PRINTF(2, 3);
static int refuse(lua_State *L, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return tn_host_raise(L, tn_error(TN_BAD_INPUT, "%s", text));
}

static run *run_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &run_key);
    run *t = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (!t)
        refuse(L, "a forward function runs only while a graph is traced; call modules inside "
                  "forward or hidden");
    return t;
}

static int push_value(lua_State *L, const run *t, int32_t id)
{
    value *v = lua_newuserdatauv(L, sizeof *v, 0);
    *v = (value){t->serial, id};
    luaL_setmetatable(L, value_name);
    return 1;
}

/* "layers.0.attention: in_src of x" */
static void where_of(const run *t, const char *what, char out[WHERE_BYTES])
{
    snprintf(out, WHERE_BYTES, "%s%s%s", t->path, t->path[0] ? ": " : "", what);
}

static bool to_id(lua_State *L, const run *t, int index, int32_t *out)
{
    value *v = luaL_testudata(L, index, value_name);
    if (v && v->serial == t->serial) *out = v->id;
    return v && v->serial == t->serial;
}

/* A value, or a parameter of a module: a table whose field `value` the tracer has set. */
static int32_t check_value(lua_State *L, const run *t, int index, const char *what)
{
    char where[WHERE_BYTES];
    int32_t id = -1;
    index = lua_absindex(L, index);
    if (to_id(L, t, index, &id)) return id;
    if (lua_type(L, index) == LUA_TTABLE) {
        lua_pushliteral(L, "value");
        lua_rawget(L, index);
        bool found = to_id(L, t, -1, &id);
        lua_pop(L, 1);
        if (found) return id;
    }
    where_of(t, what, where);
    if (luaL_testudata(L, index, value_name))
        refuse(L, "%s is a value of another trace; keep no values in modules", where);
    refuse(L, "%s is a %s where a value is needed", where, luaL_typename(L, index));
    return -1;
}

/* ------------------------------------------------------------ nodes */

static int add(lua_State *L, run *t, tn_node_desc *d)
{
    int32_t first;
    d->path = t->path;
    d->scope = t->scope;
    d->phase = TN_PHASE_F;
    tn_status st = tn_graph_add(t->g, d, &first);
    if (st) return tn_host_raise(L, st);
    int n_out = t->g->nodes[t->g->n_nodes - 1].n_out;
    luaL_checkstack(L, n_out, "outputs");
    for (int i = 0; i < n_out; i++) push_value(L, t, first + i);
    return n_out;
}

/* The table at `index` as attributes. Texts stay alive: they are keys and values of that table. */
static int read_attrs(lua_State *L, const char *op, int index, tn_named_attr out[MAX_ATTRS])
{
    int n = 0;
    if (lua_isnoneornil(L, index)) return 0;
    luaL_checktype(L, index, LUA_TTABLE);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (n == MAX_ATTRS || lua_type(L, -2) != LUA_TSTRING)
            return refuse(L, "%s: attributes are written { name = value }, at most %d", op,
                          MAX_ATTRS);
        tn_named_attr *a = &out[n++];
        a->name = lua_tostring(L, -2);
        if (lua_isboolean(L, -1)) a->value = (tn_attr){.kind = 'i', .u.i = lua_toboolean(L, -1)};
        else if (lua_isinteger(L, -1))
            a->value = (tn_attr){.kind = 'i', .u.i = lua_tointeger(L, -1)};
        else if (lua_type(L, -1) == LUA_TNUMBER)
            a->value = (tn_attr){.kind = 'f', .u.f = lua_tonumber(L, -1)};
        else if (lua_type(L, -1) == LUA_TSTRING)
            a->value = (tn_attr){.kind = 's', .u.s = lua_tostring(L, -1)};
        else
            return refuse(L, "%s: attribute '%s' is a %s; a number, text or boolean is needed", op,
                          a->name, luaL_typename(L, -1));
    }
    return n;
}

static tn_op_id check_op(lua_State *L, const char *name)
{
    const char *names[TN_N_OPS];
    bool found;
    tn_op_id op = tn_op_find(name, &found);
    if (found && op != TN_OP_state && op != TN_OP_input && op != TN_OP_redistribute) return op;
    for (int i = 0; i < TN_N_OPS; i++) names[i] = tn_op_name((tn_op_id)i);
    if (!found) refuse(L, "nn.op: no op '%s'%s", name, tn_text_hint(name, names, TN_N_OPS).s);
    refuse(L,
           "nn.op: '%s' is made by modules and their sharding tables only; use nn.parameter or a "
           "boundary",
           name);
    return op;
}

/* op(name, { operands }, { attributes }) -> outputs */
static int trace_op(lua_State *L)
{
    run *t = run_of(L);
    const char *name = luaL_checkstring(L, 1);
    int32_t in[TN_MAX_OPERANDS];
    tn_named_attr attrs[MAX_ATTRS];
    tn_op_id op = check_op(L, name);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_Unsigned n_in = lua_rawlen(L, 2);
    if (n_in > TN_MAX_OPERANDS)
        return refuse(L, "%s: %d operands; at most %d", name, (int)n_in, TN_MAX_OPERANDS);
    for (int i = 0; i < (int)n_in; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s: operand %d", name, i);
        lua_rawgeti(L, 2, i + 1);
        in[i] = check_value(L, t, -1, what);
        lua_pop(L, 1);
    }
    tn_node_desc d = {.op = op, .n_in = (int)n_in, .in = in, .attrs = attrs};
    d.n_attrs = read_attrs(L, name, 3, attrs);
    return add(L, t, &d);
}

static int binary(lua_State *L, tn_op_id op)
{
    run *t = run_of(L);
    int32_t in[2] = {check_value(L, t, 1, "the left operand"),
                     check_value(L, t, 2, "the right operand")};
    tn_node_desc d = {.op = op, .n_in = 2, .in = in};
    return add(L, t, &d);
}

static int scaled(lua_State *L, int index, double by)
{
    run *t = run_of(L);
    int32_t in = check_value(L, t, index, "the operand");
    tn_named_attr attr = {"by", {.kind = 'f', .u.f = by}};
    tn_node_desc d = {.op = TN_OP_scale, .n_in = 1, .in = &in, .n_attrs = 1, .attrs = &attr};
    return add(L, t, &d);
}

static int value_add(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TNUMBER || lua_type(L, 2) == LUA_TNUMBER)
        return refuse(L, "a number added to a value is no op; values are added to values");
    return binary(L, TN_OP_add);
}

static int value_mul(lua_State *L)
{
    if (lua_type(L, 2) == LUA_TNUMBER) return scaled(L, 1, lua_tonumber(L, 2));
    if (lua_type(L, 1) == LUA_TNUMBER) return scaled(L, 2, lua_tonumber(L, 1));
    return binary(L, TN_OP_mul);
}

/* ------------------------------------------------------------ what starts a graph */

static int check_dims(lua_State *L, const char *where, int index, tn_dim dim[TN_MAX_RANK])
{
    luaL_checktype(L, index, LUA_TTABLE);
    int n = (int)lua_rawlen(L, index);
    if (n > TN_MAX_RANK) return refuse(L, "%s has %d dims; at most %d", where, n, TN_MAX_RANK);
    for (int i = 0; i < n; i++) {
        lua_rawgeti(L, index, i + 1); /* { extent, units } */
        luaL_checktype(L, -1, LUA_TTABLE);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        dim[i] = (tn_dim){.extent = luaL_checkinteger(L, -2), .units = luaL_optinteger(L, -1, 0)};
        if (dim[i].extent < 1)
            return refuse(L, "%s: dim %d has extent %lld; at least 1", where, i,
                          (long long)dim[i].extent);
        lua_pop(L, 3);
    }
    return n;
}

/* state(name, { {extent, units}, .. }, layout, { attributes of op state }) -> value */
static int trace_state(lua_State *L)
{
    run *t = run_of(L);
    const char *name = luaL_checkstring(L, 1);
    char where[WHERE_BYTES];
    tn_named_attr attrs[MAX_ATTRS];
    tn_value like = {.grad = true, .levels = 1};
    tn_layout layout;
    snprintf(where, sizeof where, "%s", name);
    like.rank = (uint8_t)check_dims(L, where, 2, like.dim);
    like.dtype = (uint8_t)t->o->compute;
    int n = read_attrs(L, "state", 4, attrs);
    if (n > MAX_ATTRS - 1) return refuse(L, "%s: too many attributes", name);
    for (int i = 0; i < n; i++)
        if (!strcmp(attrs[i].name, "kind") && attrs[i].value.kind == 's' &&
            !strcmp(attrs[i].value.u.s, "buffer")) {
            like.grad = false;
            like.dtype = TN_F32;
        }
    attrs[n++] = (tn_named_attr){"name", {.kind = 's', .u.s = name}};
    snprintf(where, sizeof where, "%s: state", name);
    tn_status st = tn_place_read(L, 3, like.rank, where, &layout);
    if (st) return tn_host_raise(L, st);
    tn_node_desc d = {
        .op = TN_OP_state, .n_attrs = n, .attrs = attrs, .layout = &layout, .like = &like};
    return add(L, t, &d);
}

/* input(name, layout, seq or nil) -> value i32 [rows of the step, seq] */
static int trace_input(lua_State *L)
{
    run *t = run_of(L);
    const char *name = luaL_checkstring(L, 1);
    char where[WHERE_BYTES];
    tn_layout layout;
    tn_named_attr attr = {"name", {.kind = 's', .u.s = name}};
    tn_value like = {.rank = 2, .dtype = TN_I32, .levels = 1};
    like.dim[0].extent = t->o->rows * t->o->n_microbatches;
    like.dim[1].extent = luaL_optinteger(L, 3, t->o->seq);
    snprintf(where, sizeof where, "input %s", name);
    tn_status st = tn_place_read(L, 2, 2, where, &layout);
    if (st) return tn_host_raise(L, st);
    tn_node_desc d = {
        .op = TN_OP_input, .n_attrs = 1, .attrs = &attr, .layout = &layout, .like = &like};
    return add(L, t, &d);
}

/* cache(name, new [b s g k], positions) -> value [b cache g k]: a state that keeps what is new at
 * its positions */
static int trace_cache(lua_State *L)
{
    run *t = run_of(L);
    const char *name = luaL_checkstring(L, 1);
    int32_t in[3] = {-1, check_value(L, t, 2, "what is kept"), check_value(L, t, 3, "positions")};
    tn_value like = t->g->values[in[1]];
    tn_layout layout = like.layout;
    tn_scope scope = t->scope;
    if (like.rank != 4) return refuse(L, "%s: what is kept has heads [b s h k]", name);
    like.dim[1] = (tn_dim){t->o->cache, 0};
    like.grad = false;
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = name}},
                              {"kind", {.kind = 's', .u.s = "buffer"}}};
    tn_node_desc d = {
        .op = TN_OP_state, .n_attrs = 2, .attrs = attrs, .layout = &layout, .like = &like};
    t->scope = TN_SCOPE_HEAD;
    add(L, t, &d);
    t->scope = scope;
    in[0] = check_value(L, t, -1, "the cache");
    d = (tn_node_desc){.op = TN_OP_cache, .n_in = 3, .in = in};
    return add(L, t, &d);
}

/* ------------------------------------------------------------ boundaries */

/* A pending sum of activations is fp32 until it is complete. */
static bool widened(const run *t, int32_t id)
{
    const tn_value *v = &t->g->values[id];
    bool pending = false;
    for (int a = 0; a < TN_N_AXES; a++)
        pending |= v->layout.type[a] == TN_TYPE_P && t->g->mesh.size[a] > 1;
    return pending && v->dtype == TN_F32 && t->o->compute != TN_F32;
}

static int placed(lua_State *L, run *t, int32_t id, const tn_layout *layout)
{
    if (tn_layout_equal(&t->g->values[id].layout, layout)) return push_value(L, t, id);
    tn_named_attr attr = {"dtype", {.kind = 's', .u.s = tn_dtype_name(t->o->compute)}};
    tn_node_desc d = {.op = TN_OP_redistribute,
                      .n_in = 1,
                      .in = &id,
                      .n_attrs = widened(t, id),
                      .attrs = &attr,
                      .layout = layout};
    return add(L, t, &d);
}

static int32_t value_and_layout(lua_State *L, run *t, tn_layout *layout, char where[WHERE_BYTES])
{
    where_of(t, luaL_optstring(L, 3, "layout"), where);
    int32_t id = check_value(L, t, 1, luaL_optstring(L, 3, "the value"));
    tn_status st = tn_place_read(L, 2, t->g->values[id].rank, where, layout);
    if (st) tn_host_raise(L, st);
    return id;
}

/* redistribute(value, layout, what) -> value */
static int trace_redistribute(lua_State *L)
{
    run *t = run_of(L);
    tn_layout layout;
    char where[WHERE_BYTES];
    int32_t id = value_and_layout(L, t, &layout, where);
    return placed(L, t, id, &layout);
}

/* check(value, layout, what) */
static int trace_check(lua_State *L)
{
    run *t = run_of(L);
    tn_layout layout;
    char where[WHERE_BYTES];
    int32_t id = value_and_layout(L, t, &layout, where);
    tn_status st = tn_place_check(&t->g->values[id], &layout, where);
    return st ? tn_host_raise(L, st) : 0;
}

/* check_gradient(value, layout, what): the layout that a table declares for the value's gradient
 * (types.md 2.1) */
static int trace_check_gradient(lua_State *L)
{
    run *t = run_of(L);
    tn_layout layout;
    char where[WHERE_BYTES];
    int32_t id = value_and_layout(L, t, &layout, where);
    tn_value gradient = t->g->values[id];
    gradient.layout = tn_layout_of_gradient(&gradient.layout);
    tn_status st = tn_place_check(&gradient, &layout, where);
    return st ? tn_host_raise(L, st) : 0;
}

/* follow(ids, value) -> ids placed as the first dims of value are: positions of gathered keys are
 * gathered */
static int trace_follow(lua_State *L)
{
    run *t = run_of(L);
    int32_t id = check_value(L, t, 1, "follow"), like = check_value(L, t, 2, "follow");
    tn_layout layout = tn_place_follow(&t->g->values[like], t->g->values[id].rank);
    return placed(L, t, id, &layout);
}

/* ------------------------------------------------------------ state of the tracer */

/* enter(path) -> the path before */
static int trace_enter(lua_State *L)
{
    run *t = run_of(L);
    const char *path = luaL_checkstring(L, 1);
    if (strlen(path) >= PATH_BYTES)
        return refuse(L, "module path '%.60s...' is longer than %d characters", path,
                      PATH_BYTES - 1);
    lua_pushstring(L, t->path);
    snprintf(t->path, sizeof t->path, "%s", path);
    return 1;
}

static int trace_scope(lua_State *L)
{
    static const char *const names[] = {"head", "microbatch", "chunk", "tail", NULL};
    run_of(L)->scope = (tn_scope)luaL_checkoption(L, 1, NULL, names);
    return 0;
}

/* arguments(function) -> { names of its parameters, without self } */
static int trace_arguments(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TFUNCTION);
    lua_newtable(L);
    for (int i = 1, n = 0;; i++) {
        lua_pushvalue(L, 1);
        const char *name = lua_getlocal(L, NULL, i); /* takes the function */
        if (!name) break;
        if (i == 1 && !strcmp(name, "self")) continue;
        lua_pushstring(L, name);
        lua_rawseti(L, 2, ++n);
    }
    lua_settop(L, 2);
    return 1;
}

/* fail(text): an error whose text is complete, "WHERE: WHAT; MEND" */
static int trace_fail(lua_State *L)
{
    return refuse(L, "%s", luaL_checkstring(L, 1));
}

static int trace_path(lua_State *L)
{
    lua_pushstring(L, run_of(L)->path);
    return 1;
}

/* ------------------------------------------------------------ values in Lua */

static const tn_value *self(lua_State *L)
{
    run *t = run_of(L);
    return &t->g->values[check_value(L, t, 1, "the value")];
}

static int value_shape(lua_State *L)
{
    const tn_value *v = self(L);
    for (int d = 0; d < v->rank; d++) lua_pushinteger(L, v->dim[d].extent);
    return v->rank;
}

static int value_layout(lua_State *L)
{
    char text[128];
    tn_layout_print(&self(L)->layout, text, sizeof text);
    lua_pushstring(L, text);
    return 1;
}

static int value_units(lua_State *L)
{
    const tn_value *v = self(L);
    for (int d = 0; d < v->rank; d++) lua_pushinteger(L, v->dim[d].units);
    return v->rank;
}

static int value_dtype(lua_State *L)
{
    lua_pushstring(L, tn_dtype_name((tn_dtype)self(L)->dtype));
    return 1;
}

static int value_text(lua_State *L)
{
    const tn_value *v = self(L);
    char text[128];
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    luaL_addstring(&b, tn_dtype_name((tn_dtype)v->dtype));
    luaL_addstring(&b, " [");
    for (int d = 0; d < v->rank; d++) {
        snprintf(text, sizeof text, "%s%lld", d ? " " : "", (long long)v->dim[d].extent);
        luaL_addstring(&b, text);
    }
    tn_layout_print(&v->layout, text, sizeof text);
    luaL_addstring(&b, "] ");
    luaL_addstring(&b, text);
    luaL_pushresult(&b);
    return 1;
}

static int value_neg(lua_State *L)
{
    return scaled(L, 1, -1.0);
}

static int value_sub(lua_State *L)
{
    if (lua_type(L, 1) == LUA_TNUMBER || lua_type(L, 2) == LUA_TNUMBER)
        return refuse(L, "a number and a value have no difference; values are added to values");
    lua_settop(L, 2);
    scaled(L, 2, -1.0);
    lua_replace(L, 2);
    return binary(L, TN_OP_add);
}

static int value_div(lua_State *L)
{
    if (lua_type(L, 2) != LUA_TNUMBER)
        return refuse(L, "division by a value is no op; divide by a number");
    return scaled(L, 1, 1.0 / lua_tonumber(L, 2));
}

static const luaL_Reg value_meta[] = {
    {"__add", value_add}, {"__sub", value_sub},       {"__mul", value_mul}, {"__div", value_div},
    {"__unm", value_neg}, {"__tostring", value_text}, {NULL, NULL}};
static const luaL_Reg value_methods[] = {{"shape", value_shape},
                                         {"layout", value_layout},
                                         {"units", value_units},
                                         {"dtype", value_dtype},
                                         {NULL, NULL}};

static const luaL_Reg functions[] = {
    {"op", trace_op},
    {"state", trace_state},
    {"input", trace_input},
    {"cache", trace_cache},
    {"redistribute", trace_redistribute},
    {"check", trace_check},
    {"check_gradient", trace_check_gradient},
    {"follow", trace_follow},
    {"enter", trace_enter},
    {"path", trace_path},
    {"scope", trace_scope},
    {"arguments", trace_arguments},
    {"fail", trace_fail},
    {"config", tn_model_read_config},
    /* the arithmetic of values, for parameters that stand where a value does */
    {"add", value_add},
    {"sub", value_sub},
    {"mul", value_mul},
    {NULL, NULL}};

int tn_trace_open(lua_State *L)
{
    luaL_newmetatable(L, value_name);
    luaL_setfuncs(L, value_meta, 0);
    luaL_newlib(L, value_methods);
    lua_setfield(L, -2, "__index");
    lua_pushliteral(L, "value");
    lua_setfield(L, -2, "kind");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}

/* ------------------------------------------------------------ a run */

static void set_integer(lua_State *L, const char *key, int64_t v)
{
    lua_pushinteger(L, v);
    lua_setfield(L, -2, key);
}

static void push_options(lua_State *L, const tn_trace_options *o)
{
    lua_newtable(L);
    static const char *const kinds[] = {"train", "logits", "decode", "prefill"};
    lua_pushstring(L, kinds[o->kind]);
    lua_setfield(L, -2, "kind");
    lua_pushboolean(L, o->sp);
    lua_setfield(L, -2, "sp");
    lua_pushboolean(L, o->ep);
    lua_setfield(L, -2, "ep");
    set_integer(L, "rows", o->rows);
    set_integer(L, "seq", o->seq);
    set_integer(L, "cache", o->cache);
    set_integer(L, "chunk_rows", o->chunk_rows);
    set_integer(L, "chunk_seq", o->chunk_seq);
}

/* Calls titan.tracer(model, options) -> value of the loss or of the logits. */
static int run_tracer(lua_State *L)
{
    run *t = lua_touserdata(L, 1);
    lua_gc(L,
           LUA_GCSTOP); /* a third of the time; the host's memory limit still collects (host.c) */
    lua_rawgetp(L, LUA_REGISTRYINDEX, &serial_key);
    t->serial = lua_tointeger(L, -1) + 1;
    lua_pushinteger(L, t->serial);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &serial_key);
    tn_host_require(L, "titan.tracer");
    tn_recipe_push_model(L, t->recipe);
    push_options(L, t->o);
    lua_pushlightuserdata(L, t);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &run_key);
    lua_call(L, 2, 1);
    int32_t out = check_value(L, t, -1, "what the tracer returns");
    if (t->o->kind == TN_TRACE_TRAIN) t->loss = out;
    else t->logits = out;
    return 0;
}

static int forget_run(lua_State *L)
{
    lua_gc(L, LUA_GCRESTART);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &run_key);
    return 0;
}

static tn_status check_options(const tn_trace_options *o)
{
    if (o->rows < 1 || o->seq < 1 || o->n_microbatches < 1)
        TN_FAIL(TN_FAILED, "trace: rows, seq and n_microbatches must be at least 1");
    if (o->kind != TN_TRACE_TRAIN) return TN_OK;
    if (o->chunk_rows < 1 || o->rows % o->chunk_rows || o->chunk_seq < 1 || o->seq % o->chunk_seq)
        TN_FAIL(TN_FAILED, "trace: a loss chunk of %lld x %lld does not divide %lld x %lld",
                (long long)o->chunk_rows, (long long)o->chunk_seq, (long long)o->rows,
                (long long)o->seq);
    return TN_OK;
}

tn_status tn_trace_model(tn_recipe *r, const tn_trace_options *o, tn_trace *out)
{
    run t = {.recipe = r, .o = o, .loss = -1, .logits = -1};
    TN_TRY(check_options(o));
    TN_TRY(tn_graph_create(&o->mesh, o->grid, o->canonical, &t.g));
    t.g->rows = o->rows;
    t.g->seq = o->seq;
    t.g->n_microbatches = o->n_microbatches;
    t.g->n_chunks =
        o->kind == TN_TRACE_TRAIN ? (o->rows / o->chunk_rows) * (o->seq / o->chunk_seq) : 1;
    tn_host *host = tn_recipe_host(r);
    char text[TN_HOST_TEXT];
    tn_status st = tn_host_call(host, run_tracer, &t);
    if (st) tn_error_take(text, sizeof text);
    /* a host past its limits refuses every call: then no Lua code runs again either */
    tn_status forgot = tn_host_call(host, forget_run, NULL);
    st = st ? tn_error_give(st, text) : forgot;
    if (st) {
        tn_graph_destroy(t.g);
        return st;
    }
    *out = (tn_trace){.g = t.g, .loss = t.loss, .logits = t.logits};
    return TN_OK;
}
