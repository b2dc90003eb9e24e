/* inspect_move.c - from one placement to another, drawn: the steps, what a rank holds and receives
 * at each, and the way that moves one axis after the other. */
#include "lua/inspect.h"
#include "lua/place.h"
#include "lua/state.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------ a placement as text */

typedef struct reading {
    const char *where, *text;
    int rank;
    tn_layout *out;
    tn_status st;
} reading;

/* The helpers of sharding tables, R I P V S ACT SEQ ..., are the names that the text may use. */
static int read_table(lua_State *L)
{
    reading *q = lua_touserdata(L, 1);
    tn_host_require(L, "titan.layout");
    lua_getglobal(L, "load");
    lua_pushfstring(L, "return %s", q->text);
    lua_pushfstring(L, "=%s", q->where);
    lua_pushliteral(L, "t");
    lua_pushvalue(L, 2);
    lua_call(L, 4, 2);
    if (lua_isnil(L, -2)) {
        q->st = tn_error(TN_BAD_INPUT,
                         "%s: '%.60s' is no placement; write {dp:0 cp:1 tp:R} as `titan graph` "
                         "does, or ACT(R) as a sharding table does",
                         q->where, q->text);
        return 0;
    }
    lua_pop(L, 1);
    lua_call(L, 0, 1);
    q->st = tn_place_read(L, -1, q->rank, q->where, q->out);
    return 0;
}

tn_status tn_inspect_place(tn_recipe *r, const char *where, const char *text, int rank,
                           tn_layout *out)
{
    reading q = {.where = where, .text = text, .rank = rank, .out = out};
    if (tn_layout_parse(text, out)) return TN_OK;
    TN_TRY(tn_host_call(tn_recipe_host(r), read_table, &q));
    return q.st;
}

/* ------------------------------------------------------------ drawing */

static void add_block(const tn_mesh *mesh, const tn_value *v, const tn_layout *l, int64_t rank,
                      tn_text *out)
{
    int at[TN_N_AXES];
    int64_t bytes = tn_dtype_bytes((tn_dtype)v->dtype);
    tn_text block = {0};
    tn_mesh_coordinates(mesh, (int)(rank % tn_mesh_ranks(mesh)), at);
    for (int d = 0; d < v->rank; d++) {
        int64_t n = tn_layout_local(l, mesh, at, d, v->dim[d].extent, v->dim[d].units, NULL);
        tn_text_add(&block, "%s%lld", d ? " x " : "", (long long)n);
        bytes *= n;
    }
    tn_text_add(out, "%-22s %10s", tn_text_str(&block), tn_text_bytes(bytes).s);
    out->failed |= block.failed;
    tn_text_fini(&block);
}

static void add_step(const tn_reshard_step *s, tn_text *out)
{
    char axes[64];
    int n = 0;
    axes[0] = 0;
    for (int k = 0; k < s->n_axes; k++)
        n += snprintf(axes + n, sizeof axes - (size_t)n, "%s%s", k ? "," : "",
                      tn_axis_name((tn_axis)s->axes[k]));
    tn_text_add(out, "    | %s %s", tn_reshard_kind_name((tn_reshard_kind)s->kind), axes);
    if (s->from >= 0) tn_text_add(out, " of dim %d", s->from);
    if (s->to >= 0 && s->to != s->from) tn_text_add(out, " to dim %d", s->to);
    if (s->bytes)
        tn_text_add(out, ": receives %s, %s", tn_text_bytes(s->bytes).s,
                    tn_text_seconds(s->seconds).s);
    else tn_text_add(out, ": nothing travels");
    tn_text_add(out, "\n");
}

static void add_state(const tn_mesh *mesh, const tn_value *v, const tn_layout *l, int64_t rank,
                      tn_text *out)
{
    char text[128];
    tn_layout_print(l, text, sizeof text);
    tn_text_add(out, "  ");
    add_block(mesh, v, l, rank, out);
    tn_text_add(out, "%s%s\n", strlen(text) > 42 ? "\n      " : "  ", text);
}

tn_status tn_inspect_move(const tn_mesh *mesh, const tn_reshard_links *links, const tn_value *v,
                          const tn_layout *to, int64_t rank, tn_text *out)
{
    tn_arena arena = {0};
    tn_reshard plan;
    tn_status st = tn_reshard_plan(mesh, links, v, to, &arena, &plan);
    if (!st) {
        tn_text_add(out, "move        %s of rank %lld, %d step%s\n",
                    tn_dtype_name((tn_dtype)v->dtype), (long long)rank, plan.n_steps,
                    plan.n_steps == 1 ? "" : "s");
        add_state(mesh, v, &v->layout, rank, out);
        for (int i = 0; i < plan.n_steps; i++) {
            add_step(&plan.step[i], out);
            add_state(mesh, v, &plan.step[i].after, rank, out);
        }
        if (!plan.n_steps) tn_text_add(out, "  nothing moves\n");
        tn_text_add(out, "  in all      receives %s in %s, holds at most %s\n",
                    tn_text_bytes(plan.bytes).s, tn_text_seconds(plan.seconds).s,
                    tn_text_bytes(plan.peak_bytes).s);
        tn_text_add(out, "  otherwise   one axis after the other: %d step%s, receives %s in %s\n",
                    plan.by_axis_steps, plan.by_axis_steps == 1 ? "" : "s",
                    tn_text_bytes(plan.by_axis_bytes).s, tn_text_seconds(plan.by_axis_s).s);
        st = tn_text_end(out);
    }
    tn_arena_fini(&arena);
    return st;
}
