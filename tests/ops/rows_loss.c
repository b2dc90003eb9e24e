/* Rows of embedding and of the loss. Vocabularies: one byte and one more, fewer tokens than the
 * eight parts, one. */
#include "tests/ops.h"

#include <math.h>

static int32_t f32(tn_ops *t, const char *dims, double a)
{
    return tn_ops_f32(t, (tn_ops_operand){dims, .a = a});
}

/* Labels below `vocab`; every third position has none. */
static int32_t labels(tn_ops *t, const char *dims, double vocab)
{
    int32_t v = tn_ops_i32(t, (tn_ops_operand){dims, TN_OPS_BELOW, .a = vocab});
    for (int64_t i = 1; i < tn_value_elements(&t->g->values[v]); i += 3)
        t->content[t->n_leaves - 1][i] = -100;
    return v;
}

static void loops(tn_ops *t, int32_t x)
{
    tn_ops_loops(t, t->g->values[x].dim[0].extent, t->g->values[x].dim[1].extent, 1, 1);
}

/* ---- embedding */

static void ref_embedding(const tn_ops_ref *r)
{
    int64_t d = tn_ops_extent(tn_ops_in(r, 1), 1), vocab = tn_ops_extent(tn_ops_in(r, 1), 0);
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++)
        for (int64_t k = 0; k < d; k++) {
            int64_t id = (int64_t)r->in[0][i];
            r->out[0][i * d + k] = id >= 0 && id < vocab ? r->in[1][id * d + k] : 0;
        }
}

static void ref_embedding_bwd(const tn_ops_ref *r)
{
    int64_t d = tn_ops_extent(tn_ops_out(r, 0), 1), vocab = tn_ops_extent(tn_ops_out(r, 0), 0);
    for (int64_t i = 0; i < vocab * d && !r->iteration; i++) r->out[0][i] = 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++)
        for (int64_t k = 0; k < d; k++)
            if (r->in[0][i] >= 0 && r->in[0][i] < (double)vocab)
                r->out[0][(int64_t)r->in[0][i] * d + k] += r->in[1][i * d + k];
}

static const struct {
    const char *ids, *table, *dy, *vocab;
    double below;
} embeddings[] = {
    {"1,1", "1,1", "1,1,1", "vocab=1", 1},
    {"2,7", "5,17", "2,7,17", "vocab=5", 5},
    {"9,11", "257,3", "9,11,3", "vocab=257", 257},
    {"3,20 {dp:0 cp:1 tp:R}", "33,70 {dp:R cp:R tp:0}", "3,20,70 {dp:0 cp:1 tp:R}", "vocab=33", 33},
    {"2,5", "4,9", "2,5,9", "vocab=4", 7}, /* some ids lie outside of the table: rows of zeros */
};

static int32_t ids(tn_ops *t, int i)
{
    int32_t v =
        tn_ops_i32(t, (tn_ops_operand){embeddings[i].ids, TN_OPS_BELOW, .a = embeddings[i].below});
    loops(t, v);
    return v;
}

static void build_embedding(tn_ops *t, int i)
{
    int32_t x = ids(t, i);
    TN_OPS_NODE(t, TN_OP_embedding, NULL, x, f32(t, embeddings[i].table, 2));
}

static void build_embedding_bwd(tn_ops *t, int i)
{
    int32_t x = ids(t, i);
    TN_OPS_NODE(t, TN_OP_embedding_bwd, embeddings[i].vocab, x, f32(t, embeddings[i].dy, 2));
}

static void more_embedding(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[2] = {f32(&t, "2,3", 1), f32(&t, "5,4", 1)};
    tn_node_desc d = {.op = TN_OP_embedding, .n_in = 2, .in = in, .path = "tok"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "tok: embedding: operand 0 must be i32 ids");
    d.op = TN_OP_embedding_bwd;
    in[0] = tn_ops_i32(&t, (tn_ops_operand){"2,3", TN_OPS_ALONG, .a = 0});
    in[1] = f32(&t, "2,3,4", 1);
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "vocab = 0; at least 1");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_embedding = {.n_cases = TN_COUNT(embeddings),
                                         .build = build_embedding,
                                         .ref = ref_embedding,
                                         .gradient = 1e-7,
                                         .bf16 = 1e-9,
                                         .more = more_embedding};
const tn_op_test tn_op_test_embedding_bwd = {.n_cases = TN_COUNT(embeddings),
                                             .build = build_embedding_bwd,
                                             .ref = ref_embedding_bwd,
                                             .tolerance = 5e-7,
                                             .bf16 = 5e-7};

/* ---- cross entropy: whole, in parts, merged */

static double log_sum_exp(const double *z, int64_t n)
{
    double m = z[0], sum = 0;
    for (int64_t i = 1; i < n; i++) m = z[i] > m ? z[i] : m;
    for (int64_t i = 0; i < n; i++) sum += exp(z[i] - m);
    return m + log(sum);
}

static void ref_cross_entropy(const tn_ops_ref *r)
{
    int64_t vocab = tn_ops_extent(tn_ops_in(r, 0), -1);
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 1); i++) {
        const double *z = r->in[0] + i * vocab, label = r->in[1][i];
        r->out[1][i] = log_sum_exp(z, vocab);
        r->out[0][i] = label < 0 ? 0 : r->out[1][i] - z[(int64_t)label];
    }
}

static double mean_loss(const tn_ops_ref *r)
{
    double sum = 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 1), 0); i++) sum += r->out[0][i];
    return sum * r->in[2][0];
}

static void ref_parts(const tn_ops_ref *r)
{
    int64_t vocab = tn_ops_extent(tn_ops_in(r, 0), -1), parts = r->g->grid.tp;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 1); i++)
        for (int64_t p = 0; p < parts; p++) {
            const double *z = r->in[0] + i * vocab;
            double *out = r->out[0] + (i * parts + p) * 3;
            int64_t from = p * vocab / parts, to = (p + 1) * vocab / parts,
                    label = (int64_t)r->in[1][i];
            out[0] = from < to ? z[from] : 0;
            out[1] = out[2] = 0;
            for (int64_t k = from; k < to; k++) out[0] = z[k] > out[0] ? z[k] : out[0];
            for (int64_t k = from; k < to; k++) out[1] += exp(z[k] - out[0]);
            if (label >= from && label < to) out[2] = z[label];
        }
}

static void ref_merge(const tn_ops_ref *r)
{
    int64_t parts = tn_ops_extent(tn_ops_in(r, 0), -2);
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 1), 0); i++) {
        const double *s = r->in[0] + i * parts * 3;
        double m = -INFINITY, sum = 0, target = 0;
        for (int64_t p = 0; p < parts; p++) {
            if (s[3 * p + 1] > 0) m = fmax(m, s[3 * p]);
            target += s[3 * p + 2];
        }
        for (int64_t p = 0; p < parts; p++)
            if (s[3 * p + 1] > 0) sum += s[3 * p + 1] * exp(s[3 * p] - m);
        r->out[1][i] = m + log(sum);
        r->out[0][i] = r->in[1][i] < 0 ? 0 : r->out[1][i] - target;
    }
}

static void ref_loss_bwd(const tn_ops_ref *r)
{
    int64_t vocab = tn_ops_extent(tn_ops_in(r, 0), -1);
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 1); i++)
        for (int64_t k = 0; k < vocab; k++) {
            double label = r->in[1][i], p = exp(r->in[0][i * vocab + k] - r->in[2][i]);
            r->out[0][i * vocab + k] = label < 0 ? 0 : (p - (label == (double)k)) * r->in[3][0];
        }
}

static const struct {
    const char *logits, *labels;
    double vocab, size;
} losses[] = {{"1,1,1", "1,1", 1, 3},
              {"2,5,257", "2,5", 257, 4},
              {"3,7,5", "3,7", 5, 9},
              {"1,33,8", "1,33", 8, 30},
              {"2,3,1999 {dp:0 cp:1 tp:2}", "2,3 {dp:0 cp:1 tp:I}", 1999, 6},
              {"5,7,1999", "5,7", 1999, 6}};

/* The count is pending where the labels are split. */
static int32_t inverse_count(tn_ops *t, int32_t y)
{
    int32_t n = TN_OPS_NODE(t, TN_OP_count_labels, NULL, y);
    t->scope = TN_SCOPE_HEAD;
    n = tn_ops_node(t, TN_OP_redistribute, NULL, "{dp:I cp:I tp:I}", 1, &n);
    t->scope = TN_SCOPE_MICROBATCH;
    return TN_OPS_NODE(t, TN_OP_inv_count, NULL, n);
}

static void build_cross_entropy(tn_ops *t, int i)
{
    int32_t z = f32(t, losses[i].logits, losses[i].size),
            y = labels(t, losses[i].labels, losses[i].vocab);
    int32_t inv = inverse_count(t, labels(t, "2,5", 9)); /* of the step: others may count, too */
    TN_OPS_NODE(t, TN_OP_cross_entropy, NULL, z, y, inv);
}

/* The lower pass: every cross_entropy is its parts, gathered where the vocabulary is split, and
 * merged. */
static void more_cross_entropy(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[3] = {f32(&t, "2,5,7", 1), f32(&t, "2,5", 1),
                     inverse_count(&t, labels(&t, "2,5", 7))};
    tn_node_desc d = {.op = TN_OP_cross_entropy, .n_in = 3, .in = in, .path = "loss"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "loss: cross_entropy: operand 1 must be i32 labels");
    in[1] = labels(&t, "2,4", 7);
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 1 has extent 4 in dim 1 where 5");
    tn_ops_fini(&t);
}

static void build_parts(tn_ops *t, int i)
{
    int32_t z = f32(t, losses[i].logits, losses[i].size),
            y = labels(t, losses[i].labels, losses[i].vocab);
    TN_OPS_NODE(t, TN_OP_loss_parts, NULL, z, y);
}

/* The last case: parts that no vocabulary gave, many of them absent. */
static void build_merge(tn_ops *t, int i)
{
    static const double odd[] = {0, 0, 0, -3, 2.5, 0, 0, 0, 0, 40, 1, 40, 0, 0,   0, 0,
                                 0, 0, 0, 0,  0,   0, 0, 0, 0, 0,  0, 0,  0, 0,   0, 0,
                                 0, 0, 0, 0,  0,   0, 0, 0, 0, 0,  0, 0,  0, -90, 7, -90};
    int32_t stats;
    if (i == TN_COUNT(losses)) {
        stats = tn_ops_f32(
            t, (tn_ops_operand){"1,19,8,3", TN_OPS_GIVEN, .given = odd, .n_given = TN_COUNT(odd)});
        TN_OPS_NODE(t, TN_OP_loss_merge, NULL, stats, labels(t, "1,19", 5));
        return;
    }
    int32_t z = f32(t, losses[i].logits, losses[i].size),
            y = labels(t, losses[i].labels, losses[i].vocab);
    stats = TN_OPS_NODE(t, TN_OP_loss_parts, NULL, z, y);
    if (i == 4) stats = tn_ops_node(t, TN_OP_redistribute, NULL, "{dp:0 cp:1 tp:I}", 1, &stats);
    TN_OPS_NODE(t, TN_OP_loss_merge, NULL, stats, y);
}

static void build_loss_bwd(tn_ops *t, int i)
{
    static const char *const lse[] = {"1,1", "2,5", "3,7", "1,33", "2,3 {dp:0 cp:1 tp:I}", "5,7"};
    int32_t z = f32(t, losses[i].logits, losses[i].size),
            y = labels(t, losses[i].labels, losses[i].vocab), all = inverse_count(t, y);
    int32_t l = tn_ops_f32(
        t, (tn_ops_operand){lse[i], TN_OPS_POSITIVE, .a = 2 * losses[i].size, .constant = true});
    TN_OPS_NODE(t, TN_OP_loss_bwd, NULL, z, y, l, all);
}

const tn_op_test tn_op_test_cross_entropy = {.n_cases = TN_COUNT(losses),
                                             .build = build_cross_entropy,
                                             .ref = ref_cross_entropy,
                                             .tolerance = 5e-7,
                                             .gradient = 2e-7,
                                             .loss = mean_loss,
                                             .more = more_cross_entropy};
const tn_op_test tn_op_test_loss_parts = {
    .n_cases = TN_COUNT(losses), .build = build_parts, .ref = ref_parts, .tolerance = 3e-7};
const tn_op_test tn_op_test_loss_merge = {
    .n_cases = TN_COUNT(losses) + 1, .build = build_merge, .ref = ref_merge, .tolerance = 3e-7};
const tn_op_test tn_op_test_loss_bwd = {
    .n_cases = TN_COUNT(losses), .build = build_loss_bwd, .ref = ref_loss_bwd, .tolerance = 3e-7};

/* ---- sums and counts */

static void ref_sum(const tn_ops_ref *r)
{
    if (!r->iteration) r->out[0][0] = 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++) r->out[0][0] += r->in[0][i];
}

static void ref_count(const tn_ops_ref *r)
{
    r->out[0][0] = 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_in(r, 0), 0); i++)
        r->out[0][0] += r->in[0][i] != -100;
}

static void ref_inv(const tn_ops_ref *r)
{
    r->out[0][0] = r->in[0][0] > 0 ? 1 / r->in[0][0] : 0;
}

static void build_sum(tn_ops *t, int i)
{
    static const char *const dims[] = {"1,1", "3,7", "5,1999", "2,3,5"};
    static const double size[] = {1, 1e-30, 1e30, 9};
    TN_OPS_NODE(t, TN_OP_loss_sum, NULL, f32(t, dims[i], size[i]));
}

static int32_t some_labels(tn_ops *t, int i)
{
    static const double none[] = {-100}, one[] = {-100, 0, -100};
    if (i == 0)
        return tn_ops_i32(t, (tn_ops_operand){"2,5", TN_OPS_GIVEN, .given = none, .n_given = 1});
    if (i == 1)
        return tn_ops_i32(t, (tn_ops_operand){"1,3", TN_OPS_GIVEN, .given = one, .n_given = 3});
    return labels(t, i == 2 ? "7,33" : "1,1", 5);
}

static void build_count(tn_ops *t, int i)
{
    TN_OPS_NODE(t, TN_OP_count_labels, NULL, some_labels(t, i));
}

static void build_inv(tn_ops *t, int i)
{
    inverse_count(t, some_labels(t, i));
}

static void more_count(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = f32(&t, "2,5", 1);
    tn_node_desc d = {.op = TN_OP_count_labels, .n_in = 1, .in = &x, .path = "loss"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "operand 0 must be i32 labels");
    tn_ops_fini(&t);
}

const tn_op_test tn_op_test_loss_sum = {
    .n_cases = 4, .build = build_sum, .ref = ref_sum, .tolerance = 1e-12};
const tn_op_test tn_op_test_count_labels = {
    .n_cases = 4, .build = build_count, .ref = ref_count, .more = more_count};
const tn_op_test tn_op_test_inv_count = {
    .n_cases = 4, .build = build_inv, .ref = ref_inv, .tolerance = 6e-8};
