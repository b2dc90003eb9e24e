/* test_inspect.c - the mesh, ranks, values and moves as text: known pictures, every rank and slice
 * against the layout itself, 80 columns everywhere, and the same for Lua. */
#include "lua/inspect.h"
#include "lua/state.h"
#include "tests/traced.h"

static const char model[] =
    "return require('titan').recipe { model = require('models.llama3').debug { n_layers = 2 } }";

static void check_width(const tn_text *t, const char *what)
{
    int wide = 0, most = 0, blanks = 0;
    for (const char *p = tn_text_str(t); *p; p++) {
        if (*p == '\n' && p > tn_text_str(t) && p[-1] == ' ') blanks++;
        wide = *p == '\n' ? 0 : wide + 1;
        if (wide > most) most = wide;
    }
    TN_CHECK_MSG(most <= 80 && !blanks, "%s: %d columns, %d lines end in blanks:\n%s", what, most,
                 blanks, tn_text_str(t));
}

static void test_mesh(void)
{
    tn_text t = {0};
    tn_mesh mesh = {2, {1, 2, 1, 4}};
    tn_inspect_mesh(&mesh, 2, &t);
    TN_CHECK_TEXT(tn_text_str(&t),
                  "mesh        16 ranks, 2 per node; rank numbers, tp to the right:\n"
                  "  pp 0\n"
                  "  dp_shard 0 |  0  1| 2  3 | nodes 0 to 1\n"
                  "  dp_shard 1 |  4  5| 6  7 | nodes 2 to 3\n"
                  "  pp 1\n"
                  "  dp_shard 0 |  8  9|10 11 | nodes 4 to 5\n"
                  "  dp_shard 1 | 12 13|14 15 | nodes 6 to 7\n"
                  "  axis          size  stride  a group lies on\n"
                  "  pp               2       8  2 nodes\n"
                  "  dp_replicate     1       8  -\n"
                  "  dp_shard         2       4  2 nodes\n"
                  "  cp               1       4  -\n"
                  "  tp               4       1  2 nodes\n"
                  "  folded\n"
                  "  dp               2      = dp_replicate x dp_shard: rows of a step\n"
                  "  storage          2      = dp_shard x cp: weights, moments, gradients at rest\n"
                  "  loss             2      = dp x cp: sums over tokens\n"
                  "  efsdp            8      = dp_shard x cp x tp / ep: routed experts at rest\n"
                  "  ep               1      = 1, innermost: routed experts; not in this build\n"
                  "warning: tp 4 crosses nodes (job.ranks_per_node = 2); tp 2 stays inside\n");
    tn_text_cut(&t, 0);
    TN_CHECK_OK(tn_inspect_rank(&mesh, 2, 13, &t));
    TN_CHECK_TEXT(tn_text_str(&t), "rank 13     pp 1 dp_replicate 0 dp_shard 1 cp 0 tp 1, node 6\n"
                                   "  pp           5 13\n"
                                   "  dp_shard     9 13\n"
                                   "  tp           12 13 14 15\n"
                                   "  dp           9 13\n"
                                   "  storage      9 13\n"
                                   "  loss         9 13\n"
                                   "  efsdp        8 9 10 11 12 13 14 15\n");
    TN_CHECK_FAILS(tn_inspect_rank(&mesh, 2, 16, &t), TN_BAD_INPUT, "has 16 ranks; 0 to 15");
    tn_text_fini(&t);
}

static void test_meshes(void)
{
    static const tn_mesh meshes[] = {{1, {1, 1, 1, 1}},   {8, {1, 8, 1, 8}},  {1, {2, 32, 1, 8}},
                                     {16, {4, 64, 2, 8}}, {3, {1, 1, 1, 64}}, {1, {1, 4096, 1, 1}}};
    for (int i = 0; i < TN_COUNT(meshes); i++)
        for (int node = 1; node <= 64; node *= 4) {
            tn_text t = {0};
            int64_t ranks = tn_inspect_ranks(&meshes[i]);
            tn_inspect_mesh(&meshes[i], node, &t);
            TN_CHECK_OK(tn_inspect_rank(&meshes[i], node, ranks - 1, &t));
            check_width(&t, "mesh");
            tn_text_cut(&t, 0);
            tn_inspect_warnings(&meshes[i], node, &t);
            bool crosses = false;
            int tp = meshes[i].size[TN_AXIS_TP];
            for (int64_t r = 0; r < ranks; r += tp) crosses |= r / node != (r + tp - 1) / node;
            TN_CHECK((t.n_bytes > 0) == crosses);
            tn_text_fini(&t);
        }
}

/* ------------------------------------------------------------ values */

static const char *line_of(const char *text, const char *part)
{
    static char line[160];
    const char *p = strstr(text, part);
    if (!p) return "";
    while (p > text && p[-1] != '\n') p--;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(p, "\n"), p);
    return line;
}

static void test_values(const tn_graph *g)
{
    tn_text t = {0};
    TN_CHECK_OK(tn_inspect_value(g, "layers.1.attention.wq.weight", 5, &t));
    TN_CHECK_TEXT(tn_text_str(&t),
                  "layers.1.attention.wq.weight   param, f32 [256, 256]\n"
                  "  {dp:R cp:R tp:0}\n"
                  "  dim 0      256 in 16 heads, 2 parts of up to 128: tp 2\n"
                  "  dim 1      256, whole\n"
                  "  dp_replicate 2: R, the same data, different work next\n"
                  "  dp_shard 2: R, the same data, different work next\n"
                  "  rank 5 has [128, 256) x [0, 256): 128 x 256, 128 KiB\n"
                  "  dim 0 |-------------tp 0--------------|-------------tp 1--------------|\n"
                  "    dim 0                | ranks that hold it\n"
                  "    [0, 128)             | 0 2 4 6\n"
                  "  * [128, 256)           | 1 3 5 7\n");
    tn_text_cut(&t, 0);
    TN_CHECK_OK(tn_inspect_value(g, "layers.1.ffn_norm", 6, &t)); /* what the module computes */
    TN_CHECK_TEXT(line_of(tn_text_str(&t), "rank 6 has"),
                  "  rank 6 has [3, 4) x [0, 16) x [0, 256): 1 x 16 x 256, 16.0 KiB");
    TN_CHECK_TEXT(line_of(tn_text_str(&t), "[2, 3)"),
                  "    [2, 3)               | 4                         | 5");
    tn_text_cut(&t, 0);
    TN_CHECK_OK(tn_inspect_value(g, "%layers.1.ffn_norm.rmsnorm:1", 0, &t));
    TN_CHECK(strstr(tn_text_str(&t), "layers.1.ffn_norm.rmsnorm:1   rmsnorm, f32 [4, 32]"));
    TN_CHECK_FAILS(tn_inspect_value(g, "layers.1.atention", 0, &t), TN_BAD_INPUT,
                   "layers.1.atention: no parameter, module or value of that name; did you mean "
                   "'layers.1.attention'?");
    TN_CHECK_FAILS(tn_inspect_value(g, "zzz", 0, &t), TN_BAD_INPUT, "`titan graph RECIPE` prints");
    TN_CHECK_FAILS(tn_inspect_value(g, "norm.weight", 8, &t), TN_BAD_INPUT, "has 8 ranks; 0 to 7");
    tn_text_fini(&t);
}

/* Every state on every rank: its own line says what the layout says. */
static void test_slices(const tn_graph *g)
{
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const tn_node *n = &g->nodes[i];
        if (n->op != TN_OP_state) continue;
        const tn_value *v = &g->values[n->out0];
        for (int r = 0; r < tn_mesh_ranks(&g->mesh); r++) {
            tn_text t = {0}, want = {0};
            int at[TN_N_AXES];
            tn_mesh_coordinates(&g->mesh, r, at);
            tn_text_add(&want, "  rank %d has ", r);
            for (int d = 0; d < v->rank; d++) {
                int64_t b, k = tn_layout_local(&v->layout, &g->mesh, at, d, v->dim[d].extent,
                                               v->dim[d].units, &b);
                tn_text_add(&want, "%s[%lld, %lld)", d ? " x " : "", (long long)b,
                            (long long)(b + k));
            }
            TN_CHECK_OK(tn_inspect_value(g, tn_node_attr_text(n, "name"), r, &t));
            TN_CHECK_MSG(strstr(tn_text_str(&t), tn_text_str(&want)), "no '%s' in\n%s",
                         tn_text_str(&want), tn_text_str(&t));
            check_width(&t, "value");
            tn_text_fini(&t);
            tn_text_fini(&want);
        }
    }
}

/* ------------------------------------------------------------ moves and Lua */

static void test_moves(tn_recipe *r)
{
    tn_mesh mesh = {1, {1, 2, 1, 4}};
    tn_reshard_links links = tn_reshard_guess(&mesh, 8);
    tn_layout to;
    tn_value v = {.dtype = TN_BF16, .rank = 3, .dim = {{8, 0}, {64, 0}, {32, 0}}};
    tn_text t = {0};
    TN_CHECK_OK(tn_inspect_place(r, "from", "ACT(P)", 3, &v.layout));
    TN_CHECK_OK(tn_inspect_place(r, "to", "SEQ", 3, &to));
    TN_CHECK_OK(tn_inspect_move(&mesh, &links, &v, &to, 6, &t));
    TN_CHECK_TEXT(tn_text_str(&t),
                  "move        bf16 of rank 6, 1 step\n"
                  "  4 x 64 x 32              16.0 KiB  {dp:0 cp:1 tp:P}\n"
                  "    | reduce_scatter tp to dim 1: receives 12.0 KiB, 8.44 us\n"
                  "  4 x 16 x 32              4.00 KiB  {dp:0 cp:1.0 tp:1.1}\n"
                  "  in all      receives 12.0 KiB in 8.44 us, holds at most 16.0 KiB\n"
                  "  otherwise   one axis after the other: 1 step, receives 12.0 KiB in 8.44 us\n");
    tn_text_cut(&t, 0);
    TN_CHECK_OK(tn_inspect_place(r, "to", "{dp:R cp:R tp:2}", 3, &to));
    TN_CHECK_OK(tn_inspect_place(r, "from", "{ dp = S(0), cp = R, tp = S(0 + 1) }", 3, &v.layout));
    TN_CHECK_OK(tn_inspect_move(&mesh, &links, &v, &to, 0, &t));
    check_width(&t, "move");
    TN_CHECK(strstr(tn_text_str(&t), "all_to_all tp of dim 1 to dim 2") &&
             strstr(tn_text_str(&t), "all_gather dp_shard of dim 0"));
    TN_CHECK_FAILS(tn_inspect_place(r, "to", "ACT(", 3, &to), TN_BAD_INPUT,
                   "to: 'ACT(' is no placement; write {dp:0 cp:1 tp:R}");
    TN_CHECK_FAILS(tn_inspect_place(r, "to", "ACT(S(3))", 3, &to), TN_BAD_INPUT,
                   "to: tp = S(3) on a tensor of rank 3");
    TN_CHECK_FAILS(tn_inspect_place(r, "to", "{ dp = R }", 3, &to), TN_BAD_INPUT,
                   "to: no placement for axis cp");
    TN_CHECK_FAILS(tn_inspect_place(r, "to", "nil + 1", 3, &to), TN_BAD_INPUT, "arithmetic");
    tn_text_fini(&t);
}

static int in_lua(lua_State *L)
{
    static const char code[] =
        "local inspect = ...\n"
        "local function bad(part, f, ...)\n"
        "  local ok, why = pcall(f, ...)\n"
        "  assert(not ok and why:find(part, 1, true), why)\n"
        "end\n"
        "assert(inspect.mesh():find('8 ranks', 1, true))\n"
        "assert(inspect.mesh(5):find('rank 5 ', 1, true))\n"
        "assert(inspect.layout('norm.weight', 3):find('rank 3 has [0, 256)', 1, true))\n"
        "assert(inspect.move({ 8, 64, 32 }, 'SEQ', 'ACT(P)'):find('reduce_scatter tp', 1, true))\n"
        "assert(inspect.move('layers.0.attention.wq.weight', 'param(R)'):find('all_gather tp', 1, "
        "true))\n"
        "bad('has 8 ranks', inspect.mesh, 8)\n"
        "bad('no parameter', inspect.layout, 'nrm.weight')\n"
        "bad('extents', inspect.move, {}, 'SEQ', 'SEQ')\n"
        "bad('at least 1', inspect.move, { 0 }, 'SEQ', 'SEQ')\n"
        "bad('has 8 ranks', inspect.move, 'norm.weight', 'param(R)', nil, 8)\n"
        "bad('is no placement', inspect.move, 'norm.weight', 'param(')\n";
    tn_inspect *q = lua_touserdata(L, 1);
    if (luaL_loadbuffer(L, code, sizeof code - 1, "=test")) return lua_error(L);
    tn_inspect_push(L, q);
    lua_call(L, 1, 0);
    return 0;
}

/* Two stages, cut by hand: who has what, and what is said where nobody has it. */
static void test_stages(void)
{
    fixture f[2] = {{0}};
    const tn_graph *graphs[2], *g;
    int64_t rank;
    static const char *const models[2] = {"return require('titan').recipe { model = "
                                          "require('models.llama3').debug { n_layers = 1 } }",
                                          model};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    o.mesh = (tn_mesh){2, {1, 2, 1, 2}};
    o.chunk_rows = o.rows;
    for (int i = 0; i < 2; i++) {
        if (!TN_CHECK_OK(trace_with(models[i], &o, &f[i]))) return;
        graphs[i] = f[i].t.g;
    }
    tn_inspect_stages s = {graphs, 2};
    TN_CHECK_OK(tn_inspect_choose(&s, "norm.weight", -1, &g, &rank));
    TN_CHECK(g == graphs[0] && rank == 0);
    TN_CHECK_OK(tn_inspect_choose(&s, "layers.1.ffn_norm", -1, &g, &rank));
    TN_CHECK(g == graphs[1] && rank == 4);
    TN_CHECK_OK(tn_inspect_choose(&s, "layers.1.ffn_norm", 6, &g, &rank));
    TN_CHECK(g == graphs[1] && rank == 6);
    TN_CHECK_OK(tn_inspect_choose(&s, "norm.weight", 5, &g, &rank)); /* both have it */
    TN_CHECK(g == graphs[1] && rank == 5);
    TN_CHECK_OK(tn_inspect_choose(&s, NULL, 7, &g, &rank));
    TN_CHECK(g == graphs[1] && rank == 7);
    TN_CHECK_FAILS(tn_inspect_choose(&s, "layers.1.ffn_norm", 3, &g, &rank), TN_BAD_INPUT,
                   "lives on ranks 4 to 7, not on rank 3");
    TN_CHECK_FAILS(tn_inspect_choose(&s, "layers.1.fnn_norm", -1, &g, &rank), TN_BAD_INPUT,
                   "did you mean 'layers.1.ffn_norm'?");
    TN_CHECK_FAILS(tn_inspect_choose(&s, "layers.0.fnn_norm", -1, &g, &rank), TN_BAD_INPUT,
                   "did you mean 'layers.0.ffn_norm'?");
    TN_CHECK_FAILS(tn_inspect_choose(&s, "norm.weight", 8, &g, &rank), TN_BAD_INPUT,
                   "has 8 ranks; 0 to 7");
    for (int i = 0; i < 2; i++) fini(&f[i]);
}

static tn_status every_alloc(void *arg)
{
    tn_text t = {0};
    tn_status st = tn_inspect_value(arg, "layers.1.ffn_norm", 0, &t);
    tn_text_fini(&t);
    return st;
}

int main(void)
{
    fixture f = {0};
    tn_trace_options o = options_of(TN_TRACE_TRAIN, true);
    o.mesh = (tn_mesh){1, {2, 2, 1, 2}};
    o.chunk_rows = o.rows;
    test_mesh();
    test_meshes();
    test_stages();
    if (TN_CHECK_OK(trace_with(model, &o, &f))) {
        const tn_graph *graphs[1] = {f.t.g};
        tn_inspect q = {.recipe = f.r, .stages = {graphs, 1}};
        test_values(f.t.g);
        test_slices(f.t.g);
        test_moves(f.r);
        TN_CHECK_OK(tn_host_call(tn_recipe_host(f.r), in_lua, &q));
        TN_CHECK(tn_test_each_alloc(every_alloc, f.t.g) >= 1);
        tn_text_fini(&q.text);
    }
    fini(&f);
    return tn_test_done("inspect");
}
