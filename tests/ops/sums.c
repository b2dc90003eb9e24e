/* sums.c - sums over tokens, cut over microbatches and loss chunks: the bits of the uncut sum
 * (DESIGN.md 7 (5), (8), (13)). */
#include "graph/passes.h"
#include "tests/ops.h"

#include <stdio.h>
#include <string.h>

typedef struct cut {
    int64_t rows, seq; /* of the step */
    int64_t microbatches, chunks;
    tn_order_grid grid;
    bool bf16; /* what is summed; the sums are fp32 */
} cut;

enum { N_SUMS = 4 };

/* The microbatch's piece of a tensor of the step, or the chunk's piece of that. */
static int32_t piece(tn_ops *t, const cut *c, bool chunk, int32_t x)
{
    char attrs[96];
    int64_t rows = c->rows / c->microbatches, seq = c->seq;
    if (chunk && rows % c->chunks == 0) rows /= c->chunks;
    else if (chunk) {
        seq = seq * rows / c->chunks;
        rows = 1;
    }
    snprintf(attrs, sizeof attrs, "over=%s rows=%lld seq=%lld", chunk ? "chunk" : "microbatch",
             (long long)rows, (long long)seq);
    return TN_OPS_NODE(t, TN_OP_chunk, attrs, x);
}

static int32_t operand(tn_ops *t, const cut *c, const char *more, bool ids)
{
    char dims[64];
    snprintf(dims, sizeof dims, "%lld,%lld%s", (long long)c->rows, (long long)c->seq, more);
    if (ids) return tn_ops_i32(t, (tn_ops_operand){dims, TN_OPS_BELOW, .a = 5});
    return tn_ops_f32(t, (tn_ops_operand){dims, .a = 1, .wide = !*more});
}

static tn_ops build(const cut *c, int32_t sums[N_SUMS])
{
    tn_ops t = tn_ops_begin(11, false);
    t.g->grid = c->grid;
    t.bf16 = c->bf16;
    tn_ops_loops(&t, c->rows / c->microbatches, c->seq, c->microbatches, c->chunks);
    int32_t dy = operand(&t, c, ",5", false), x = operand(&t, c, ",7", false),
            dn = operand(&t, c, ",7", false), r = operand(&t, c, "", false),
            ids = operand(&t, c, "", true), nll = operand(&t, c, "", false);
    int32_t *const all[] = {&dy, &x, &dn, &r, &ids, &nll};
    for (int i = 0; i < TN_COUNT(all); i++) *all[i] = piece(&t, c, false, *all[i]);
    if (c->chunks > 1) t.scope = TN_SCOPE_CHUNK; /* the nodes of a loop stand together */
    for (int i = 0; i < TN_COUNT(all) && c->chunks > 1; i++) *all[i] = piece(&t, c, true, *all[i]);
    sums[0] = TN_OPS_NODE(&t, TN_OP_linear_bwd_w, NULL, dy, x);
    sums[1] = TN_OPS_NODE(&t, TN_OP_rmsnorm_bwd_w, NULL, dn, x, r);
    sums[2] = TN_OPS_NODE(&t, TN_OP_embedding_bwd, "vocab=5", ids, dn);
    sums[3] = TN_OPS_NODE(&t, TN_OP_loss_sum, NULL, nll);
    return t;
}

static bool compute(const cut *c, tn_ops_results *out)
{
    char name[96];
    int32_t sums[N_SUMS];
    tn_ops t = build(c, sums);
    snprintf(name, sizeof name, "sums of %lld x %lld in %lld x %lld pieces%s", (long long)c->rows,
             (long long)c->seq, (long long)c->microbatches, (long long)c->chunks,
             c->bf16 ? " of bf16" : "");
    bool ok = tn_ops_compute(name, &t, N_SUMS, sums, out);
    tn_ops_fini(&t);
    return ok;
}

static void compare_cuts(int64_t rows, int64_t seq, bool bf16, const int64_t (*pieces)[2], int n)
{
    const tn_order_grid grid = {8, 8, 8};
    tn_ops_results whole = {0};
    if (!compute(&(cut){rows, seq, 1, 1, grid, bf16}, &whole)) return;
    for (int i = 0; i < n; i++) {
        tn_ops_results some = {0};
        const cut c = {rows, seq, pieces[i][0], pieces[i][1], grid, bf16};
        if (compute(&c, &some))
            for (int k = 0; k < N_SUMS; k++)
                tn_ops_check(!memcmp(whole.bytes[k], some.bytes[k], (size_t)whole.n_bytes[k]),
                             "sum %d of %lld x %lld: other bits in %lld x %lld pieces", k,
                             (long long)rows, (long long)seq, (long long)c.microbatches,
                             (long long)c.chunks);
        tn_ops_results_free(&some);
    }
    /* another grid is another order: were these the same bits, the test above would say nothing */
    tn_ops_results other = {0};
    if (compute(&(cut){rows, seq, 1, 1, {8, 1, 1}, bf16}, &other)) {
        for (int k = 0; k < (bf16 ? 2 : 3); k++) /* few rows of bf16 have an exact sum in fp32 */
            tn_ops_check(memcmp(whole.bytes[k], other.bytes[k], (size_t)whole.n_bytes[k]),
                         "sum %d does not depend on its order", k);
        tn_ops_check(!memcmp(whole.bytes[3], other.bytes[3], (size_t)whole.n_bytes[3]),
                     "the exact sum depends on its order");
    }
    tn_ops_results_free(&other);
    tn_ops_results_free(&whole);
}

/* A chunk that ends inside of a position part has no order. */
static void refuse_cut_part(void)
{
    int32_t sums[N_SUMS];
    tn_graph *low;
    tn_ops t = build(&(cut){2, 24, 2, 3, {8, 8, 8}, false}, sums);
    tn_ops_bad(tn_pass_lower(t.g, &low), "a chunk of 8 positions cuts a position part");
    tn_ops_fini(&t);
}

void tn_ops_test_sums(void)
{
    static const int64_t even[][2] = {{2, 1}, {3, 1}, {6, 1}, {1, 2}, {1, 6}, {1, 12},
                                      {2, 3}, {3, 4}, {6, 2}, {6, 4}, {6, 8}};
    static const int64_t many[][2] = {{17, 1}, {1, 17}}, odd[][2] = {{5, 1}, {1, 5}};
    for (int bf16 = 0; bf16 < 2; bf16++) {
        compare_cuts(6, 24, bf16, even, TN_COUNT(even));
        compare_cuts(17, 8, bf16, many, TN_COUNT(many)); /* more rows than lanes */
        compare_cuts(5, 19, bf16, odd, TN_COUNT(odd));   /* uneven parts */
    }
    refuse_cut_part();
}
