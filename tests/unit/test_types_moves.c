/* test_types_moves.c - transitions and losses against what the package spmd_types decides
 * (golden/types/transitions.jsonl, loss.jsonl): verdict, type, and the collectives that the planner
 * finds forward and backward. The values of transitions are in test_reshard_golden.c. */
#include "graph/passes.h"
#include "graph/reshard.h"
#include "tests/golden_types.h"

static quirk move_quirks[] = {
    {"transitions", "result_unusable", 0, 24, 3,
     "V has no global meaning: nothing goes there outside local_map", 0, 0, 0},
    {"transitions", "all_to_all_on_one_dim", 0, 0, 6,
     "a redistribution keeps its value: S(i) to S(i) moves nothing", 0, 0, 0},
    {"transitions", "no_op_refused_when_outer", 0, 6, 0,
     "not innermost is a property of one step: planned", 0, 0, 0},
    {"transitions", "shard_taken_as_sum", 0, 0, 8,
     "a source is what the value is, nobody claims it", 0, 0, 0},
    {"transitions", "local_mode_sees_no_dims", 0, 0, 4, "there is no local mode outside local_map",
     0, 0, 0},
    {"transitions", "no_gradient_no_flavour", 0, 0, 6,
     "as there: R and I of a value without gradient are one type", 0, 0, 0},
    {"transitions", "shard_taken_as_stack", 0, 0, 2,
     "a source is what the value is, nobody claims it", 0, 0, 0},
    {"transitions", "flattened_axis_and_specs", 0, 0, 6, "axes are atomic; several move at once", 0,
     0, 0},
    {"transitions", "low_precision_not_asked_for", 0, 0, 1,
     "sums are made in f32, whatever is asked", 0, 0, 0},
    {"transitions", "uneven_convert", 0, 0, 0,
     "rows of values: test_reshard_golden.c; uneven shards are cut by one rule, backward too", 0, 0,
     0},
    {"loss", "only_the_method_is_checked", 0, 6, 0,
     "the loss is I or P on every axis, however backward starts", 0, 0, 0},
    {"loss", "unwritten_axis", 0, 0, 2, "a placement names every axis", 0, 0, 0},
};

static difference move_differences[] = {
    {"transitions", "to V", NULL, "not_innermost", 0, REFUSED, 0,
     "V has no global meaning: nothing goes there outside local_map", 0},
    {"transitions", "to V", NULL, "varying_without_spec", 0, ACCEPTED, 'V',
     "a value may stay V: inside local_map", 0},
    {"transitions", "to V", "result_unusable", NULL, 0, REFUSED, 0,
     "V has no global meaning: nothing goes there outside local_map", 0},
    {"transitions", "", "no_op_refused_when_outer", NULL, 0, ACCEPTED, 'S',
     "not innermost is a property of one step: planned", 0},
    {"transitions", "", NULL, "not_innermost", 0, ACCEPTED, '=',
     "any number of axes change at a boundary: planned", 0},
    {"loss", "", "#017", NULL, 0, ACCEPTED, 0, "a pending loss is a sum, however backward starts",
     0},
    {"loss", "", "#018", NULL, 0, ACCEPTED, 0, "a pending loss is a sum, however backward starts",
     0},
    {"loss", "", "#055", NULL, 0, REFUSED, 0, "an axis of size 1 has a type, too", 0},
    {"loss", "", "#056", NULL, 0, REFUSED, 0, "an axis of size 1 has a type, too", 0},
    {"loss", "", "#057", NULL, 0, REFUSED, 0, "an axis of size 1 has a type, too", 0},
    {"loss", "", "only_the_method_is_checked", NULL, 0, REFUSED, 0,
     "the loss is I or P on every axis, however backward starts", 0},
};

/* ------------------------------------------------------------ transitions */

/* The collectives of a plan by name, as the golden list has them. */
static bool same_collectives(const tn_json *list, const tn_mesh *mesh, const tn_value *v,
                             const tn_layout *to)
{
    tn_arena arena = {0};
    tn_reshard p;
    tn_reshard_links links = tn_reshard_guess(mesh, 8);
    int n = 0;
    bool same = TN_CHECK_OK(tn_reshard_plan(mesh, &links, v, to, &arena, &p));
    for (int i = 0; same && i < p.n_steps; i++) {
        if (p.step[i].kind == TN_RESHARD_SLICE || p.step[i].kind == TN_RESHARD_PAD) continue;
        const char *name = tn_json_string(tn_json_at(list, n++));
        same = name && is(name, tn_reshard_kind_name((tn_reshard_kind)p.step[i].kind));
    }
    tn_arena_fini(&arena);
    return same && n == tn_json_count(list);
}

static int dim_of(const char *type)
{
    return type[0] == 'S' ? type[2] - '0' : -1;
}

/* Where `l` is after tp went to `dst`, innermost of its dim; the axes that were inside it move up.
 */
static void move_tp(tn_layout *l, const char *dst)
{
    for (int a = 0; a < TN_N_AXES; a++)
        if (l->type[TN_AXIS_TP] == TN_TYPE_S && a != TN_AXIS_TP && l->type[a] == TN_TYPE_S &&
            l->dim[a] == l->dim[TN_AXIS_TP] && l->order[a] > l->order[TN_AXIS_TP])
            l->order[a]--;
    l->dim[TN_AXIS_TP] = l->order[TN_AXIS_TP] = 0;
    l->type[TN_AXIS_TP] = dst[0] == 'S' ? TN_TYPE_R : (uint8_t)(strchr("RIVP", dst[0]) - "RIVP");
    if (dst[0] == 'S') tn_layout_shard(l, TN_AXIS_TP, dim_of(dst));
}

static const char *not_a_transition(const tn_json *j, const tn_json *said)
{
    const char *fn = text_of(j, "fn"), *kind = text_of(j, "kind"), *src = text_of(j, "src"),
               *dst = text_of(j, "dst");
    if (is(kind, "dtype")) return "a redistribute keeps the dtype; casts are unshard and reduce";
    if (is(kind, "mismatch")) return "a source is what the value is, nobody claims it";
    if (is(kind, "flat")) return "an axis is not a flattening of others";
    if (is(fn, "redistribute")) return NULL;
    if (is(text_of(said, "verdict"), "error") && !is(text_of(said, "why"), "not_innermost"))
        return "places are named, not collectives: the call that is refused cannot be made";
    if (src[0] == 'V') return "a value that is V stays V outside local_map";
    if (is(fn, "reinterpret") && !is(src, dst)) return "nothing reinterprets a value";
    if (is(fn, "all_to_all") && is(src, dst))
        return "an all_to_all on one dim permutes blocks: no redistribution";
    return NULL;
}

static void one_transition(const tn_json *j)
{
    const tn_json *said = tn_json_find(j, "global"), *in = tn_json_find(j, "in"),
                  *jm = tn_json_find(j, "mesh");
    const char *src = text_of(j, "src"), *dst = text_of(j, "dst"), *why = not_a_transition(j, said);
    tn_mesh mesh = mesh_of(jm);
    tn_layout from, to, up, down;
    if (is(text_of(j, "kind"), "value")) return; /* tests/unit/test_reshard_golden.c does them */
    if (why) {
        skip("transitions", why);
        return;
    }
    layout_of(jm, in, NULL, TN_TYPE_R, &from);
    to = from;
    if (!is(src, dst)) move_tp(&to, dst);
    else if (is(text_of(j, "place"), "outer") && from.type[TN_AXIS_TP] != TN_TYPE_S) return;
    tn_graph *g;
    int32_t id = -1;
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, false, &g))) return;
    row r = {.j = j, .g = g};
    tn_value like = {.rank = 2, .dim = {{8, 0}, {8, 0}}};
    int32_t x = state(&r, &like, true, &from);
    bool only_backward =
        (dst[0] == 'P' && src[0] != 'P' && src[0] != 'V') || (src[0] == 'R' && dst[0] == 'I');
    tn_named_attr grad = {"grad", {.kind = 'i', .u.i = only_backward}};
    tn_node_desc d = {.op = TN_OP_redistribute,
                      .n_in = 1,
                      .in = &x,
                      .n_attrs = 1,
                      .attrs = &grad,
                      .path = "m",
                      .layout = &to};
    tn_error_clear();
    verdict got = tn_graph_add(g, &d, &id) ? REFUSED : ACCEPTED;
    judge("transitions", j, dst[0] == 'V' ? "to V" : text_of(j, "fn"), said, got,
          got == ACCEPTED ? &g->values[id].layout : NULL, NULL);
    if (only_backward) { /* forward it is refused, with what may be written instead */
        grad.value.u.i = 0;
        TN_CHECK_FAILS(tn_graph_add(g, &d, &id), TN_BAD_INPUT, "no transition from");
    }
    if (got == ACCEPTED && is(text_of(said, "verdict"), "ok")) {
        tn_value v = g->values[x], dy = v;
        TN_CHECK_MSG(same_collectives(tn_json_find(said, "forward"), &mesh, &v, &to),
                     "transitions %s: %s to %s: other collectives forward", text_of(j, "id"), src,
                     dst);
        down = tn_layout_of_gradient(&from);
        up = tn_layout_of_gradient(&to);
        dy.layout = up;
        TN_CHECK_MSG(same_collectives(tn_json_find(said, "backward"), &mesh, &dy, &down),
                     "transitions %s: %s to %s: other collectives backward", text_of(j, "id"), src,
                     dst);
    }
    tn_graph_destroy(g);
}

/* ------------------------------------------------------------ loss */

static void one_loss(const tn_json *j)
{
    const tn_json *type = tn_json_find(j, "type"), *jm = tn_json_find(j, "mesh");
    tn_mesh mesh = mesh_of(jm);
    tn_layout l = tn_layout_all(TN_TYPE_I), loss;
    tn_graph *g, *out = NULL;
    int cut = 0;
    if (tn_json_kind_of(type) == TN_JSON_NULL || tn_json_count(type) != tn_json_count(jm)) {
        skip("loss", "every value has a type on every axis");
        return;
    }
    if (is(text_of(j, "call"), "loss.backward(gradient)")) {
        skip("loss", "a loss has no gradient from outside");
        return;
    }
    layout_of(jm, j, NULL, TN_TYPE_I, &loss);
    for (int a = 0; a < TN_N_AXES; a++) { /* a pending loss is the sum of a cut value */
        l.type[a] = loss.type[a];
        if (l.type[a] == TN_TYPE_P) tn_layout_shard(&l, (tn_axis)a, cut++);
    }
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, false, &g))) return;
    row r = {.j = j, .g = g};
    tn_value like = {.rank = 3, .dim = {{8, 0}, {8, 0}, {8, 0}}};
    int32_t x = state(&r, &like, true, &l), id = -1;
    TN_CHECK(add(&r, TN_OP_loss_sum, 1, &x, NULL, &id) == ACCEPTED);
    tn_error_clear();
    verdict got = tn_pass_differentiate(g, id, &out) ? REFUSED : ACCEPTED;
    tn_layout is_now = g->values[id].layout;
    difference *d = find_difference("loss", j, "", "");
    verdict golden = is(text_of(j, "verdict"), "ok") ? ACCEPTED : REFUSED,
            want = d ? d->titan : golden;
    n_expressed++;
    if (d) d->rows++;
    n_different += want != golden;
    TN_CHECK_MSG(got == want, "loss %s: titan %s, golden %s: %s", text_of(j, "id"),
                 got == ACCEPTED ? "accepts" : "refuses", text_of(j, "verdict"), tn_error_text());
    if (got == REFUSED)
        TN_CHECK_MSG(strstr(tn_error_text(), "it must be I or P on every axis"), "'%s'",
                     tn_error_text());
    for (int a = 0; a < TN_N_AXES; a++) TN_CHECK(is_now.type[a] == loss.type[a]);
    tn_error_clear();
    tn_graph_destroy(out);
    tn_graph_destroy(g);
}

int main(void)
{
    differences = move_differences;
    quirks = move_quirks;
    n_quirks = TN_COUNT(move_quirks);
    n_differences = TN_COUNT(move_differences);
    one_line("one row",
             "{\"id\":\"0\",\"mesh\":{\"tp\":2},\"mode\":\"global\",\"call\":\"loss.backward()\","
             "\"type\":{\"tp\":\"R\"},\"verdict\":\"error\",\"why\":\"loss_R\"}",
             one_loss);
    n_expressed = 0;
    each_line("transitions", one_transition);
    each_line("loss", one_loss);
    report();
    report_quirks();
    return tn_test_done("types_moves");
}
