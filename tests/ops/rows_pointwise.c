/* Rows of the pointwise ops, single and fused. */
#include "graph/fuse.h"
#include "tests/ops.h"

#include <math.h>
#include <string.h>

/* ---- functions and their derivatives in double */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double gelu_z(double x)
{
    return sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x);
}

static double function(const char *f, double x)
{
    if (!strcmp(f, "silu")) return x * sigmoid(x);
    if (!strcmp(f, "gelu")) return x * erfc(-x / sqrt(2)) / 2;
    if (!strcmp(f, "gelu_tanh")) return x * sigmoid(2 * gelu_z(x));
    if (!strcmp(f, "relu")) return x > 0 ? x : 0;
    if (!strcmp(f, "relu2")) return x > 0 ? x * x : 0;
    if (!strcmp(f, "sigmoid")) return sigmoid(x);
    return tanh(x);
}

static double derivative(const char *f, double x)
{
    double s = sigmoid(x), g = sigmoid(2 * gelu_z(x));
    if (!strcmp(f, "silu")) return s * (1 + x * (1 - s));
    if (!strcmp(f, "gelu"))
        return erfc(-x / sqrt(2)) / 2 + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0));
    if (!strcmp(f, "gelu_tanh"))
        return g + x * g * (1 - g) * 2 * sqrt(2 / acos(-1.0)) * (1 + 3 * 0.044715 * x * x);
    if (!strcmp(f, "relu")) return x > 0 ? 1 : 0;
    if (!strcmp(f, "relu2")) return x > 0 ? 2 * x : 0;
    if (!strcmp(f, "sigmoid")) return s * (1 - s);
    return 1 - tanh(x) * tanh(x);
}

static double instruction(tn_op_id op, const char *f, double by, double a, double b)
{
    switch (op) {
    case TN_OP_add:
        return a + b;
    case TN_OP_mul:
        return a * b;
    case TN_OP_scale:
        return a * by;
    case TN_OP_unary:
        return function(f, a);
    default:
        return a * derivative(f, b);
    }
}

static void ref(const tn_ops_ref *r)
{
    tn_op_id op = (tn_op_id)r->n->op;
    const char *f = op == TN_OP_unary || op == TN_OP_unary_bwd ? tn_node_attr_text(r->n, "f") : "";
    double by = op == TN_OP_scale ? tn_node_attr_num(r->n, "by") : 0;
    for (int64_t i = 0; i < tn_ops_count(tn_ops_out(r, 0), 0); i++)
        r->out[0][i] = instruction(op, f, by, r->in[0][i], r->n->n_in > 1 ? r->in[1][i] : 0);
}

/* ---- single ops */

static const char *const dims[] = {"1,1,1", "3,5,17", "2,3", "1999", "2,2,3,7,5", "3,5,1999"};
static const char *const functions[] = {"f=silu",  "f=gelu",    "f=gelu_tanh", "f=relu",
                                        "f=relu2", "f=sigmoid", "f=tanh"};
enum { N_FUNCTIONS = TN_COUNT(functions), N_DIMS = TN_COUNT(dims) };

static int32_t operand(tn_ops *t, int i, double a)
{
    return tn_ops_f32(t, (tn_ops_operand){dims[i], .a = a});
}

static void build_add(tn_ops *t, int i)
{
    if (i == N_DIMS) { /* both operands the same, and pending sums added to pending sums */
        int32_t x = tn_ops_f32(t, (tn_ops_operand){"3,7 {dp:P cp:I tp:1}", .a = 2});
        TN_OPS_NODE(t, TN_OP_add, NULL, x, x);
        return;
    }
    int32_t x = operand(t, i, 2), y = operand(t, i, 3);
    TN_OPS_NODE(t, TN_OP_add, NULL, x, y);
}

static void more_add(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t in[2] = {tn_ops_f32(&t, (tn_ops_operand){"4 {dp:P cp:I tp:I}", .a = 1}),
                     tn_ops_f32(&t, (tn_ops_operand){"4", .a = 1})};
    tn_node_desc d = {.op = TN_OP_add, .n_in = 2, .in = in, .path = "layers.0"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "layers.0: add: axis dp_replicate");
    in[0] = tn_ops_f32(&t, (tn_ops_operand){"5", .a = 1});
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "extent 4 in dim 0 where 5");
    d.n_in = 1;
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "1 operands do not fit");
    tn_ops_fini(&t);
}

static void build_mul(tn_ops *t, int i)
{
    int32_t x = operand(t, i % N_DIMS, 2), y = i == N_DIMS + 1 ? x : operand(t, i % N_DIMS, 2);
    TN_OPS_NODE(t, TN_OP_mul, NULL, x, y);
}

static void build_scale(tn_ops *t, int i)
{
    static const char *const by[] = {"by=-1.75", "by=0.1", "by=3", "by=1e-6", "by=-0.0", "by=0.7"};
    TN_OPS_NODE(t, TN_OP_scale, by[i], operand(t, i, 5));
}

static void build_unary(tn_ops *t, int i)
{
    TN_OPS_NODE(t, TN_OP_unary, functions[i % N_FUNCTIONS],
                operand(t, i % N_DIMS, i < N_FUNCTIONS ? 3 : 8));
}

static void more_unary(void)
{
    tn_ops t = tn_ops_begin(1, false);
    int32_t x = operand(&t, 0, 1);
    tn_named_attr f = {"f", {.kind = 's', .u.s = "cosine"}},
                  g = {"g", {.kind = 's', .u.s = "silu"}}, one = {"f", {.kind = 'i', .u.i = 1}};
    tn_node_desc d = {
        .op = TN_OP_unary, .n_in = 1, .in = &x, .n_attrs = 1, .attrs = &f, .path = "m"};
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "no function 'cosine'");
    d.attrs = &g;
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "no attribute 'g'");
    d.attrs = &one;
    tn_ops_bad(tn_graph_add(t.g, &d, NULL), "must be text");
    tn_ops_fini(&t);
}

static void build_unary_bwd(tn_ops *t, int i)
{
    int32_t dy = operand(t, i % N_DIMS, 2), x = operand(t, i % N_DIMS, i < N_FUNCTIONS ? 3 : 8);
    TN_OPS_NODE(t, TN_OP_unary_bwd, functions[i % N_FUNCTIONS], dy, x);
}

const tn_op_test tn_op_test_add = {.n_cases = N_DIMS,
                                   .build = build_add,
                                   .ref = ref,
                                   .tolerance = 6e-8,
                                   .gradient = 1e-7,
                                   .bf16 = 6e-8,
                                   .more = more_add};
const tn_op_test tn_op_test_mul = {.n_cases = N_DIMS,
                                   .build = build_mul,
                                   .ref = ref,
                                   .tolerance = 6e-8,
                                   .gradient = 1e-7,
                                   .bf16 = 6e-8};
const tn_op_test tn_op_test_scale = {.n_cases = TN_COUNT(dims),
                                     .build = build_scale,
                                     .ref = ref,
                                     .tolerance = 1.2e-7,
                                     .gradient = 1e-7,
                                     .bf16 = 1.2e-7};
const tn_op_test tn_op_test_unary = {.n_cases = 2 * N_FUNCTIONS,
                                     .build = build_unary,
                                     .ref = ref,
                                     .tolerance = 2e-7,
                                     .gradient = 2e-7,
                                     .bf16 = 2e-7,
                                     .more = more_unary};
const tn_op_test tn_op_test_unary_bwd = {.n_cases = 2 * N_FUNCTIONS,
                                         .build = build_unary_bwd,
                                         .ref = ref,
                                         .tolerance = 4e-7,
                                         .bf16 = 4e-7};

/* ---- fused */

static void ref_fused(const tn_ops_ref *r)
{
    tn_fuse_prog p;
    tn_ops_check(tn_fuse_parse(tn_node_attr_text(r->n, "prog"), &p),
                 "fused: its program does not parse");
    for (int64_t i = 0; i < tn_ops_count(tn_ops_out(r, 0), 0); i++) {
        double reg[TN_FUSE_MAX_INS], arg[2];
        for (int k = 0; k < p.n; k++) {
            const tn_fuse_ins *s = &p.ins[k];
            for (int j = 0; j < s->n_in; j++)
                arg[j] = s->in[j] < 0 ? r->in[-1 - s->in[j]][i] : reg[s->in[j]];
            reg[k] = instruction(s->op, s->f, s->by, arg[0], s->n_in > 1 ? arg[1] : 0);
            reg[k] = tn_ops_stored(reg[k], tn_ops_out(r, 0)->dtype);
        }
        for (int k = 0; k < p.n_out; k++) r->out[k][i] = reg[p.out[k]];
    }
}

/* SwiGLU forwards and backwards; every instruction; the most inputs, registers and outputs. */
static const struct {
    int n_in;
    const char *attrs;
} programs[] = {
    {2, "prog=silu~i0;~mul~r0~i1~>~r1"},
    {3, "outs=2 prog=mul~i0~i2;~silu~i1;~mul~i0~r1;~silu_bwd~r0~i1~>~r2~r3"},
    {1, "prog=scale=-0.3~i0;~add~r0~r0~>~r1"},
    {2, "outs=4 "
        "prog=gelu~i0;~gelu_tanh~i1;~relu~i0;~relu2~i1;~add~r0~r1;~mul~r2~r3;~add~r4~r5;~sigmoid~"
        "r6;~tanh~r4~>~r8~r7~r0~r3"},
    {2, "outs=3 "
        "prog=sigmoid_bwd~i0~i1;~tanh_bwd~i0~i1;~gelu_bwd~i0~i1;~gelu_tanh_bwd~i0~i1;~relu_bwd~i0~"
        "i1;~relu2_bwd~i0~i1;"
        "~add~r0~r1;~add~r2~r3;~add~r4~r5;~add~r6~r7~>~r9~r8~r0"},
    {8, "outs=2 "
        "prog=add~i0~i1;~add~r0~i2;~add~r1~i3;~add~r2~i4;~add~r3~i5;~add~r4~i6;~add~r5~i7;~scale=0."
        "5~r6;~mul~r7~i0;~tanh~r8;"
        "~tanh_bwd~i1~r9;~sigmoid_bwd~r10~i7~>~r11~r6"},
};

static void build_fused(tn_ops *t, int i)
{
    int32_t in[8];
    const int n = TN_COUNT(programs);
    for (int k = 0; k < programs[i % n].n_in; k++) in[k] = operand(t, i / n ? 3 : 1, 2);
    tn_ops_node(t, TN_OP_fused, programs[i % n].attrs, NULL, programs[i % n].n_in, in);
}

/* A program that does not fit its node is refused by the backend: the graph does not look into it.
 */
static void more_fused(void)
{
    static const char *const bad[] = {"",
                                      "silu i0",
                                      "silu i1 > r0",
                                      "silu i0 > r0 r0",
                                      "silu r0 > r0",
                                      "cosine i0 > r0",
                                      "silu i0 > r1"};
    for (int i = 0; i < TN_COUNT(bad); i++) {
        tn_ops t = tn_ops_begin(1, false);
        tn_arena arena = {0};
        const void *prepared;
        int32_t x = operand(&t, 1, 1);
        tn_named_attr prog = {"prog", {.kind = 's', .u.s = bad[i]}};
        tn_node_desc d = {.op = TN_OP_fused,
                          .n_in = 1,
                          .in = &x,
                          .n_attrs = 1,
                          .attrs = &prog,
                          .path = "layers.0"};
        if (tn_ops_ok(tn_graph_add(t.g, &d, NULL), bad[i]))
            tn_ops_bad(tn_cpu_kernel(TN_OP_fused)
                           ->prepare(t.g, &t.g->nodes[t.g->n_nodes - 1], &arena, &prepared),
                       "layers.0: fused");
        tn_arena_fini(&arena);
        tn_ops_fini(&t);
    }
}

const tn_op_test tn_op_test_fused = {.n_cases = 2 * TN_COUNT(programs),
                                     .build = build_fused,
                                     .ref = ref_fused,
                                     .tolerance = 1e-6,
                                     .bf16 = 1e-6,
                                     .more = more_fused};
