/* Rows of rmsnorm and rope. */
#include "tests/ops.h"

#include <math.h>
#include <stdio.h>

/* ---- rmsnorm */

static void ref_norm(const tn_ops_ref *r)
{
    const tn_value *x = tn_ops_in(r, 0);
    int64_t rows = tn_ops_count(x, 1), d = tn_ops_extent(x, -1);
    for (int64_t i = 0; i < rows; i++) {
        const double *x_d = r->in[0] + i * d;
        double sum = 0;
        for (int64_t k = 0; k < d; k++) sum += x_d[k] * x_d[k];
        r->out[1][i] = 1 / sqrt(sum / (double)d + tn_node_attr_num(r->n, "eps"));
        for (int64_t k = 0; k < d; k++)
            r->out[0][i * d + k] = tn_ops_stored(x_d[k] * r->out[1][i], x->dtype) * r->in[1][k];
    }
}

/* dx = r (dy w - x r^2 mean(dy w x)) [+ add]; r is what it is given. */
static void ref_norm_bwd(const tn_ops_ref *ref)
{
    const tn_value *x = tn_ops_in(ref, 1);
    int64_t rows = tn_ops_count(x, 1), d = tn_ops_extent(x, -1);
    for (int64_t i = 0; i < rows; i++) {
        const double *dy = ref->in[0] + i * d, *x_d = ref->in[1] + i * d, *w = ref->in[3],
                     r = ref->in[2][i];
        double mean = 0;
        for (int64_t k = 0; k < d; k++) mean += dy[k] * w[k] * x_d[k] / (double)d;
        for (int64_t k = 0; k < d; k++) {
            double dx = r * (dy[k] * w[k] - x_d[k] * r * r * mean);
            if (ref->n->n_in > 4) dx = tn_ops_stored(dx, x->dtype) + ref->in[4][i * d + k];
            ref->out[0][i * d + k] = dx;
        }
    }
}

static void ref_norm_bwd_w(const tn_ops_ref *ref)
{
    const tn_value *x = tn_ops_in(ref, 1);
    int64_t rows = tn_ops_count(x, 1), d = tn_ops_extent(x, -1);
    for (int64_t k = 0; k < d; k++) {
        double sum = ref->iteration ? ref->out[0][k] : 0;
        for (int64_t i = 0; i < rows; i++)
            sum += ref->in[0][i * d + k] *
                   tn_ops_stored(ref->in[1][i * d + k] * ref->in[2][i], x->dtype);
        ref->out[0][k] = sum;
    }
}

static const struct {
    const char *x, *w, *r;
} norms[] = {{"1,1,1", "1", "1,1"},
             {"2,3,17", "17", "2,3"},
             {"3,5,130 {dp:0 cp:1 tp:I}", "130 {dp:R cp:R tp:I}", "3,5 {dp:0 cp:1 tp:I}"},
             {"1,2,515", "515", "1,2"},
             {"9,11,16", "16", "9,11"},
             {"8,37,130", "130", "8,37"}};

static int32_t operand(tn_ops *t, const char *dims, double a)
{
    return tn_ops_f32(t, (tn_ops_operand){dims, .a = a});
}

/* What stands for r. */
static int32_t positive(tn_ops *t, const char *dims)
{
    return tn_ops_f32(t, (tn_ops_operand){dims, TN_OPS_POSITIVE, .a = 2, .wide = true});
}

static void build_norm(tn_ops *t, int i)
{
    static const char *const eps[] = {"eps=0.5", NULL, "eps=1e-6", "eps=0", "eps=1e-5", NULL};
    int32_t x = operand(t, norms[i].x, i == 4 ? 1e-3 : 2), w = operand(t, norms[i].w, 2);
    tn_ops_loops(t, t->g->values[x].dim[0].extent, t->g->values[x].dim[1].extent, 1, 1);
    TN_OPS_NODE(t, TN_OP_rmsnorm, eps[i], x, w);
}

static void more_norm(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[2] = {operand(&t, "2,3,8 {dp:0 cp:1 tp:2}", 1), operand(&t, "8", 1)};
    tn_node_desc d = {.op = TN_OP_rmsnorm, .n_in = 2, .in = in, .path = "norm"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL),
               "norm: rmsnorm: axis tp: dim 2 of operand 0 must stay whole");
    in[0] = operand(&t, "2,3,9", 1);
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 1 has extent 8 in dim 0 where 9");
    tn_ops_fini(&t);
}

static void build_norm_bwd(tn_ops *t, int i)
{
    const int n = TN_COUNT(norms);
    int32_t in[5] = {operand(t, norms[i % n].x, 1), operand(t, norms[i % n].x, 2),
                     positive(t, norms[i % n].r), operand(t, norms[i % n].w, 2)};
    if (i >= n) in[4] = operand(t, norms[i % n].x, 3);
    tn_ops_node(t, TN_OP_rmsnorm_bwd, NULL, NULL, i >= n ? 5 : 4, in);
}

static void build_norm_bwd_w(tn_ops *t, int i)
{
    int32_t dy = operand(t, norms[i].x, 1), x = operand(t, norms[i].x, 2),
            r = positive(t, norms[i].r);
    tn_ops_loops(t, t->g->values[x].dim[0].extent, t->g->values[x].dim[1].extent, 1, 1);
    TN_OPS_NODE(t, TN_OP_rmsnorm_bwd_w, NULL, dy, x, r);
}

const tn_op_test tn_op_test_rmsnorm = {.n_cases = TN_COUNT(norms),
                                       .build = build_norm,
                                       .ref = ref_norm,
                                       .tolerance = 3e-7,
                                       .gradient = 8e-7,
                                       .bf16 = 3e-7,
                                       .carries = 1,
                                       .more = more_norm};
const tn_op_test tn_op_test_rmsnorm_bwd = {.n_cases = 2 * TN_COUNT(norms),
                                           .build = build_norm_bwd,
                                           .ref = ref_norm_bwd,
                                           .tolerance = 1e-6,
                                           .bf16 = 1e-6};
/* Per row and position part: the same sum over the part's tokens; then all of them added. */
static void ref_leaves(const tn_ops_ref *ref)
{
    const tn_value *x = tn_ops_in(ref, 1);
    int64_t rows = x->dim[0].extent, seq = x->dim[1].extent, d = x->dim[2].extent,
            parts = tn_ops_extent(tn_ops_out(ref, 0), 1);
    for (int64_t b = 0; b < rows; b++)
        for (int64_t j = 0; j < parts; j++)
            for (int64_t k = 0; k < d; k++) {
                double sum = 0;
                for (int64_t i = b * seq + j * seq / parts; i < b * seq + (j + 1) * seq / parts;
                     i++)
                    sum += ref->in[0][i * d + k] *
                           tn_ops_stored(ref->in[1][i * d + k] * ref->in[2][i], x->dtype);
                ref->out[0][(b * parts + j) * d + k] = sum;
            }
}

static void ref_fold(const tn_ops_ref *ref)
{
    const tn_value *x = tn_ops_in(ref, 0);
    int64_t n = tn_ops_count(x, 1), d = tn_ops_extent(x, -1);
    for (int64_t k = 0; k < d; k++) {
        double sum = ref->iteration ? ref->out[0][k] : 0;
        for (int64_t i = 0; i < n; i++) sum += ref->in[0][i * d + k];
        ref->out[0][k] = sum;
    }
}

static const int64_t leaf_dims[][3] = {{1, 1, 1}, {2, 3, 17}, {3, 20, 130}};

static void build_leaves(tn_ops *t, int i)
{
    char x[64], r[64];
    snprintf(x, sizeof x, "%lld,%lld,%lld", (long long)leaf_dims[i][0], (long long)leaf_dims[i][1],
             (long long)leaf_dims[i][2]);
    snprintf(r, sizeof r, "%lld,%lld", (long long)leaf_dims[i][0], (long long)leaf_dims[i][1]);
    int32_t dy = operand(t, x, 1), v = operand(t, x, 2), s = positive(t, r);
    tn_ops_loops(t, leaf_dims[i][0], leaf_dims[i][1], 1, 1);
    TN_OPS_NODE(t, TN_OP_rmsnorm_leaves, NULL, dy, v, s);
}

static void build_fold(tn_ops *t, int i)
{
    char x[64];
    snprintf(x, sizeof x, "%lld,%d,%lld", (long long)leaf_dims[i][0], t->g->grid.seq,
             (long long)leaf_dims[i][2]);
    int32_t leaves = operand(t, x, 1);
    tn_ops_loops(t, leaf_dims[i][0], t->g->grid.seq * 2, 1, 1); /* two tokens a part */
    TN_OPS_NODE(t, TN_OP_fold_leaves, NULL, leaves);
}

const tn_op_test tn_op_test_rmsnorm_leaves = {.n_cases = TN_COUNT(leaf_dims),
                                              .build = build_leaves,
                                              .ref = ref_leaves,
                                              .tolerance = 1e-6,
                                              .bf16 = 1e-6};
const tn_op_test tn_op_test_fold_leaves = {
    .n_cases = TN_COUNT(leaf_dims), .build = build_fold, .ref = ref_fold, .tolerance = 6e-7};
const tn_op_test tn_op_test_rmsnorm_bwd_w = {.n_cases = TN_COUNT(norms),
                                             .build = build_norm_bwd_w,
                                             .ref = ref_norm_bwd_w,
                                             .tolerance = 3e-6,
                                             .bf16 = 3e-6};

/* ---- rope: x [b, s, h, k], positions [b, s], table [p, k] of cos, then sin */

static void ref_rope(const tn_ops_ref *r)
{
    const tn_value *x = tn_ops_in(r, 0);
    int64_t tokens = tn_ops_count(x, 2), h = tn_ops_extent(x, 2), k = tn_ops_extent(x, 3);
    double sign = tn_node_attr_int(r->n, "inverse") ? -1 : 1;
    for (int64_t i = 0; i < tokens; i++)
        for (int64_t j = 0; j < h; j++)
            for (int64_t c = 0; c < k / 2; c++) {
                const double *row = r->in[2] + (int64_t)r->in[1][i] * k,
                             *a = r->in[0] + (i * h + j) * k;
                double *y = r->out[0] + (i * h + j) * k, cosine = row[c],
                       sine = sign * row[c + k / 2];
                y[c] = a[c] * cosine - a[c + k / 2] * sine;
                y[c + k / 2] = a[c + k / 2] * cosine + a[c] * sine;
            }
}

static void build_rope(tn_ops *t, int i)
{
    static const struct {
        const char *x, *at, *table;
        double positions;
    } cases[] = {
        {"1,1,1,2", "1,1", "1,2", 1},
        {"2,5,3,6", "2,5", "9,6", 9},
        {"1,7,4,34 {dp:0 cp:1 tp:2}", "1,7 {dp:0 cp:1 tp:R}", "40,34 {dp:R cp:R tp:R}", 40},
        {"3,4,2,64", "3,4", "5,64", 5},
        {"8,21,4,64", "8,21", "50,64", 50}};
    int32_t x = operand(t, cases[i].x, 2),
            at =
                tn_ops_i32(t, (tn_ops_operand){cases[i].at, TN_OPS_BELOW, .a = cases[i].positions});
    int32_t table =
        tn_ops_f32(t, (tn_ops_operand){cases[i].table, .a = 1, .constant = true, .wide = true});
    TN_OPS_NODE(t, TN_OP_rope, i % 2 ? "inverse=1" : NULL, x, at, table);
}

static void more_rope(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[3] = {operand(&t, "1,2,3,5", 1),
                     tn_ops_i32(&t, (tn_ops_operand){"1,2", TN_OPS_BELOW, .a = 2}),
                     operand(&t, "2,5", 1)};
    tn_node_desc d = {.op = TN_OP_rope, .n_in = 3, .in = in, .path = "m"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "head dim 5 is odd");
    in[0] = operand(&t, "1,2,3,6", 1);
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "the table has 5 columns where the head dim is 6");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_rope = {.n_cases = 5,
                                    .build = build_rope,
                                    .ref = ref_rope,
                                    .tolerance = 2.4e-7,
                                    .gradient = 1e-7,
                                    .bf16 = 2.4e-7,
                                    .more = more_rope};
