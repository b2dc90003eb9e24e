/* test_embedding.c - gather against the table, the gradient against the program evaluated densely,
 * one add at a time. */
#include "kernels/cpu/embedding.h"
#include "tests/cpu.h"

static void forward_case(int64_t tokens, int64_t vocab, int64_t d, int64_t v_begin, int64_t v_count)
{
    uint64_t r = 3;
    float *table = tn_test_uniform(&r, v_count * d, 1), *first = NULL;
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    if (!ids) exit(1);
    for (int64_t t = 0; t < tokens; t++) ids[t] = (int32_t)tn_test_below(&r, vocab);
    for (int64_t i = 0; i < v_count * d; i += 7) table[i] = -0.0f;
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(tokens * d);
        tn_embedding_forward(
            &cpu, &(tn_embedding_args){tokens, d, v_begin, v_count, ids, table, y, false, false});
        tn_test_same("rows", &cpu, y, tokens * d, &first);
        tn_test_free(y);
    }
    bool same = true, positive = true;
    for (int64_t k = 0; k < tokens * d; k++) {
        const int64_t v = ids[k / d] - v_begin;
        same = same && first[k] == (v >= 0 && v < v_count ? table[v * d + k % d] : 0);
        positive = positive && !(first[k] == 0 && signbit(first[k]));
    }
    TN_CHECK(same);
    TN_CHECK_MSG(positive, "an element is -0");
    tn_test_free(table);
    tn_test_free(first);
    free(ids);
}

static size_t scratch(int threads, const void *arg)
{
    const tn_embedding_grad_args *a = arg;
    (void)threads;
    return tn_embedding_scratch(a->tokens, a->v_count);
}

/* One element of the gradient: absent is +0. */
static float want_at(const tn_embedding_grad_args *a, int64_t v, int64_t col)
{
    float stack[TN_ORDER_MAX_DEPTH], acc = 0;
    int depth = 0;
    for (int64_t n = 0; n < a->run.n; n++) {
        const tn_order_ins *ins = a->run.ins + n;
        if (ins->op == TN_ORDER_ADD) {
            depth--;
            stack[depth - 1] = stack[depth - 1] + stack[depth];
            continue;
        }
        for (int64_t k = ins->k0; k < ins->k1; k++)
            if (a->ids[k] - a->v_begin == v) acc = acc + tn_test_f32(a->dy)[k * a->d + col];
        if (ins->more) continue;
        stack[depth++] = acc;
        acc = 0;
    }
    return stack[0];
}

static void run_steps(const tn_cpu *cpu, const tn_order_tokens *order, tn_embedding_grad_args a,
                      int64_t seq, int64_t grid_seq, int64_t step, float **first)
{
    const int64_t leaves = tn_order_tokens_leaves(order);
    const int depth = tn_order_tokens_depth(order, step);
    const int32_t *ids = a.ids;
    const float *dy = a.dy;
    tn_arena arena = {0};
    for (int l = 0; l < TN_ORDER_MAX_DEPTH; l++)
        a.stack[l] = l < depth ? tn_test_floats(a.v_count * a.d) : NULL;
    for (int64_t leaf = 0; leaf < leaves; leaf += step) {
        const int64_t next = leaf + step < leaves ? leaf + step : leaves;
        const int64_t token =
            leaf / grid_seq * seq + tn_order_cut(seq, 0, leaf % grid_seq, grid_seq);
        if (!TN_CHECK_OK(tn_order_tokens_run(order, &arena, leaf, next, &a.run))) return;
        a.ids = ids + token;
        a.dy = dy + token * a.d;
        tn_embedding_backward(cpu, &a);
    }
    tn_test_same("dE", cpu, a.stack[0], a.v_count * a.d, first);
    for (int l = 1; l < depth; l++) TN_CHECK(tn_test_intact(a.stack[l], a.v_count * a.d));
    for (int l = 0; l < depth; l++) tn_test_free(a.stack[l]);
    tn_arena_fini(&arena);
}

/* ids: 0 from all of the vocabulary, 1 few, 2 mostly one */
static void backward_case(tn_order_grid grid, int64_t rows, int64_t seq, int64_t vocab, int64_t d,
                          int64_t v_begin, int64_t v_count, int ids_kind, uint64_t seed)
{
    uint64_t r = seed;
    const int64_t tokens = rows * seq;
    float *dy = tn_test_uniform(&r, tokens * d, 1), *want = tn_test_floats(v_count * d);
    int32_t *ids = malloc((size_t)tokens * sizeof *ids);
    tn_arena arena = {0};
    const tn_order_tokens *order;
    if (!ids) exit(1);
    for (int64_t t = 0; t < tokens; t++)
        ids[t] = (int32_t)(ids_kind == 0          ? tn_test_below(&r, vocab)
                           : ids_kind == 1        ? tn_test_below(&r, 3) * (vocab / 3)
                           : tn_test_below(&r, 9) ? vocab / 2
                                                  : tn_test_below(&r, vocab));
    for (int64_t i = 0; i < tokens * d; i += 5) dy[i] = -0.0f;
    tn_embedding_grad_args a = {tokens, d, v_begin, v_count, ids, dy, {0}, {0}, false};
    if (!TN_CHECK_OK(tn_order_tokens_build(&arena, grid, rows, seq, &order))) return;
    if (!TN_CHECK_OK(tn_order_tokens_run(order, &arena, 0, tn_order_tokens_leaves(order), &a.run)))
        return;
    for (int64_t i = 0; i < v_count * d; i++) want[i] = want_at(&a, i / d, i % d);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, scratch, &a, &cpu); i++) {
        const int64_t steps[] = {tn_order_tokens_leaves(order), 2 * grid.seq, grid.seq, 1};
        const int n_steps =
            v_count * d > 1000000 ? 1 : TN_COUNT(steps); /* a large one takes its time */
        for (int k = 0; k < n_steps; k++) run_steps(&cpu, order, a, seq, grid.seq, steps[k], &want);
    }
    tn_arena_fini(&arena);
    tn_test_free(dy);
    tn_test_free(want);
    free(ids);
}

/* A chain that goes on over several LEAFs, leaves without tokens, ADDs of levels that were there
 * before. */
static void program_case(void)
{
    const tn_order_ins ins[] = {
        {TN_ORDER_LEAF, 1, 0, 0, 2}, {TN_ORDER_LEAF, 0, 0, 2, 3}, {TN_ORDER_ADD, 0, 0, 0, 0},
        {TN_ORDER_LEAF, 0, 0, 3, 3}, {TN_ORDER_ADD, 0, 0, 0, 0},  {TN_ORDER_ADD, 0, 0, 0, 0},
        {TN_ORDER_LEAF, 0, 0, 3, 3}, {TN_ORDER_LEAF, 0, 0, 3, 5}, {TN_ORDER_ADD, 0, 0, 0, 0}};
    const int32_t ids[] = {1, 0, 1, 1, 2};
    const float dy[] = {1e8f, 3, -1e8f, 0.5f, 7};
    tn_embedding_grad_args a = {5, 1, 0, 4, ids, dy, {ins, TN_COUNT(ins), 2, 2}, {0}, false};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, scratch, &a, &cpu); i++) {
        const float want0[] = {14, 22, 33, 44}, want1[] = {0, 0.5f, 7, 0};
        float level0[] = {10, 20, 30, 40}, level1[] = {1, 2, 3, 4};
        a.stack[0] = level0;
        a.stack[1] = level1;
        tn_embedding_backward(&cpu, &a);
        /* id 1: 20 + (2 + ((1e8 - 1e8))) = 22 */
        TN_CHECK(memcmp(level0, want0, sizeof want0) == 0);
        TN_CHECK(memcmp(level1, want1, sizeof want1) == 0);
    }
}

int main(void)
{
    forward_case(50, 40, 33, 0, 40);
    forward_case(700, 100, 256, 30, 25);
    forward_case(1, 1, 1, 0, 1);
    for (int kind = 0; kind < 3; kind++) {
        const uint64_t s = 10 * (uint64_t)kind;
        backward_case((tn_order_grid){8, 8, 8}, 8, 24, 50, 17, 0, 50, kind, s + 1);
        backward_case((tn_order_grid){8, 8, 8}, 3, 5, 9, 33, 2, 5, kind,
                      s + 2); /* empty lanes and parts, a shard */
        backward_case((tn_order_grid){1, 1, 1}, 2, 37, 11, 1, 0, 11, kind, s + 3);
        backward_case((tn_order_grid){8, 4, 2}, 5, 19, 30, 1100, 0, 30, kind,
                      s + 4); /* more columns than one tile */
        backward_case((tn_order_grid){8, 2, 4}, 16, 40, 700, 64, 0, 700, kind,
                      s + 5); /* many pieces */
    }
    program_case();
    backward_case((tn_order_grid){8, 1, 2}, 3, 4, 4300, 1000, 0, 4300, 1,
                  99); /* large enough to be cleared past the caches */
    return tn_test_done("embedding");
}
