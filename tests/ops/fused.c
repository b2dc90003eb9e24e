/* fused.c - what the fuse pass promises: the text of a program is the program, and a fused graph
 * gives the bits of the graph that it was made of, here for graphs of random pointwise ops and for
 * what is fused into other kernels. */
#include "graph/fuse.h"

#include "graph/passes.h"
#include "tests/ops.h"

#include <stdio.h>
#include <string.h>

static const char *const functions[] = {"silu",  "gelu",    "gelu_tanh", "relu",
                                        "relu2", "sigmoid", "tanh"};

static int below(uint64_t *state, int n)
{
    int i = (int)((tn_ops_random(state) + 1) / 2 * n);
    return i < n ? i : n - 1;
}

/* ---- text */

static tn_fuse_prog random_program(uint64_t *state)
{
    static const tn_op_id ops[] = {TN_OP_add, TN_OP_mul, TN_OP_scale, TN_OP_unary, TN_OP_unary_bwd};
    tn_fuse_prog p = {.n = 1 + below(state, TN_FUSE_MAX_INS),
                      .n_out = 1 + below(state, TN_FUSE_MAX_OUT)};
    for (int i = 0; i < p.n; i++) {
        tn_fuse_ins *s = &p.ins[i];
        s->op = ops[below(state, TN_COUNT(ops))];
        s->n_in = s->op == TN_OP_scale || s->op == TN_OP_unary ? 1 : 2;
        if (s->op == TN_OP_scale) s->by = tn_ops_random(state) * (below(state, 2) ? 1 : -1e-300);
        if (s->op == TN_OP_unary || s->op == TN_OP_unary_bwd)
            strcpy(s->f, functions[below(state, TN_COUNT(functions))]);
        for (int k = 0; k < s->n_in; k++) {
            s->in[k] = i && below(state, 2) ? below(state, i) : -1 - below(state, TN_FUSE_MAX_IN);
            if (-s->in[k] > p.n_in) p.n_in = -s->in[k];
        }
    }
    for (int i = 0; i < p.n_out; i++) p.out[i] = below(state, p.n);
    return p;
}

static bool same_program(const tn_fuse_prog *a, const tn_fuse_prog *b)
{
    bool same = a->n == b->n && a->n_in == b->n_in && a->n_out == b->n_out;
    for (int i = 0; same && i < a->n; i++) {
        const tn_fuse_ins *x = &a->ins[i], *y = &b->ins[i];
        same = x->op == y->op && x->n_in == y->n_in && !strcmp(x->f, y->f) &&
               !memcmp(&x->by, &y->by, sizeof x->by);
        for (int k = 0; same && k < x->n_in; k++) same = x->in[k] == y->in[k];
    }
    for (int i = 0; same && i < a->n_out; i++) same = a->out[i] == b->out[i];
    return same;
}

static void test_text(void)
{
    static const char *const bad[] = {"",
                                      ">",
                                      "> r0",
                                      "silu i0",
                                      "silu i0 >",
                                      "silu i0 > i0",
                                      "silu i0 > r1",
                                      "silu r0 > r0",
                                      "silu i8 > r0",
                                      "silu i0 i1 > r0",
                                      "mul i0 > r0",
                                      "silu i0 > r0 r0 r0 r0 r0",
                                      "silu i0; > r0",
                                      "; silu i0 > r0",
                                      "swish i0 > r0",
                                      "silu_bwd_bwd i0 i1 > r0",
                                      "scale i0 > r0",
                                      "scale= i0 > r0",
                                      "scale=1x i0 > r0",
                                      "silu  i0 > r0",
                                      "silu i00 > r0",
                                      "silu i0 > r0 ",
                                      " silu i0 > r0",
                                      "silu i0 > r0 > r0",
                                      "scale=1.0 i0 > r0",
                                      "silu i+0 > r0",
                                      "scale=0x1p3 i0 > r0",
                                      "add i0 i1; add r0 r2 > r1",
                                      "silu i0 > r00"};
    static const char *const good[] = {"silu i0; mul r0 i1 > r1", "scale=0.5 i7 > r0",
                                       "gelu_tanh_bwd i1 i0; add r0 r0 > r1 r0",
                                       "relu2 i0 > r0 r0"};
    char text[1024];
    tn_fuse_prog p, q;
    uint64_t state = 5;
    for (int i = 0; i < TN_COUNT(bad); i++)
        tn_ops_check(!tn_fuse_parse(bad[i], &p), "fused program '%s' was accepted", bad[i]);
    for (int i = 0; i < TN_COUNT(good); i++) {
        bool ok = tn_fuse_parse(good[i], &p);
        if (ok) tn_fuse_print(&p, text, sizeof text);
        tn_ops_check(ok && !strcmp(text, good[i]), "fused program '%s' comes back as '%s'", good[i],
                     ok ? text : "nothing");
    }
    for (int i = 0; i < 300; i++) {
        p = random_program(&state);
        tn_fuse_print(&p, text, sizeof text);
        tn_ops_check(tn_fuse_parse(text, &q) && same_program(&p, &q),
                     "fused program '%s' does not come back", text);
    }
    if (tn_fuse_parse("mul i0 i2; silu r0 > r1", &p)) {
        tn_ops_check(p.n == 2 && p.n_in == 3 && p.n_out == 1 && p.out[0] == 1 &&
                         p.ins[0].op == TN_OP_mul && p.ins[0].in[0] == -1 && p.ins[0].in[1] == -3,
                     "a program was read wrongly");
        tn_ops_check(p.ins[1].op == TN_OP_unary && !strcmp(p.ins[1].f, "silu") &&
                         p.ins[1].n_in == 1 && p.ins[1].in[0] == 0,
                     "a program was read wrongly");
    }
    for (size_t size = 1; size < 24; size++) { /* short of room: cut, never beyond it */
        memset(text, 'x', sizeof text);
        tn_fuse_print(&p, text, size);
        tn_ops_check(strlen(text) < size && text[size] == 'x',
                     "a program was printed beyond its room");
    }
}

/* ---- graphs */

static int count_op(const tn_graph *g, tn_op_id op)
{
    int n = 0;
    for (int64_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

/* A reader of a value behind the loops: what is compared. */
static int32_t read_at_end(tn_ops *t, int32_t v)
{
    return tn_ops_node(t, TN_OP_reduce, "param=w", "{dp:I cp:I tp:I}", 1, &v);
}

/* Runs t's graph with and without the fuse pass; returns how many nodes of the op it made. */
static int compare_fused(const char *name, const tn_ops *t, int n, const int32_t *results,
                         tn_op_id op)
{
    tn_graph *g[2] = {NULL, NULL}, *low;
    tn_ops_results r[2] = {{0}};
    int32_t keep[2][TN_OPS_MAX];
    int made = 0;
    bool ok =
        tn_ops_ok(tn_pass_lower(t->g, &g[0]), name) && tn_ops_ok(tn_pass_lower(t->g, &low), name);
    if (ok) {
        ok = tn_ops_ok(tn_pass_fuse(low, &g[1]), name);
        tn_graph_destroy(low);
    }
    if (!ok) {
        tn_graph_destroy(g[0]);
        return 0;
    }
    made = count_op(g[1], op);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < n; i++) keep[k][i] = tn_ops_find_again(t->g, results[i], g[k]);
        tn_ops_run run = {name, g[k], n, keep[k], -1};
        ok &= tn_ops_run_everywhere(t, &run, &r[k]);
    }
    if (ok) tn_ops_check(tn_ops_same(&r[0], &r[1]), "%s: fused, it gives other bits", name);
    for (int k = 0; k < 2; k++) tn_ops_results_free(&r[k]);
    return made;
}

/* Forward nodes, then backward ones that also read what forward made; every value that nobody reads
 * is a result, and some others. */
static int random_graph(uint64_t seed, bool bf16)
{
    char name[64], attrs[64];
    uint64_t state = seed;
    tn_ops t = tn_ops_begin(seed, below(&state, 2));
    t.bf16 = bf16;
    int32_t value[64], results[TN_OPS_MAX];
    bool read[64] = {false};
    int n = 2 + below(&state, 3), n_leaves = n, n_results = 0, last = n + 3 + below(&state, 20),
        forward = n + below(&state, last - n);
    for (int i = 0; i < n; i++) value[i] = tn_ops_f32(&t, (tn_ops_operand){"3,5,7", .a = 2});
    for (; n < last; n++) {
        static const tn_op_id ops[] = {TN_OP_add, TN_OP_mul, TN_OP_scale, TN_OP_unary,
                                       TN_OP_unary_bwd};
        tn_op_id op = ops[below(&state, TN_COUNT(ops))];
        int a = below(&state, n), b = below(&state, n);
        t.phase = n < forward ? TN_PHASE_F : TN_PHASE_B;
        attrs[0] = 0;
        if (op == TN_OP_scale) snprintf(attrs, sizeof attrs, "by=%.17g", tn_ops_random(&state));
        if (op == TN_OP_unary || op == TN_OP_unary_bwd)
            snprintf(attrs, sizeof attrs, "f=%s", functions[below(&state, TN_COUNT(functions))]);
        bool two = op != TN_OP_scale && op != TN_OP_unary;
        const int32_t in[2] = {value[a], value[b]};
        value[n] = tn_ops_node(&t, op, attrs, NULL, two ? 2 : 1, in);
        read[a] = true;
        if (two) read[b] = true;
    }
    t.phase = TN_PHASE_F;
    for (int i = n_leaves; i < n; i++)
        if (!read[i] || below(&state, 4) == 0) results[n_results++] = read_at_end(&t, value[i]);
    snprintf(name, sizeof name, "random graph %llu%s", (unsigned long long)seed,
             bf16 ? " in bf16" : "");
    int made = compare_fused(name, &t, n_results, results, TN_OP_fused);
    tn_ops_fini(&t);
    return made;
}

/* One function read by five nodes of other ops: more results than a fused node has. */
static void test_many_outputs(void)
{
    tn_ops t = tn_ops_begin(3, false);
    int32_t x = tn_ops_f32(&t, (tn_ops_operand){"3,5,7", .a = 2}), results[6];
    for (int i = 0; i < 6; i++)
        results[i] = x = TN_OPS_NODE(&t, TN_OP_unary, i % 2 ? "f=silu" : "f=tanh", x);
    for (int i = 0; i < 6; i++) results[i] = read_at_end(&t, results[i]);
    tn_ops_check(compare_fused("many results", &t, 6, results, TN_OP_fused) > 0,
                 "many results: nothing was fused");
    tn_ops_fini(&t);
}

/* What nobody reads is a result of the graph: logits that end in a soft cap. */
static void test_unread(void)
{
    tn_ops t = tn_ops_begin(4, false);
    tn_ops_results r[2] = {{0}};
    int32_t x = tn_ops_f32(&t, (tn_ops_operand){"2,3,17", .a = 9});
    x = TN_OPS_NODE(&t, TN_OP_scale, "by=0.25", x);
    x = TN_OPS_NODE(&t, TN_OP_scale, "by=4", TN_OPS_NODE(&t, TN_OP_unary, "f=tanh", x));
    for (int k = 0; k < 2; k++) {
        tn_graph *g, *low;
        if (!tn_ops_ok(tn_pass_lower(t.g, &low), "lower")) break;
        bool ok = tn_ops_ok(k ? tn_pass_fuse(low, &g) : tn_pass_lower(low, &g), "unread");
        tn_graph_destroy(low);
        if (!ok) break;
        int32_t keep = g->nodes[g->n_nodes - 1].out0;
        tn_ops_check(count_op(g, TN_OP_fused) == k, "unread: %d fused nodes",
                     count_op(g, TN_OP_fused));
        tn_ops_run run = {"unread", g, 1, &keep, -1};
        tn_ops_run_everywhere(&t, &run, &r[k]);
    }
    tn_ops_check(tn_ops_same(&r[0], &r[1]), "unread: fused, it gives other bits");
    for (int k = 0; k < 2; k++) tn_ops_results_free(&r[k]);
    tn_ops_fini(&t);
}

/* x + y W^T, in either order and through a reduction that moves nothing; not where the product has
 * another reader. */
static void test_linear_add(bool bf16)
{
    for (int i = 0; i < 4; i++) {
        tn_ops t = tn_ops_begin((uint64_t)i, true);
        t.bf16 = bf16;
        bool split = i == 2;
        int32_t x = tn_ops_f32(&t, (tn_ops_operand){"2,5,9", .a = 2});
        int32_t y =
            tn_ops_f32(&t, (tn_ops_operand){split ? "2,5,34 {dp:I cp:I tp:2}" : "2,5,34", .a = 1});
        int32_t w =
            tn_ops_f32(&t, (tn_ops_operand){split ? "9,34 {dp:I cp:I tp:1}" : "9,34", .a = 1});
        int32_t p = TN_OPS_NODE(&t, TN_OP_linear, NULL, y, w), results[2];
        if (split) p = tn_ops_node(&t, TN_OP_redistribute, NULL, "{dp:I cp:I tp:I}", 1, &p);
        int32_t sum = i == 1 ? TN_OPS_NODE(&t, TN_OP_add, NULL, p, x)
                             : TN_OPS_NODE(&t, TN_OP_add, NULL, x, p);
        results[0] = read_at_end(&t, sum);
        if (i == 3) results[1] = read_at_end(&t, p);
        int made = compare_fused("linear and add", &t, i == 3 ? 2 : 1, results, TN_OP_linear_add);
        tn_ops_check(made == (i < 3), "linear and add, case %d: %d fused", i, made);
        tn_ops_fini(&t);
    }
}

static void test_norm_add(bool bf16)
{
    for (int i = 0; i < 3; i++) {
        tn_ops t = tn_ops_begin((uint64_t)i, true);
        t.bf16 = bf16;
        int32_t in[4] = {
            tn_ops_f32(&t, (tn_ops_operand){"2,5,19", .a = 1}),
            tn_ops_f32(&t, (tn_ops_operand){"2,5,19", .a = 2}),
            tn_ops_f32(&t, (tn_ops_operand){"2,5", TN_OPS_POSITIVE, .a = 2, .wide = true}),
            tn_ops_f32(&t, (tn_ops_operand){"19", .a = 2})};
        int32_t residual = tn_ops_f32(&t, (tn_ops_operand){"2,5,19", .a = 1}), results[2];
        t.phase = TN_PHASE_B;
        int32_t dx = tn_ops_node(&t, TN_OP_rmsnorm_bwd, NULL, NULL, 4, in);
        results[0] = read_at_end(&t, i == 1 ? TN_OPS_NODE(&t, TN_OP_add, NULL, dx, residual)
                                            : TN_OPS_NODE(&t, TN_OP_add, NULL, residual, dx));
        if (i == 2) results[1] = read_at_end(&t, dx);
        int before = count_op(t.g, TN_OP_add);
        compare_fused("norm and add", &t, i == 2 ? 2 : 1, results, TN_OP_rmsnorm_bwd);
        tn_ops_check(before == 1, "one add");
        tn_ops_fini(&t);
    }
}

void tn_ops_test_fused(void)
{
    int made = 0;
    test_text();
    for (uint64_t i = 0; i < 120; i++) made += random_graph(i / 2, i % 2);
    tn_ops_check(made > 120, "random graphs: only %d fused nodes", made);
    test_many_outputs();
    test_unread();
    for (int bf16 = 0; bf16 < 2; bf16++) {
        test_linear_add(bf16);
        test_norm_add(bf16);
    }
}
