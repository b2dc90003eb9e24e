/* test_types_golden.c - the type of every op against what the package spmd_types decides
 * (golden/types/ops.jsonl): rows that titan can express have its verdict and type, and gradients of
 * the dual types, or stand in the table with titan's own. In fast mode, where arithmetic on P is
 * legal. */
#include "tests/golden_types.h"

static int n_backward;

static quirk ops_quirks[] = {
    {"ops", "no_gradient_no_flavour", 15, 0, 14,
     "as there: R and I of a value without gradient are one type", 0, 0, 0},
    {"ops", "functional_linear", 4, 3, 3,
     "linear is linear in its input, whatever it is called; a weight is a parameter, never pending",
     0, 0, 0},
    {"ops", "addmm_keeps_flavour", 0, 0, 1, "no addmm: linear has no bias", 0, 0, 0},
    {"ops", "mean_over_cut_dim", 5, 0, 3,
     "no mean; rmsnorm over a cut dim is refused: its factor must stay whole", 0, 0, 0},
    {"ops", "cast_of_replicate", 0, 0, 2, "casts are unshard and reduce: no op of the model", 0, 0,
     0},
    {"ops", "cast_of_partial", 0, 0, 4, "no cast of P: reduce rounds once, behind the sum", 0, 0,
     0},
    {"ops", "not_a_type_error", 0, 0, 3, "no amax, argmax, norm of a vector", 0, 0, 0},
    {"ops", "random_not_tracked", 0, 0, 4,
     "no dropout yet; random numbers follow the global element", 0, 0, 0},
    {"ops", "selection_is_nonlinear", 0, 0, 8, "no where, masked_fill, scatter_add", 0, 0, 0},
    {"ops", "slice_is_nonlinear", 0, 0, 2,
     "nothing slices; chunk of a P value is refused but for its reduction", 0, 0, 0},
    {"ops", "merge_of_size_one", 0, 0, 3, "merge_heads knows its dims, whatever their local size",
     0, 0, 0},
    {"ops", "read_from_local_sizes", 0, 0, 2, "sizes are global", 0, 0, 0},
    {"ops", "split_refused", 0, 1, 2, "a dim declared as heads is split between heads", 0, 0, 0},
    {"ops", "size_argument_not_scaled", 0, 1, 0, "sizes are global", 0, 0, 0},
    {"ops", "index_counts_as_operand", 0, 0, 11,
     "no gather; the ids of an embedding are integers and no operand of its sum", 0, 0, 0},
    {"ops", "rows_cut", 0, 2, 0, "rows outside the shard contribute zero: P", 0, 0, 0},
    {"ops", "loss_over_cut_dim", 0, 2, 2, "a cut vocabulary is merged inside the op", 0, 0, 0},
    {"ops", "like_is_an_op", 0, 0, 10, "no factories: states and inputs are placed", 0, 0, 0},
    {"ops", "new_reads_local_shape", 0, 0, 2, "no factories: states and inputs are placed", 0, 0,
     0},
    {"ops", "unwritten_axis", 2, 0, 0, "a placement names every axis", 0, 0, 0},
};

static difference ops_differences[] = {
    {"ops", "silu", NULL, "", 1, REFUSED, 0,
     "an axis of size 1 has a type, too: a recipe that is legal there is legal at every size", 0},
    {"ops", "matmul", NULL, "", 3, REFUSED, 0, "a weight is a parameter, never pending", 0},
    {"ops", "matmul", NULL, "", 2, REFUSED, 0, "a weight is a parameter, never pending", 0},
    {"ops", "linear", "functional_linear", NULL, 2, REFUSED, 0,
     "a weight is a parameter, never pending", 0},
    {"ops", "linear", "functional_linear", NULL, 3, REFUSED, 0,
     "a product of pending sums, as in the package's matmul", 0},
    {"ops", "linear", "functional_linear", NULL, 0, ACCEPTED, 'P',
     "linear is linear in its input, whatever it is called", 0},
    {"ops", "rmsnorm", NULL, "", 2, REFUSED, 0, "a gain is a parameter, never pending", 0},
    {"ops", "embedding", "#1043", NULL, 0, ACCEPTED, 'P',
     "rows_cut again: rows outside the shard contribute zero", 0},
    {"ops", "embedding", "rows_cut", NULL, 0, ACCEPTED, 'P',
     "rows outside the shard contribute zero: a pending sum", 0},
    {"ops", "embedding", NULL, "partial_nonlinear", 2, ACCEPTED, 'P',
     "an embedding is linear in its table", 0},
    {"ops", "", NULL, "varying_without_spec", 0, ACCEPTED, 'V',
     "V arises in local_map only, where it is legal", 0},
    {"ops", "", "no_gradient_no_flavour", NULL, 0, ACCEPTED, '=',
     "R and I of a value without gradient are one type, as in the package", 0},
    {"ops", "", "unwritten_axis", NULL, 0, REFUSED, 0, "a placement names every axis", 0},
    {"ops", "reshape", "split_refused", NULL, 0, ACCEPTED, 'S',
     "a dim declared as heads may be split between heads", 0},
    {"ops", "reshape", "size_argument_not_scaled", NULL, 0, ACCEPTED, 'S', "sizes are global", 0},
    {"ops", "cross_entropy", "loss_over_cut_dim", NULL, 0, ACCEPTED, 'I',
     "a cut vocabulary is merged inside the op", 0},
};

static const tn_json *operand(const row *r, int i)
{
    return tn_json_at(tn_json_find(r->j, "in"), i);
}

static int rank_of(const row *r, int i)
{
    return (int)tn_json_count(tn_json_find(operand(r, i), "shape"));
}

static int64_t extent_of(const row *r, int i, int d)
{
    int64_t n = 0;
    tn_json_int(tn_json_at(tn_json_find(operand(r, i), "shape"), d), &n);
    return n;
}

static int32_t leaf(row *r, int i, int rank, const int8_t *dim, int64_t units)
{
    const tn_json *o = operand(r, i);
    tn_value like = {.rank = (uint8_t)rank};
    tn_layout l;
    bool grad = true;
    for (int d = 0; d < rank; d++) like.dim[d].extent = 1;
    for (int d = 0; d < rank_of(r, i); d++) like.dim[dim ? dim[d] : d].extent = extent_of(r, i, d);
    if (units) like.dim[rank - 1].units = units;
    if (!layout_of(tn_json_find(r->j, "mesh"), o, dim, TN_TYPE_R, &l)) r->unwritten = true;
    tn_json_bool(tn_json_find(o, "grad"), &grad);
    const char *dtype = text_of(o, "dtype");
    like.dtype = dtype[0] == 'i' ? TN_I32 : TN_F32;
    return state(r, &like, grad && dtype[0] != 'i', &l);
}

/* A value beside `like` that is the same everywhere: cut where it is cut, R elsewhere. */
static int32_t constant(row *r, int32_t like)
{
    tn_value v = r->g->values[like];
    for (int a = 0; a < TN_N_AXES; a++)
        if (v.layout.type[a] != TN_TYPE_S) v.layout.type[a] = TN_TYPE_R;
    return state(r, &v, false, &v.layout);
}

/* The gradients of an accepted op have the gradient types of its operands: its backward needs no
 * communication. Not asked where V is, whose regions say their gradients' types themselves, nor of
 * the loss, whose gradient starts in itself. */
static void backward(row *r, int32_t out)
{
    tn_graph *g = r->g;
    const tn_node n = g->nodes[g->n_nodes - 1];
    const tn_op *op = tn_op_get((tn_op_id)n.op);
    int32_t in[TN_MAX_OPERANDS], dx[TN_MAX_OPERANDS], dy[TN_MAX_OPERANDS];
    if (!op->vjp || n.op == TN_OP_loss_sum || n.op == TN_OP_cross_entropy || !g->values[out].grad)
        return;
    for (int a = 0; a < TN_N_AXES; a++)
        if (g->values[out].layout.type[a] == TN_TYPE_V) return;
    tn_value like = g->values[out];
    tn_layout l = tn_layout_of_gradient(&like.layout);
    tn_vjp v = {.g = g, .n = &n, .in = in, .dy = dy, .dx = dx};
    dy[0] = state(r, &like, true, &l);
    for (int i = 1; i < n.n_out; i++) dy[i] = -1;
    for (int i = 0; i < n.n_in; i++) {
        in[i] = tn_node_in(g, &n, i);
        v.wanted[i] = g->values[in[i]].grad;
        dx[i] = -1;
    }
    if (!TN_CHECK_OK(op->vjp(&v))) return;
    for (int i = 0; i < n.n_in; i++) {
        if (!v.wanted[i] || dx[i] < 0) continue;
        char a[96], b[96];
        tn_layout want = tn_layout_of_gradient(&g->values[in[i]].layout);
        tn_layout_print(&want, a, sizeof a);
        tn_layout_print(&g->values[dx[i]].layout, b, sizeof b);
        n_backward++;
        TN_CHECK_MSG(tn_layout_equal(&want, &g->values[dx[i]].layout),
                     "ops %s: %s: the gradient of operand %d is %s, not %s", text_of(r->j, "id"),
                     r->form, i, b, a);
    }
}

static verdict result(row *r, tn_op_id op, int n, const int32_t *in, const tn_named_attr *attr)
{
    int32_t out;
    if (add(r, op, n, in, attr, &out) == REFUSED) return REFUSED;
    r->out = r->g->values[out];
    backward(r, out);
    return ACCEPTED;
}

static verdict not_here(row *r, const char *why)
{
    r->why_skipped = why;
    return SKIPPED;
}

static int32_t scaled(row *r, int32_t x, double by)
{
    tn_named_attr attr = {"by", {.kind = 'f', .u.f = by}};
    int32_t out = -1;
    TN_CHECK(add(r, TN_OP_scale, 1, &x, &attr, &out) == ACCEPTED);
    return out;
}

/* ------------------------------------------------------------ ops */

static verdict pointwise(row *r)
{
    bool sub = is(r->op, "sub"),
         number = tn_json_find(tn_json_find(r->j, "attrs"), "number") != NULL;
    tn_op_id op =
        is(r->op, "mul") || is(r->op, "square") || is(r->op, "pow") ? TN_OP_mul : TN_OP_add;
    if (tn_json_find(tn_json_find(r->j, "attrs"), "in_place"))
        return not_here(r, "a graph has no op in place");
    int32_t in[2] = {leaf(r, 0, rank_of(r, 0), NULL, 0), -1};
    if (is(r->op, "square") || is(r->op, "pow")) in[1] = in[0];
    else if (number && op == TN_OP_mul) {
        tn_named_attr by = {"by", {.kind = 'f', .u.f = 2}};
        return result(r, TN_OP_scale, 1, in, &by);
    } else if (number) in[1] = constant(r, in[0]);
    else if (rank_of(r, 0) != rank_of(r, 1)) return not_here(r, "add and mul do not broadcast");
    else in[1] = leaf(r, 1, rank_of(r, 1), NULL, 0);
    if (r->unwritten) return REFUSED;
    if (sub) {
        int k = number ? 0 : 1; /* 1 - x, x - y */
        in[k] = scaled(r, in[k], -1);
    }
    return result(r, op, 2, in, NULL);
}

static verdict matmul(row *r)
{
    static const int8_t turned[2] = {1, 0};
    const char *form = text_of(tn_json_find(r->j, "attrs"), "contract");
    if (tn_json_find(tn_json_find(r->j, "attrs"), "bias")) return not_here(r, "linear has no bias");
    if (is(form, "tk,tn->kn")) {
        int32_t in[2] = {leaf(r, 1, 2, NULL, 0), leaf(r, 0, 2, NULL, 0)};
        r->dim[0] = 1;
        r->dim[1] = 0;
        return result(r, TN_OP_linear_bwd_w, 2, in, NULL);
    }
    bool w_fd = is(form, "mk,nk->mn") || is(form, "bmk,nk->bmn");
    if (!w_fd && !is(form, "mk,kn->mn")) return not_here(r, "no op for this contraction");
    int32_t in[2] = {leaf(r, 0, rank_of(r, 0), NULL, 0), leaf(r, 1, 2, w_fd ? NULL : turned, 0)};
    return result(r, TN_OP_linear, 2, in, NULL);
}

static verdict unary(row *r)
{
    tn_named_attr f = {"f", {.kind = 's', .u.s = r->op}};
    int32_t x = leaf(r, 0, rank_of(r, 0), NULL, 0);
    return result(r, TN_OP_unary, 1, &x, &f);
}

static verdict norm(row *r)
{
    int32_t in[2] = {leaf(r, 0, 2, NULL, 0), -1};
    tn_value gain = {.rank = 1, .dim = {{extent_of(r, 0, 1), 0}}};
    tn_layout all = tn_layout_all(TN_TYPE_R);
    in[1] = is(r->op, "rms_norm") ? state(r, &gain, false, &all) : leaf(r, 1, 1, NULL, 0);
    return result(r, TN_OP_rmsnorm, 2, in, NULL);
}

static verdict embedding(row *r)
{
    int32_t in[2] = {leaf(r, 0, 2, NULL, 0), leaf(r, 1, 2, NULL, 0)};
    return result(r, TN_OP_embedding, 2, in, NULL);
}

/* Positions and documents lie where the rows and positions of their queries or keys do. */
static int32_t places(row *r, int32_t of)
{
    const tn_value *x = &r->g->values[of];
    tn_value v = {.dtype = TN_I32, .rank = 2, .dim = {x->dim[0], x->dim[1]}};
    tn_layout l = x->layout;
    for (int a = 0; a < TN_N_AXES; a++) {
        if (l.type[a] == TN_TYPE_S && l.dim[a] < 2) continue;
        l.dim[a] = l.order[a] = 0;
        l.type[a] = TN_TYPE_R;
    }
    return state(r, &v, false, &l);
}

static verdict attention(row *r)
{
    static const int8_t bshd[4] = {0, 2, 1, 3}; /* the package has heads before positions */
    int32_t in[7];
    for (int i = 0; i < 3; i++) in[i] = leaf(r, i, 4, bshd, 0);
    in[3] = in[4] = places(r, in[0]);
    in[5] = in[6] = places(r, in[1]);
    memcpy(r->dim, bshd, sizeof bshd);
    return result(r, TN_OP_attention, 7, in, NULL);
}

static verdict cross_entropy(row *r)
{
    const char *how = text_of(tn_json_find(r->j, "attrs"), "reduction");
    int32_t in[3] = {leaf(r, 0, 2, NULL, 0), leaf(r, 1, 1, NULL, 0), -1}, nll;
    tn_value labels = {.dtype = TN_I32, .rank = 1, .dim = {{4, 0}}};
    tn_layout all = tn_layout_all(TN_TYPE_R);
    int32_t count = state(r, &labels, false, &all);
    if (is(how, "mean")) return not_here(r, "a mean loss is a sum and a count");
    TN_CHECK(add(r, TN_OP_count_labels, 1, &count, NULL, &count) == ACCEPTED &&
             add(r, TN_OP_inv_count, 1, &count, NULL, &in[2]) == ACCEPTED);
    if (is(how, "none")) return result(r, TN_OP_cross_entropy, 3, in, NULL);
    return add(r, TN_OP_cross_entropy, 3, in, NULL, &nll) == REFUSED
               ? REFUSED
               : result(r, TN_OP_loss_sum, 1, &nll, NULL);
}

static verdict sum(row *r)
{
    int32_t x = leaf(r, 0, rank_of(r, 0), NULL, 0), in[2] = {x, x};
    if (!is(r->form, "x.sum()") && !is(r->op, "sum_of_squares"))
        return not_here(r, "only a whole value is summed");
    if (is(r->op, "sum_of_squares") && add(r, TN_OP_mul, 2, in, NULL, &x) == REFUSED)
        return REFUSED;
    return result(r, TN_OP_loss_sum, 1, &x, NULL);
}

/* [a, h k] -> [a, h, k] is heads, [a, h, k] -> [a, h k] merge_heads; a is the positions of one row.
 */
static verdict reshape(row *r)
{
    static const int8_t behind[TN_MAX_RANK] = {1, 2, 3, 4, 5, 5};
    const tn_json *to = tn_json_find(tn_json_find(r->j, "attrs"), "shape");
    int64_t n[3] = {0, 0, 0};
    for (int i = 0; i < 3; i++) tn_json_int(tn_json_at(to, i), &n[i]);
    bool kept = n[0] == extent_of(r, 0, 0);
    memcpy(r->dim, behind, sizeof behind);
    if (rank_of(r, 0) == 2 && tn_json_count(to) == 3 && kept && n[2] > 1) {
        tn_named_attr k = {"k", {.kind = 'i', .u.i = n[2]}};
        int32_t x = leaf(r, 0, 3, behind, n[1]);
        return result(r, TN_OP_heads, 1, &x, &k);
    }
    if (rank_of(r, 0) == 3 && tn_json_count(to) == 2 && kept && extent_of(r, 0, 1) > 1) {
        int32_t x = leaf(r, 0, 4, behind, 0);
        return result(r, TN_OP_merge_heads, 1, &x, NULL);
    }
    return not_here(r, "no reshape but heads and merge_heads");
}

static verdict negate(row *r)
{
    tn_named_attr by = {"by", {.kind = 'f', .u.f = -1}};
    int32_t x = leaf(r, 0, rank_of(r, 0), NULL, 0);
    return r->unwritten ? REFUSED : result(r, TN_OP_scale, 1, &x, &by);
}

static verdict divide(row *r)
{
    tn_named_attr by = {"by", {.kind = 'f', .u.f = 0.5}};
    if (!is(r->form, "x / 2")) return not_here(r, "no op divides by a value");
    int32_t x = leaf(r, 0, rank_of(r, 0), NULL, 0);
    return result(r, TN_OP_scale, 1, &x, &by);
}

static const struct {
    const char *op;
    verdict (*express)(row *r);
} ops[] = {{"add", pointwise},
           {"sub", pointwise},
           {"mul", pointwise},
           {"square", pointwise},
           {"pow", pointwise},
           {"neg", negate},
           {"div", divide},
           {"matmul", matmul},
           {"linear", matmul},
           {"addmm", matmul},
           {"bmm", matmul},
           {"einsum", matmul},
           {"silu", unary},
           {"gelu", unary},
           {"rmsnorm", norm},
           {"rms_norm", norm},
           {"embedding", embedding},
           {"attention", attention},
           {"cross_entropy", cross_entropy},
           {"sum", sum},
           {"sum_of_squares", sum},
           {"reshape", reshape}};

static bool shard_in_local_mode(const row *r)
{
    for (int i = 0; i < tn_json_count(tn_json_find(r->j, "in")); i++)
        if (tn_json_find(operand(r, i), "spec") && is(text_of(r->j, "mode"), "local")) return true;
    return false;
}

static void one_op(const tn_json *j)
{
    row r = {.j = j, .op = text_of(j, "op"), .form = text_of(j, "form")};
    tn_mesh mesh = mesh_of(tn_json_find(j, "mesh"));
    for (int d = 0; d < TN_MAX_RANK; d++) r.dim[d] = (int8_t)d;
    verdict got = not_here(&r, "no such op");
    tn_error_clear();
    if (shard_in_local_mode(&r)) {
        skip("ops", "S inside a local region: titan follows it there, too");
        return;
    }
    if (!TN_CHECK_OK(tn_graph_create(&mesh, (tn_order_grid){8, 8, 8}, false, &r.g))) return;
    for (int i = 0; i < TN_COUNT(ops); i++)
        if (is(ops[i].op, r.op)) got = ops[i].express(&r);
    if (r.unwritten && got != SKIPPED) { /* a graph cannot even say that */
        tn_layout l;
        TN_CHECK(!tn_layout_parse("{dp:0 cp:R}", &l));
        tn_error_clear();
        n_expressed++;
        find_difference("ops", j, r.op, "")->rows++;
    } else if (got == SKIPPED) skip("ops", r.why_skipped);
    else judge("ops", j, r.op, j, got, got == ACCEPTED ? &r.out.layout : NULL, r.dim);
    tn_graph_destroy(r.g);
}

int main(void)
{
    differences = ops_differences;
    quirks = ops_quirks;
    n_quirks = TN_COUNT(ops_quirks);
    n_differences = TN_COUNT(ops_differences);
    one_line("one row",
             "{\"id\":\"0\",\"op\":\"add\",\"form\":\"x + "
             "y\",\"mode\":\"global\",\"mesh\":{\"tp\":2},\"in\":[{\"shape\":[4,6],\"type\":{"
             "\"tp\":\"P\"}},"
             "{\"shape\":[4,6],\"type\":{\"tp\":\"P\"}}],\"verdict\":\"ok\",\"out\":[{\"type\":{"
             "\"tp\":\"P\"},\"shape\":[4,6]}]}",
             one_op);
    n_expressed = 0;
    each_line("ops", one_op);
    report();
    report_quirks();
    if (n_expressed) printf("  %d gradients have the dual type\n", n_backward);
    return tn_test_done("types_golden");
}
