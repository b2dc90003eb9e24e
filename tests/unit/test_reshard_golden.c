/* test_reshard_golden.c - plans run on the golden values of transitions
 * (golden/types/transitions.jsonl), 2 and 3 ranks, forward and backward. */
#include "engine/base/json.h"
#include "tests/blocks.h"

#include <stdlib.h>

/* "R", "S(1)" on tp. */
static tn_layout on_tp(const char *type)
{
    tn_layout l = tn_layout_all(TN_TYPE_I);
    if (type[0] == 'S') tn_layout_shard(&l, TN_AXIS_TP, type[2] - '0');
    else l.type[TN_AXIS_TP] = (uint8_t)(strchr("RIVP", type[0]) - "RIVP");
    return l;
}

/* The tensors of all ranks into their blocks, or against them. False: a block has another shape, or
 * other numbers. */
static bool blocks(world *w, const tn_layout *l, const tn_json *ranks, bool compare)
{
    for (int r = 0; r < w->ranks; r++) {
        const tn_json *t = tn_json_at(ranks, r), *shape = tn_json_find(t, "shape"),
                      *data = tn_json_find(t, "data");
        block b = {0};
        set_block(w, l, r, &b);
        if (tn_json_count(shape) != w->v->rank) return false;
        for (int d = 0; d < w->v->rank; d++) {
            int64_t n;
            if (!tn_json_int(tn_json_at(shape, d), &n) || n != b.count[d]) return false;
        }
        if (!compare) w->now[r] = b;
        for (int64_t i = 0, k = 0; i < w->n; i++) {
            double x;
            if (!b.has[i]) continue;
            if (!tn_json_number(tn_json_at(data, k++), &x)) return false;
            if (!compare) w->now[r].x[i] = (int)x;
            else if (!w->now[r].has[i] || w->now[r].x[i] != (int)x) return false;
        }
    }
    return true;
}

/* -1: the blocks are cut otherwise; else whether the plan gives the numbers. */
static int move_blocks(world *w, const tn_layout *from, const tn_layout *to, const tn_json *in,
                       const tn_json *out)
{
    tn_arena arena = {0};
    tn_reshard r;
    tn_value v = *w->v;
    v.layout = *from;
    w->v = &v;
    bool right = blocks(w, from, in, false);
    if (!right) return -1;
    if (!TN_CHECK_OK(tn_reshard_plan(w->mesh, &even_links, &v, to, &arena, &r))) return 0;
    for (int k = 0; k < r.n_steps; k++) {
        int64_t received;
        right &= do_step(w, &r.step[k], &received);
    }
    tn_arena_fini(&arena);
    return right && blocks(w, to, out, true);
}

/* Blocks that the package cuts otherwise, or cannot cut: titan's cut of the same tensor arrives
 * whole. */
static void own_cut(world *w, const tn_value *v, const tn_layout *to, const tn_json *global)
{
    static int x[MAX_ELEMENTS];
    tn_arena arena = {0};
    tn_reshard r;
    bool right = true;
    for (int64_t i = 0; i < w->n; i++) {
        double number = 0;
        tn_json_number(tn_json_at(tn_json_find(global, "data"), i), &number);
        x[i] = (int)number;
    }
    fill(w, x);
    if (!TN_CHECK_OK(tn_reshard_plan(w->mesh, &even_links, v, to, &arena, &r))) return;
    for (int k = 0; k < r.n_steps; k++) {
        int64_t received;
        right &= do_step(w, &r.step[k], &received);
    }
    TN_CHECK(right && all_as(w, to, x));
    tn_arena_fini(&arena);
}

static void golden_row(const tn_json *j, int *done, int *otherwise)
{
    static world w;
    const char *src = tn_json_string(tn_json_find(j, "src")),
               *dst = tn_json_string(tn_json_find(j, "dst")),
               *fn = tn_json_string(tn_json_find(j, "fn"));
    const tn_json *global = tn_json_find(j, "global_in"), *shape = tn_json_find(global, "shape");
    int64_t ranks = 0, extent[3] = {1, 1, 1};
    bool same = src && dst && !strcmp(src, dst);
    if (!global || src[0] == 'V' || dst[0] == 'V' || (!strcmp(fn, "all_to_all") && same)) return;
    if (!strcmp(fn, "reinterpret") && dst[0] == 'P') return; /* n copies become n times the value */
    tn_json_int(tn_json_find(j, "ranks"), &ranks);
    for (int d = 0; d < tn_json_count(shape); d++) tn_json_int(tn_json_at(shape, d), &extent[d]);
    tn_layout from = on_tp(src), to = on_tp(dst), up = tn_layout_of_gradient(&to),
              down = tn_layout_of_gradient(&from);
    tn_mesh mesh = {1, {1, 1, 1, (int)ranks}};
    tn_value v = value_of((int)tn_json_count(shape), extent, from);
    w.mesh = &mesh, w.v = &v, w.ranks = (int)ranks, w.n = tn_value_elements(&v);
    int forward = move_blocks(&w, &from, &to, tn_json_find(j, "in"), tn_json_find(j, "out")),
        backward = 1;
    w.v = &v;
    if (forward >= 0 && tn_json_find(j, "grad_in"))
        backward =
            move_blocks(&w, &up, &down, tn_json_find(j, "grad_out"), tn_json_find(j, "grad_in"));
    w.v = &v;
    if (forward != 1 || backward != 1) own_cut(&w, &v, &to, global);
    bool refused = tn_json_find(j, "verdict") != NULL,
         uncut = from.type[TN_AXIS_TP] != TN_TYPE_S && to.type[TN_AXIS_TP] != TN_TYPE_S;
    if (uncut || !(tn_json_find(j, "args") || tn_json_find(j, "quirk") || refused))
        TN_CHECK_MSG(
            forward == 1 && backward == 1, "%s: %s %s to %s on %d ranks: %d forward, %d backward",
            tn_json_string(tn_json_find(j, "id")), fn, src, dst, (int)ranks, forward, backward);
    *done += forward == 1 && backward == 1;
    *otherwise += !(forward == 1 && backward == 1);
}

/* Transitions on 2 and 3 ranks, values and gradients, of which every plan must give the package's
 * numbers where both cut alike. */
static void golden_values(void)
{
    const char *path = tn_test_golden("types/transitions.jsonl");
    char *line = NULL;
    size_t size = 0;
    int rows = 0, done = 0, otherwise = 0;
    FILE *f = path ? fopen(path, "r") : NULL;
    if (!f) return;
    for (ssize_t n; (n = getline(&line, &size, f)) > 1;) {
        const tn_json *j;
        if (!TN_CHECK_OK(tn_json_parse("transitions.jsonl", line, n, &j))) break;
        if (!strcmp(tn_json_string(tn_json_find(j, "kind")), "value")) {
            rows++;
            golden_row(j, &done, &otherwise);
        }
        tn_json_free(j);
    }
    TN_CHECK(done >= 80);
    printf("golden types: values: %d rows, %d as there, %d cut by titan's own rule, %d with V or "
           "changing the value\n",
           rows, done, otherwise, rows - done - otherwise);
    free(line);
    fclose(f);
}

int main(void)
{
    static const char row[] =
        "{\"id\":\"0\",\"fn\":\"redistribute\",\"src\":\"P\",\"dst\":\"S(0)\",\"ranks\":2,\"global_"
        "in\":{\"shape\":[2],\"data\":[5,7]},"
        "\"in\":[{\"shape\":[2],\"data\":[1,9]},{\"shape\":[2],\"data\":[4,-2]}],"
        "\"out\":[{\"shape\":[1],\"data\":[5]},{\"shape\":[1],\"data\":[7]}]}";
    const tn_json *j;
    int done = 0, otherwise = 0;
    if (TN_CHECK_OK(tn_json_parse("row", row, sizeof row - 1, &j))) {
        golden_row(j, &done, &otherwise);
        TN_CHECK(done == 1);
        tn_json_free(j);
    }
    golden_values();
    return tn_test_done("reshard_golden");
}
