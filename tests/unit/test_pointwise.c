/* test_pointwise.c - every instruction against its formula in double; random programs, with outputs
 * over inputs, against their instructions run one by one through memory. */
#include "kernels/cpu/pointwise.h"
#include "tests/cpu.h"

/* ---- instructions ---- */

typedef struct formula {
    tn_pointwise_op op;
    double (*f)(double a, double b);
    double relative, absolute; /* error allowed: relative |f| + absolute (for gradients: per
                                  upstream gradient) */
} formula;

static const float factor = 1.7f;
static double f_add(double a, double b)
{
    return a + b;
}
static double f_sub(double a, double b)
{
    return a - b;
}
static double f_mul(double a, double b)
{
    return a * b;
}
static double f_div(double a, double b)
{
    return a / b;
}
static double f_neg(double a, double b)
{
    return (void)b, -a;
}
static double f_scale(double a, double b)
{
    return (void)b, a * (double)factor;
}
static double f_offset(double a, double b)
{
    return (void)b, a + (double)factor;
}
static double f_sigmoid(double a, double b)
{
    return (void)b, 1 / (1 + exp(-a));
}
static double f_sigmoid_bwd(double dy, double y)
{
    return dy * y * (1 - y);
}
static double f_silu(double a, double b)
{
    return (void)b, a / (1 + exp(-a));
}
static double f_silu_bwd(double dy, double x)
{
    double s = 1 / (1 + exp(-x));
    return dy * s * (1 + x * (1 - s));
}
/* a/2 (1 + tanh(z)) = a / (1 + exp(-2z)), which does not lose the negative tail */
static double gelu_z(double a)
{
    return sqrt(2 / acos(-1.0)) * (a + 0.044715 * a * a * a);
}
static double f_gelu_tanh(double a, double b)
{
    return (void)b, a / (1 + exp(-2 * gelu_z(a)));
}
static double f_gelu_tanh_bwd(double dy, double x)
{
    double s = 1 / (1 + exp(-2 * gelu_z(x))), t = 1 / (1 + exp(2 * gelu_z(x)));
    return dy * (s + x * s * t * 2 * sqrt(2 / acos(-1.0)) * (1 + 3 * 0.044715 * x * x));
}
static double f_gelu_erf(double a, double b)
{
    return (void)b, 0.5 * a * erfc(-a / sqrt(2));
}
static double f_gelu_erf_bwd(double dy, double x)
{
    return dy * (0.5 * erfc(-x / sqrt(2)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0)));
}
static double f_relu(double a, double b)
{
    return (void)b, a > 0 ? a : 0;
}
static double f_relu_bwd(double dy, double x)
{
    return x > 0 ? dy : 0;
}
static double f_relu2(double a, double b)
{
    return (void)b, a > 0 ? a * a : 0;
}
static double f_relu2_bwd(double dy, double x)
{
    return x > 0 ? dy * 2 * x : 0;
}
static double f_tanh(double a, double b)
{
    return (void)b, tanh(a);
}
static double f_tanh_bwd(double dy, double y)
{
    return dy * (1 - y * y);
}
static double f_exp(double a, double b)
{
    return (void)b, exp(a < (double)88.3f ? a : (double)88.3f);
}
static double f_square(double a, double b)
{
    return (void)b, a * a;
}
static double f_sqrt(double a, double b)
{
    return (void)b, sqrt(a);
}
static double f_copy(double a, double b)
{
    return (void)b, a;
}

static const formula formulas[] = {
    {TN_POINTWISE_ADD, f_add, 6e-8, 0},
    {TN_POINTWISE_SUB, f_sub, 6e-8, 0},
    {TN_POINTWISE_MUL, f_mul, 6e-8, 1e-45},
    {TN_POINTWISE_DIV, f_div, 6e-8, 1e-45},
    {TN_POINTWISE_SILU_BWD, f_silu_bwd, 3e-7, 4e-7},
    {TN_POINTWISE_GELU_TANH_BWD, f_gelu_tanh_bwd, 1e-6, 6e-7},
    {TN_POINTWISE_GELU_ERF_BWD, f_gelu_erf_bwd, 6e-7, 3e-7},
    {TN_POINTWISE_RELU_BWD, f_relu_bwd, 0, 0},
    {TN_POINTWISE_RELU2_BWD, f_relu2_bwd, 6e-8, 1e-45},
    {TN_POINTWISE_SIGMOID_BWD, f_sigmoid_bwd, 3e-7, 1e-45},
    {TN_POINTWISE_TANH_BWD, f_tanh_bwd, 3e-7, 1e-45},
    {TN_POINTWISE_NEG, f_neg, 0, 0},
    {TN_POINTWISE_SCALE, f_scale, 6e-8, 1e-45},
    {TN_POINTWISE_OFFSET, f_offset, 6e-8, 0},
    {TN_POINTWISE_SILU, f_silu, 4e-7, 1e-30},
    {TN_POINTWISE_GELU_TANH, f_gelu_tanh, 2e-5,
     1e-30}, /* 2z loses half an ulp, up to 88 times that in exp */
    {TN_POINTWISE_GELU_ERF, f_gelu_erf, 5e-7, 1e-30},
    {TN_POINTWISE_RELU, f_relu, 0, 0},
    {TN_POINTWISE_RELU2, f_relu2, 6e-8, 1e-45},
    {TN_POINTWISE_SIGMOID, f_sigmoid, 4e-7, 1e-37},
    {TN_POINTWISE_TANH, f_tanh, 3e-7, 1e-45},
    {TN_POINTWISE_EXP, f_exp, 3e-7, 2e-38},
    {TN_POINTWISE_SQUARE, f_square, 6e-8, 1e-45},
    {TN_POINTWISE_SQRT, f_sqrt, 6e-8, 0},
    {TN_POINTWISE_COPY, f_copy, 0, 0},
};

static tn_pointwise_program single(tn_pointwise_op op)
{
    return (tn_pointwise_program){2, 1, 1, {0}, {2}, {{(uint8_t)op, 2, 0, 1, factor, false}}};
}

static void op_case(const formula *f, int64_t n, uint64_t seed)
{
    static const float special[] = {0,  1e-30f, -1e-30f, 0.625f, 5,  -5,  13,   -13,
                                    40, -40,    87,      -87,    95, -95, 1e4f, -1e4f};
    uint64_t s = seed;
    float *a = tn_test_uniform(&s, n, 8), *b = tn_test_uniform(&s, n, 8), *first = NULL;
    const tn_pointwise_program p = single(f->op);
    const bool gradient = tn_pointwise_binary(f->op) && f->op > TN_POINTWISE_DIV;
    for (int64_t i = 0; i < n && i < TN_COUNT(special); i++)
        (gradient ? b : a)[n - 1 - i] = special[i];
    for (int64_t i = 0; i < n; i++) {
        if (f->op == TN_POINTWISE_SQRT) a[i] = fabsf(a[i]);
        if (f->op == TN_POINTWISE_SIGMOID_BWD) b[i] = 1 / (1 + expf(b[i]));
        if (f->op == TN_POINTWISE_TANH_BWD) b[i] = tanhf(b[i]);
    }
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(n);
        tn_pointwise_run(&cpu, &(tn_pointwise_args){&p, n, n, {a, b}, {y}, false});
        tn_test_same("op", &cpu, y, n, &first);
        tn_test_free(y);
    }
    for (int64_t i = 0; i < n; i++) {
        double want = f->f((double)a[i], (double)b[i]);
        double allowed =
            f->relative * fabs(want) + f->absolute * (gradient ? 1 + fabs((double)a[i]) : 1);
        TN_CHECK_MSG(fabs((double)first[i] - want) <= allowed,
                     "op %d of %.9g, %.9g: %.9g, expected %.9g", (int)f->op, (double)a[i],
                     (double)b[i], (double)first[i], want);
    }
    tn_test_free(a);
    tn_test_free(b);
    tn_test_free(first);
}

/* NaN stays NaN through everything that looks at it. */
static void nan_case(void)
{
    float in[2] = {NAN, NAN}, y = 0;
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++)
        for (int op = 0; op < TN_N_POINTWISE; op++) {
            const tn_pointwise_program p = single((tn_pointwise_op)op);
            tn_pointwise_run(&cpu, &(tn_pointwise_args){&p, 1, 1, {in, in + 1}, {&y}, false});
            TN_CHECK_MSG(op == TN_POINTWISE_RELU_BWD || isnan(y), "op %d of NaN: %g", op,
                         (double)y);
        }
}

/* ---- programs ---- */

typedef struct setting {
    tn_pointwise_program p;
    int64_t n, d;
    float *in[TN_POINTWISE_INPUTS]; /* n floats each, whatever the kind */
    int over[TN_POINTWISE_OUTPUTS]; /* the input that the output lies over, or -1 */
} setting;

/* The program, one instruction at a time through whole arrays. */
static void run_plainly(const tn_cpu *cpu, const setting *s, float *const *out)
{
    float *reg[TN_POINTWISE_REGISTERS];
    for (int r = 0; r < TN_POINTWISE_REGISTERS; r++) reg[r] = tn_test_floats(s->n);
    for (int i = 0; i < s->p.n_in; i++)
        for (int64_t k = 0; k < s->n; k++)
            reg[i][k] = s->in[i][s->p.kind[i] == TN_POINTWISE_FULL  ? k
                                 : s->p.kind[i] == TN_POINTWISE_ROW ? k % s->d
                                                                    : 0];
    for (int i = 0; i < s->p.n_ins; i++) {
        const tn_pointwise_ins *ins = s->p.ins + i;
        tn_pointwise_program one = single((tn_pointwise_op)ins->op);
        one.ins[0].c = ins->c;
        const float *b = tn_pointwise_binary((tn_pointwise_op)ins->op) ? reg[ins->b] : reg[ins->a];
        tn_pointwise_run(
            cpu, &(tn_pointwise_args){&one, s->n, s->n, {reg[ins->a], b}, {reg[ins->dst]}, false});
    }
    for (int k = 0; k < s->p.n_out; k++)
        memcpy(out[k], reg[s->p.out[k]], (size_t)s->n * sizeof **out);
    for (int r = 0; r < TN_POINTWISE_REGISTERS; r++) tn_test_free(reg[r]);
}

static bool equal_or_nan(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void program_case(const setting *s, const char *what)
{
    float *want[TN_POINTWISE_OUTPUTS];
    tn_cpu cpu;
    for (int k = 0; k < s->p.n_out; k++) want[k] = tn_test_floats(s->n);
    if (!TN_CHECK_OK(tn_pointwise_check(&s->p))) return;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        if (i == 0) run_plainly(&cpu, s, want);
        tn_pointwise_args a = {.program = &s->p, .n = s->n, .d = s->d};
        float *mine[TN_POINTWISE_INPUTS + TN_POINTWISE_OUTPUTS], *in[TN_POINTWISE_INPUTS];
        int n = 0;
        for (int k = 0; k < s->p.n_in; k++) {
            int64_t extent = s->p.kind[k] == TN_POINTWISE_FULL  ? s->n
                             : s->p.kind[k] == TN_POINTWISE_ROW ? s->d
                                                                : 1;
            mine[n++] = in[k] = tn_test_copy(s->in[k], extent);
            a.in[k] = in[k];
        }
        for (int k = 0; k < s->p.n_out; k++)
            a.out[k] = s->over[k] >= 0 ? in[s->over[k]] : (mine[n++] = tn_test_floats(s->n));
        tn_pointwise_run(&cpu, &a);
        for (int k = 0; k < s->p.n_out; k++)
            TN_CHECK_MSG(
                tn_test_intact(a.out[k], s->n) && equal_or_nan(a.out[k], want[k], s->n),
                "%s, %s, %d threads: output %d differs from its instructions run one by one", what,
                tn_isa_name(cpu.isa), tn_pool_threads(cpu.pool), k);
        for (int k = 0; k < s->p.n_in; k++) {
            bool kept = true;
            for (int o = 0; o < s->p.n_out; o++) kept = kept && s->over[o] != k;
            TN_CHECK(!kept || s->p.kind[k] != TN_POINTWISE_FULL ||
                     equal_or_nan(in[k], s->in[k], s->n));
        }
        while (n > 0) tn_test_free(mine[--n]);
    }
    for (int k = 0; k < s->p.n_out; k++) tn_test_free(want[k]);
}

static void random_case(uint64_t seed)
{
    uint64_t r = seed;
    setting s = {.n = 1 + tn_test_below(&r, seed % 7 == 0 ? 40000 : 1500), .d = 0};
    s.d = 1 + tn_test_below(&r, 300);
    s.n = (s.n + s.d - 1) / s.d * s.d;
    s.p.n_in = 1 + (int)tn_test_below(&r, TN_POINTWISE_INPUTS);
    s.p.n_out = 1 + (int)tn_test_below(&r, TN_POINTWISE_OUTPUTS);
    s.p.n_ins = (int)tn_test_below(&r, seed % 5 == 0 ? TN_POINTWISE_INS : 12);
    const int regs = s.p.n_in + 1 + (int)tn_test_below(&r, TN_POINTWISE_REGISTERS - s.p.n_in);
    int known = s.p.n_in;
    for (int i = 0; i < s.p.n_in; i++) {
        s.in[i] = tn_test_uniform(&r, s.n, 3);
        s.p.kind[i] =
            (uint8_t)(tn_test_below(&r, 3) ? TN_POINTWISE_FULL : 1 + tn_test_below(&r, 2));
    }
    for (int i = 0; i < s.p.n_ins; i++) {
        /* half of the instructions from those that may become gates */
        static const uint8_t gates[] = {TN_POINTWISE_MUL, TN_POINTWISE_MUL, TN_POINTWISE_SILU,
                                        TN_POINTWISE_SILU_BWD};
        int op = (int)tn_test_below(&r, 2 * TN_N_POINTWISE);
        int dst = s.p.n_in + (int)tn_test_below(&r, (known < regs ? known + 1 : regs) - s.p.n_in);
        if (op >= TN_N_POINTWISE) op = gates[op % 4];
        s.p.ins[i] = (tn_pointwise_ins){(uint8_t)op,
                                        (uint8_t)dst,
                                        (uint8_t)tn_test_below(&r, known),
                                        (uint8_t)tn_test_below(&r, known),
                                        0.75f,
                                        false};
        if (dst == known) known++;
    }
    uint32_t taken = 0;
    for (int k = 0; k < s.p.n_out; k++) {
        s.p.out[k] = (uint8_t)tn_test_below(&r, known);
        s.over[k] = (int)tn_test_below(&r, s.p.n_in + 1) - 1;
        if (s.over[k] < 0) continue;
        if (s.p.kind[s.over[k]] != TN_POINTWISE_FULL || (taken >> s.over[k] & 1)) s.over[k] = -1;
        else taken |= 1u << s.over[k];
    }
    char what[40];
    snprintf(what, sizeof what, "random program %llu", (unsigned long long)seed);
    program_case(&s, what);
    for (int i = 0; i < s.p.n_in; i++) tn_test_free(s.in[i]);
}

/* Gated units forwards and backwards, with every activation, in several orders and register uses,
 * in place. */
static void gate_case(tn_pointwise_op f, tn_pointwise_op f_bwd, int64_t n)
{
    const uint8_t F = (uint8_t)f, B = (uint8_t)f_bwd, M = TN_POINTWISE_MUL;
    const setting cases[] = {
        {.p = {2, 1, 2, {0}, {3}, {{F, 2, 0, 0, 0}, {M, 3, 2, 1, 0}}}, .over = {-1}},
        {.p = {2, 1, 2, {0}, {2}, {{F, 2, 0, 0, 0}, {M, 2, 1, 2, 0}}}, .over = {0}},
        {.p = {2, 2, 2, {0}, {3, 2}, {{F, 2, 0, 0, 0}, {M, 3, 2, 1, 0}}},
         .over = {1, -1}}, /* f(g) is wanted itself */
        {.p = {1, 1, 2, {0}, {2}, {{F, 1, 0, 0, 0}, {M, 2, 1, 1, 0}}}, .over = {0}},
        /* backwards: 0 = dy, 1 = g, 2 = u */
        {.p = {3,
               2,
               4,
               {0},
               {4, 6},
               {{F, 3, 1, 0, 0}, {M, 4, 0, 3, 0}, {M, 5, 0, 2, 0}, {B, 6, 5, 1, 0}}},
         .over = {2, 1}},
        {.p = {3,
               2,
               4,
               {0},
               {5, 4},
               {{M, 3, 2, 0, 0}, {B, 4, 3, 1, 0}, {F, 3, 1, 0, 0}, {M, 5, 3, 0, 0}}},
         .over = {0, 1}},
        {.p = {3,
               2,
               4,
               {0},
               {3, 4},
               {{M, 4, 0, 2, 0}, {F, 3, 1, 0, 0}, {M, 3, 3, 0, 0}, {B, 4, 4, 1, 0}}},
         .over = {1, 0}},
        /* u is known only after du */
        {.p = {3,
               2,
               5,
               {0},
               {4, 6},
               {{F, 3, 1, 0, 0},
                {M, 4, 0, 3, 0},
                {TN_POINTWISE_EXP, 7, 2, 0, 0},
                {M, 5, 0, 7, 0},
                {B, 6, 5, 1, 0}}},
         .over = {-1, -1}},
        /* du serves something else before dg is asked for */
        {.p = {3,
               2,
               5,
               {0},
               {7, 6},
               {{F, 3, 1, 0, 0},
                {M, 4, 0, 3, 0},
                {TN_POINTWISE_EXP, 7, 4, 0, 0},
                {M, 5, 0, 2, 0},
                {B, 6, 5, 1, 0}}},
         .over = {0, 2}},
        /* swapped in place */
        {.p = {2, 2, 0, {0}, {1, 0}, {{0}}}, .over = {0, 1}},
    };
    uint64_t r = 77;
    for (int i = 0; i < TN_COUNT(cases); i++) {
        setting s = cases[i];
        s.n = n;
        s.d = n;
        for (int k = 0; k < s.p.n_in; k++) s.in[k] = tn_test_uniform(&r, n, 4);
        char what[40];
        snprintf(what, sizeof what, "gate %d of op %d", i, (int)f);
        program_case(&s, what);
        for (int k = 0; k < s.p.n_in; k++) tn_test_free(s.in[k]);
    }
}

static void check_case(void)
{
    tn_pointwise_program p = single(TN_POINTWISE_ADD);
    TN_CHECK_OK(tn_pointwise_check(&p));
    p.ins[0].b = 2;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "reads register 2");
    p = single(TN_POINTWISE_NEG);
    p.ins[0].b = 9; /* not read */
    TN_CHECK_OK(tn_pointwise_check(&p));
    p.ins[0].dst = 1;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "writes register 1");
    p.ins[0].dst = TN_POINTWISE_REGISTERS;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "writes register 32");
    p = single(TN_N_POINTWISE);
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "unknown op");
    p = single(TN_POINTWISE_ADD);
    p.out[0] = 3;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "output 0: register 3");
    p.n_in = 9;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "9 inputs");
    p.n_in = 2;
    p.n_out = 0;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "0 outputs");
    p.n_out = 1;
    p.n_ins = TN_POINTWISE_INS + 1;
    TN_CHECK_FAILS(tn_pointwise_check(&p), TN_BAD_INPUT, "65 instructions");
}

static void moves_case(int64_t n)
{
    uint64_t r = 5;
    float *a = tn_test_uniform(&r, n, 1), *b = tn_test_uniform(&r, n, 1);
    tn_cpu cpu;
    for (int i = 0; tn_test_cpu(i, NULL, NULL, &cpu); i++) {
        float *y = tn_test_floats(n);
        bool same = true;
        tn_pointwise_copy(&cpu, n, a, y);
        TN_CHECK(tn_test_intact(y, n) && memcmp(y, a, (size_t)n * sizeof *y) == 0);
        tn_pointwise_add(&cpu, n, y, b, y);
        for (int64_t k = 0; k < n; k++) same = same && y[k] == a[k] + b[k];
        TN_CHECK(tn_test_intact(y, n) && same);
        tn_pointwise_fill(&cpu, n, 2.5f, y);
        for (int64_t k = 0; k < n; k++) same = same && y[k] == 2.5f;
        TN_CHECK(tn_test_intact(y, n) && same);
        tn_test_free(y);
    }
    tn_test_free(a);
    tn_test_free(b);
}

int main(void)
{
    TN_CHECK(TN_COUNT(formulas) == TN_N_POINTWISE);
    for (int i = 0; i < TN_COUNT(formulas); i++) {
        op_case(formulas + i, 3001, (uint64_t)i);
        op_case(formulas + i, 5, (uint64_t)i);
    }
    nan_case();
    for (uint64_t seed = 1; seed <= 200; seed++) random_case(seed);
    const int64_t sizes[] = {1, 255, 1000, 70001};
    for (int i = 0; i < TN_COUNT(sizes); i++) {
        gate_case(TN_POINTWISE_SILU, TN_POINTWISE_SILU_BWD, sizes[i]);
        gate_case(TN_POINTWISE_GELU_TANH, TN_POINTWISE_GELU_TANH_BWD, sizes[i]);
        gate_case(TN_POINTWISE_GELU_ERF, TN_POINTWISE_GELU_ERF_BWD, sizes[i]);
        gate_case(TN_POINTWISE_SILU, TN_POINTWISE_GELU_ERF_BWD, sizes[i]);
        moves_case(sizes[i]);
    }
    check_case();
    return tn_test_done("pointwise");
}
