/* Rows of attention: groups of heads, values of another width than keys, documents, windows,
 * positions that are no index. */
#include "tests/ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    int64_t b, s, t, h, g, d, dv;
    const double *q_pos, *q_doc, *k_pos, *k_doc;
    const tn_node *n;
} shape;

static shape shape_of(const tn_ops_ref *r, int q, int at)
{
    const tn_value *vq = tn_ops_in(r, q), *vk = tn_ops_in(r, q + 1), *vv = tn_ops_in(r, q + 2);
    return (shape){vq->dim[0].extent, vq->dim[1].extent, vk->dim[1].extent, vq->dim[2].extent,
                   vk->dim[2].extent, vq->dim[3].extent, vv->dim[3].extent, r->in[at],
                   r->in[at + 1],     r->in[at + 2],     r->in[at + 3],     r->n};
}

static bool sees(const shape *z, int64_t b, int64_t i, int64_t j)
{
    double qp = z->q_pos[b * z->s + i], kp = z->k_pos[b * z->t + j],
           window = (double)tn_node_attr_int(z->n, "window");
    if (z->q_doc[b * z->s + i] != z->k_doc[b * z->t + j]) return false;
    if (tn_node_attr_int(z->n, "causal") && kp > qp) return false;
    return window == 0 || qp - kp < window;
}

static double scale(const shape *z)
{
    double c = tn_node_attr_num(z->n, "scale");
    return c > 0 ? c : 1 / sqrt((double)z->d);
}

/* Scores of one query of one head over the keys; -infinity where it sees none. */
static void scores(const shape *z, const double *q, const double *k, int64_t b, int64_t i,
                   int64_t head, double *out)
{
    int64_t kv = head / (z->h / z->g);
    for (int64_t j = 0; j < z->t; j++) {
        double dot = 0;
        for (int64_t c = 0; c < z->d; c++)
            dot += q[((b * z->s + i) * z->h + head) * z->d + c] *
                   k[((b * z->t + j) * z->g + kv) * z->d + c];
        out[j] = sees(z, b, i, j) ? scale(z) * dot : -INFINITY;
    }
}

static double log_sum_exp(const double *x, int64_t n)
{
    double m = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    for (int64_t i = 0; i < n && m > -INFINITY; i++) sum += exp(x[i] - m);
    return m > -INFINITY ? m + log(sum) : m;
}

static void ref(const tn_ops_ref *r)
{
    shape z = shape_of(r, 0, 3);
    double *p = calloc((size_t)z.t, sizeof *p);
    for (int64_t row = 0; p && row < z.b * z.s * z.h; row++) {
        int64_t b = row / z.h / z.s, i = row / z.h % z.s, head = row % z.h, kv = head / (z.h / z.g);
        scores(&z, r->in[0], r->in[1], b, i, head, p);
        double lse = r->out[1][row] = log_sum_exp(p, z.t), *o = r->out[0] + row * z.dv;
        for (int64_t c = 0; c < z.dv; c++) o[c] = 0;
        for (int64_t j = 0; j < z.t && lse > -INFINITY; j++)
            for (int64_t c = 0; c < z.dv; c++)
                o[c] += exp(p[j] - lse) * r->in[2][((b * z.t + j) * z.g + kv) * z.dv + c];
    }
    free(p);
}

/* ds = p (dp - D), D = do . o; dq = scale ds k, dk = scale ds q, dv = p do. o and lse are what they
 * are given as. */
static void ref_bwd(const tn_ops_ref *r)
{
    shape z = shape_of(r, 1, 6);
    const double *d_o = r->in[0], *q = r->in[1], *k = r->in[2], *v = r->in[3], *o = r->in[4],
                 *lse = r->in[5];
    double *p = calloc((size_t)z.t, sizeof *p);
    for (int out = 0; out < 3; out++)
        for (int64_t i = 0; i < tn_ops_count(tn_ops_out(r, out), 0); i++) r->out[out][i] = 0;
    for (int64_t row = 0; p && row < z.b * z.s * z.h; row++) {
        int64_t b = row / z.h / z.s, i = row / z.h % z.s, head = row % z.h, kv = head / (z.h / z.g);
        double big_d = 0;
        scores(&z, q, k, b, i, head, p);
        for (int64_t c = 0; c < z.dv; c++) big_d += d_o[row * z.dv + c] * o[row * z.dv + c];
        for (int64_t j = 0; j < z.t; j++) {
            int64_t key = (b * z.t + j) * z.g + kv;
            double dp = 0, w = p[j] > -INFINITY ? exp(p[j] - lse[row]) : 0;
            for (int64_t c = 0; c < z.dv; c++) {
                dp += d_o[row * z.dv + c] * v[key * z.dv + c];
                r->out[2][key * z.dv + c] += w * d_o[row * z.dv + c];
            }
            for (int64_t c = 0; c < z.d; c++) {
                r->out[0][row * z.d + c] += scale(&z) * w * (dp - big_d) * k[key * z.d + c];
                r->out[1][key * z.d + c] += scale(&z) * w * (dp - big_d) * q[row * z.d + c];
            }
        }
    }
    free(p);
}

/* ---- cases */

static const double packed[] = {0, 0, 0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 3},
                    restart[] = {0, 1, 2, 3, 4, 0, 1, 2, 0, 0, 1, 2, 3};
/* documents of keys that no query has, and queries that see no key */
static const double q_docs[] = {0, 0, 1, 5, 1}, k_docs[] = {0, 0, 0, 9, 1, 1, 1};

static const struct {
    const char *q, *k, *v, *at_q, *at_k, *attrs;
    const double *q_pos, *q_doc, *k_pos, *k_doc; /* NULL: along, one document */
    int n_q, n_k;
} cases[] = {
    {"1,1,1,1", "1,1,1,1", "1,1,1,1", "1,1", "1,1", NULL, NULL, NULL, NULL, NULL, 0, 0},
    {"2,13,6,5", "2,13,2,5", "2,13,2,5", "2,13", "2,13", NULL, NULL, NULL, NULL, NULL, 0, 0},
    {"2,13,3,16", "2,13,3,16", "2,13,3,16", "2,13", "2,13", NULL, restart, packed, restart, packed,
     13, 13},
    {"1,9,4,7", "1,9,1,7", "1,9,1,3", "1,9", "1,9", "scale=0.3 window=4", NULL, NULL, NULL, NULL, 0,
     0},
    {"1,5,2,3", "1,7,2,3", "1,7,2,4", "1,5", "1,7", "causal=0", NULL, q_docs, NULL, k_docs, 5, 7},
    {"1,70,2,8", "1,70,1,8", "1,70,1,8", "1,70", "1,70", "window=33", NULL, NULL, NULL, NULL, 0, 0},
    {"1,6,8,4 {dp:0 cp:I tp:2}", "1,6,4,4 {dp:0 cp:I tp:2}", "1,6,4,4 {dp:0 cp:I tp:2}",
     "1,6 {dp:0 cp:I tp:I}", "1,6 {dp:0 cp:I tp:I}", NULL, NULL, NULL, NULL, NULL, 0, 0},
};

static int32_t ids(tn_ops *t, const char *dims, const double *given, int n, bool along)
{
    static const double zero[1];
    if (!given && along) return tn_ops_i32(t, (tn_ops_operand){dims, TN_OPS_ALONG, .a = 0});
    return tn_ops_i32(t, (tn_ops_operand){dims, TN_OPS_GIVEN, .given = given ? given : zero,
                                          .n_given = given ? n : 1});
}

static void masks(tn_ops *t, int i, int32_t *out)
{
    out[0] = ids(t, cases[i].at_q, cases[i].q_pos, cases[i].n_q, true);
    out[1] = ids(t, cases[i].at_q, cases[i].q_doc, cases[i].n_q, false);
    out[2] = ids(t, cases[i].at_k, cases[i].k_pos, cases[i].n_k, true);
    out[3] = ids(t, cases[i].at_k, cases[i].k_doc, cases[i].n_k, false);
}

static void build(tn_ops *t, int i)
{
    int32_t in[7] = {tn_ops_f32(t, (tn_ops_operand){cases[i].q, .a = 2}),
                     tn_ops_f32(t, (tn_ops_operand){cases[i].k, .a = 2}),
                     tn_ops_f32(t, (tn_ops_operand){cases[i].v, .a = 1})};
    masks(t, i, in + 3);
    tn_ops_node(t, TN_OP_attention, cases[i].attrs, NULL, 7, in);
}

/* o and lse come from the forward node. */
static void build_bwd(tn_ops *t, int i)
{
    int32_t q = tn_ops_f32(t, (tn_ops_operand){cases[i].q, .a = 2}),
            k = tn_ops_f32(t, (tn_ops_operand){cases[i].k, .a = 2}),
            v = tn_ops_f32(t, (tn_ops_operand){cases[i].v, .a = 1}), m[4];
    masks(t, i, m);
    int32_t o = TN_OPS_NODE(t, TN_OP_attention, cases[i].attrs, q, k, v, m[0], m[1], m[2], m[3]);
    const tn_value *vo = &t->g->values[o];
    char dims[128], layout[96];
    tn_layout_print(&vo->layout, layout, sizeof layout);
    snprintf(dims, sizeof dims, "%lld,%lld,%lld,%lld %s", (long long)vo->dim[0].extent,
             (long long)vo->dim[1].extent, (long long)vo->dim[2].extent,
             (long long)vo->dim[3].extent, layout);
    int32_t d_o = tn_ops_f32(t, (tn_ops_operand){dims, .a = 1});
    TN_OPS_NODE(t, TN_OP_attention_bwd, cases[i].attrs, d_o, q, k, v, o, o + 1, m[0], m[1], m[2],
                m[3]);
}

static void more(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[7] = {tn_ops_f32(&t, (tn_ops_operand){"1,4,3,5", .a = 1}),
                     tn_ops_f32(&t, (tn_ops_operand){"1,4,2,5", .a = 1}),
                     tn_ops_f32(&t, (tn_ops_operand){"1,4,2,5", .a = 1})};
    for (int i = 3; i < 7; i++) in[i] = ids(&t, "1,4", NULL, 0, i % 2);
    tn_node_desc d = {.op = TN_OP_attention, .n_in = 7, .in = in, .path = "layers.1.attention"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "layers.1.attention: attention: dim 2 of operand 0 has "
                                            "extent 3, which is not a multiple of 2");
    in[0] = tn_ops_f32(&t, (tn_ops_operand){"1,4,4,5", .a = 1});
    in[5] = tn_ops_f32(&t, (tn_ops_operand){"1,4", .a = 1});
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 5 must be i32");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_attention = {.n_cases = TN_COUNT(cases),
                                         .build = build,
                                         .ref = ref,
                                         .tolerance = 5e-7,
                                         .gradient = 6e-7,
                                         .bf16 = 5e-7,
                                         .carries = 1,
                                         .more = more};
const tn_op_test tn_op_test_attention_bwd = {.n_cases = TN_COUNT(cases),
                                             .build = build_bwd,
                                             .ref = ref_bwd,
                                             .tolerance = 1e-6,
                                             .bf16 = 1e-6};

/* ---- cache */

static void ref_cache(const tn_ops_ref *r)
{
    const tn_value *kept = tn_ops_in(r, 0), *fresh = tn_ops_in(r, 1);
    int64_t t = kept->dim[1].extent, s = fresh->dim[1].extent,
            n = kept->dim[2].extent * kept->dim[3].extent;
    for (int64_t i = 0; i < kept->dim[0].extent * t * n; i++) r->out[0][i] = r->in[0][i];
    for (int64_t b = 0; b < kept->dim[0].extent; b++)
        for (int64_t i = 0; i < s; i++) {
            int64_t at = (int64_t)r->in[2][b * s + i];
            if (at < 0 || at >= t) continue;
            for (int64_t k = 0; k < n; k++)
                r->out[0][(b * t + at) * n + k] = r->in[1][(b * s + i) * n + k];
        }
}

static void build_cache(tn_ops *t, int i)
{
    static const double at[] = {4, 0, 2, 6, -1, 1}; /* the last but two and one lie outside */
    int32_t kept = tn_ops_f32(t, (tn_ops_operand){"2,5,3,7", .a = 1, .constant = true}),
            fresh = tn_ops_f32(t, (tn_ops_operand){i ? "2,1,3,7" : "2,3,3,7", .a = 1}),
            positions = tn_ops_i32(t, (tn_ops_operand){i ? "2,1" : "2,3", TN_OPS_GIVEN, .given = at,
                                                       .n_given = i ? 2 : 6});
    TN_OPS_NODE(t, TN_OP_cache, NULL, kept, fresh, positions);
}

static void more_cache(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[3] = {tn_ops_f32(&t, (tn_ops_operand){"2,5,3,7", .a = 1}),
                     tn_ops_f32(&t, (tn_ops_operand){"2,3,3,6", .a = 1}),
                     ids(&t, "2,3", NULL, 0, 0)};
    tn_node_desc d = {.op = TN_OP_cache, .n_in = 3, .in = in, .path = "m"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "m: cache: operand 1 has extent 6 in dim 3");
    in[1] = tn_ops_f32(&t, (tn_ops_operand){"2,3,3,7", .a = 1});
    tn_ops_ok(tn_graph_add(t.g, &d, NULL), "cache");
    in[2] = tn_ops_f32(&t, (tn_ops_operand){"2,3", .a = 1});
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 2 must be i32");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_cache = {
    .n_cases = 2, .build = build_cache, .ref = ref_cache, .more = more_cache};
