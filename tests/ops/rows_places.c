/* Rows of the ops that compute nothing: leaves, views, what moves between places. Their formula is
 * a copy; what they promise is shape, type and place. */
#include "graph/passes.h"
#include "graph/program.h"
#include "tests/ops.h"

#include <stdio.h>
#include <string.h>

static void copy(const tn_ops_ref *r)
{
    memcpy(r->out[0], r->in[0], (size_t)tn_ops_count(tn_ops_out(r, 0), 0) * sizeof(double));
}

static tn_ops_operand f32(const char *dims)
{
    return (tn_ops_operand){dims, .a = 2};
}

/* ---- looking at plans */

static tn_program *plan(const tn_ops *t, int32_t keep)
{
    tn_graph *low;
    tn_program *p = NULL;
    if (!tn_ops_ok(tn_pass_lower(t->g, &low), "lower")) return NULL;
    int32_t kept = tn_ops_find_again(t->g, keep, low);
    return tn_ops_ok(tn_program_build(low, NULL, 0, 1, &kept, &p), "plan") ? p : NULL;
}

static const tn_place *place_of(const tn_ops *t, const tn_program *p, int32_t value)
{
    return &p->places[tn_ops_find_again(t->g, value, p->g)];
}

static bool has_entry(const tn_program *p, tn_op_id op)
{
    for (int64_t i = 0; i < p->n_entries; i++)
        if (p->g->nodes[p->entries[i].node].op == op) return true;
    return false;
}

/* b lies where a lies (in its first iteration), and no entry makes it. */
static void check_view(const tn_ops *t, tn_op_id op, int32_t a, int32_t b,
                       int64_t microbatch_stride, int64_t chunk_stride)
{
    tn_program *p = plan(t, b);
    if (!p) return;
    const tn_place *x = place_of(t, p, a), *y = place_of(t, p, b);
    tn_ops_check(x->region == y->region && x->buffer == y->buffer && x->offset == y->offset,
                 "%s: not its operand's memory", tn_op_name(op));
    tn_ops_check(y->microbatch_stride - x->microbatch_stride == microbatch_stride &&
                     y->chunk_stride - x->chunk_stride == chunk_stride,
                 "%s: strides %lld, %lld", tn_op_name(op), (long long)y->microbatch_stride,
                 (long long)y->chunk_stride);
    tn_ops_check(!has_entry(p, op), "%s: a view has an entry", tn_op_name(op));
    tn_program_destroy(p);
}

static void check_value(const tn_graph *g, int32_t v, const char *want)
{
    char text[256];
    int n = snprintf(text, sizeof text, "%s ", tn_dtype_name((tn_dtype)g->values[v].dtype));
    for (int d = 0; d < g->values[v].rank; d++) {
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%lld", d ? "," : "",
                      (long long)g->values[v].dim[d].extent);
        if (g->values[v].dim[d].units)
            n += snprintf(text + n, sizeof text - (size_t)n, "/%lld",
                          (long long)g->values[v].dim[d].units);
    }
    text[n++] = ' ';
    tn_layout_print(&g->values[v].layout, text + n, sizeof text - (size_t)n);
    tn_ops_check(!strcmp(text, want), "%s: a value is %s, expected %s",
                 tn_op_name((tn_op_id)g->nodes[g->values[v].node].op), text, want);
}

/* A node that must be refused: attrs as tn_ops_node takes them. */
static void refused(tn_ops *t, tn_op_id op, const tn_named_attr *attr, int32_t in,
                    const char *layout, const char *part)
{
    tn_layout l;
    tn_node_desc d = {
        .op = op, .n_in = 1, .in = &in, .n_attrs = attr ? 1 : 0, .attrs = attr, .path = "layers.0"};
    if (layout && tn_layout_parse(layout, &l)) d.layout = &l;
    int64_t before = t->g->n_nodes;
    tn_ops_bad(tn_graph_add(t->g, &d, NULL), part);
    tn_ops_check(t->g->n_nodes == before, "a refused %s left a node", tn_op_name(op));
}

static tn_named_attr int_attr(const char *name, int64_t i)
{
    return (tn_named_attr){name, {.kind = 'i', .u.i = i}};
}

/* ---- leaves */

static void leaf_refused(tn_op_id op, const tn_value *like, const char *layout, const char *part)
{
    tn_ops t = tn_ops_begin(1, false);
    tn_layout l;
    tn_node_desc d = {.op = op, .path = "m", .like = like};
    if (layout && tn_layout_parse(layout, &l)) d.layout = &l;
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), part);
    tn_ops_fini(&t);
}

static void more_state(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t a = tn_ops_f32(&t, f32("5,6/3 {dp:R cp:R tp:1}")),
            b = tn_ops_f32(&t, (tn_ops_operand){"7", .a = 1, .constant = true});
    int32_t y = TN_OPS_NODE(&t, TN_OP_scale, "by=2.0", b);
    check_value(t.g, a, "f32 5,6/3 {dp:R cp:R tp:1}");
    tn_ops_check(t.g->values[a].grad && !t.g->values[b].grad,
                 "only parameters and what depends on them have gradients");
    tn_program *p = plan(&t, y);
    if (p) {
        tn_ops_check(place_of(&t, p, a)->region == TN_REGION_PROCESS &&
                         place_of(&t, p, b)->region == TN_REGION_PROCESS,
                     "states live as long as the process");
        tn_ops_check(!has_entry(p, TN_OP_state) && p->n_entries == 1, "a state has an entry");
        tn_ops_check(p->region_bytes[TN_REGION_PROCESS] == 192, "states take %lld bytes",
                     (long long)p->region_bytes[TN_REGION_PROCESS]);
        tn_program_destroy(p);
    }
    tn_ops_fini(&t);
    const tn_value flat = {.rank = 0}, empty = {.rank = 1, .dim = {{0, 0}}},
                   fine = {.rank = 1, .dim = {{3, 0}}};
    leaf_refused(TN_OP_state, NULL, "{dp:R cp:R tp:R}", "needs dims");
    leaf_refused(TN_OP_state, &flat, "{dp:R cp:R tp:R}", "no dims");
    leaf_refused(TN_OP_state, &empty, "{dp:R cp:R tp:R}", "extent 0");
    leaf_refused(TN_OP_state, &fine, NULL, "needs a placement");
    leaf_refused(TN_OP_state, &fine, "{dp:R cp:R tp:1}", "S(1) of a value with 1 dims");
}

static void more_input(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t ids = tn_ops_i32(&t, (tn_ops_operand){"3,5", TN_OPS_BELOW, .a = 7}),
            y = TN_OPS_NODE(&t, TN_OP_count_labels, NULL, ids);
    check_value(t.g, ids, "i32 3,5 {dp:I cp:I tp:I}");
    tn_program *p = plan(&t, y);
    if (p) {
        tn_ops_check(place_of(&t, p, ids)->region == TN_REGION_PLAN,
                     "inputs live as long as the plan");
        tn_ops_check(!has_entry(p, TN_OP_input), "an input has an entry");
        tn_program_destroy(p);
    }
    tn_ops_fini(&t);
    const tn_value flat = {.rank = 1, .dim = {{3, 0}}},
                   empty = {.rank = 2, .dim = {{3, 0}, {0, 0}}};
    leaf_refused(TN_OP_input, NULL, "{dp:R cp:R tp:R}", "two dims");
    leaf_refused(TN_OP_input, &flat, "{dp:R cp:R tp:R}", "two dims");
    leaf_refused(TN_OP_input, &empty, "{dp:R cp:R tp:R}", "extent 0 in dim 1");
}

const tn_op_test tn_op_test_state = {.more = more_state};
const tn_op_test tn_op_test_input = {.more = more_input};

/* ---- send, recv */

/* What travels between pipeline ranks is checked by whole runs (tests/cli/test_layouts.py). */
static void more_send(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = tn_ops_f32(&t, f32("5,6/3 {dp:R cp:R tp:1}")),
            y = tn_ops_node(&t, TN_OP_send, "channel=3 to=1", NULL, 1, &x);
    check_value(t.g, y, "i32  {dp:R cp:R tp:R}");
    tn_ops_check(!t.g->values[y].grad, "what send returns has a gradient");
    tn_ops_check(tn_node_is_exchange(t.g, &t.g->nodes[t.g->values[y].node]), "send is no exchange");
    tn_ops_fini(&t);
}

static void more_recv(void)
{
    const tn_value empty = {.rank = 1, .dim = {{0, 0}}},
                   fine = {.rank = 2, .dtype = TN_BF16, .dim = {{3, 0}, {4, 2}}, .grad = true};
    tn_ops t = tn_ops_begin(1, false);
    tn_layout l;
    int32_t y;
    tn_ops_check(tn_layout_parse("{dp:R cp:R tp:1}", &l), "a layout");
    tn_node_desc d = {.op = TN_OP_recv, .path = "m", .like = &fine, .layout = &l};
    tn_ops_ok(tn_graph_add(t.g, &d, &y), "recv");
    check_value(t.g, y, "bf16 3,4/2 {dp:R cp:R tp:1}");
    tn_ops_check(t.g->values[y].grad, "a received value keeps its gradient");
    tn_ops_fini(&t);
    leaf_refused(TN_OP_recv, NULL, "{dp:R cp:R tp:R}", "needs dims");
    leaf_refused(TN_OP_recv, &empty, "{dp:R cp:R tp:R}", "extent 0");
    leaf_refused(TN_OP_recv, &fine, NULL, "needs a placement");
}

const tn_op_test tn_op_test_send = {.more = more_send};
const tn_op_test tn_op_test_recv = {.more = more_recv};

/* ---- redistribute */

static void build_redistribute(tn_ops *t, int i)
{
    static const char *const from[] = {"3,5,7", "3,5,7 {dp:0 cp:1 tp:2}", "3,5,7 {dp:R cp:R tp:1}"};
    static const char *const to[] = {"{dp:0 cp:1 tp:I}", "{dp:0 cp:1 tp:R}", "{dp:R cp:0 tp:1}"};
    int32_t x = tn_ops_f32(t, f32(from[i]));
    tn_ops_node(t, TN_OP_redistribute, NULL, to[i], 1, &x);
}

/* The table of legal moves (types.md); those that only gradients make need grad=1. */
static void more_redistribute(void)
{
    static const char types[] = "RIVPS";
    static const char *const plain[] = {"RS", "RIS", "V", "RIPS", "RIS"}, *const grad[] = {
                                                                              "RISP", "RISP", "V",
                                                                              "RISP", "RISP"};
    tn_ops t = tn_ops_begin(1, false);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++)
            for (int g = 0; g < 2; g++) {
                tn_layout l[2] = {tn_layout_all(TN_TYPE_I), tn_layout_all(TN_TYPE_I)};
                char dims[64] = "4,6 ", part[64];
                const int to[2] = {a, b};
                for (int k = 0; k < 2; k++) {
                    if (types[to[k]] == 'S') tn_layout_shard(&l[k], TN_AXIS_TP, k);
                    else l[k].type[TN_AXIS_TP] = (uint8_t)to[k];
                }
                tn_layout_print(&l[0], dims + 4, sizeof dims - 4);
                int32_t x = tn_ops_f32(&t, f32(dims));
                tn_named_attr attr = int_attr("grad", g);
                tn_node_desc d = {.op = TN_OP_redistribute,
                                  .n_in = 1,
                                  .in = &x,
                                  .n_attrs = 1,
                                  .attrs = &attr,
                                  .path = "m",
                                  .layout = &l[1]};
                snprintf(part, sizeof part, "axis tp: no transition from %c to %c", types[a],
                         types[b]);
                if (strchr(g ? grad[a] : plain[a], types[b]))
                    tn_ops_ok(tn_graph_add(t.g, &d, NULL), part);
                else tn_ops_bad(tn_graph_add(t.g, &d, NULL), part);
            }
    int32_t x = tn_ops_f32(&t, f32("4,6 {dp:0 cp:R tp:1}")),
            y = tn_ops_node(&t, TN_OP_redistribute, NULL, "{dp:0 cp:R tp:R}", 1, &x);
    check_value(t.g, y, "f32 4,6 {dp:0 cp:R tp:R}");
    check_view(&t, TN_OP_redistribute, x, y, 0, 0);
    refused(&t, TN_OP_redistribute, NULL, x, NULL, "needs a placement");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_redistribute = {.n_cases = 3,
                                            .build = build_redistribute,
                                            .ref = copy,
                                            .gradient = 1e-8,
                                            .bf16 = 1e-9,
                                            .more = more_redistribute};

/* ---- heads and back */

static void build_heads(tn_ops *t, int i)
{
    static const char *const dims[] = {"2,3,15", "1,4,12/3 {dp:I cp:I tp:2}", "3,1,7"};
    static const char *const k[] = {"k=5", "k=4", "k=1"};
    int32_t x = tn_ops_f32(t, f32(dims[i]));
    TN_OPS_NODE(t, TN_OP_heads, k[i], x);
}

static void more_heads(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = tn_ops_f32(&t, f32("2,3,12/4 {dp:0 cp:1 tp:2}")),
            y = TN_OPS_NODE(&t, TN_OP_heads, "k=3", x);
    check_value(t.g, y, "f32 2,3,4,3 {dp:0 cp:1 tp:2}");
    check_view(&t, TN_OP_heads, x, y, 0, 0);
    int32_t z = TN_OPS_NODE(&t, TN_OP_merge_heads, NULL, y);
    check_value(t.g, z, "f32 2,3,12/4 {dp:0 cp:1 tp:2}");
    check_view(&t, TN_OP_merge_heads, y, z, 0, 0);
    const tn_named_attr none = int_attr("k", 0), five = int_attr("k", 5), three = int_attr("k", 3);
    refused(&t, TN_OP_heads, &none, x, NULL, "k = 0; at least 1");
    refused(&t, TN_OP_heads, &five, x, NULL, "not a multiple of 5");
    refused(&t, TN_OP_heads, &three, tn_ops_f32(&t, f32("2,3,12 {dp:0 cp:1 tp:2}")), NULL,
            "not declared so");
    tn_ops_fini(&t);
}

static void build_merge_heads(tn_ops *t, int i)
{
    static const char *const dims[] = {"2,3,3,5", "1,4,3,4 {dp:I cp:I tp:2}", "3,1,7,1"};
    int32_t x = tn_ops_f32(t, f32(dims[i]));
    TN_OPS_NODE(t, TN_OP_merge_heads, NULL, x);
}

const tn_op_test tn_op_test_heads = {.n_cases = 3,
                                     .build = build_heads,
                                     .ref = copy,
                                     .gradient = 1e-8,
                                     .bf16 = 1e-9,
                                     .more = more_heads};
const tn_op_test tn_op_test_merge_heads = {
    .n_cases = 3, .build = build_merge_heads, .ref = copy, .gradient = 1e-8, .bf16 = 1e-9};

/* ---- pieces */

static int64_t piece_at(const tn_ops_ref *r, const tn_value *piece)
{
    const char *over = tn_node_attr_text(r->n, "over");
    return (over[0] == 'm' ? r->microbatch : r->chunk) * tn_ops_count(piece, 0);
}

static void ref_chunk(const tn_ops_ref *r)
{
    const tn_value *piece = tn_ops_out(r, 0);
    memcpy(r->out[0], r->in[0] + piece_at(r, piece),
           (size_t)tn_ops_count(piece, 0) * sizeof(double));
}

static void ref_unchunk(const tn_ops_ref *r)
{
    const tn_value *piece = tn_ops_in(r, 0);
    memcpy(r->out[0] + piece_at(r, piece), r->in[0],
           (size_t)tn_ops_count(piece, 0) * sizeof(double));
}

static void build_chunk(tn_ops *t, int i)
{
    int32_t x = tn_ops_f32(t, f32(i ? "1,7,1" : "2,6,5"));
    TN_OPS_NODE(t, TN_OP_chunk, i ? "rows=1 seq=7" : "rows=2 seq=6", x);
}

static void more_chunk(void)
{
    static const char *const bad[][2] = {{"rows=3 seq=6", "do not tile"},
                                         {"rows=1 seq=4", "do not tile"},
                                         {"rows=2 seq=3", "do not tile"},
                                         {"rows=0 seq=0", "do not tile"},
                                         {"rows=2 seq=6 over=step", "chunk or microbatch"}};
    tn_ops t = tn_ops_begin(1, false);
    tn_ops_loops(&t, 2, 6, 2, 4);
    int32_t x = tn_ops_f32(&t, f32("4,6,5 {dp:0 cp:1 tp:I}")),
            y = TN_OPS_NODE(&t, TN_OP_chunk, "over=microbatch rows=2 seq=6", x);
    check_value(t.g, y, "f32 2,6,5 {dp:0 cp:1 tp:I}");
    check_view(&t, TN_OP_chunk, x, y, (int64_t)2 * 6 * 5 * 4, 0);
    t.scope = TN_SCOPE_CHUNK;
    int32_t z = TN_OPS_NODE(&t, TN_OP_chunk, "rows=1 seq=3", y),
            u = TN_OPS_NODE(&t, TN_OP_scale, "by=2.0", z);
    check_view(&t, TN_OP_chunk, y, z, 0, (int64_t)3 * 5 * 4);
    int32_t w = TN_OPS_NODE(&t, TN_OP_unchunk, "rows=2 seq=6", u);
    check_value(t.g, w, "f32 2,6,5 {dp:0 cp:1 tp:I}");
    tn_program *p = plan(&t, w);
    if (p) {
        const tn_place *whole = place_of(&t, p, w), *piece = place_of(&t, p, u);
        tn_ops_check(whole->buffer == piece->buffer && whole->offset == piece->offset &&
                         piece->chunk_stride == 3 * 5 * 4 && !whole->chunk_stride,
                     "unchunk: the piece is not written into its place");
        tn_ops_check(!has_entry(p, TN_OP_unchunk), "unchunk has an entry");
        tn_program_destroy(p);
    }
    for (int i = 0; i < TN_COUNT(bad); i++) {
        tn_named_attr attrs[3] = {int_attr("rows", bad[i][0][5] - '0'),
                                  int_attr("seq", bad[i][0][11] - '0'),
                                  {"over", {.kind = 's', .u.s = i == 4 ? "step" : "chunk"}}};
        tn_node_desc d = {
            .op = TN_OP_chunk, .n_in = 1, .in = &y, .n_attrs = 3, .attrs = attrs, .path = "m"};
        tn_ops_bad(tn_graph_add(t.g, &d, NULL), bad[i][1]);
    }
    tn_ops_fini(&t);
}

/* 0: rows, 1: parts of a row, 2: one piece; the piece is made by a node and put into the whole. */
static void build_unchunk(tn_ops *t, int i)
{
    static const char *const pieces[] = {"rows=1 seq=6", "rows=1 seq=3", "rows=2 seq=6"};
    static const int64_t chunks[] = {2, 4, 1};
    tn_ops_loops(t, 2, 6, 1, chunks[i]);
    int32_t x = tn_ops_f32(t, f32("2,6,5"));
    t->scope = TN_SCOPE_CHUNK;
    int32_t y = TN_OPS_NODE(t, TN_OP_chunk, pieces[i], x),
            z = TN_OPS_NODE(t, TN_OP_scale, "by=-0.5", y);
    TN_OPS_NODE(t, TN_OP_unchunk, "rows=2 seq=6", z);
}

static void more_unchunk(void)
{
    tn_ops t = tn_ops_begin(1, false);
    const tn_named_attr rows = int_attr("rows", 3);
    refused(&t, TN_OP_unchunk, &rows, tn_ops_f32(&t, f32("2,3,4")), NULL, "do not tile");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_chunk = {.n_cases = 2,
                                     .build = build_chunk,
                                     .ref = ref_chunk,
                                     .gradient = 1e-8,
                                     .bf16 = 1e-9,
                                     .more = more_chunk};
const tn_op_test tn_op_test_unchunk = {
    .n_cases = 3, .build = build_unchunk, .ref = ref_unchunk, .bf16 = 1e-9, .more = more_unchunk};

/* ---- parameters and their gradients between storage and computation */

static void build_unshard(tn_ops *t, int i)
{
    int32_t x = tn_ops_f32(t, f32(i ? "5,7 {dp:0 cp:R tp:1}" : "9"));
    tn_ops_node(t, TN_OP_unshard, NULL, i ? "{dp:R cp:R tp:1}" : "{dp:I cp:I tp:I}", 1, &x);
}

/* fp32 to bf16 on the way: the nearest, ties to even, in rows that no vector fills. */
static void check_cast(tn_op_id op, const char *layout)
{
    static const double given[] = {
        1.00390625, 1.01171875, 1.00390637, -1.00390625, 3.3895314e38, 0.1, -2.5e-30, 1e-38, 0};
    tn_ops t = tn_ops_begin(1, false);
    tn_ops_results r = {0};
    int32_t x = tn_ops_f32(
                &t, (tn_ops_operand){"2,3,2,35", TN_OPS_GIVEN, .given = given, .n_given = 9}),
            y = tn_ops_node(&t, op, "dtype=bf16", layout, 1, &x);
    for (int64_t i = 0; i < 2 * 3 * 2 * 35; i++) t.content[0][i] = (double)(float)t.content[0][i];
    if (tn_ops_compute(tn_op_name(op), &t, 1, &y, &r)) {
        static const uint16_t first[] = {0x3f80, 0x3f82, 0x3f81, 0xbf80};
        tn_ops_check(!memcmp(r.bytes[0], first, sizeof first), "%s: ties do not go to even",
                     tn_op_name(op));
    }
    tn_ops_results_free(&r);
    tn_ops_fini(&t);
}

static void more_unshard(void)
{
    check_cast(TN_OP_unshard, "{dp:I cp:I tp:I}");
    check_cast(TN_OP_redistribute, "{dp:I cp:I tp:I}");
    check_cast(TN_OP_kv_reduce, NULL);
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = tn_ops_f32(&t, f32("5,7 {dp:0 cp:R tp:1}")),
            y = tn_ops_node(&t, TN_OP_unshard, NULL, "{dp:R cp:R tp:1}", 1, &x);
    check_view(&t, TN_OP_unshard, x, y, 0, 0);
    int32_t z = tn_ops_node(&t, TN_OP_unshard, "dtype=bf16", "{dp:R cp:R tp:1}", 1, &x);
    check_value(t.g, z, "bf16 5,7 {dp:R cp:R tp:1}");
    tn_program *p = plan(&t, z);
    tn_ops_check(p && has_entry(p, TN_OP_unshard), "a cast is no view");
    tn_program_destroy(p);
    const tn_named_attr dtype = {"dtype", {.kind = 's', .u.s = "f8"}};
    refused(&t, TN_OP_unshard, &dtype, x, "{dp:R cp:R tp:1}", "dtype 'f8'");
    refused(&t, TN_OP_unshard, NULL, x, NULL, "needs a placement");
    tn_ops_fini(&t);
}

/* A gradient that is pending; the node that makes it stands in for the backward pass. */
static void build_reduce(tn_ops *t, int i)
{
    int32_t x = tn_ops_f32(t, f32(i ? "6,5 {dp:P cp:P tp:1}" : "9 {dp:P cp:R tp:P}"));
    tn_ops_node(t, TN_OP_reduce, "param=w", i ? "{dp:R cp:R tp:1}" : "{dp:R cp:R tp:R}", 1, &x);
}

static void more_reduce(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = tn_ops_f32(&t, f32("6,5 {dp:P cp:P tp:1}")),
            y = tn_ops_node(&t, TN_OP_reduce, "param=w", "{dp:0 cp:R tp:1}", 1, &x);
    check_value(t.g, y, "f32 6,5 {dp:0 cp:R tp:1}");
    check_view(&t, TN_OP_reduce, x, y, 0, 0);
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_unshard = {
    .n_cases = 2, .build = build_unshard, .ref = copy, .bf16 = 1e-9, .more = more_unshard};
static void build_kv_reduce(tn_ops *t, int i)
{
    static const char *const dims[] = {"2,3,2,8", "1,5,4,16 {dp:0 cp:R tp:2}"};
    int32_t x = tn_ops_f32(t, f32(dims[i]));
    tn_ops_node(t, TN_OP_kv_reduce, NULL, NULL, 1, &x);
}

const tn_op_test tn_op_test_kv_reduce = {
    .n_cases = 2, .build = build_kv_reduce, .ref = copy, .bf16 = 1e-9};
const tn_op_test tn_op_test_reduce = {
    .n_cases = 2, .build = build_reduce, .ref = copy, .more = more_reduce};
