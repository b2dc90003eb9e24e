/* Rows of the matrix products. Where a dim that is summed over is placed on an axis, its sum has
 * the leaves of the reduce grid: sums over 1 element, fewer than 8, uneven leaves, units of heads.
 */
#include "graph/passes.h"
#include "tests/ops.h"

/* out[i] += sum over the shared dim; every operand as rows x columns */
static double dot(const double *a, const double *b, int64_t n, int64_t a_step, int64_t b_step)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += a[k * a_step] * b[k * b_step];
    return sum;
}

static void ref_linear(const tn_ops_ref *r)
{
    int64_t rows = tn_ops_count(tn_ops_in(r, 0), 1), d = tn_ops_extent(tn_ops_in(r, 0), -1);
    bool add = r->n->op == TN_OP_linear_add;
    for (int o = 0; o < r->n->n_out; o++) {
        int64_t f = tn_ops_extent(tn_ops_out(r, o), -1);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < f; j++) {
                double sum = dot(r->in[0] + i * d, r->in[1 + o] + j * d, d, 1, 1);
                if (add) sum = tn_ops_stored(sum, tn_ops_out(r, o)->dtype) + r->in[2][i * f + j];
                r->out[o][i * f + j] = sum;
            }
    }
}

static void ref_bwd_x(const tn_ops_ref *r)
{
    int n = r->n->n_in / 2;
    int64_t rows = tn_ops_count(tn_ops_out(r, 0), 1), d = tn_ops_extent(tn_ops_out(r, 0), -1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++) {
                int64_t f = tn_ops_extent(tn_ops_in(r, k), -1);
                sum += dot(r->in[k] + i * f, r->in[n + k] + j, f, 1, d);
            }
            r->out[0][i * d + j] = sum;
        }
}

/* Added up over the iterations of the loops. */
static void ref_bwd_w(const tn_ops_ref *r)
{
    int64_t tokens = tn_ops_count(tn_ops_in(r, 0), 1), f = tn_ops_extent(tn_ops_in(r, 0), -1),
            d = tn_ops_extent(tn_ops_in(r, 1), -1);
    for (int64_t i = 0; i < f; i++)
        for (int64_t j = 0; j < d; j++)
            r->out[0][i * d + j] = (r->iteration ? r->out[0][i * d + j] : 0) +
                                   dot(r->in[0] + i, r->in[1] + j, tokens, f, d);
}

static const struct {
    int n;
    const char *x, *w[3], *attrs;
} linears[] = {
    {1, "1,1,1", {"1,1"}, NULL},
    {1, "2,3,17", {"5,17"}, "out_f32=1"},
    {3, "2,5,19", {"21,19", "7,19", "1,19"}, NULL},
    {2, "1,9,70", {"33,70", "65,70"}, NULL},
    {3, "1,4,5,6,3", {"4,3", "9,3", "2,3"}, NULL},
    {1, "1,1,129", {"67,129"}, NULL}, /* one row: decode */
    {2, "2,67,65", {"70,65", "33,65"}, NULL},
    /* row parallel: the sum over d has leaves */
    {1, "2,3,33 {dp:I cp:I tp:2}", {"5,33 {dp:I cp:I tp:1}"}, NULL},
    {1, "2,3,5 {dp:I cp:I tp:2}", {"9,5 {dp:I cp:I tp:1}"}, NULL},
    {1, "1,7,36/3 {dp:I cp:I tp:2}", {"13,36/3 {dp:I cp:I tp:1}"}, NULL},
    {1, "3,5,150 {dp:I cp:I tp:2}", {"30,150 {dp:I cp:I tp:1}"}, NULL},
    /* column parallel: that over f of the input's gradient */
    {3,
     "2,5,19 {dp:0 cp:1 tp:R}",
     {"24/6,19 {dp:R cp:R tp:0}", "8/2,19 {dp:R cp:R tp:0}", "8/2,19 {dp:R cp:R tp:0}"},
     NULL},
    {2, "2,3,9 {dp:0 cp:1 tp:R}", {"70,9 {dp:R cp:R tp:0}", "70,9 {dp:R cp:R tp:0}"}, NULL},
};

static void tokens(tn_ops *t, int32_t x)
{
    tn_ops_loops(t, t->g->values[x].dim[0].extent, t->g->values[x].dim[1].extent, 1, 1);
}

/* Gradients of weights have a token order for three dims only. */
static void build_linear(tn_ops *t, int i)
{
    int32_t in[4] = {tn_ops_f32(t, (tn_ops_operand){linears[i].x, .a = 1})};
    for (int k = 0; k < linears[i].n; k++)
        in[1 + k] = tn_ops_f32(t, (tn_ops_operand){linears[i].w[k], .a = 1, .constant = i == 4});
    tokens(t, in[0]);
    tn_ops_node(t, TN_OP_linear, linears[i].attrs, NULL, 1 + linears[i].n, in);
}

/* The order of a sum: leaves of the grid where its dim is placed on an axis, else one chain; tokens
 * of a weight's gradient. */
static void check_order(const tn_ops *t, int32_t value, int order, int parts, int levels)
{
    tn_graph *low;
    if (!tn_ops_ok(tn_pass_lower(t->g, &low), "lower")) return;
    const tn_value *v = &low->values[tn_ops_find_again(t->g, value, low)];
    const tn_node *n = &low->nodes[v->node];
    tn_ops_check(n->order == order && (order != TN_ORDER_OVER_PARAM || n->parts == parts),
                 "%s: order %d, %d parts", tn_op_name((tn_op_id)n->op), n->order, n->parts);
    tn_ops_check(v->carried == (order == TN_ORDER_OVER_TOKENS) && v->levels == levels,
                 "%s: %d levels", tn_op_name((tn_op_id)n->op), v->levels);
    tn_graph_destroy(low);
}

static void orders(void)
{
    tn_ops t = tn_ops_begin(1, false);
    tn_ops_loops(&t, 2, 8, 4, 1);
    int32_t x = tn_ops_f32(&t, (tn_ops_operand){"2,8,6 {dp:0 cp:1 tp:R}", .a = 1}),
            w = tn_ops_f32(&t, (tn_ops_operand){"10,6 {dp:R cp:R tp:0}", .a = 1});
    int32_t w2 = tn_ops_f32(&t, (tn_ops_operand){"3,10 {dp:R cp:R tp:1}", .a = 1}),
            dy = tn_ops_f32(&t, (tn_ops_operand){"2,8,10 {dp:0 cp:1 tp:2}", .a = 1});
    int32_t y = TN_OPS_NODE(&t, TN_OP_linear, NULL, x, w),
            z = TN_OPS_NODE(&t, TN_OP_linear, NULL, y, w2);
    check_order(&t, y, TN_ORDER_OVER_PARAM, 1, 1);
    check_order(&t, z, TN_ORDER_OVER_PARAM, 8, 1);
    check_order(&t, TN_OPS_NODE(&t, TN_OP_linear_bwd_x, NULL, dy, w), TN_ORDER_OVER_PARAM, 8, 1);
    /* 8 rows are 8 lanes; cut after 2, 4 and 6 of them the stack is at most two levels deep */
    check_order(&t, TN_OPS_NODE(&t, TN_OP_linear_bwd_w, NULL, dy, x), TN_ORDER_OVER_TOKENS, 0, 2);
    tn_ops_fini(&t);
}

static void more_linear(void)
{
    orders();
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[3] = {tn_ops_f32(&t, (tn_ops_operand){"2,3,17", .a = 1}),
                     tn_ops_f32(&t, (tn_ops_operand){"5,16", .a = 1})};
    tn_node_desc d = {.op = TN_OP_linear, .n_in = 2, .in = in, .path = "layers.0"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL),
               "layers.0: linear: operand 1 has extent 16 in dim 1 where 17");
    in[0] = tn_ops_f32(&t, (tn_ops_operand){"2,3,16 {dp:I cp:I tp:2}", .a = 1});
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "axis tp");
    in[1] = tn_ops_f32(&t, (tn_ops_operand){"16", .a = 1});
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 1 has rank 1 where 2");
    d.n_in = 1;
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "1 operands do not fit");
    tn_ops_fini(&t);
}

static void build_linear_add(tn_ops *t, int i)
{
    static const char *const x[] = {"2,3,17", "1,7,36/3 {dp:I cp:I tp:2}", "1,1,1"},
                             *const w[] = {"5,17", "13,36/3 {dp:I cp:I tp:1}", "3,1"},
                             *const add[] = {"2,3,5", "1,7,13 {dp:I cp:I tp:1}", "1,1,3"};
    int32_t in[3] = {tn_ops_f32(t, (tn_ops_operand){x[i], .a = 1}),
                     tn_ops_f32(t, (tn_ops_operand){w[i], .a = 1}),
                     tn_ops_f32(t, (tn_ops_operand){add[i], .a = 3})};
    tn_ops_node(t, TN_OP_linear_add, NULL, NULL, 3, in);
}

static void build_bwd_x(tn_ops *t, int i)
{
    static const struct {
        int n;
        const char *dy[3], *w[3];
        bool logits; /* dy is fp32 in any case */
    } cases[] = {
        {1, {"1,1,1"}, {"1,1"}, false},
        {3, {"2,5,21", "2,5,7", "2,5,1"}, {"21,19", "7,19", "1,19"}, false},
        {2,
         {"1,3,70 {dp:I cp:I tp:2}", "1,3,70 {dp:I cp:I tp:2}"},
         {"70,33 {dp:I cp:I tp:0}", "70,33 {dp:I cp:I tp:0}"},
         false},
        {3,
         {"2,3,24/6 {dp:I cp:I tp:2}", "2,3,8/2 {dp:I cp:I tp:2}", "2,3,8/2 {dp:I cp:I tp:2}"},
         {"24/6,5 {dp:I cp:I tp:0}", "8/2,5 {dp:I cp:I tp:0}", "8/2,5 {dp:I cp:I tp:0}"},
         false},
        {1, {"2,5,35"}, {"35,19"}, true},
        {1, {"1,40,67"}, {"67,70"}, false},
    };
    int32_t in[6];
    int n = cases[i].n;
    for (int k = 0; k < n; k++) {
        in[k] = tn_ops_f32(t, (tn_ops_operand){cases[i].dy[k], .a = 1, .wide = cases[i].logits});
        in[n + k] = tn_ops_f32(t, (tn_ops_operand){cases[i].w[k], .a = 1});
    }
    tn_ops_node(t, TN_OP_linear_bwd_x, NULL, NULL, 2 * n, in);
}

/* Rows fewer and more than lanes, positions fewer than parts. */
static void build_bwd_w(tn_ops *t, int i)
{
    static const char *const dy[] = {"1,1,1", "2,5,17", "9,11,7", "3,40,35", "2,64,130", "2,5,35"};
    static const char *const x[] = {"1,1,1", "2,5,9", "9,11,18", "3,40,66", "2,64,70", "2,5,19"};
    int32_t a = tn_ops_f32(t, (tn_ops_operand){dy[i], .a = 1, .wide = i == 5}), /* of logits */
        b = tn_ops_f32(t, (tn_ops_operand){x[i], .a = 1});
    tokens(t, a);
    TN_OPS_NODE(t, TN_OP_linear_bwd_w, NULL, a, b);
}

const tn_op_test tn_op_test_linear = {.n_cases = TN_COUNT(linears),
                                      .build = build_linear,
                                      .ref = ref_linear,
                                      .tolerance = 2e-6,
                                      .gradient = 1e-6,
                                      .bf16 = 2e-6,
                                      .more = more_linear};
const tn_op_test tn_op_test_linear_add = {
    .n_cases = 3, .build = build_linear_add, .ref = ref_linear, .tolerance = 6e-7, .bf16 = 6e-7};
const tn_op_test tn_op_test_linear_bwd_x = {
    .n_cases = 6, .build = build_bwd_x, .ref = ref_bwd_x, .tolerance = 3e-6, .bf16 = 3e-6};
const tn_op_test tn_op_test_linear_bwd_w = {
    .n_cases = 6, .build = build_bwd_w, .ref = ref_bwd_w, .tolerance = 3e-6, .bf16 = 3e-6};
