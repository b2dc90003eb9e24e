/* test_order.c - the programs of graph/order.c against the rules of DESIGN.md 7 (1)-(5), written
 * down a second time.
 *
 * The rules are executed here on a vector of products: a sum is one float. Slots that hold nothing
 * are `absent`, as in the paper proof; the programs know no such thing, so agreement to the last
 * bit says that they skip exactly what is absent. */
#include "graph/order.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

typedef struct slot {
    bool present;
    float value;
} slot;

static float random_float(void)
{
    static uint64_t s = 88172645463325252u;
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return ldexpf((float)((int32_t)(s >> 40) - (1 << 23)), -20 + (int)((s >> 8) % 13));
}

static void fill(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = random_float();
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* ---- the rules ---- */

static slot rule_tree(const slot *part, int n)
{
    slot level[1024];
    memcpy(level, part, (size_t)n * sizeof *part);
    for (; n > 1; n /= 2) {
        for (int i = 0; i < n / 2; i++) {
            slot a = level[2 * i], b = level[2 * i + 1];
            level[i] = !b.present ? a : !a.present ? b : (slot){true, a.value + b.value};
        }
    }
    return level[0];
}

static int64_t rule_cut(int64_t r, int64_t n, int64_t units)
{
    return (int64_t)floor((double)r * (double)units / (double)n);
}

static slot rule_parts(int T, int n_src, const int64_t *extent, const int64_t *units,
                       const float *const *a, const float *const *b)
{
    slot part[1024];
    for (int r = 0; r < T; r++) {
        float acc = 0;
        part[r].present = false;
        for (int s = 0; s < n_src; s++) {
            int64_t U = units[s] ? units[s] : extent[s], per = U ? extent[s] / U : 0;
            for (int64_t k = rule_cut(r, T, U) * per; k < rule_cut(r + 1, T, U) * per; k++) {
                acc = fmaf(a[s][k], b[s][k], acc);
                part[r].present = true;
            }
        }
        part[r].value = acc + 0.0f;
    }
    return rule_tree(part, T);
}

static slot rule_tokens(tn_order_grid g, int64_t B, int64_t S, const float *a, const float *b)
{
    slot lane[1024];
    for (int l = 0; l < g.rows; l++) {
        slot fold = {false, 0};
        for (int64_t row = rule_cut(l, g.rows, B); row < rule_cut(l + 1, g.rows, B); row++) {
            for (int j = 0; j < g.seq; j++) {
                float acc = 0;
                int64_t p0 = rule_cut(j, g.seq, S), p1 = rule_cut(j + 1, g.seq, S);
                if (p0 == p1) continue;
                for (int64_t p = p0; p < p1; p++) acc = fmaf(a[row * S + p], b[row * S + p], acc);
                acc += 0.0f;
                fold = (slot){true, fold.present ? fold.value + acc : acc};
            }
        }
        lane[l] = fold;
    }
    return rule_tree(lane, g.rows);
}

/* ---- the interpreter; it distrusts the program ---- */

typedef struct machine {
    float stack[TN_ORDER_MAX_DEPTH];
    int depth, deepest;
    bool broken;
} machine;

static void execute(machine *m, const tn_order_run *run, int n_src, const int64_t *extent,
                    const float *const *a, const float *const *b)
{
    bool open = false;
    float acc = 0;
    if (m->depth != run->depth_in) m->broken = true;
    for (int64_t i = 0; i < run->n && !m->broken; i++) {
        const tn_order_ins *in = &run->ins[i];
        if (in->op == TN_ORDER_ADD) {
            if (m->depth < 2 || open) m->broken = true;
            if (m->broken) return;
            m->depth--;
            m->stack[m->depth - 1] = m->stack[m->depth - 1] + m->stack[m->depth];
            continue;
        }
        if (in->op != TN_ORDER_LEAF || in->src < 0 || in->src >= n_src || in->k0 < 0 ||
            in->k1 < in->k0 || in->k1 > extent[in->src] || m->depth >= TN_ORDER_MAX_DEPTH) {
            m->broken = true;
            return;
        }
        if (!open) acc = 0;
        for (int64_t k = in->k0; k < in->k1; k++) acc = fmaf(a[in->src][k], b[in->src][k], acc);
        open = in->more;
        if (open) continue;
        m->stack[m->depth++] = acc + 0.0f;
        if (m->depth > m->deepest) m->deepest = m->depth;
    }
    if (open || m->depth != run->depth_out) m->broken = true;
}

/* ---- parameter dims ---- */

enum { MAX_SRC = 4, MAX_EXTENT = 700 };

static void check_param(int T, int n_src, const int64_t *extent, const int64_t *units)
{
    static float a[MAX_SRC][MAX_EXTENT], b[MAX_SRC][MAX_EXTENT];
    const float *pa[MAX_SRC], *pb[MAX_SRC];
    for (int s = 0; s < n_src; s++) {
        fill(a[s], extent[s]);
        fill(b[s], extent[s]);
        pa[s] = a[s], pb[s] = b[s];
    }
    slot want = rule_parts(T, n_src, extent, units, pa, pb);
    for (int ranks = 1; ranks <= T; ranks *= 2) {
        slot node[1024];
        bool broken = false;
        for (int r = 0; r < ranks; r++) {
            tn_arena arena = {0};
            tn_order_node desc = {T, n_src, extent, units, ranks, r};
            tn_order_run run;
            machine m = {.depth = 0};
            const float *la[MAX_SRC], *lb[MAX_SRC];
            int64_t local[MAX_SRC], total = 0;
            for (int s = 0; s < n_src; s++) {
                int64_t k0 = tn_order_cut(extent[s], units[s], r, ranks);
                la[s] = pa[s] + k0, lb[s] = pb[s] + k0;
                total += local[s] = tn_order_cut(extent[s], units[s], r + 1, ranks) - k0;
            }
            if (!TN_CHECK_OK(tn_order_param_node(&arena, &desc, &run))) return;
            execute(&m, &run, n_src, local, la, lb);
            broken = broken || m.broken || m.depth != 1;
            node[r] = (slot){total > 0, m.stack[0]};
            if (total == 0) broken = broken || !same_bits(m.stack[0], 0.0f);
            tn_arena_fini(&arena);
        }
        slot got = rule_tree(node, ranks);
        TN_CHECK_MSG(!broken && got.present == want.present &&
                         (!got.present || same_bits(got.value, want.value)),
                     "T %d, %d sources, extent %lld units %lld, %d ranks: %a, expected %a", T,
                     n_src, (long long)extent[0], (long long)units[0], ranks, (double)got.value,
                     (double)want.value);
    }
}

static void test_param(void)
{
    static const int64_t extents[] = {0, 1, 2, 3, 7, 8, 9, 13, 16, 31, 64, 100, 257, 640};
    for (int T = 1; T <= 32; T *= 2)
        for (int i = 0; i < TN_COUNT(extents); i++) check_param(T, 1, &extents[i], (int64_t[]){0});
    /* q, k, v by heads: 6 on 2, 4 on 1, 12 on 12; gate and up; unlike extents with an empty one */
    check_param(8, 3, (int64_t[]){6 * 16, 2 * 18, 2 * 18}, (int64_t[]){6, 6, 6});
    check_param(8, 3, (int64_t[]){4 * 8, 8, 8}, (int64_t[]){4, 4, 4});
    check_param(8, 3, (int64_t[]){96, 96, 96}, (int64_t[]){12, 12, 12});
    check_param(8, 2, (int64_t[]){250, 250}, (int64_t[]){0, 0});
    check_param(8, 4, (int64_t[]){13, 0, 5, 300}, (int64_t[]){0, 0, 0, 100});
    check_param(16, 2, (int64_t[]){3, 2}, (int64_t[]){0, 0});
    check_param(512, 1, (int64_t[]){700}, (int64_t[]){0});
    check_param(512, 1, (int64_t[]){100}, (int64_t[]){0});
}

/* tn_order_param is the whole node; parts = 1 is one chain; the instructions themselves are what
 * kernels count on. */
static void test_param_program(void)
{
    tn_arena arena = {0};
    tn_order_run run;
    if (!TN_CHECK_OK(tn_order_param(&arena, 1, 1, (int64_t[]){300}, (int64_t[]){0}, &run))) return;
    TN_CHECK(run.n == 1 && run.depth_in == 0 && run.depth_out == 1);
    TN_CHECK(run.ins[0].op == TN_ORDER_LEAF && run.ins[0].k0 == 0 && run.ins[0].k1 == 300 &&
             !run.ins[0].more);
    if (!TN_CHECK_OK(tn_order_param(&arena, 2, 2, (int64_t[]){10, 4}, (int64_t[]){0, 0}, &run)))
        return;
    static const tn_order_ins want[] = {
        {TN_ORDER_LEAF, 1, 0, 0, 5}, {TN_ORDER_LEAF, 0, 1, 0, 2}, {TN_ORDER_LEAF, 1, 0, 5, 10},
        {TN_ORDER_LEAF, 0, 1, 2, 4}, {TN_ORDER_ADD, 0, 0, 0, 0},
    };
    TN_CHECK(run.n == TN_COUNT(want));
    for (int i = 0; i < TN_COUNT(want) && i < run.n; i++) {
        const tn_order_ins *x = &run.ins[i], *y = &want[i];
        TN_CHECK(x->op == y->op && x->more == y->more && x->src == y->src && x->k0 == y->k0 &&
                 x->k1 == y->k1);
    }
    tn_arena_fini(&arena);
}

/* ---- tokens ---- */

static void run_tokens(machine *m, const tn_order_tokens *t, int64_t first, int64_t last,
                       const int64_t *token, const float *a, const float *b)
{
    tn_arena arena = {0};
    tn_order_run run;
    int64_t extent = token[last] - token[first];
    const float *pa = a + token[first], *pb = b + token[first];
    if (tn_order_tokens_run(t, &arena, first, last, &run) != TN_OK) m->broken = true;
    else execute(m, &run, 1, &extent, &pa, &pb);
    tn_arena_fini(&arena);
}

static void check_tokens(tn_order_grid g, int64_t B, int64_t S)
{
    tn_arena arena = {0};
    const tn_order_tokens *t = NULL;
    int64_t n = B * g.seq;
    float *a = malloc((size_t)(B * S + 1) * 4), *b = malloc((size_t)(B * S + 1) * 4);
    int64_t *token = malloc((size_t)(n + 1) * sizeof *token); /* first token of each leaf */
    fill(a, B * S);
    fill(b, B * S);
    for (int64_t i = 0; i <= n; i++) token[i] = i / g.seq * S + rule_cut(i % g.seq, g.seq, S);
    slot want = rule_tokens(g, B, S, a, b);
    if (!TN_CHECK_OK(tn_order_tokens_build(&arena, g, B, S, &t))) goto out;
    TN_CHECK(tn_order_tokens_leaves(t) == n);
    for (int64_t step = 1; step <= (n ? n : 1); step += step < 9 ? 1 : step) {
        machine m = {.depth = 0};
        int deepest = 1;
        int64_t first = 0;
        do {
            int64_t last = first + step > n ? n : first + step;
            run_tokens(&m, t, first, last, token, a, b);
            if (last < n && m.depth > deepest) deepest = m.depth;
            first = last;
        } while (first < n);
        TN_CHECK_MSG(
            !m.broken && m.depth == 1 && same_bits(m.stack[0], want.present ? want.value : 0.0f),
            "grid %d x %d, %lld x %lld tokens, runs of %lld leaves: %a, expected %a", g.seq, g.rows,
            (long long)B, (long long)S, (long long)step, (double)m.stack[0], (double)want.value);
        TN_CHECK_MSG(tn_order_tokens_depth(t, step) == deepest,
                     "runs of %lld leaves: depth %d, found %d", (long long)step,
                     tn_order_tokens_depth(t, step), deepest);
    }
out:
    free(a);
    free(b);
    free(token);
    tn_arena_fini(&arena);
}

/* Data parallel: a rank that owns whole lanes computes a node of the tree with a grid of its own
 * lanes. */
static void check_ranks(tn_order_grid g, int64_t B, int64_t S, int dp)
{
    float *a = malloc((size_t)(B * S) * 4), *b = malloc((size_t)(B * S) * 4);
    slot node[64];
    bool broken = false;
    fill(a, B * S);
    fill(b, B * S);
    slot want = rule_tokens(g, B, S, a, b);
    for (int d = 0; d < dp; d++) {
        tn_arena arena = {0};
        const tn_order_tokens *t = NULL;
        tn_order_run run;
        machine m = {.depth = 0};
        int64_t extent = B / dp * S;
        const float *pa = a + d * extent, *pb = b + d * extent;
        if (!TN_CHECK_OK(tn_order_tokens_build(&arena, (tn_order_grid){g.tp, g.seq, g.rows / dp},
                                               B / dp, S, &t)))
            return;
        if (!TN_CHECK_OK(tn_order_tokens_run(t, &arena, 0, tn_order_tokens_leaves(t), &run)))
            return;
        execute(&m, &run, 1, &extent, &pa, &pb);
        broken = broken || m.broken;
        node[d] = (slot){true, m.stack[0]};
        tn_arena_fini(&arena);
    }
    TN_CHECK_MSG(!broken && same_bits(rule_tree(node, dp).value, want.value),
                 "%lld rows on %d ranks differ from one rank", (long long)B, dp);
    free(a);
    free(b);
}

static void test_tokens(void)
{
    static const int64_t rows[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 20},
                         seqs[] = {0, 1, 3, 8, 11, 64, 100};
    for (int i = 0; i < TN_COUNT(rows); i++)
        for (int j = 0; j < TN_COUNT(seqs); j++) {
            check_tokens((tn_order_grid){8, 8, 8}, rows[i], seqs[j]);
            check_tokens((tn_order_grid){8, 4, 16}, rows[i], seqs[j]);
            check_tokens((tn_order_grid){8, 1, 1}, rows[i], seqs[j]);
        }
    check_tokens((tn_order_grid){8, 512, 512}, 3, 700);
    check_tokens((tn_order_grid){8, 1, 512}, 1000, 2);
    for (int dp = 1; dp <= 8; dp *= 2) {
        check_ranks((tn_order_grid){8, 8, 8}, 8, 96, dp);
        check_ranks((tn_order_grid){8, 8, 8}, 24, 20, dp);
    }
    check_ranks((tn_order_grid){8, 8, 8}, 6, 80, 2);
    check_ranks((tn_order_grid){8, 8, 8}, 2, 48, 2);
}

/* The deepest stacks that a legal grid can make fit. */
static void test_depth(void)
{
    tn_arena arena = {0};
    const tn_order_tokens *t = NULL;
    if (!TN_CHECK_OK(tn_order_tokens_build(&arena, (tn_order_grid){8, 2, 512}, 512, 2, &t))) return;
    int deepest = tn_order_tokens_depth(t, 1);
    TN_CHECK_MSG(deepest + 1 <= TN_ORDER_MAX_DEPTH, "%d levels between runs, one more inside",
                 deepest);
    TN_CHECK(tn_order_tokens_depth(t, tn_order_tokens_leaves(t)) == 1);
    tn_arena_fini(&arena);
}

static void test_cut(void)
{
    for (int64_t units = 0; units <= 40; units++)
        for (int64_t n = 1; n <= 16; n *= 2) {
            bool good = tn_order_cut(units * 3, units ? units : 0, 0, n) == 0 &&
                        tn_order_cut(units * 3, units, n, n) == units * 3;
            for (int64_t r = 0; r <= n; r++) {
                int64_t k = tn_order_cut(units * 3, units, r, n);
                good = good && k == rule_cut(r, n, units) * 3;
                if (n % 2 == 0 && r % 2 == 0)
                    good = good && k == tn_order_cut(units * 3, units, r / 2, n / 2);
            }
            TN_CHECK_MSG(good, "%lld units in %lld parts", (long long)units, (long long)n);
        }
}

static void test_refused(void)
{
    tn_arena arena = {0};
    tn_order_run run;
    const tn_order_tokens *t = NULL;
    int64_t extent = 8, units = 0;
    TN_CHECK_FAILS(tn_order_param(&arena, 6, 1, &extent, &units, &run), TN_BAD_INPUT,
                   "reduce_grid.tp: 6 is not a power of two");
    TN_CHECK_FAILS(tn_order_param(&arena, 0, 1, &extent, &units, &run), TN_BAD_INPUT, "use 1");
    TN_CHECK_FAILS(tn_order_tokens_build(&arena, (tn_order_grid){8, 7, 8}, 1, 8, &t), TN_BAD_INPUT,
                   "reduce_grid.seq: 7");
    TN_CHECK_FAILS(tn_order_tokens_build(&arena, (tn_order_grid){8, 8, 4096}, 1, 8, &t),
                   TN_BAD_INPUT, "use 512");
    tn_order_node node = {8, 1, &extent, &units, 16, 0};
    TN_CHECK_FAILS(tn_order_param_node(&arena, &node, &run), TN_BAD_INPUT,
                   "parallelism.tp: degree 16");
    tn_arena_fini(&arena);
}

static tn_status build_all(void *arg)
{
    tn_arena arena = {0};
    tn_order_run run;
    const tn_order_tokens *t = NULL;
    int64_t extent[2] = {4000, 3000}, units[2] = {0, 0};
    (void)arg;
    tn_status st = tn_order_param(&arena, 512, 2, extent, units, &run);
    if (!st) st = tn_order_tokens_build(&arena, (tn_order_grid){8, 8, 8}, 1000, 8, &t);
    if (!st) st = tn_order_tokens_run(t, &arena, 0, tn_order_tokens_leaves(t), &run);
    tn_arena_fini(&arena);
    return st;
}

int main(void)
{
    test_cut();
    test_param();
    test_param_program();
    test_tokens();
    test_depth();
    test_refused();
    TN_CHECK(tn_test_each_alloc(build_all, NULL) >= 4);
    return tn_test_done("order");
}
