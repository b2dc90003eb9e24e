/* test_graph_text.c - graphs as text: what is printed reads back as the same graph, behind every
 * pass of every kind of program; what is wrong is refused with its line. */
#include "graph/text.h"

#include "tests/programs.h"

#include <math.h>

#define HEAD                                                                                       \
    "graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums canonical tp=8 seq=8 "     \
    "rows=8\nstep rows=4 seq=8 microbatches=2 chunks=2\n\n"
#define ALL "{dp:R cp:R tp:R}"
#define W "%w : f32[6,4] " ALL " = state() name=\"w\" @a F head s0\n"
#define X "%x : f32[2,8,4] " ALL " = state() name=\"x\" kind=\"buffer\" @a F head s0\n"

static tn_status parse(const char *text, tn_graph **out)
{
    return tn_graph_parse("t.graph", text, strlen(text), out);
}

static bool same_values(const tn_graph *a, const tn_graph *b)
{
    for (int64_t v = 0; v < a->n_values; v++) {
        const tn_value *x = &a->values[v], *y = &b->values[v];
        if (x->node != y->node || x->out != y->out || x->dtype != y->dtype || x->rank != y->rank ||
            x->grad != y->grad || x->carried != y->carried || x->levels != y->levels ||
            !tn_layout_equal(&x->layout, &y->layout))
            return false;
        for (int d = 0; d < x->rank; d++)
            if (x->dim[d].extent != y->dim[d].extent || x->dim[d].units != y->dim[d].units)
                return false;
    }
    return true;
}

static bool same_attrs(const tn_graph *g, const tn_node *a, const tn_node *b)
{
    for (int i = 0; i < tn_graph_attr_count(g, (tn_op_id)a->op); i++) {
        const tn_attr *x = &a->attrs[i], *y = &b->attrs[i];
        bool same = x->kind == y->kind;
        if (x->kind == 'i') same &= x->u.i == y->u.i;
        if (x->kind == 'f') same &= !memcmp(&x->u.f, &y->u.f, sizeof x->u.f);
        if (x->kind == 's') same &= same && !strcmp(x->u.s, y->u.s);
        if (!same) return false;
    }
    return true;
}

/* Everything but where memory lies. */
static bool same_graph(const tn_graph *a, const tn_graph *b)
{
    if (a->n_nodes != b->n_nodes || a->n_values != b->n_values || a->n_operands != b->n_operands ||
        memcmp(&a->mesh, &b->mesh, sizeof a->mesh) || memcmp(&a->grid, &b->grid, sizeof a->grid) ||
        a->canonical != b->canonical || a->rows != b->rows || a->seq != b->seq ||
        a->n_microbatches != b->n_microbatches || a->n_chunks != b->n_chunks || !same_values(a, b))
        return false;
    for (int64_t i = 0; i < a->n_nodes; i++) {
        const tn_node *x = &a->nodes[i], *y = &b->nodes[i];
        if (x->op != y->op || x->phase != y->phase || x->scope != y->scope ||
            x->stage != y->stage || x->order != y->order || x->parts != y->parts ||
            x->n_in != y->n_in || x->n_out != y->n_out || x->in0 != y->in0 || x->out0 != y->out0 ||
            strcmp(x->path, y->path) || !same_attrs(a, x, y))
            return false;
    }
    for (int64_t i = 0; i < a->n_operands; i++)
        if (a->operands[i] != b->operands[i]) return false;
    return true;
}

static void round_trip(const char *what, const tn_graph *g)
{
    tn_text once = {0}, twice = {0};
    tn_graph *back;
    TN_CHECK_OK(tn_graph_print(g, NULL, &once));
    if (TN_CHECK_OK(parse(tn_text_str(&once), &back))) {
        TN_CHECK_MSG(same_graph(g, back), "%s: reads back as another graph", what);
        TN_CHECK_OK(tn_graph_print(back, NULL, &twice));
        TN_CHECK_MSG(!strcmp(tn_text_str(&once), tn_text_str(&twice)), "%s: prints differently",
                     what);
        tn_graph_destroy(back);
    }
    tn_text_fini(&once);
    tn_text_fini(&twice);
}

static void generated(void)
{
    static const char *const recipes[] = {tiny_recipe, "recipes/demo.lua"};
    static const char *const extra[] = {"training.mixed_precision_param=bfloat16",
                                        "debug.reduce=fast", "optimizer.name=SGD",
                                        "debug.reduce_grid={256,4,2}"};
    for (int i = 0; i < 2 * 4 * 3; i++)
        for (int pass = 0; tn_build_passes[pass]; pass++) {
            wanted w = {.recipe = recipes[i % 2],
                        .kind = (tn_build_kind)(i / 8),
                        .until = tn_build_passes[pass],
                        .overrides = {"activation_checkpoint.mode=full", extra[i / 2 % 4]}};
            tn_graph *g;
            char what[128];
            snprintf(what, sizeof what, "recipe %d kind %d %s behind %s", i % 2, (int)w.kind,
                     extra[i / 2 % 4], w.until);
            if (!TN_CHECK_OK(build_graph(&w, &g))) continue;
            round_trip(what, g);
            tn_graph_destroy(g);
        }
    wanted w = {.recipe = tiny_recipe,
                .world = 8,
                .overrides = {"parallelism.tensor_parallel_degree=4",
                              "parallelism.data_parallel_shard_degree=2",
                              "training.global_batch_size=36"}};
    tn_graph *g;
    if (!TN_CHECK_OK(build_graph(&w, &g))) return;
    TN_CHECK(g->mesh.size[TN_AXIS_TP] == 4);
    round_trip("eight ranks", g);
    tn_graph_destroy(g);
}

/* Two builds of one recipe are one text: nothing depends on hashes or addresses. */
static void repeatable(void)
{
    wanted w = {.recipe = "recipes/demo.lua"};
    tn_text first = {0};
    for (int i = 0; i < 6; i++) {
        tn_graph *g;
        tn_text t = {0};
        if (!TN_CHECK_OK(build_graph(&w, &g)) ||
            !TN_CHECK_OK(tn_graph_print(g, NULL, i ? &t : &first)))
            return;
        if (i) TN_CHECK_MSG(!strcmp(tn_text_str(&t), tn_text_str(&first)), "build %d differs", i);
        tn_text_fini(&t);
        tn_graph_destroy(g);
    }
    tn_text_fini(&first);
}

static void by_hand(void)
{
    static const char text[] =
        "# a comment\ngraph titan 1\n# and another\nmesh pp=2 dp_replicate=1 dp_shard=2 cp=1 "
        "tp=2\nsums fast tp=1 seq=2 rows=4\n\nstep rows=3 seq=8 microbatches=5 chunks=7\n"
        "%any_name : bf16[12/4,4] {dp:R cp:R tp:0} = state() name=\"q\\\"\\\\\\x07\\xff w\" "
        "std=2.5e-05 @layers.0.q F head s3\n"
        "   %t :i32[2,8] {dp:R cp:R tp:I} = input() name=\"labels\"   @a F head s0  \n\n"
        "%x:1, %x:2 : f32[2,8] {dp:R cp:R tp:I} = rmsnorm(%t)\n";
    tn_graph *g;
    char good[1024];
    snprintf(good, sizeof good, "%.*s", (int)(strstr(text, "%x:1") - text), text);
    if (!TN_CHECK_OK(parse(good, &g))) return;
    TN_CHECK(g->n_nodes == 2 && g->n_values == 2 && g->mesh.pp == 2 && !g->canonical &&
             g->grid.rows == 4 && g->n_chunks == 7);
    TN_CHECK_TEXT(tn_node_attr_text(&g->nodes[0], "name"), "q\"\\\x07\xff w");
    TN_CHECK(tn_node_attr_num(&g->nodes[0], "std") == 2.5e-5 && g->nodes[0].stage == 3 &&
             g->values[0].dim[0].units == 4);
    round_trip("by hand", g);
    tn_graph_destroy(g);
    TN_CHECK_FAILS(parse(text, &g), TN_BAD_INPUT, "t.graph:11: a colon is missing at ', %x:2");
    if (!TN_CHECK_OK(parse(HEAD, &g))) return;
    TN_CHECK(g->n_nodes == 0);
    round_trip("no nodes", g);
    tn_graph_destroy(g);
}

static void numbers(void)
{
    static const double values[] = {
        0.0, -0.0, 1e300, 5e-324, 0.1, 1.0 / 3, -7, 123456789012345678.0, INFINITY};
    static const tn_mesh mesh = {1, {1, 1, 1, 1}};
    tn_graph *g;
    int32_t x = 0;
    tn_layout l = tn_layout_all(TN_TYPE_R);
    tn_value like = {.rank = 1, .dim = {{4, 0}}};
    tn_node_desc d = {.op = TN_OP_state, .layout = &l, .like = &like};
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){1, 1, 1}, true, &g)) ||
        !TN_CHECK_OK(tn_graph_add(g, &d, &x)))
        return;
    for (int i = 0; i < TN_COUNT(values); i++) {
        tn_named_attr by = {"by", {.kind = 'f', .u.f = values[i]}};
        d = (tn_node_desc){.op = TN_OP_scale, .n_in = 1, .in = &x, .n_attrs = 1, .attrs = &by};
        TN_CHECK_OK(tn_graph_add(g, &d, &x));
    }
    round_trip("numbers", g);
    tn_graph_destroy(g);
}

static void parts(void)
{
    static const char text[] =
        HEAD W X "%y : f32[2,8,6] " ALL " = linear(%x, %w) @b.c F microbatch s0 order=param:256\n"
                 "%z : f32[2,8,6] " ALL " = unary(%y) @b.cd F microbatch s0\n";
    tn_graph *g;
    tn_text t = {0};
    if (!TN_CHECK_OK(parse(text, &g))) return;
    TN_CHECK(g->nodes[2].order == TN_ORDER_OVER_PARAM && g->nodes[2].parts == 256);
    TN_CHECK_OK(tn_graph_print(g, "b.c", &t));
    TN_CHECK(strstr(tn_text_str(&t), "%b.c.linear : ") && !strstr(tn_text_str(&t), "b.cd") &&
             !strstr(tn_text_str(&t), "state()"));
    tn_text_fini(&t);
    TN_CHECK_OK(tn_graph_print(g, "b", &t));
    TN_CHECK(strstr(tn_text_str(&t), "= linear(%a.state#2, %a.state)") &&
             strstr(tn_text_str(&t), "b.cd.unary"));
    tn_text_fini(&t);
    tn_graph_destroy(g);
}

/* ------------------------------------------------------------ what is refused */

static const struct {
    const char *text, *says;
} wrong[] = {
    {"", "t.graph:1: no graph at ''; the first line reads 'graph titan 1'"},
    {"graph titan 2\n", "t.graph:1: no graph at 'graph titan 2'"},
    {"graph titan 1 2\n", "t.graph:1: no graph at '2'"},
    {"graph titan 1\nsums\n", "t.graph:2: no mesh at 'sums'"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1\n",
     "t.graph:2: a setting is missing at ''; tp"},
    {"graph titan 1\nmesh pp 1\n", "t.graph:2: a setting is missing"},
    {"graph titan 1\nmesh pp=0 dp_replicate=1\n", "t.graph:2: 0 is out of range; 1 to 1048576"},
    {"graph titan 1\nmesh pp=x\n", "a number is missing at 'x'"},
    {"graph titan 1\nmesh pp=99999999999999999999\n", "a number is too large"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1024 dp_shard=1024 cp=2 tp=1\n",
     "t.graph:2: too many ranks at ' tp=1'; at most 2^20"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums exact tp=1\n",
     "t.graph:3: no order of sums at 'sums exact tp=1'"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums fast tp=3 seq=1 rows=1\n",
     "the reduce grid is no power of two at ' seq=1"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums fast tp=512 seq=1 "
     "rows=1\n",
     "512 is out of range; 1 to 256"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums fast tp=1 seq=1 rows=1\n",
     "t.graph:4: no step at ''"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums fast tp=1 seq=1 "
     "rows=1\nstep rows=1 seq=1 microbatches=0 chunks=1\n",
     "t.graph:4: no iterations at ''; microbatches and chunks are at least 1"},
    {"graph titan 1\nmesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1\nsums fast tp=1 seq=1 "
     "rows=1\nstep rows=-1 seq=1 microbatches=1 chunks=1\n",
     "-1 is out of range; 0 to 16777216"},
    {HEAD "w", "t.graph:6: no value at 'w'; a line begins with %NAME : TYPE"},
    {HEAD "%", "t.graph:6: a name is missing"},
    {HEAD "%w", "a colon is missing"},
    {HEAD "%w : f32", "dims are missing at ''"},
    {HEAD "%w : f64[6]", "t.graph:6: no dtype at '[6]'; f32, bf16, f16, i32 or exact"},
    {HEAD "%w : f32[6 4]", "a comma is missing at '4]'"},
    {HEAD "%w : f32[1,1,1,1,1,1,1]", "too many dims"},
    {HEAD "%w : f32[0]", "0 is out of range; 1 to 1099511627776"},
    {HEAD "%w : f32[6/0]", "0 is out of range; 1 to 65536"},
    {HEAD "%w : f32[1099511627776,1099511627776]",
     "the value is too large at ']'; at most 2^48 elements"},
    {HEAD "%w : f32[6]", "a placement is missing at ''"},
    {HEAD "%w : f32[6] {dp:R", "a placement is missing at '{dp:R'"},
    {HEAD "%w : f32[6] {dp:R cp:R}", "no placement at '{dp:R cp:R}'; every axis once"},
    {HEAD "%w : f32[6] " ALL " carried", "levels are missing"},
    {HEAD "%w : f32[6] " ALL " carried=99", "99 is out of range; 1 to 12"},
    {HEAD "%w : f32[6] " ALL " state()", "no '=' at 'state()'"},
    {HEAD "%w : f32[6] " ALL " = nothing()",
     "t.graph:6: no op 'nothing'; `titan help ops` lists them"},
    {HEAD "%w : f32[6] " ALL " = state", "no operands"},
    {HEAD "%w : f32[6] " ALL " = state(x)", "no operand at 'x)'; operands are values, %NAME"},
    {HEAD W X "%y : f32[6] " ALL " = add(%w %x)", "a comma is missing at '%x)'"},
    {HEAD "%y : f32[6] " ALL " = add(%w, %x)", "value %w is not defined above"},
    {HEAD "%w : f32[6] " ALL " = state() name", "no '=' at ''; name=value"},
    {HEAD "%w : f32[6] " ALL " = state() name=", "no value at ''; a number or \"text\""},
    {HEAD "%w : f32[6] " ALL " = state() name=w @a F head s0", "no value at 'w @a F head s0'"},
    {HEAD "%w : f32[6] " ALL " = state() std=99999999999999999999 @a F head s0",
     "no value at '99999999999999999999 @a '"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"w", "a text is not closed at ''"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"w\n", "a text is not closed"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"\\x0", "a text is not closed"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"\\x0g\"", "no character at '0g\"'; \\x01 to \\xff"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"\\x00\"", "no character at '00\"'"},
    {HEAD "%w : f32[6] " ALL " = state() name=\"\\n\"", "no escape"},
    {HEAD "%w : f32[6] " ALL
          " = state() a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1 a=1",
     "too many attributes"},
    {HEAD "%w : f32[6] " ALL " = state() size=1 @a F head s0", "a: state: no attribute 'size'"},
    {HEAD "%w : f32[6] " ALL " = state()", "no module path at ''; @PATH PHASE SCOPE sSTAGE"},
    {HEAD "%w : f32[6] " ALL " = state() @a", "a name is missing"},
    {HEAD "%w : f32[6] " ALL " = state() @a G head s0",
     "t.graph:6: 'G' is no phase or scope; F B W OPT COMM, then head microbatch chunk tail"},
    {HEAD "%w : f32[6] " ALL " = state() @a F foot s0", "'foot' is no phase or scope"},
    {HEAD "%w : f32[6] " ALL " = state() @a F head 0", "no stage at '0'; s0"},
    {HEAD "%w : f32[6] " ALL " = state() @a F head s32768", "32768 is out of range; 0 to 32767"},
    {HEAD "%w : f32[6] " ALL " = state() @a F head s0 order=param:257",
     "257 is out of range; 1 to 256"},
    {HEAD "%w : f32[6] " ALL " = state() @a F head s0 order=rows",
     "more than a node at 'order=rows'; one node a line"},
    {HEAD "%w : f32[6] " ALL " = state() @a(b) F head s0",
     "a(b): a module path with character 40 ('('); name the module"},
    {HEAD W W, "t.graph:7: a name is used twice at ' : f32[6,4]"},
    {HEAD W X "%y : f32[2,8,6] " ALL ", %z : f32[2,8,6] " ALL " = linear(%x, %w) @a F head s0",
     "t.graph:8: linear has 1 outputs, the line names 2"},
    {HEAD W X "%y : f32[2,8,5] " ALL " = linear(%x, %w) @a F head s0",
     "t.graph:8: %y: its op gives another shape or dtype than the line says"},
    {HEAD W X "%y : bf16[2,8,6] " ALL " = linear(%x, %w) @a F head s0",
     "%y: its op gives another shape or dtype"},
    {HEAD W X "%y : f32[2,8,6/2] " ALL " = linear(%x, %w) @a F head s0",
     "%y: its op gives another shape or dtype"},
    {HEAD W X "%y : f32[2,8,6] {dp:R cp:R tp:P} = linear(%x, %w) @a F head s0",
     "%y: its op gives the type {dp:R cp:R tp:R}; write that, or redistribute"},
    {HEAD W X "%y : f32[2,8,6] " ALL " = linear(%w, %x) @a F head s0",
     "a: linear: operand 1 has rank 3 where 2 is needed\nwhile reading t.graph:8"},
    {HEAD W "\n# more\n\n%y : f32[6,4] " ALL " = mul(%w, %v) @a F head s0",
     "t.graph:10: value %v is not defined above"},
};

static void refusals(void)
{
    tn_graph *g = NULL;
    for (int i = 0; i < TN_COUNT(wrong); i++) {
        tn_status st = parse(wrong[i].text, &g);
        TN_CHECK_MSG(st == TN_BAD_INPUT && strstr(tn_error_text(), wrong[i].says),
                     "%d: status %d '%s', expected '..%s..'", i, (int)st, tn_error_text(),
                     wrong[i].says);
        tn_error_clear();
    }
    TN_CHECK_FAILS(tn_graph_parse("t.graph", HEAD "\0", sizeof HEAD, &g), TN_BAD_INPUT,
                   "t.graph: a NUL byte; a graph is text");
    TN_CHECK(g == NULL);
    /* what is too long */
    static char text[8192];
    static const struct {
        const char *before, *after, *says;
        int n;
    } longest[] = {
        {HEAD "%", " : f32[6]", "a name is too long", 600},
        {HEAD "%w : f32[6] " ALL " = state() name=\"", "\" @a F head s0", "a text is too long",
         1024},
        {HEAD "%w : f32[6] " ALL " = state() @", " F head s0", "a path is too long", 600},
        {HEAD "%w : f32[6] " ALL " = state() @", " F head s0",
         "a module path of 512 characters; at most 511", 512},
        {HEAD "%w : f32[6] ", " = state() @a F head s0", "a placement is missing", 200},
        {HEAD "%w : f32[6] " ALL " = state() std=", " @a F head s0", "no value", 80}};
    for (int i = 0; i < TN_COUNT(longest); i++) {
        snprintf(text, sizeof text, "%s%*s%s", longest[i].before, longest[i].n, "",
                 longest[i].after);
        memset(text + strlen(longest[i].before),
               i == 4   ? '{'
               : i == 5 ? '1'
                        : 'a',
               (size_t)longest[i].n);
        TN_CHECK_FAILS(parse(text, &g), TN_BAD_INPUT, longest[i].says);
    }
}

/* Every prefix of a good text, and every text with one byte changed, is refused or reads as some
 * graph: nothing else happens. */
static void damaged(void)
{
    static const char text[] =
        HEAD W X "%y : f32[2,8,6] " ALL ", %z : f32[2,8,6] " ALL
                 " = linear(%x, %w, %w) @a.b W chunk s0 order=param:8\n"
                 "%s : exact[] {dp:R cp:R tp:R} carried=1 = loss_sum(%z) @a F tail s12\n";
    static const char bytes[] = "\n %:[]{}(),=\"@#0a-\x01\xff";
    size_t n = sizeof text - 1;
    int64_t fine = 0;
    tn_graph *g;
    if (!TN_CHECK_OK(parse(text, &g))) return;
    tn_graph_destroy(g);
    for (size_t i = 0; i < n; i++) {
        char copy[sizeof text];
        tn_status st = tn_graph_parse("t", text, i, &g);
        if (!st) tn_graph_destroy(g);
        TN_CHECK(st == TN_OK || (st == TN_BAD_INPUT && !strncmp(tn_error_text(), "t:", 2)) ||
                 strstr(tn_error_text(), "while reading t:"));
        for (size_t b = 0; b < sizeof bytes - 1; b++) {
            memcpy(copy, text, sizeof copy);
            copy[i] = bytes[b];
            st = tn_graph_parse("t", copy, n, &g);
            if (!st) round_trip("damaged", g);
            if (!st) tn_graph_destroy(g);
            TN_CHECK(st == TN_OK || st == TN_BAD_INPUT);
            fine += st == TN_OK;
        }
    }
    TN_CHECK(fine > 10); /* names and numbers that may be others */
    tn_error_clear();
}

static tn_status print_and_parse(void *arg)
{
    tn_graph *g, *back;
    tn_text *t = arg;
    TN_TRY(parse(HEAD W X "%y : f32[2,8,6] " ALL " = linear(%x, %w) @a F head s0\n", &g));
    *t = (tn_text){0};
    tn_status st = tn_graph_print(g, NULL, t);
    if (!st) st = parse(tn_text_str(t), &back);
    if (!st) tn_graph_destroy(back);
    tn_text_fini(t);
    tn_graph_destroy(g);
    return st;
}

int main(void)
{
    tn_text t = {0};
    generated();
    repeatable();
    by_hand();
    numbers();
    parts();
    refusals();
    damaged();
    TN_CHECK(tn_test_each_alloc(print_and_parse, &t) > 10);
    return tn_test_done("graph_text");
}
