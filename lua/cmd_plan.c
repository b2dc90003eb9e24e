/* cmd_plan.c - `titan plan RECIPE`: what is known before a run, or one thing of it: a rank, a
 * value, a move between two placements. Allocates nothing of the model's size. */
#include "lua/commands.h"
#include "lua/inspect.h"
#include "lua/report.h"
#include "lua/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "8,8192,4096" */
static tn_status read_shape(const char *text, tn_value *v)
{
    for (const char *p = text; v->rank < TN_MAX_RANK;) {
        char *end;
        errno = 0;
        long long n = strtoll(p, &end, 10);
        if (errno || end == p || n < 1 || n > TN_MAX_ELEMENTS || (*end && *end != ',')) break;
        v->dim[v->rank++].extent = n;
        p = end + 1;
        if (*end) continue;
        if (tn_value_elements(v) <= TN_MAX_ELEMENTS) return TN_OK;
        break;
    }
    TN_FAIL(TN_BAD_INPUT,
            "command line: --shape %s: must be up to %d extents with commas between them, as in "
            "--shape 8,4096,1024",
            text, TN_MAX_RANK);
}

/* The graphs of all pipeline ranks; in `arena`. */
static tn_status stages_of(const tn_session *s, tn_arena *arena, tn_inspect_stages *out)
{
    void *mem;
    TN_TRY(tn_arena_alloc(arena, (size_t)s->trains.n * sizeof(tn_graph *), &mem));
    const tn_graph **graphs = mem;
    for (int i = 0; i < s->trains.n; i++) graphs[i] = s->trains.of[i]->g;
    *out = (tn_inspect_stages){graphs, s->trains.n};
    return TN_OK;
}

/* What moves: the named value, or a shape; from its own placement, or --from. */
static tn_status moved_value(const tn_args *a, tn_session *s, const tn_graph *g, tn_value *v)
{
    tn_dtype dtype = TN_F32;
    if (!a->to) TN_FAIL(TN_BAD_INPUT, "command line: --from: where to is missing; add --to LAYOUT");
    if (!a->tensor && (!a->shape || !a->from))
        TN_FAIL(TN_BAD_INPUT,
                "command line: --to: what moves is missing; add --tensor NAME, or --from LAYOUT "
                "and --shape N,N,...");
    if (a->tensor) {
        int32_t id;
        TN_TRY(tn_inspect_find(g, a->tensor, &id));
        *v = g->values[id];
        dtype = (tn_dtype)v->dtype;
    }
    if (a->shape) {
        tn_layout l = v->layout;
        *v = (tn_value){.layout = l};
        TN_TRY(read_shape(a->shape, v));
    }
    if (a->dtype && !tn_dtype_parse(a->dtype, &dtype))
        TN_FAIL(TN_BAD_INPUT, "command line: --dtype %s: must be f32, bf16, f16 or i32", a->dtype);
    v->dtype = (uint8_t)dtype;
    return a->from
               ? tn_inspect_place(s->recipe, "command line: --from", a->from, v->rank, &v->layout)
               : TN_OK;
}

static tn_status move(const tn_args *a, tn_session *s, const tn_graph *g, int64_t rank,
                      tn_text *out)
{
    tn_value v = {0};
    tn_layout to;
    TN_TRY(moved_value(a, s, g, &v));
    TN_TRY(tn_inspect_place(s->recipe, "command line: --to", a->to, v.rank, &to));
    tn_reshard_links links = tn_reshard_guess(&s->shape.mesh, tn_inspect_node(s->recipe));
    return tn_inspect_move(&s->shape.mesh, &links, &v, &to, rank, out);
}

/* Where a value lies, or how it moves. */
static tn_status one_value(const tn_args *a, tn_session *s, tn_text *out)
{
    tn_inspect_stages stages;
    const tn_graph *g;
    tn_arena arena = {0};
    int64_t rank;
    tn_status st = stages_of(s, &arena, &stages);
    if (!st) st = tn_inspect_choose(&stages, a->tensor, a->has_rank ? a->rank : -1, &g, &rank);
    if (!st)
        st =
            a->to || a->from ? move(a, s, g, rank, out) : tn_inspect_value(g, a->tensor, rank, out);
    tn_arena_fini(&arena);
    return st;
}

static tn_status answer(const tn_args *a, tn_session *s, tn_text *out)
{
    bool one = a->tensor || a->from || a->to || a->has_rank;
    if (a->json && one)
        TN_FAIL(TN_BAD_INPUT,
                "command line: --json: prints the whole plan; leave it out beside --rank, "
                "--tensor, --from and --to");
    if ((a->shape || a->dtype) && !a->to)
        TN_FAIL(TN_BAD_INPUT, "command line: %s: of what moves; add --to LAYOUT",
                a->shape ? "--shape" : "--dtype");
    if (a->tensor || a->to || a->from) return one_value(a, s, out);
    if (a->has_rank) {
        int node = tn_inspect_node(s->recipe);
        tn_inspect_mesh(&s->shape.mesh, node, out);
        return tn_inspect_rank(&s->shape.mesh, node, a->rank, out);
    }
    return a->json ? tn_report_plan_json(s, out) : tn_report_plan(s, out);
}

static tn_status plan(const tn_args *a, tn_session *s)
{
    tn_recipe *recipe;
    tn_text text = {0};
    TN_TRY(tn_args_recipe(a, &recipe));
    int64_t world = a->world ? a->world : tn_recipe_int(recipe, "job.world");
    TN_TRY(tn_session_plan(recipe, true, world, s));
    tn_status st = answer(a, s, &text);
    if (!st) fputs(tn_text_str(&text), stdout);
    tn_text_fini(&text);
    return st;
}

tn_status tn_command_plan(const tn_args *a)
{
    tn_session s = {0};
    tn_status st = plan(a, &s);
    tn_session_close(&s);
    return st;
}
