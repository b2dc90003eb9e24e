/* test_gemm.c - the GEMM against its order's program, executed element by element with fmaf: to the
 * last bit, on every instruction set, with every number of threads. And against sums in double,
 * which know nothing of orders. */
#include "kernels/cpu/gemm.h"
#include "tests/cpu.h"

static uint64_t seed = 1;

/* ---- one problem: operands as they are in a model, results between poison ---- */

typedef enum kind { FORWARD, INPUT_GRAD, WEIGHT_GRAD } kind;

enum { GAP = 3 }; /* floats between rows, where the problem says so */

typedef struct problem {
    kind kind;
    int n_w;                      /* weights */
    int64_t n, d, f[TN_GEMM_MAX]; /* tokens; x is [n, d], weight i [f_i, d], y_i [n, f_i] */
    bool gaps, add;
    tn_order_run order;
    float *x, *w[TN_GEMM_MAX], *y[TN_GEMM_MAX], *addend[TN_GEMM_MAX];
    int64_t x_ld, w_ld, y_ld[TN_GEMM_MAX];
    int n_out;
    int64_t m_of[TN_GEMM_MAX], n_of[TN_GEMM_MAX], c_ld[TN_GEMM_MAX];
    float *c[TN_GEMM_MAX];
} problem;

/* A matrix with gaps between its rows: the gaps stay poison. */
static float *matrix(int64_t rows, int64_t cols, int64_t ld)
{
    float *p = tn_test_floats(rows * ld), *values = tn_test_uniform(&seed, rows * cols, 1.0f);
    for (int64_t i = 0; i < rows; i++)
        memcpy(p + i * ld, values + i * cols, (size_t)cols * sizeof *p);
    tn_test_free(values);
    return p;
}

static void problem_init(problem *p)
{
    int64_t gap = p->gaps ? GAP : 0;
    p->x_ld = p->d + gap;
    p->w_ld = p->d + gap;
    p->x = matrix(p->n, p->d, p->x_ld);
    p->n_out = p->kind == INPUT_GRAD ? 1 : p->n_w;
    for (int i = 0; i < p->n_w; i++) {
        p->y_ld[i] = p->f[i] + gap;
        p->w[i] = matrix(p->f[i], p->d, p->w_ld);
        p->y[i] = matrix(p->n, p->f[i], p->y_ld[i]);
    }
    for (int o = 0; o < p->n_out; o++) {
        p->m_of[o] = p->kind == WEIGHT_GRAD ? p->f[o] : p->n;
        p->n_of[o] = p->kind == FORWARD ? p->f[o] : p->d;
        p->c_ld[o] = p->n_of[o] + gap;
        p->addend[o] = p->add ? matrix(p->m_of[o], p->n_of[o], p->n_of[o]) : NULL;
        p->c[o] = NULL;
    }
}

static void problem_fini(problem *p)
{
    tn_test_free(p->x);
    for (int i = 0; i < p->n_w; i++) {
        tn_test_free(p->w[i]);
        tn_test_free(p->y[i]);
    }
    for (int o = 0; o < p->n_out; o++) {
        tn_test_free(p->addend[o]);
        tn_test_free(p->c[o]);
    }
}

/* The call, with results in p->c (NULL: none yet, which is enough for counting scratch). */
static tn_gemm gemm_of(const problem *p)
{
    tn_gemm g = {
        .n_out = p->n_out, .n_src = p->kind == INPUT_GRAD ? p->n_w : 1, .order = &p->order};
    for (int i = 0; i < p->n_w; i++) {
        if (p->kind == FORWARD)
            g.src[i] = (tn_gemm_src){p->x, p->x_ld, 1, p->w[i], 1, p->w_ld, false, false};
        if (p->kind == INPUT_GRAD)
            g.src[i] = (tn_gemm_src){p->y[i], p->y_ld[i], 1, p->w[i], p->w_ld, 1, false, false};
        if (p->kind == WEIGHT_GRAD)
            g.src[i] = (tn_gemm_src){p->y[i], 1, p->y_ld[i], p->x, p->x_ld, 1, false, false};
    }
    for (int o = 0; o < p->n_out; o++)
        g.out[o] = (tn_gemm_out){.c = p->c[o],
                                 .ldc = p->c_ld[o],
                                 .m = p->m_of[o],
                                 .n = p->n_of[o],
                                 .add = p->addend[o],
                                 .ldadd = p->n_of[o]};
    return g;
}

static size_t scratch_of(int threads, const void *arg)
{
    tn_gemm g = gemm_of(arg);
    return tn_gemm_scratch(threads, &g);
}

static void fresh_results(problem *p)
{
    for (int o = 0; o < p->n_out; o++) {
        tn_test_free(p->c[o]);
        p->c[o] = tn_test_floats(p->m_of[o] * p->c_ld[o]);
    }
}

/* ---- the definition ---- */

static const tn_gemm_src *source(const tn_gemm *g, int out, int src)
{
    return &g->src[g->n_out > 1 ? out : src];
}

static float execute(const tn_gemm *g, int out, int64_t m, int64_t n, const float *levels)
{
    float stack[TN_ORDER_MAX_DEPTH], acc = 0;
    int depth = 0;
    bool open = false;
    for (; depth < g->order->depth_in; depth++) stack[depth] = levels[depth];
    for (int64_t i = 0; i < g->order->n; i++) {
        const tn_order_ins *in = &g->order->ins[i];
        if (in->op == TN_ORDER_ADD) {
            depth--;
            stack[depth - 1] = stack[depth - 1] + stack[depth];
            continue;
        }
        const tn_gemm_src *s = source(g, out, in->src);
        if (!open) acc = 0;
        for (int64_t k = in->k0; k < in->k1; k++)
            acc = fmaf(tn_test_f32(s->a)[m * s->a_m + k * s->a_k],
                       tn_test_f32(s->b)[k * s->b_k + n * s->b_n], acc);
        open = in->more;
        if (!open) stack[depth++] = acc + 0.0f;
    }
    return depth > 0 ? stack[depth - 1] : 0;
}

static double plain_sum(const tn_gemm *g, int out, int64_t m, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < g->order->n; i++) {
        const tn_order_ins *in = &g->order->ins[i];
        if (in->op != TN_ORDER_LEAF) continue;
        const tn_gemm_src *s = source(g, out, in->src);
        for (int64_t k = in->k0; k < in->k1; k++)
            sum += (double)tn_test_f32(s->a)[m * s->a_m + k * s->a_k] *
                   (double)tn_test_f32(s->b)[k * s->b_k + n * s->b_n];
    }
    return sum;
}

/* ---- checks ---- */

static bool right_rows(const problem *p, int o, const float *want)
{
    for (int64_t m = 0; m < p->m_of[o]; m++) {
        for (int64_t n = 0; n < p->n_of[o]; n++)
            if (memcmp(&p->c[o][m * p->c_ld[o] + n], &want[m * p->n_of[o] + n], sizeof *want) != 0)
                return false;
        for (int64_t n = p->n_of[o]; n < p->c_ld[o]; n++)
            if (!tn_test_is_poison(p->c[o][m * p->c_ld[o] + n])) return false;
    }
    for (int64_t i = 0; i < TN_TEST_GUARD; i++)
        if (!tn_test_is_poison(p->c[o][-1 - i]) ||
            !tn_test_is_poison(p->c[o][p->m_of[o] * p->c_ld[o] + i]))
            return false;
    return true;
}

/* Runs the problem everywhere; every result must be the definition's. Returns false after the first
 * that is not. */
static bool check_problem(problem *p, const char *what)
{
    tn_gemm g = gemm_of(p);
    tn_cpu cpu;
    float *want[TN_GEMM_MAX];
    bool good = true;
    for (int o = 0; o < p->n_out; o++) {
        want[o] = tn_test_floats(p->m_of[o] * p->n_of[o]);
        double worst = 0;
        for (int64_t m = 0; m < p->m_of[o]; m++)
            for (int64_t n = 0; n < p->n_of[o]; n++) {
                float sum = execute(&g, o, m, n, NULL);
                double error = fabs((double)sum - plain_sum(&g, o, m, n));
                if (!(error <= worst)) worst = error;
                if (p->add) sum = sum + p->addend[o][m * p->n_of[o] + n];
                want[o][m * p->n_of[o] + n] = sum;
            }
        TN_CHECK_MSG(worst < 2e-3, "%s: output %d is off by %g: the order lost something", what, o,
                     worst);
    }
    for (int i = 0; tn_test_cpu(i, scratch_of, p, &cpu); i++) {
        fresh_results(p);
        g = gemm_of(p);
        if (good) tn_gemm_run(&cpu, &g);
        for (int o = 0; o < p->n_out && good; o++)
            good = TN_CHECK_MSG(right_rows(p, o, want[o]),
                                "%s: %lld tokens, %lld by %lld features, output %d, %s, %d threads",
                                what, (long long)p->n, (long long)p->d, (long long)p->f[0], o,
                                tn_isa_name(cpu.isa), tn_pool_threads(cpu.pool));
    }
    for (int o = 0; o < p->n_out; o++) tn_test_free(want[o]);
    return good;
}

/* Every use of a linear op with these extents, with all orders that belong to it. */
static void check_linear(int64_t rows, int64_t seq, int64_t d, int n_w, const int64_t *f, bool gaps)
{
    static const int64_t units[TN_GEMM_MAX];
    for (int k = 0; k < 3; k++) {
        for (int parts = 1; parts <= 8; parts *= 8) {
            tn_arena arena = {0};
            const tn_order_tokens *t = NULL;
            problem p = {.kind = (kind)k,
                         .n_w = n_w,
                         .n = rows * seq,
                         .d = d,
                         .gaps = gaps,
                         .add = parts == 8};
            memcpy(p.f, f, (size_t)n_w * sizeof *f);
            if (k == FORWARD) TN_CHECK_OK(tn_order_param(&arena, parts, 1, &d, units, &p.order));
            if (k == INPUT_GRAD)
                TN_CHECK_OK(tn_order_param(&arena, parts, n_w, f, units, &p.order));
            if (k == WEIGHT_GRAD) {
                TN_CHECK_OK(
                    tn_order_tokens_build(&arena, (tn_order_grid){8, parts, parts}, rows, seq, &t));
                TN_CHECK_OK(tn_order_tokens_run(t, &arena, 0, tn_order_tokens_leaves(t), &p.order));
            }
            problem_init(&p);
            check_problem(&p, k == FORWARD ? "y" : k == INPUT_GRAD ? "dx" : "dW");
            problem_fini(&p);
            tn_arena_fini(&arena);
        }
    }
}

static void test_shapes(void)
{
    static const int64_t small[] = {0,  1,  2,  3,  5,  7,  8,  13, 14, 15,
                                    16, 17, 29, 31, 32, 33, 47, 63, 65};
    for (int i = 0; i < 60; i++) {
        int n_w = 1 + (int)tn_test_below(&seed, 3);
        int64_t f[3], rows = tn_test_below(&seed, 5),
                      seq = small[tn_test_below(&seed, TN_COUNT(small))];
        for (int j = 0; j < 3; j++) f[j] = small[tn_test_below(&seed, TN_COUNT(small))];
        check_linear(rows, seq, small[tn_test_below(&seed, TN_COUNT(small))], n_w, f, i % 2);
    }
    check_linear(2, 64, 96, 3, (int64_t[]){64, 32, 32}, false);
    check_linear(1, 1, 1, 1, (int64_t[]){1}, false);
    check_linear(9, 24, 72, 2, (int64_t[]){100, 44}, false);
    check_linear(3, 30, 40, 8, (int64_t[]){1, 2, 3, 40, 5, 6, 7, 33}, true);
}

/* Sums longer than a segment, operands larger than what is packed at once. The hostile build has
 * tiny limits and needs no size. */
static void test_long(void)
{
    check_linear(3, 1500, 10, 1, (int64_t[]){17}, true);
    check_linear(2, 5, 4500, 1, (int64_t[]){18}, false);
    check_linear(1, 9, 17, 2, (int64_t[]){4700, 1100}, true);
    check_linear(1, 2, 1200, 2, (int64_t[]){1000, 900}, false);
}

/* With scratch of its own, exactly as much as it asks for. */
static void plain_run(const tn_cpu *cpu, tn_gemm *g)
{
    tn_cpu own = *cpu;
    own.scratch_bytes = tn_gemm_scratch(tn_pool_threads(cpu->pool), g);
    own.scratch = aligned_alloc(64, (own.scratch_bytes + 63) / 64 * 64);
    memset(own.scratch, 0xa5, own.scratch_bytes);
    tn_gemm_run(&own, g);
    free(own.scratch);
}

/* ---- runs of a program ---- */

/* dW of the whole step at once, and cut into runs of `step` leaves with the levels in memory: in
 * place (c is stack[0]) or with its own c. */
static void check_runs(int64_t rows, int64_t seq, int64_t f, int64_t d, tn_order_grid grid,
                       int64_t step, bool in_place)
{
    tn_arena arena = {0};
    const tn_order_tokens *t = NULL;
    problem p = {.kind = WEIGHT_GRAD, .n_w = 1, .n = rows * seq, .d = d, .f = {f}};
    TN_CHECK_OK(tn_order_tokens_build(&arena, grid, rows, seq, &t));
    int64_t leaves = tn_order_tokens_leaves(t);
    TN_CHECK_OK(tn_order_tokens_run(t, &arena, 0, leaves, &p.order));
    problem_init(&p);
    tn_order_run whole = p.order;
    if (!check_problem(&p, "whole step")) return;
    float *want = tn_test_copy(p.c[0], f * d); /* right, as was just checked */

    tn_cpu cpu;
    int depth = tn_order_tokens_depth(t, step);
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *stack[TN_ORDER_MAX_DEPTH], *c = in_place ? NULL : tn_test_floats(f * d);
        for (int l = 0; l < depth; l++) stack[l] = tn_test_floats(f * d);
        for (int64_t first = 0; first < leaves; first += step) {
            int64_t last = first + step < leaves ? first + step : leaves,
                    k0 = first / grid.seq * seq + tn_order_cut(seq, 0, first % grid.seq, grid.seq);
            TN_CHECK_OK(tn_order_tokens_run(t, &arena, first, last, &p.order));
            tn_gemm g = gemm_of(&p);
            g.src[0].a = tn_test_f32(g.src[0].a) + k0 * g.src[0].a_k;
            g.src[0].b = tn_test_f32(g.src[0].b) + k0 * g.src[0].b_k;
            g.out[0].c = last < leaves ? NULL : in_place ? stack[0] : c;
            g.out[0].ldc = d;
            for (int l = 0; l < depth; l++) g.out[0].stack[l] = stack[l];
            plain_run(&cpu, &g);
        }
        const float *got = in_place ? stack[0] : c;
        TN_CHECK_MSG(
            tn_test_intact(got, f * d) && memcmp(got, want, (size_t)(f * d) * sizeof *got) == 0,
            "%lld rows of %lld in runs of %lld leaves, %s, %d threads: differs from the whole",
            (long long)rows, (long long)seq, (long long)step, tn_isa_name(cpu.isa),
            tn_pool_threads(cpu.pool));
        for (int l = 0; l < depth; l++) {
            for (int64_t j = 0; j < TN_TEST_GUARD; j++)
                TN_CHECK(tn_test_is_poison(stack[l][-1 - j]) &&
                         tn_test_is_poison(stack[l][f * d + j]));
            tn_test_free(stack[l]);
        }
        tn_test_free(c);
    }
    p.order = whole;
    tn_test_free(want);
    problem_fini(&p);
    tn_arena_fini(&arena);
}

static void test_runs(void)
{
    tn_order_grid grid = {8, 8, 8};
    check_runs(8, 40, 30, 45, grid, 8, true); /* microbatches of a row */
    check_runs(8, 40, 30, 45, grid, 16, false);
    check_runs(4, 24, 17, 64, grid, 4, true);  /* loss chunks of half a row */
    check_runs(5, 13, 33, 20, grid, 3, false); /* uneven everything */
    check_runs(3, 5, 14, 32, grid, 1, true);
    check_runs(20, 9, 15, 33, grid, 7, true);
    check_runs(6, 64, 40, 31, (tn_order_grid){8, 2, 16}, 1, false);
}

/* A run that is cut between a leaf and its ADD, or that only adds: programs that order.c does not
 * write, but the contract allows. */
static void test_odd_cuts(void)
{
    static const tn_order_ins program[] = {{TN_ORDER_LEAF, 0, 0, 0, 5},
                                           {TN_ORDER_LEAF, 0, 0, 5, 9},
                                           {TN_ORDER_LEAF, 0, 0, 9, 20},
                                           {TN_ORDER_ADD, 0, 0, 0, 0},
                                           {TN_ORDER_ADD, 0, 0, 0, 0}};
    problem p = {
        .kind = WEIGHT_GRAD, .n_w = 1, .n = 20, .d = 35, .f = {16}, .order = {program, 5, 0, 1}};
    problem_init(&p);
    if (!check_problem(&p, "right fold")) return;
    float *want = tn_test_copy(p.c[0], 16 * 35);
    tn_cpu cpu;
    for (int cut = 1; cut < 5; cut++) {
        int depth = cut <= 3 ? cut : 2;
        for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
            tn_order_run first = {program, cut, 0, depth},
                         second = {program + cut, 5 - cut, depth, 1};
            tn_gemm g = gemm_of(&p);
            float *stack[3];
            for (int l = 0; l < 3; l++) g.out[0].stack[l] = stack[l] = tn_test_floats(16 * 35);
            g.out[0].c = NULL;
            g.order = &first;
            plain_run(&cpu, &g);
            g.order = &second;
            plain_run(&cpu, &g);
            TN_CHECK_MSG(memcmp(stack[0], want, sizeof(float) * 16 * 35) == 0,
                         "cut after instruction %d: differs", cut);
            for (int l = 0; l < 3; l++) tn_test_free(stack[l]);
        }
    }
    tn_test_free(want);
    problem_fini(&p);
}

/* ---- layouts: rows, columns, nodes of the tree ---- */

/* Row parallel: rank r has the columns of x and W that are its part of d, computes node r, and the
 * tree over ranks ends the sum. */
static void check_tensor_parallel(int64_t d, int64_t units)
{
    enum { N = 19, F = 37, T = 8 };
    tn_arena arena = {0};
    tn_cpu cpu;
    problem p = {.kind = FORWARD, .n_w = 1, .n = N, .d = d, .f = {F}};
    TN_CHECK_OK(tn_order_param(&arena, T, 1, &d, &units, &p.order));
    problem_init(&p);
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *whole = tn_test_floats(N * F), *part[T];
        tn_gemm g = gemm_of(&p);
        g.out[0].c = whole;
        plain_run(&cpu, &g);
        for (int ranks = 2; ranks <= T; ranks *= 2) {
            for (int r = 0; r < ranks; r++) {
                tn_order_node node = {T, 1, &d, &units, ranks, r};
                tn_order_run run;
                int64_t k0 = tn_order_cut(d, units, r, ranks);
                TN_CHECK_OK(tn_order_param_node(&arena, &node, &run));
                g = gemm_of(&p);
                g.order = &run;
                g.src[0].a = tn_test_f32(g.src[0].a) + k0;
                g.src[0].b = tn_test_f32(g.src[0].b) + k0;
                g.out[0].c = part[r] = tn_test_floats(N * F);
                plain_run(&cpu, &g);
            }
            for (int s = 1; s < ranks; s *= 2)
                for (int r = 0; r + s < ranks; r += 2 * s)
                    for (int j = 0; j < N * F; j++) part[r][j] = part[r][j] + part[r + s][j];
            TN_CHECK_MSG(memcmp(part[0], whole, sizeof(float) * N * F) == 0,
                         "d %lld on %d ranks, %s: differs from one rank", (long long)d, ranks,
                         tn_isa_name(cpu.isa));
            for (int r = 0; r < ranks; r++) tn_test_free(part[r]);
        }
        tn_test_free(whole);
    }
    problem_fini(&p);
    tn_arena_fini(&arena);
}

/* Data and column parallel: any block of rows and columns of C, computed alone, has the same bits.
 */
static void test_blocks(void)
{
    enum { N = 61, F = 90, D = 150 };
    int64_t d = D, units = 0;
    tn_arena arena = {0};
    tn_cpu cpu;
    problem p = {.kind = FORWARD, .n_w = 1, .n = N, .d = D, .f = {F}};
    TN_CHECK_OK(tn_order_param(&arena, 8, 1, &d, &units, &p.order));
    problem_init(&p);
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *whole = tn_test_floats(N * F), *blocks = tn_test_floats(N * F);
        tn_gemm g = gemm_of(&p);
        g.out[0].c = whole;
        plain_run(&cpu, &g);
        for (int rm = 0; rm < 3; rm++)
            for (int rn = 0; rn < 4; rn++) {
                int64_t m0 = tn_order_cut(N, 0, rm, 3), n0 = tn_order_cut(F, 0, rn, 4);
                g = gemm_of(&p);
                g.src[0].a = tn_test_f32(g.src[0].a) + m0 * D;
                g.src[0].b = tn_test_f32(g.src[0].b) + n0 * D;
                g.out[0] = (tn_gemm_out){.c = blocks + m0 * F + n0,
                                         .ldc = F,
                                         .m = tn_order_cut(N, 0, rm + 1, 3) - m0,
                                         .n = tn_order_cut(F, 0, rn + 1, 4) - n0};
                plain_run(&cpu, &g);
            }
        TN_CHECK_MSG(memcmp(whole, blocks, sizeof(float) * N * F) == 0,
                     "3 x 4 blocks, %s: differ from the whole", tn_isa_name(cpu.isa));
        tn_test_free(whole);
        tn_test_free(blocks);
    }
    problem_fini(&p);
    tn_arena_fini(&arena);
}

/* ---- special values, memory ---- */

static void test_values(void)
{
    static const float specials[] = {
        0.0f,   -0.0f, 1.0f,  -1.0f,  1e-30f,          -1e-30f,
        1e-38f, 1e38f, 3e38f, -3e38f, (float)INFINITY, (float)-INFINITY};
    for (int pass = 0; pass < 2; pass++) {
        tn_arena arena = {0};
        int64_t d = 21, units = 0;
        problem p = {.kind = FORWARD, .n_w = 1, .n = 30, .d = 21, .f = {40}};
        TN_CHECK_OK(tn_order_param(&arena, 4, 1, &d, &units, &p.order));
        problem_init(&p);
        int n = pass == 0
                    ? 7
                    : TN_COUNT(
                          specials); /* finite first, then overflow, infinities and NaN from them */
        for (int64_t i = 0; i < p.n * p.d; i++)
            p.x[i] = specials[tn_test_below(&seed, pass == 0 && i < 42 ? 2 : n)];
        for (int64_t i = 0; i < p.f[0] * p.d; i++) p.w[0][i] = specials[tn_test_below(&seed, n)];
        tn_cpu cpu;
        for (int i = 0; tn_test_cpu(i, scratch_of, &p, &cpu); i++) {
            fresh_results(&p);
            tn_gemm g = gemm_of(&p);
            tn_gemm_run(&cpu, &g);
            bool good = true, negative_zero = false;
            for (int64_t j = 0; j < p.n * p.f[0]; j++) {
                float got = p.c[0][j], want = execute(&g, 0, j / p.f[0], j % p.f[0], NULL);
                good = good && (isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof got) == 0);
                negative_zero = negative_zero || (got == 0 && signbit(got));
            }
            TN_CHECK_MSG(good, "special values, %s: not what the program says",
                         tn_isa_name(cpu.isa));
            TN_CHECK_MSG(!negative_zero, "%s: a sum is -0", tn_isa_name(cpu.isa));
        }
        problem_fini(&p);
        tn_arena_fini(&arena);
    }
}

/* Scratch is planned memory: it must not grow with the problem. */
static void test_scratch(void)
{
    static const struct {
        int64_t m, n, k;
        bool tree, a_contiguous, b_contiguous;
    } shapes[] = {
        {512, 32000, 768, false, false, false}, {512, 768, 32000, true, false, true},
        {32000, 768, 512, true, true, true},    {2048, 4096, 768, false, false, false},
        {4096, 256, 4096, true, true, true},    {100000, 100000, 100000, true, false, false},
        {1, 1, 1 << 20, true, false, true},     {16384, 53248, 16384, false, false, false},
        {53248, 16384, 8192, true, true, true},
    };
    for (int i = 0; i < TN_COUNT(shapes); i++) {
        tn_arena arena = {0};
        tn_order_run run;
        int64_t k = shapes[i].k, units = 0;
        TN_CHECK_OK(tn_order_param(&arena, shapes[i].tree ? 8 : 1, 1, &k, &units, &run));
        tn_gemm g = {.n_out = 1, .n_src = 1, .order = &run};
        g.out[0] = (tn_gemm_out){.m = shapes[i].m, .n = shapes[i].n};
        g.src[0] = (tn_gemm_src){NULL,
                                 shapes[i].a_contiguous ? 1 : k,
                                 shapes[i].a_contiguous ? shapes[i].m : 1,
                                 NULL,
                                 shapes[i].b_contiguous ? shapes[i].n : 1,
                                 shapes[i].b_contiguous ? 1 : k,
                                 false,
                                 false};
        for (int threads = 1; threads <= 64; threads *= 4) {
            size_t bytes = tn_gemm_scratch(threads, &g),
                   most = (size_t)(8 << 20) + (size_t)threads * (600 << 10);
            TN_CHECK_MSG(bytes <= most, "%lld x %lld x %lld, %d threads: %zu bytes of scratch",
                         (long long)shapes[i].m, (long long)shapes[i].n, (long long)k, threads,
                         bytes);
        }
        tn_arena_fini(&arena);
    }
}

int main(void)
{
    test_shapes();
    test_long();
    test_runs();
    test_odd_cuts();
    check_tensor_parallel(128, 0);
    check_tensor_parallel(101, 0);
    check_tensor_parallel(96, 6);
    check_tensor_parallel(5, 0);
    test_blocks();
    test_values();
    test_scratch();
    return tn_test_done("gemm");
}
