/* test_graph.c - factor strings, dtypes, and the append-only arrays of nodes and values. */
#include "graph/graph.h"

#include "graph/op.h"
#include "graph/sig.h"
#include "tests/test.h"

/* ------------------------------------------------------------ factor strings */

static void signatures(void)
{
    tn_sig s;
    int repeats, n_out;
    for (int i = 0; i < TN_N_OPS; i++) {
        bool found;
        const tn_op *op = tn_op_get((tn_op_id)i);
        TN_CHECK_OK(tn_sig_parse(op->sig, &s));
        TN_CHECK(tn_op_find(op->name, &found) == (tn_op_id)i && found);
    }
    TN_CHECK_OK(tn_sig_parse("... d!, {f (h k)}+ -> {... f}+, 1", &s));
    TN_CHECK(s.n_in == 2 && s.n_out == 2 && s.n_repeat == 1 && !s.n_optional);
    TN_CHECK(s.in[0].ellipsis && s.in[0].n_dims == 1 && s.in[0].dim[0].whole && !s.in[0].repeat &&
             s.in[1].repeat && s.in[1].n_dims == 2);
    TN_CHECK(s.in[1].dim[1].n == 2 && s.in[1].dim[1].factor[0] == 'h' - 'a' &&
             s.in[1].dim[1].factor[1] == 'k' - 'a' && !s.in[1].dim[1].whole);
    TN_CHECK(s.out[0].repeat && s.out[0].ellipsis && !s.out[1].repeat && !s.out[1].n_dims &&
             s.shared == 1u << ('d' - 'a'));
    TN_CHECK(tn_sig_count(&s, 2, &repeats, &n_out) && repeats == 1 && n_out == 2);
    TN_CHECK(tn_sig_count(&s, 4, &repeats, &n_out) && repeats == 3 && n_out == 4);
    TN_CHECK(!tn_sig_count(&s, 1, &repeats, &n_out) && !tn_sig_count(&s, 0, &repeats, &n_out));
    TN_CHECK_OK(tn_sig_parse("a, b?, 1? -> a", &s));
    TN_CHECK(s.n_optional == 2 && tn_sig_count(&s, 1, &repeats, &n_out) &&
             tn_sig_count(&s, 3, &repeats, &n_out) && !tn_sig_count(&s, 4, &repeats, &n_out));
    TN_CHECK_OK(tn_sig_parse("{... f}+, {f d}+ -> ... d", &s));
    TN_CHECK(tn_sig_count(&s, 6, &repeats, &n_out) && repeats == 3 && n_out == 1 &&
             !tn_sig_count(&s, 5, &repeats, &n_out));
    TN_CHECK_OK(tn_sig_parse("-> ...", &s));
    TN_CHECK(s.n_in == 0 && tn_sig_count(&s, 0, &repeats, &n_out) && n_out == 1);
    static const char *const wrong[] = {"a b",
                                        "A -> a",
                                        "a -> a %",
                                        "(a -> a",
                                        "(a) -> a",
                                        "a, a -> (b c d e)",
                                        "{a -> a",
                                        "a b c d e f g -> a",
                                        "a -> a b)",
                                        "a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a -> a",
                                        "a -> a,a,a,a,a,a,a,a,a",
                                        "a -> a; b"};
    for (int i = 0; i < TN_COUNT(wrong); i++) {
        tn_status st = tn_sig_parse(wrong[i], &s);
        TN_CHECK_MSG(st == TN_FAILED && strstr(tn_error_text(), "malformed"),
                     "'%s': status %d, '%s'", wrong[i], (int)st, tn_error_text());
        tn_error_clear();
    }
}

/* ------------------------------------------------------------ the graph itself */

static tn_status parameter(tn_graph *g, int32_t *out)
{
    tn_layout whole = tn_layout_all(TN_TYPE_R);
    tn_value like = {.rank = 2, .dim = {{4, 0}, {6, 0}}};
    tn_node_desc d = {.op = TN_OP_state, .path = "m", .layout = &whole, .like = &like};
    return tn_graph_add(g, &d, out);
}

static void append_only(void)
{
    static const tn_mesh mesh = {1, {1, 1, 1, 1}};
    tn_graph *g;
    int32_t x, y;
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, true, &g))) return;
    TN_CHECK_OK(parameter(g, &x));
    for (int32_t i = 0; i < 3000; i++) {
        int32_t in[2] = {i, x};
        tn_named_attr by = {"by", {.kind = 'f', .u.f = 0.5 + i}};
        tn_node_desc d = {.op = TN_OP_add, .n_in = 2, .in = in, .path = i % 7 ? "a.b" : ""};
        if (i % 2)
            d = (tn_node_desc){
                .op = TN_OP_scale, .n_in = 1, .in = in, .n_attrs = 1, .attrs = &by, .path = "a"};
        TN_CHECK_OK(tn_graph_add(g, &d, &y));
        TN_CHECK(y == i + 1 && g->values[y].node == y && g->values[y].out == 0 &&
                 g->values[y].grad);
    }
    bool right = g->n_values == 3001 && g->n_nodes == 3001;
    for (int32_t i = 0; i < 3000; i++) {
        const tn_node *n = &g->nodes[i + 1];
        right &= tn_node_in(g, n, 0) == i && n->out0 == i + 1 &&
                 !strcmp(n->path, i % 2   ? "a"
                                  : i % 7 ? "a.b"
                                          : "");
        right &= n->op == TN_OP_add || tn_node_attr_num(n, "by") == 0.5 + i;
    }
    TN_CHECK(right);
    int32_t in[2] = {x, 3001};
    tn_node_desc d = {.op = TN_OP_add, .n_in = 2, .in = in, .path = "m"};
    TN_CHECK_FAILS(tn_graph_add(g, &d, &y), TN_BAD_INPUT, "m: add: operand 1 does not exist");
    in[1] = -1;
    TN_CHECK_FAILS(tn_graph_add(g, &d, &y), TN_BAD_INPUT, "operand 1 does not exist");
    int32_t many[TN_MAX_OPERANDS + 1] = {0};
    d = (tn_node_desc){.op = TN_OP_fused, .n_in = TN_MAX_OPERANDS + 1, .in = many};
    TN_CHECK_FAILS(tn_graph_add(g, &d, &y), TN_BAD_INPUT, "graph: fused: 65 operands; at most 64");
    d.n_in = 17;
    TN_CHECK_FAILS(tn_graph_add(g, &d, &y), TN_BAD_INPUT, "17 operands do not fit its form");
    d.n_in = 16;
    TN_CHECK_OK(tn_graph_add(g, &d, &y));
    TN_CHECK(g->n_values == 3002 && tn_value_elements(&g->values[y]) == 24);
    tn_graph_destroy(g);
    tn_graph_destroy(NULL);
}

static void dtypes(void)
{
    tn_dtype t;
    TN_CHECK(tn_dtype_parse("bf16", &t) && t == TN_BF16 && !tn_dtype_parse("float", &t) &&
             !tn_dtype_parse("", &t));
    for (int i = 0; i < TN_N_DTYPES; i++)
        TN_CHECK(tn_dtype_parse(tn_dtype_name((tn_dtype)i), &t) && t == (tn_dtype)i);
    TN_CHECK(tn_dtype_bytes(TN_F32) == 4 && tn_dtype_bytes(TN_BF16) == 2 &&
             tn_dtype_bytes(TN_I32) == 4 && tn_dtype_bytes(TN_EXACT) == TN_EXACT_BYTES);
}

int main(void)
{
    signatures();
    append_only();
    dtypes();
    return tn_test_done("graph");
}
