/* test_types_mistakes.c - what goes wrong when a layout is written by hand, each refused with the
 * mend: reductions missing or doubled, sums where only complete values may be, I beside R, gathers
 * of the wrong dim, parameters whose gradient would stay partial, losses that are no sum. In fast
 * mode, where arithmetic on P is legal as far as it is linear. */
#include "graph/op.h"
#include "graph/passes.h"
#include "tests/test.h"

#include <stdlib.h>

static int32_t state(tn_graph *g, tn_value *like, bool grad, const tn_layout *l)
{
    int32_t id = -1;
    tn_named_attr attrs[2] = {{"name", {.kind = 's', .u.s = "x"}},
                              {"kind", {.kind = 's', .u.s = grad ? "param" : "buffer"}}};
    tn_node_desc d = {.op = TN_OP_state, .n_attrs = 2, .attrs = attrs, .layout = l, .like = like};
    if (!TN_CHECK_OK(tn_graph_add(g, &d, &id))) exit(1);
    return id;
}

static tn_status add(tn_graph *g, tn_op_id op, int n, const int32_t *in, int32_t *out)
{
    tn_node_desc d = {.op = op, .n_in = n, .in = in, .path = "m"};
    return tn_graph_add(g, &d, out);
}

static int32_t given(tn_graph *g, const char *dims, const char *layout, bool grad)
{
    tn_value like = {0};
    tn_layout l;
    TN_CHECK(tn_layout_parse(layout, &l));
    for (const char *p = dims; *p; p += *p == ',')
        like.dim[like.rank++].extent = strtol(p, (char **)&p, 10);
    return state(g, &like, grad, &l);
}

static int32_t node(tn_graph *g, tn_op_id op, int32_t x, int32_t y)
{
    int32_t in[2] = {x, y}, out = -1;
    TN_CHECK_OK(add(g, op, y < 0 ? 1 : 2, in, &out));
    return out;
}

/* To another placement; -1 where that is refused. */
static int32_t moved(tn_graph *g, int32_t x, const char *to)
{
    tn_layout l;
    int32_t out = -1;
    TN_CHECK(tn_layout_parse(to, &l));
    tn_node_desc d = {.op = TN_OP_redistribute, .n_in = 1, .in = &x, .path = "m", .layout = &l};
    return tn_graph_add(g, &d, &out) ? -1 : out;
}

static void mistake(tn_graph *g, tn_op_id op, int32_t x, int32_t y, const char *said)
{
    int32_t in[2] = {x, y}, out;
    tn_error_clear();
    bool refused = add(g, op, y < 0 ? 1 : 2, in, &out) != TN_OK;
    TN_CHECK_MSG(refused && strstr(tn_error_text(), said), "%s: '%s', expected '%s'",
                 tn_op_name(op), tn_error_text(), said);
    tn_error_clear();
}

static void no_loss(tn_graph *g, int32_t loss, const char *said)
{
    tn_graph *out = NULL;
    TN_CHECK_FAILS(tn_pass_differentiate(g, loss, &out), TN_BAD_INPUT, said);
    tn_graph_destroy(out);
}

/* One block with tensor parallelism, and what is wrong with its variants. */
static void one_block(void)
{
    tn_graph *g;
    tn_mesh mesh = {1, {1, 2, 1, 2}};
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, false, &g))) return;
    int32_t x = given(g, "4,6,8", "{dp:0 cp:R tp:I}", true),
            h = given(g, "4,6,16", "{dp:0 cp:R tp:2}", true);
    int32_t w1 = given(g, "16,8", "{dp:R cp:R tp:0}", true),
            w2 = given(g, "8,16", "{dp:R cp:R tp:1}", true);
    int32_t gain_i = given(g, "8", "{dp:R cp:R tp:I}", true),
            gain_r = given(g, "8", "{dp:R cp:R tp:R}", true);
    int32_t y = node(g, TN_OP_linear, h, w2), whole = moved(g, x, "{dp:0 cp:R tp:R}"),
            cut = moved(g, x, "{dp:0 cp:R tp:1}");
    int32_t one = given(g, "4,6,8", "{dp:0 cp:R tp:R}", false);
    TN_CHECK(g->values[y].layout.type[TN_AXIS_TP] == TN_TYPE_P && whole >= 0 && cut >= 0);
    /* a missing reduction: its value is normed, multiplied into a weight that is cut, added to the
     * residual */
    mistake(g, TN_OP_rmsnorm, y, gain_i,
            "axis tp: P meets I, whose gradient would come out as P; convert the I operand "
            "(redistribute I to R) or reduce the P one");
    mistake(
        g, TN_OP_rmsnorm, y, gain_r,
        "axis tp: operand 0 is a pending sum (P) and rmsnorm is not linear in it; reduce it first");
    mistake(g, TN_OP_linear, y, w1,
            "axis tp: P meets a value that differs by rank; reduce it first (redistribute P to R, "
            "I or S)");
    mistake(g, TN_OP_add, y, x,
            "axis tp: P + a complete value would add it once per rank; reduce the P operand first");
    /* a doubled one: what is whole cannot become a sum again */
    int32_t reduced = moved(g, y, "{dp:0 cp:R tp:I}");
    TN_CHECK(
        reduced >= 0 && moved(g, reduced, "{dp:0 cp:R tp:P}") < 0 &&
        strstr(tn_error_text(), "axis tp: no transition from I to P; from I legal are R, I, S"));
    TN_CHECK(moved(g, whole, "{dp:0 cp:R tp:P}") < 0 &&
             strstr(tn_error_text(), "axis tp: no transition from R to P; from R legal are R, S"));
    tn_error_clear();
    /* P through what is not linear, P + constant, P x P */
    mistake(
        g, TN_OP_unary, y, -1,
        "axis tp: operand 0 is a pending sum (P) and unary is not linear in it; reduce it first");
    mistake(g, TN_OP_add, y, one,
            "axis tp: P + a complete value would add it once per rank; reduce the P operand first");
    mistake(g, TN_OP_mul, y, y,
            "axis tp: a product of two pending sums is not the sum of products; reduce one first");
    mistake(g, TN_OP_mul, y, x, "axis tp: P meets I, whose gradient would come out as P");
    /* I with R */
    mistake(g, TN_OP_add, x, whole,
            "axis tp: R mixed with I: their gradients differ (P and I); convert the I operand "
            "(redistribute I to R)");
    mistake(g, TN_OP_linear, x, w1,
            "axis tp: an I operand meets a split one; convert it first (redistribute I to R)");
    /* a wrong gather: positions still cut, or features cut instead; a dim that is not there */
    mistake(g, TN_OP_linear, cut, w1,
            "axis tp splits two different loops: dim 0 of operand 1 and another of operand 0; move "
            "one of them to another dim first");
    mistake(g, TN_OP_rmsnorm, moved(g, cut, "{dp:0 cp:R tp:2}"), gain_r,
            "axis tp: dim 2 of operand 0 must stay whole but is split");
    mistake(g, TN_OP_add, cut, whole, "redistribute one of them to the other's placement");
    TN_CHECK(moved(g, cut, "{dp:0 cp:R tp:3}") < 0 &&
             strstr(tn_error_text(), "axis tp: S(3) of a value with 3 dims; the last dim is S(2)"));
    tn_error_clear();
    /* a parameter whose gradient would stay partial: a gain that is I on tokens that are cut; R is
     * right */
    mistake(g, TN_OP_rmsnorm, cut, gain_i,
            "axis tp: an I operand meets a split one; convert it first (redistribute I to R)");
    node(g, TN_OP_rmsnorm, cut, gain_r);
    /* a loss that is neither I nor P */
    no_loss(g, node(g, TN_OP_loss_sum, whole, -1),
            "loss: axis cp: the loss is R; it must be I or P on every axis");
    no_loss(g, node(g, TN_OP_loss_sum, given(g, "4", "{dp:V cp:I tp:I}", true), -1),
            "loss: axis dp_replicate: the loss is V; it must be I or P on every axis");
    tn_graph_destroy(g);
    /* a gradient of another type than its parameter's: found at plan time */
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, false, &g))) return;
    x = given(g, "4", "{dp:I cp:I tp:P}", true);
    no_loss(g, node(g, TN_OP_loss_sum, x, -1),
            "comes out as {dp:I cp:I tp:P}, it must be {dp:I cp:I tp:R}; redistribute the operand "
            "in forward");
    tn_graph_destroy(g);
}

int main(void)
{
    one_block();
    return tn_test_done("types_mistakes");
}
