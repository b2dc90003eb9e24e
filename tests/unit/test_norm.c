/* test_norm.c - RMSNorm against its formula in double, the gain's sum against the program one
 * scalar fma at a time. */
#include "kernels/cpu/norm.h"
#include "tests/cpu.h"

#include <math.h>

static const double eps = 1e-5;

static void forward_want(const float *x, const float *w, int64_t rows, int64_t d, double *y,
                         double *r)
{
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < d; j++) sum += (double)x[i * d + j] * (double)x[i * d + j];
        r[i] = 1 / sqrt(sum / (double)d + eps);
        for (int64_t j = 0; j < d; j++) y[i * d + j] = (double)x[i * d + j] * r[i] * (double)w[j];
    }
}

static void backward_want(const float *x, const double *r, const float *w, const float *dy,
                          int64_t rows, int64_t d, double *dx)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *xi = x + i * d, *gi = dy + i * d;
        double s = 0;
        for (int64_t j = 0; j < d; j++) s += (double)gi[j] * (double)w[j] * (double)xi[j];
        s *= r[i] * r[i] * r[i] / (double)d;
        for (int64_t j = 0; j < d; j++)
            dx[i * d + j] = (double)gi[j] * (double)w[j] * r[i] - (double)xi[j] * s;
    }
}

static void rows_case(int64_t rows, int64_t d, uint64_t seed)
{
    uint64_t s = seed;
    float *x = tn_test_uniform(&s, rows * d, 2), *add = tn_test_uniform(&s, rows * d, 1),
          *w = tn_test_uniform(&s, d, 2);
    float *dy = tn_test_uniform(&s, rows * d, 1), *h = tn_test_floats(rows * d), *first[6] = {0};
    double *y64 = tn_test_doubles(rows * d), *r64 = tn_test_doubles(rows);
    for (int64_t i = 0; i < rows * d; i++) h[i] = x[i] + add[i];
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(rows * d), *r = tn_test_floats(rows),
              *dx = tn_test_floats(rows * d);
        tn_norm_forward(
            &cpu, &(tn_norm_forward_args){rows, d, (float)eps, x, NULL, w, NULL, y, r, false});
        tn_test_same("norm y", &cpu, y, rows * d, &first[0]);
        tn_test_same("norm r", &cpu, r, rows, &first[1]);
        tn_norm_backward(&cpu, &(tn_norm_backward_args){rows, d, x, r, w, dy, NULL, dx, false});
        tn_test_same("norm dx", &cpu, dx, rows * d, &first[2]);

        /* the residual gradient is added as a step of its own would add it; dx may lie over it */
        float *sum = tn_test_copy(add, rows * d);
        tn_norm_backward(&cpu, &(tn_norm_backward_args){rows, d, x, r, w, dy, sum, sum, false});
        bool same = tn_test_intact(sum, rows * d);
        for (int64_t k = 0; k < rows * d; k++) same = same && sum[k] == add[k] + dx[k];
        TN_CHECK(same);

        /* residual and norm in one: the bits of the two steps; h may lie over x */
        float *both = tn_test_copy(x, rows * d), *y2 = tn_test_floats(rows * d),
              *r2 = tn_test_floats(rows);
        tn_norm_forward(
            &cpu, &(tn_norm_forward_args){rows, d, (float)eps, both, add, w, both, y2, r2, false});
        TN_CHECK(tn_test_intact(both, rows * d) &&
                 memcmp(both, h, (size_t)(rows * d) * sizeof *h) == 0);
        tn_test_same("norm y of h", &cpu, y2, rows * d, &first[3]);
        tn_norm_forward(&cpu, &(tn_norm_forward_args){rows, d, (float)eps, both, NULL, w, NULL,
                                                      both, r2, false});
        TN_CHECK(tn_test_intact(both, rows * d) &&
                 memcmp(both, y2, (size_t)(rows * d) * sizeof *h) == 0);
        const float *mine[] = {y, r, dx, sum, both, y2, r2};
        for (int k = 0; k < TN_COUNT(mine); k++) tn_test_free(mine[k]);
    }
    forward_want(x, w, rows, d, y64, r64);
    tn_test_close("norm y", first[0], y64, rows * d, 2e-6);
    tn_test_close("norm r", first[1], r64, rows, 1e-6 / sqrt(eps));
    backward_want(x, r64, w, dy, rows, d, y64);
    tn_test_close("norm dx", first[2], y64, rows * d, d == 1 ? 1e-3 : 1e-5);
    const float *mine[] = {x, add, w, dy, h, first[0], first[1], first[2], first[3]};
    for (int k = 0; k < TN_COUNT(mine); k++) tn_test_free(mine[k]);
    free(y64);
    free(r64);
}

/* The program for one column, one operation after the other. */
static float gain_want(const tn_norm_gain_args *a, int64_t col)
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
            acc = fmaf(tn_test_f32(a->dy)[k * a->d + col],
                       tn_test_f32(a->x)[k * a->d + col] * a->r[k], acc);
        if (ins->more) continue;
        stack[depth++] = acc + 0.0f;
        acc = 0;
    }
    TN_CHECK(depth == 1);
    return stack[0];
}

static void gain_case(tn_order_grid grid, int64_t n_rows, int64_t seq, int64_t d, uint64_t seed)
{
    uint64_t s = seed;
    const int64_t tokens = n_rows * seq;
    float *x = tn_test_uniform(&s, tokens * d, 1), *dy = tn_test_uniform(&s, tokens * d, 1),
          *r = tn_test_uniform(&s, tokens, 1);
    float *want = tn_test_floats(d);
    double *want64 = tn_test_doubles(d);
    tn_arena arena = {0};
    const tn_order_tokens *order;
    tn_norm_gain_args whole = {d, x, r, dy, {0}, {0}, false};
    if (!TN_CHECK_OK(tn_order_tokens_build(&arena, grid, n_rows, seq, &order))) return;
    const int64_t leaves = tn_order_tokens_leaves(order);
    if (!TN_CHECK_OK(tn_order_tokens_run(order, &arena, 0, leaves, &whole.run))) return;
    for (int64_t c = 0; c < d; c++) {
        want[c] = gain_want(&whole, c);
        for (int64_t k = 0; k < tokens; k++)
            want64[c] += (double)dy[k * d + c] * (double)(x[k * d + c] * r[k]);
    }
    tn_test_close("norm dw", want, want64, d, 1e-7 * (double)tokens);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        /* cut into runs of a whole row, of one leaf, and not at all */
        const int64_t steps[] = {leaves, grid.seq, 1};
        for (int k = 0; k < TN_COUNT(steps); k++) {
            tn_norm_gain_args a = whole;
            for (int l = 0; l < TN_ORDER_MAX_DEPTH; l++) a.stack[l] = tn_test_floats(d);
            int64_t token = 0;
            for (int64_t leaf = 0; leaf < leaves; leaf += steps[k]) {
                int64_t next = leaf + steps[k] < leaves ? leaf + steps[k] : leaves;
                if (!TN_CHECK_OK(tn_order_tokens_run(order, &arena, leaf, next, &a.run))) return;
                token = leaf / grid.seq * seq + tn_order_cut(seq, 0, leaf % grid.seq, grid.seq);
                a.x = x + token * d;
                a.dy = dy + token * d;
                a.r = r + token;
                tn_norm_gain(&cpu, &a);
            }
            tn_test_same("norm dw", &cpu, a.stack[0], d, &want);
            for (int l = 0; l < TN_ORDER_MAX_DEPTH; l++) tn_test_free(a.stack[l]);
        }
    }
    tn_arena_fini(&arena);
    const float *mine[] = {x, dy, r, want};
    for (int k = 0; k < TN_COUNT(mine); k++) tn_test_free(mine[k]);
    free(want64);
}

/* A chain that goes on over several LEAFs, a leaf without tokens, ADDs of levels that were there
 * before. */
static void program_case(void)
{
    const tn_order_ins ins[] = {{TN_ORDER_LEAF, 1, 0, 0, 1}, {TN_ORDER_LEAF, 0, 0, 1, 4},
                                {TN_ORDER_ADD, 0, 0, 0, 0},  {TN_ORDER_LEAF, 0, 0, 4, 4},
                                {TN_ORDER_ADD, 0, 0, 0, 0},  {TN_ORDER_ADD, 0, 0, 0, 0},
                                {TN_ORDER_LEAF, 0, 0, 4, 5}};
    const float dy[] = {1e8f, 3, 3, -1e8f, 3}, ones[] = {1, 1, 1, 1, 1};
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float level0 = 10, level1 = 2;
        tn_norm_gain(&cpu,
                     &(tn_norm_gain_args){
                         1, ones, ones, dy, {ins, TN_COUNT(ins), 2, 2}, {&level0, &level1}, false});
        /* 10 + (2 + (((1e8 + 3) + 3) - 1e8)), where 1e8 + 3 is 1e8 in fp32; a chain begun anew at
         * the first 3 gives 20 */
        TN_CHECK_MSG(level0 == 12 && level1 == 3, "levels %g and %g", (double)level0,
                     (double)level1);
    }
}

int main(void)
{
    const int64_t dims[] = {1, 7, 16, 31, 64, 100, 257, 768};
    for (int i = 0; i < TN_COUNT(dims); i++) {
        rows_case(1, dims[i], 1 + (uint64_t)i);
        rows_case(67, dims[i], 100 + (uint64_t)i);
    }
    rows_case(1000, 200, 5); /* several tiles per thread */
    gain_case((tn_order_grid){8, 8, 8}, 8, 40, 100, 11);
    gain_case((tn_order_grid){8, 8, 8}, 3, 5, 33, 12); /* empty lanes and parts */
    gain_case((tn_order_grid){1, 1, 1}, 2, 37, 1, 13);
    gain_case((tn_order_grid){8, 4, 2}, 5, 19, 1300, 14); /* more columns than one tile may have */
    gain_case((tn_order_grid){8, 2, 4}, 16, 9, 256, 15);
    program_case();
    return tn_test_done("norm");
}
