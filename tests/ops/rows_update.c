/* Rows of the norm, clipping and the optimizers (PyTorch's formulas, in double). */
#include "tests/ops.h"

#include <math.h>

static const char *const dims[] = {"1", "3,17 {dp:R cp:R tp:0}", "20011", "2,3,5"};

static int32_t f32(tn_ops *t, int i, double a)
{
    return tn_ops_f32(t, (tn_ops_operand){dims[i % TN_COUNT(dims)], .a = a});
}

/* ---- norm_sum, clip */

static void ref_norm_sum(const tn_ops_ref *r)
{
    double sum = r->n->n_in > 1 ? r->in[1][0] : 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++) sum += r->in[0][i] * r->in[0][i];
    r->out[0][0] = sum;
}

static void ref_clip(const tn_ops_ref *r)
{
    double norm = sqrt(r->in[0][0]), max = tn_node_attr_num(r->n, "max_norm");
    r->out[0][0] = max > 0 ? fmin(1, max / (norm + 1e-6)) : 1;
    r->out[1][0] = norm;
}

static int32_t norm(tn_ops *t, int i, double a)
{
    int32_t sum = TN_OPS_NODE(t, TN_OP_norm_sum, NULL, f32(t, i, a));
    return i % 2 ? TN_OPS_NODE(t, TN_OP_norm_sum, NULL, f32(t, i + 1, a), sum) : sum;
}

static void build_norm_sum(tn_ops *t, int i)
{
    static const double size[] = {3, 2, 1e-15, 1e15};
    norm(t, i, size[i]);
}

static void more_norm_sum(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = tn_ops_f32(&t, (tn_ops_operand){"3 {dp:P cp:R tp:R}", .a = 1}), y = f32(&t, 0, 1);
    int32_t sum =
        TN_OPS_NODE(&t, TN_OP_loss_sum, NULL, tn_ops_f32(&t, (tn_ops_operand){"4", .a = 1}));
    tn_node_desc d = {.op = TN_OP_norm_sum, .n_in = 1, .in = &x, .path = "w"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL),
               "w: norm_sum: axis dp_replicate: the gradient is still pending");
    int32_t two[2] = {y, sum};
    d.in = two;
    d.n_in = 2;
    tn_ops_ok(tn_graph_add(t.g, &d, NULL), "an exact sum");
    two[1] = TN_OPS_NODE(&t, TN_OP_clip, NULL, sum);
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 1 must be an exact sum");
    tn_ops_fini(&t);
}

/* Clipped, not clipped, off; so small that the 1e-6 shows. The norm of a split gradient is pending;
 * clip reads it whole. */
static void build_clip(tn_ops *t, int i)
{
    static const char *const max[] = {"max_norm=0.25", "max_norm=1e6", "max_norm=0", NULL,
                                      "max_norm=1e-7"};
    int32_t sum = norm(t, i, i == 4 ? 1e-6 : 40);
    t->scope = TN_SCOPE_TAIL;
    sum = tn_ops_node(t, TN_OP_redistribute, NULL, "{dp:R cp:R tp:R}", 1, &sum);
    TN_OPS_NODE(t, TN_OP_clip, max[i], sum);
}

static void ref_exact_add(const tn_ops_ref *r)
{
    r->out[0][0] = r->in[0][0] + r->in[1][0];
}

static void build_exact_add(tn_ops *t, int i)
{
    int32_t sum[2] = {norm(t, i, 3), norm(t, i + 1, i ? 1e-6 : 1e6)};
    t->scope = TN_SCOPE_TAIL;
    for (int k = 0; k < 2; k++)
        sum[k] = tn_ops_node(t, TN_OP_redistribute, NULL, "{dp:R cp:R tp:R}", 1, &sum[k]);
    TN_OPS_NODE(t, TN_OP_exact_add, NULL, sum[0], sum[1]);
}

static void more_exact_add(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t two[2] = {norm(&t, 0, 1), -1};
    two[0] = tn_ops_node(&t, TN_OP_redistribute, NULL, "{dp:R cp:R tp:R}", 1, &two[0]);
    two[1] = TN_OPS_NODE(&t, TN_OP_clip, NULL, two[0]);
    tn_node_desc d = {.op = TN_OP_exact_add, .n_in = 2, .in = two, .path = "w"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "w: exact_add: operand 1 must be an exact sum");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_exact_add = {.n_cases = 2,
                                         .build = build_exact_add,
                                         .ref = ref_exact_add,
                                         .tolerance = 1e-13,
                                         .more = more_exact_add};
const tn_op_test tn_op_test_norm_sum = {.n_cases = 4,
                                        .build = build_norm_sum,
                                        .ref = ref_norm_sum,
                                        .tolerance = 1e-13,
                                        .more = more_norm_sum};
const tn_op_test tn_op_test_clip = {
    .n_cases = 5, .build = build_clip, .ref = ref_clip, .tolerance = 1.2e-7};

/* ---- optimizers */

static void ref_adamw(const tn_ops_ref *r)
{
    const tn_node *n = r->n;
    double lr = tn_node_attr_num(n, "lr") * r->step->lr_factor, b1 = tn_node_attr_num(n, "beta1"),
           b2 = tn_node_attr_num(n, "beta2"), wd = tn_node_attr_num(n, "weight_decay"),
           eps = tn_node_attr_num(n, "eps");
    double bc1 = 1 - pow(b1, (double)r->step->step), bc2 = 1 - pow(b2, (double)r->step->step);
    bool decoupled = tn_node_attr_int(n, "decoupled") != 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++) {
        double p = r->in[0][i], g = r->in[1][i] * r->in[4][0];
        if (decoupled) p -= lr * wd * p;
        else g += wd * p;
        double m = r->out[1][i] = b1 * r->in[2][i] + (1 - b1) * g;
        double v = r->out[2][i] = b2 * r->in[3][i] + (1 - b2) * g * g;
        r->out[0][i] = p - lr / bc1 * m / (sqrt(v) / sqrt(bc2) + eps);
    }
}

static void ref_sgd(const tn_ops_ref *r)
{
    const tn_node *n = r->n;
    double lr = tn_node_attr_num(n, "lr") * r->step->lr_factor,
           momentum = tn_node_attr_num(n, "momentum");
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++) {
        double g = r->in[1][i] * r->in[3][0] + tn_node_attr_num(n, "weight_decay") * r->in[0][i];
        r->out[1][i] = r->step->step == 1 ? g : momentum * r->in[2][i] + g;
        r->out[0][i] = r->in[0][i] - lr * r->out[1][i];
    }
}

/* A coefficient of 1 / 7. */
static int32_t coefficient(tn_ops *t)
{
    static const double seven[] = {1, 2, -100, 3, 4, 5, 6, 7};
    int32_t labels = tn_ops_i32(
        t, (tn_ops_operand){"1,8 {dp:R cp:R tp:R}", TN_OPS_GIVEN, .given = seven, .n_given = 8});
    return TN_OPS_NODE(t, TN_OP_inv_count, NULL, TN_OPS_NODE(t, TN_OP_count_labels, NULL, labels));
}

static void build_adamw(tn_ops *t, int i)
{
    static const char *const attrs[] = {
        "lr=0.01", "lr=0.1 weight_decay=0.5 beta1=0.8 beta2=0.99 eps=0.001",
        "lr=0.02 weight_decay=0.1 decoupled=0", "lr=0.3 beta1=0 beta2=0.5"};
    static const tn_step steps[] = {{1, 1.0}, {3, 0.25}, {1000000, 1.0}, {2, 0.5}};
    int32_t p = f32(t, i, 2), g = f32(t, i, 5), m = f32(t, i, 0.5);
    int32_t v = tn_ops_f32(t, (tn_ops_operand){dims[i], TN_OPS_POSITIVE, .a = 0.5}),
            c = coefficient(t);
    t->step = steps[i];
    TN_OPS_NODE(t, TN_OP_adamw, attrs[i], p, g, m, v, c);
}

/* In the first step the momentum buffer is not read. */
static void build_sgd(tn_ops *t, int i)
{
    static const char *const attrs[] = {"lr=0.01", "lr=0.1 momentum=0.9 weight_decay=0.5",
                                        "lr=0.02 momentum=0.9", "lr=0.3 weight_decay=0.01"};
    static const tn_step steps[] = {{1, 1.0}, {1, 0.25}, {2, 1.0}, {30, 0.5}};
    int32_t p = f32(t, i, 2), g = f32(t, i, 5), m = f32(t, i, 0.5), c = coefficient(t);
    t->step = steps[i];
    TN_OPS_NODE(t, TN_OP_sgd, attrs[i], p, g, m, c);
}

const tn_op_test tn_op_test_adamw = {
    .n_cases = 4, .build = build_adamw, .ref = ref_adamw, .tolerance = 1e-7};
const tn_op_test tn_op_test_sgd = {
    .n_cases = 4, .build = build_sgd, .ref = ref_sgd, .tolerance = 1.5e-7};
