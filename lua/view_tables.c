/* view_tables.c - the half of titan.view that returns tables: parameters, names, memory over time,
 * who is live at the peak. */
#include "graph/cost.h"
#include "graph/names.h"
#include "graph/occupancy.h"
#include "graph/op.h"
#include "lua/classes.h"
#include "lua/inspect.h"
#include "lua/state.h"
#include "lua/view.h"

#include <stdio.h>
#include <string.h>

static void set_text(lua_State *L, const char *key, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, key);
}

static void set_int(lua_State *L, const char *key, int64_t n)
{
    lua_pushinteger(L, n);
    lua_setfield(L, -2, key);
}

static void set_num(lua_State *L, const char *key, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, key);
}

static const tn_program *program_of(lua_State *L, tn_session *s, int arg)
{
    lua_Integer which = luaL_optinteger(L, arg, 0);
    luaL_argcheck(L, which >= 0 && which < s->trains.n, arg, "no such pipeline rank");
    return s->trains.of[which];
}

/* ------------------------------------------------------------ parameters */

static void add_parameter(lua_State *L, const tn_program *p, const tn_node *n)
{
    const tn_value *x = &p->g->values[n->out0];
    char shape[128], layout[128];
    int len = 0;
    shape[0] = 0;
    for (int d = 0; d < x->rank; d++)
        len += snprintf(shape + len, sizeof shape - (size_t)len, "%s%lld", d ? " x " : "",
                        (long long)x->dim[d].extent);
    tn_layout_print(&x->layout, layout, sizeof layout);
    lua_createtable(L, 0, 6);
    set_text(L, "name", tn_node_attr_text(n, "name"));
    set_text(L, "shape", shape);
    set_text(L, "dtype", tn_dtype_name((tn_dtype)x->dtype));
    set_text(L, "layout", layout);
    set_int(L, "elements", tn_value_elements(x));
    set_int(L, "bytes", tn_program_value_bytes(p->g, x));
}

/* parameters() -> list, in the order of the graph; a shared one once */
static int f_parameters(lua_State *L)
{
    tn_session *s = tn_view_session(L, tn_view_of(L));
    lua_Integer k = 0;
    lua_newtable(L); /* names seen */
    lua_newtable(L);
    for (int i = 0; i < s->trains.n; i++) {
        const tn_program *p = s->trains.of[i];
        for (int64_t v = 0; v < p->g->n_nodes; v++) {
            const tn_node *n = &p->g->nodes[v];
            if (n->op != TN_OP_state || strcmp(tn_node_attr_text(n, "kind"), "param")) continue;
            if (lua_getfield(L, -2, tn_node_attr_text(n, "name")) != LUA_TNIL) {
                lua_pop(L, 1);
                continue;
            }
            lua_pop(L, 1);
            lua_pushboolean(L, 1);
            lua_setfield(L, -3, tn_node_attr_text(n, "name"));
            add_parameter(L, p, n);
            lua_rawseti(L, -2, ++k);
        }
    }
    return 1;
}

/* paths() -> set of module paths and parameter names */
static int f_paths(lua_State *L)
{
    tn_session *s = tn_view_session(L, tn_view_of(L));
    lua_newtable(L);
    for (int i = 0; i < s->trains.n; i++) {
        const tn_graph *g = s->trains.of[i]->g;
        for (int64_t v = 0; v < g->n_nodes; v++) {
            const tn_node *n = &g->nodes[v];
            bool param = n->op == TN_OP_state && !strcmp(tn_node_attr_text(n, "kind"), "param");
            const char *name = param ? tn_node_attr_text(n, "name") : n->path;
            if (!name[0]) continue;
            lua_pushboolean(L, 1);
            lua_setfield(L, -2, name);
        }
    }
    return 1;
}

/* ------------------------------------------------------------ memory over time */

typedef struct moment { /* of a stretch of time: the fullest tick in it */
    int64_t tick, bytes;
    tn_occupancy by_kind;
    double begin_s;
} moment;

static double spent_s(const tn_graph *g, int64_t node, const tn_cost_machine *m)
{
    return tn_cost_seconds(g, &g->nodes[node], m) * (double)tn_cost_runs(g, &g->nodes[node]) /
           (g->nodes[node].scope == TN_SCOPE_MICROBATCH || g->nodes[node].scope == TN_SCOPE_CHUNK
                ? (double)g->n_microbatches
                : 1);
}

/* One microbatch, cut into `bins` stretches of equal predicted time. */
static tn_status fill(const tn_program *p, const tn_cost_machine *m, tn_arena *arena, int bins,
                      moment *out, double *seconds)
{
    const tn_graph *g = p->g;
    tn_occupancy *at;
    double now = 0, all = 0;
    TN_TRY(tn_occupancy_build(p, arena, &at));
    for (int64_t i = 0; i < g->n_nodes; i++) all += spent_s(g, i, m);
    for (int b = 0; b < bins; b++) out[b] = (moment){.tick = -1, .begin_s = all * b / bins};
    for (int64_t i = 0; i < g->n_nodes; i++) {
        int64_t bytes = 0;
        for (int k = 0; k < TN_OCCUPANCY_KINDS; k++) bytes += at[i].bytes[k];
        int first = (int)(now / all * bins);
        now += spent_s(g, i, m);
        int last = (int)(now / all * bins);
        for (int b = first; b <= last && b < bins; b++) {
            if (out[b].tick >= 0 && out[b].bytes >= bytes) continue;
            out[b].tick = i;
            out[b].bytes = bytes;
            out[b].by_kind = at[i];
        }
    }
    *seconds = all;
    return TN_OK;
}

static void add_moment(lua_State *L, const tn_graph *g, const moment *m)
{
    static const char *const phases[] = {"forward", "backward", "weights", "update", "exchange"};
    lua_createtable(L, 0, 5 + TN_OCCUPANCY_KINDS);
    if (m->tick >= 0) {
        const tn_node *n = &g->nodes[m->tick];
        set_text(L, "op", tn_op_name((tn_op_id)n->op));
        set_text(L, "path", n->path);
        set_text(L, "phase", phases[n->phase]);
    }
    set_num(L, "s", m->begin_s);
    set_int(L, "bytes", m->bytes);
    for (int k = 0; k < TN_OCCUPANCY_KINDS; k++)
        set_int(L, tn_occupancy_name((tn_occupancy_kind)k), m->by_kind.bytes[k]);
}

static void add_planned(lua_State *L, const tn_session *s, int which)
{
    tn_session_bytes b = tn_session_memory_of(s, which);
    lua_createtable(L, 0, 8);
    set_int(L, "parameters", b.parameters);
    set_int(L, "optimizer", b.moments);
    set_int(L, "inputs", b.inputs + b.buffers);
    set_int(L, "step", b.step);
    set_int(L, "mail", b.mail);
    set_int(L, "scratch", b.scratch);
    set_int(L, "process", b.process);
    set_int(L, "total", b.total);
}

/* timeline(bins [, pipeline rank]) */
static int f_timeline(lua_State *L)
{
    tn_session *s = tn_view_session(L, tn_view_of(L));
    lua_Integer bins = luaL_checkinteger(L, 1);
    const tn_program *p = program_of(L, s, 2);
    luaL_argcheck(L, bins >= 1 && bins <= 1000, 1, "1 to 1000");
    moment *m = lua_newuserdatauv(L, (size_t)bins * sizeof *m, 0);
    tn_cost_machine machine = tn_classes_machine(s);
    tn_arena arena = {0};
    double seconds;
    tn_status st = fill(p, &machine, &arena, (int)bins, m, &seconds);
    tn_arena_fini(&arena);
    if (st) return tn_host_raise(L, st);
    lua_createtable(L, (int)bins, 6);
    for (int i = 0; i < bins; i++) {
        add_moment(L, p->g, &m[i]);
        lua_rawseti(L, -2, i + 1);
    }
    set_num(L, "seconds", seconds);
    set_int(L, "peak", p->pack.peak);
    set_int(L, "bound", p->pack.bound);
    set_int(L, "microbatches", p->g->n_microbatches);
    add_planned(L, s, (int)luaL_optinteger(L, 2, 0));
    lua_setfield(L, -2, "planned");
    return 1;
}

/* owners([pipeline rank]) -> { bytes, name, reader, path } of what is live at the peak */
static int f_owners(lua_State *L)
{
    tn_session *s = tn_view_session(L, tn_view_of(L));
    const tn_program *p = program_of(L, s, 1);
    tn_arena arena = {0};
    const char **names;
    lua_Integer k = 0;
    tn_status st = tn_names_build(p->g, &arena, &names);
    if (st) {
        tn_arena_fini(&arena);
        return tn_host_raise(L, st);
    }
    /* the names must outlive Lua's errors: they are copied under a call that cannot raise */
    const tn_buffer **peak = lua_newuserdatauv(L, (size_t)(p->n_buffers + 1) * sizeof *peak, 0);
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_buffers; i++) {
        const tn_buffer *b = &p->buffers[i];
        if (b->region == TN_REGION_STEP && b->start <= p->pack.peak_tick &&
            p->pack.peak_tick < b->end)
            peak[n++] = b;
    }
    tn_text all = {0}; /* name NUL name NUL */
    for (int64_t i = 0; i < n; i++)
        tn_text_put(&all, names[peak[i]->value], strlen(names[peak[i]->value]) + 1);
    tn_arena_fini(&arena);
    st = tn_text_end(&all);
    tn_view *v = tn_view_of(L);
    tn_text_fini(&v->text);
    v->text = all; /* the view's, if Lua raises below */
    if (st) return tn_host_raise(L, st);
    lua_createtable(L, (int)n, 0);
    const char *name = tn_text_str(&v->text);
    for (int64_t i = 0; i < n; i++, name += strlen(name) + 1) {
        const tn_node *user = &p->g->nodes[peak[i]->last_user];
        lua_createtable(L, 0, 5);
        set_text(L, "name", name);
        set_int(L, "bytes", peak[i]->bytes);
        set_text(L, "reader", tn_op_name((tn_op_id)user->op));
        set_text(L, "path", user->path);
        set_text(L, "kind", tn_occupancy_name(tn_occupancy_of(p, peak[i])));
        lua_rawseti(L, -2, ++k);
    }
    return 1;
}

/* ------------------------------------------------------------ what there is */

/* about() -> recipe, settings, ranks, pipeline ranks */
static int f_about(lua_State *L)
{
    tn_view *v = tn_view_of(L);
    tn_session *s = tn_view_session(L, v);
    lua_createtable(L, 0, 5);
    set_text(L, "recipe", v->path);
    set_int(L, "ranks", tn_inspect_ranks(&s->shape.mesh));
    set_int(L, "stages", s->trains.n);
    lua_createtable(L, v->n_settings, 0);
    for (int i = 0; i < v->n_settings; i++) {
        lua_pushstring(L, v->settings[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "settings");
    return 1;
}

static int f_ops(lua_State *L)
{
    lua_createtable(L, 0, TN_N_OPS);
    for (int i = 0; i < TN_N_OPS; i++) {
        const tn_op *op = tn_op_get((tn_op_id)i);
        lua_createtable(L, 0, 2);
        set_text(L, "factors", op->sig);
        set_text(L, "attributes", op->attrs && op->attrs[0] ? op->attrs : "none");
        lua_setfield(L, -2, op->name);
    }
    return 1;
}

void tn_view_add_tables(lua_State *L)
{
    static const luaL_Reg functions[] = {{"parameters", f_parameters},
                                         {"paths", f_paths},
                                         {"timeline", f_timeline},
                                         {"owners", f_owners},
                                         {"about", f_about},
                                         {"ops", f_ops},
                                         {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    lua_createtable(L, 16, 0);
    for (int i = 0; tn_build_passes[i]; i++) {
        lua_pushstring(L, tn_build_passes[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "passes");
}
