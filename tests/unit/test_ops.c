/* Every op: kernels against formulas in double, gradients against differences, poison everywhere.
 * tests/ops.h says how. */
#include "tests/ops.h"

#include "graph/passes.h"
#include "kernels/cpu/exact.h"
#include "tests/test.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

static const tn_op_test *const rows[TN_N_OPS] = {
#define TN_OP(name) &tn_op_test_##name,
#include "graph/ops.def"
#undef TN_OP
};

const tn_op_test *tn_ops_row(tn_op_id op)
{
    return rows[op];
}

bool tn_ops_check(bool ok, const char *fmt, ...)
{
    char text[512] = "";
    if (!ok) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(text, sizeof text, fmt, ap);
        va_end(ap);
    }
    return TN_CHECK_MSG(ok, "%s", text);
}

bool tn_ops_ok(tn_status st, const char *what)
{
    return TN_CHECK_MSG(st == TN_OK, "%s: status %d: %s", what, (int)st, tn_error_text());
}

bool tn_ops_bad(tn_status st, const char *part)
{
    return TN_CHECK_FAILS(st, TN_BAD_INPUT, part);
}

/* ------------------------------------------------------------ results and doubles */

static double as_double(const tn_graph *g, int32_t value, const unsigned char *bytes, int64_t i)
{
    const tn_value *v = &g->values[value];
    if (v->dtype == TN_EXACT) {
        tn_exact sum;
        memcpy(&sum, bytes, sizeof sum);
        return g->nodes[v->node].op == TN_OP_norm_sum ? tn_exact_get_squares(&sum)
                                                      : tn_exact_get(&sum);
    }
    if (v->dtype == TN_I32) {
        int32_t n;
        memcpy(&n, bytes + 4 * i, 4);
        return n;
    }
    float f;
    uint32_t u = 0;
    uint16_t upper;
    if (v->dtype == TN_BF16) {
        memcpy(&upper, bytes + 2 * i, 2);
        u = (uint32_t)upper << 16;
    } else {
        memcpy(&u, bytes + 4 * i, 4);
    }
    memcpy(&f, &u, 4);
    return (double)f;
}

static bool near(double got, double want, double tolerance)
{
    return got == want ||
           fabs(got - want) <= tolerance * (1 + fabs(want)); /* a NaN is near nothing */
}

/* The next bf16 is one in 128 to 256 away; of numbers that both have been rounded to it. */
static bool neighbours(double got, double want, double tolerance)
{
    return fabs(got - want) <= fmax(fabs(got), fabs(want)) / 128 + tolerance * (1 + fabs(want));
}

static void compare(const char *name, const tn_ops *t, const tn_graph *g, int32_t value,
                    const unsigned char *bytes, const double *want)
{
    const tn_value *v = &g->values[value];
    tn_op_id op = (tn_op_id)g->nodes[v->node].op;
    double tolerance = t->bf16 ? rows[op]->bf16 : rows[op]->tolerance, worst = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < tn_value_elements(v); i++) {
        double got = as_double(g, value, bytes, i),
               error = fabs(got - want[i]) / (1 + fabs(want[i]));
        bool ok = v->dtype == TN_BF16 ? neighbours(got, want[i], tolerance)
                                      : near(got, want[i], tolerance);
        if (ok || (at >= 0 && error <= worst)) continue;
        worst = error;
        at = i;
    }
    TN_CHECK_MSG(at < 0, "%s: %s output %d element %lld is %.9g, expected %.9g", name,
                 tn_op_name(op), v->out, (long long)at, at < 0 ? 0 : as_double(g, value, bytes, at),
                 at < 0 ? 0 : want[at]);
}

typedef struct kept {
    int n;
    int32_t value[TN_OPS_MAX];
} kept;

static void keep(kept *k, int32_t value)
{
    for (int i = 0; i < k->n; i++)
        if (k->value[i] == value) return;
    if (TN_CHECK(k->n < TN_OPS_MAX)) k->value[k->n++] = value;
}

bool tn_ops_compute(const char *name, const tn_ops *t, int n, const int32_t *values,
                    tn_ops_results *out)
{
    tn_graph *low, *copy;
    int32_t lowered[TN_OPS_MAX];
    if (!tn_ops_ok(tn_pass_lower(t->g, &low), name)) return false;
    for (int i = 0; i < n; i++) lowered[i] = tn_ops_find_again(t->g, values[i], low);
    int32_t watch = tn_ops_find_again(t->g, t->g->nodes[t->under_test].out0, low);
    double **doubles = tn_ops_doubles(t, low);
    tn_ops_evaluate(low, doubles, &t->step, low->n_nodes);
    bool ok = tn_ops_ok(tn_pass_lower(t->g, &copy), name); /* the program takes its graph over */
    tn_ops_run r = {name, copy, n, lowered, low->values[watch].node};
    if (ok) ok = tn_ops_run_everywhere(t, &r, out);
    for (int i = 0; ok && i < n; i++)
        compare(name, t, low, lowered[i], out->bytes[i], doubles[lowered[i]]);
    tn_ops_doubles_free(doubles, low);
    tn_graph_destroy(low);
    return ok;
}

/* ------------------------------------------------------------ forward */

/* Can an output of the node lie where one of its operands was? */
static bool may_take_over(const tn_graph *g, const tn_node *n)
{
    const tn_op *op = tn_op_get((tn_op_id)n->op);
    for (int o = 0; o < n->n_out && o < TN_COUNT(op->reuse); o++) {
        int k = op->reuse[o] - 1, uses = 0;
        if (k < 0 || k >= n->n_in) continue;
        int32_t in = tn_node_in(g, n, k);
        for (int64_t i = 0; i < g->n_operands; i++) uses += g->operands[i] == in;
        if (uses == 1 && g->nodes[g->values[in].node].op == TN_OP_scale &&
            tn_value_elements(&g->values[in]) == tn_value_elements(&g->values[n->out0 + o]))
            return true;
    }
    return false;
}

static void forward_case(const char *name, tn_op_id op, int i, bool bf16, bool through_nodes,
                         tn_ops_results *out)
{
    tn_ops t = tn_ops_begin((uint64_t)op * 100 + (uint64_t)i, through_nodes);
    kept k = {0};
    t.bf16 = bf16;
    rows[op]->build(&t, i);
    const tn_node *n = &t.g->nodes[t.under_test];
    TN_CHECK_MSG(n->op == op, "%s: builds no %s", name, tn_op_name(op));
    for (int o = 0; o < n->n_out; o++) keep(&k, n->out0 + o);
    if (tn_ops_compute(name, &t, k.n, k.value, out) && through_nodes && may_take_over(t.g, n))
        TN_CHECK_MSG(out->took_over, "%s: no output takes over its operand's memory", name);
    tn_ops_fini(&t);
}

/* ------------------------------------------------------------ gradients */

enum { PROBES = 20 };

typedef struct gradient {
    tn_ops t;
    const tn_op_test *row;
    tn_node n; /* under test */
    int64_t n_forward;
    int32_t weight[TN_MAX_OPERANDS]; /* by output; -1 */
    double **values;
} gradient;

static double loss(gradient *q)
{
    tn_ops_evaluate(q->t.g, q->values, &q->t.step, q->n_forward);
    tn_ops_ref r = {.g = q->t.g, .n = &q->n, .step = &q->t.step};
    for (int i = 0; i < q->n.n_in; i++) r.in[i] = q->values[tn_node_in(q->t.g, &q->n, i)];
    for (int i = 0; i < q->n.n_out; i++) r.out[i] = q->values[q->n.out0 + i];
    if (q->row->loss) return q->row->loss(&r);
    double sum = 0;
    for (int o = 0; o < q->n.n_out; o++)
        for (int64_t i = 0; q->weight[o] >= 0 && i < tn_value_elements(tn_ops_out(&r, o)); i++)
            sum += r.out[o][i] * q->values[q->weight[o]][i];
    return sum;
}

/* (L(x + h u) - L(x - h u)) / 2h, h in proportion to x */
static double difference(gradient *q, int32_t leaf, const double *u, int64_t n)
{
    double *x = q->values[leaf], side[2], h = 0;
    for (int64_t i = 0; i < n; i++) h = fmax(h, 1e-4 * fabs(x[i]));
    for (int s = 0; s < 2; s++) {
        for (int64_t i = 0; i < n; i++) x[i] += (s ? -2 : 1) * h * u[i];
        side[s] = loss(q);
    }
    for (int64_t i = 0; i < n; i++) x[i] += h * u[i];
    return (side[0] - side[1]) / (2 * h);
}

/* Single elements, and one direction through all of them. */
static void compare_differences(const char *name, gradient *q, int32_t leaf, int32_t grad,
                                const unsigned char *bytes)
{
    const tn_graph *g = q->t.g;
    int64_t n = tn_value_elements(&g->values[leaf]);
    double *u = calloc((size_t)n, sizeof *u), sum = 0, size = 0;
    uint64_t state = 7;
    if (!u || !TN_CHECK(tn_value_elements(&g->values[grad]) == n)) exit(1);
    for (int k = 0; k < PROBES && k < n; k++) {
        int64_t i = n <= PROBES ? k : (int64_t)((tn_ops_random(&state) + 1) / 2 * (double)n);
        u[i] = 1;
        double got = as_double(g, grad, bytes, i), want = difference(q, leaf, u, n);
        u[i] = 0;
        TN_CHECK_MSG(near(got, want, q->row->gradient),
                     "%s: gradient of operand element %lld is %.9g, by differences %.9g", name,
                     (long long)i, got, want);
    }
    for (int64_t i = 0; i < n; i++) {
        u[i] = tn_ops_random(&state);
        sum += as_double(g, grad, bytes, i) * u[i];
        size += fabs(as_double(g, grad, bytes, i) * u[i]);
    }
    double want = difference(q, leaf, u, n);
    TN_CHECK_MSG(fabs(sum - want) <= q->row->gradient * (1 + size),
                 "%s: gradient along a direction is %.9g, by differences %.9g", name, sum, want);
    free(u);
}

static int32_t weight_leaf(tn_ops *t, int32_t out)
{
    char dims[256];
    const tn_value v = t->g->values[out];
    tn_layout l = tn_layout_of_gradient(&v.layout);
    int n = 0;
    for (int d = 0; d < v.rank; d++)
        n += snprintf(dims + n, sizeof dims - (size_t)n, "%s%lld/%lld", d ? "," : "",
                      (long long)v.dim[d].extent, (long long)v.dim[d].units);
    dims[n++] = ' ';
    tn_layout_print(&l, dims + n, sizeof dims - (size_t)n);
    return tn_ops_f32(t, (tn_ops_operand){dims, .a = 1, .constant = true});
}

static bool add_gradient(gradient *q, int32_t *dx)
{
    tn_graph *g = q->t.g;
    int32_t in[TN_MAX_OPERANDS];
    tn_vjp v = {.g = g, .n = &q->n, .in = in, .dy = q->weight, .dx = dx};
    for (int o = 0; o < q->n.n_out; o++)
        q->weight[o] =
            q->row->carries && o >= q->row->carries ? -1 : weight_leaf(&q->t, q->n.out0 + o);
    for (int i = 0; i < q->n.n_in; i++) {
        in[i] = tn_node_in(g, &q->n, i);
        dx[i] = -1;
        v.wanted[i] = g->values[in[i]].grad;
    }
    return tn_ops_ok(tn_op_get((tn_op_id)q->n.op)->vjp(&v), tn_op_name((tn_op_id)q->n.op));
}

static void gradient_case(const char *name, tn_op_id op, int i)
{
    gradient q = {.t = tn_ops_begin((uint64_t)op * 100 + (uint64_t)i, false), .row = rows[op]};
    int32_t dx[TN_MAX_OPERANDS];
    kept k = {0};
    tn_ops_results results = {0};
    rows[op]->build(&q.t, i);
    q.n = q.t.g->nodes[q.t.under_test];
    q.n_forward = q.t.g->n_nodes;
    if (TN_CHECK(tn_op_get(op)->vjp) && add_gradient(&q, dx)) {
        const tn_graph *g = q.t.g;
        int first[TN_MAX_OPERANDS] = {0}, checked = 0;
        for (int p = 0; p < q.n.n_in; p++) {
            bool wanted = g->values[tn_node_in(g, &q.n, p)].grad;
            TN_CHECK_MSG(!wanted || dx[p] >= 0, "%s: operand %d gets no gradient", name, p);
            if (dx[p] < 0 || !wanted) continue;
            keep(&k, dx[p]);
            for (first[p] = 0; k.value[first[p]] != dx[p]; first[p]++) continue;
            tn_layout want = tn_layout_of_gradient(&g->values[tn_node_in(g, &q.n, p)].layout);
            TN_CHECK_MSG(tn_layout_equal(&want, &g->values[dx[p]].layout),
                         "%s: the gradient of operand %d has another type", name, p);
        }
        for (int64_t m = q.n_forward; m < g->n_nodes; m++)
            for (int o = 0; g->nodes[m].n_in && o < g->nodes[m].n_out; o++)
                keep(&k, g->nodes[m].out0 + o);
        if (tn_ops_compute(name, &q.t, k.n, k.value, &results)) {
            q.values = tn_ops_doubles(&q.t, g);
            for (int p = 0; p < q.n.n_in; p++) {
                int32_t in = tn_node_in(g, &q.n, p);
                if (dx[p] < 0 || !g->values[in].grad ||
                    g->nodes[g->values[in].node].op != TN_OP_state)
                    continue;
                compare_differences(name, &q, in, dx[p], results.bytes[first[p]]);
                checked++;
            }
            TN_CHECK_MSG(checked, "%s: no operand is a leaf", name);
            tn_ops_doubles_free(q.values, g);
        }
    }
    tn_ops_results_free(&results);
    tn_ops_fini(&q.t);
}

static void run_case(tn_op_id op, int i, bool bf16)
{
    char name[64];
    tn_ops_results plain = {0}, through = {0};
    const char *what = bf16 ? " in bf16" : "";
    snprintf(name, sizeof name, "%s case %d%s", tn_op_name(op), i, what);
    forward_case(name, op, i, bf16, false, &plain);
    snprintf(name, sizeof name, "%s case %d%s through nodes", tn_op_name(op), i, what);
    forward_case(name, op, i, bf16, true, &through);
    TN_CHECK_MSG(tn_ops_same(&plain, &through), "%s: other bits", name);
    tn_ops_results_free(&plain);
    tn_ops_results_free(&through);
}

static void run_row(tn_op_id op)
{
    const tn_op_test *row = rows[op];
    for (int i = 0; i < row->n_cases; i++) {
        char name[64];
        run_case(op, i, false);
        if (row->bf16 > 0) run_case(op, i, true);
        snprintf(name, sizeof name, "gradient of %s case %d", tn_op_name(op), i);
        if (row->gradient > 0) gradient_case(name, op, i);
    }
    TN_CHECK_MSG(row->n_cases || row->more, "%s: its row checks nothing", tn_op_name(op));
    TN_CHECK_MSG((row->gradient > 0) == (tn_op_get(op)->vjp && op != TN_OP_loss_sum),
                 "%s: its row checks no gradient", tn_op_name(op));
    if (row->more) row->more();
}

int main(int argc, char **argv)
{
    for (int op = 0; op < TN_N_OPS; op++)
        if (argc < 2 || !strcmp(argv[1], tn_op_name((tn_op_id)op))) run_row((tn_op_id)op);
    if (argc < 2 || !strcmp(argv[1], "sums")) tn_ops_test_sums();
    if (argc < 2 || !strcmp(argv[1], "fused_graphs")) tn_ops_test_fused();
    tn_ops_end();
    return tn_test_done("ops");
}
