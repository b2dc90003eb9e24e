/* ops.h - one row per op: small graphs that hold it, its formula in double, what else it promises.
 *
 * graph/ops.def expands into the table of rows (tests/unit/test_ops.c): an op without a row is a
 * link error. The rows stand in tests/ops/rows_*.c. For each graph of a row the test
 *   - plans and runs it as training does (lower, program, executor), with poison in and around
 * every buffer, on every usable instruction set with 1 and 2 threads: the same bits, nothing
 * written outside, nothing left out, operands unchanged;
 *   - compares the results with the same graph computed in double by the rows' formulas;
 *   - runs it again with every operand made by a node, so that outputs take over their operands'
 * memory: the same bits;
 *   - where the row says so, does all that again with operands in bf16: the formulas then get the
 * rounded numbers, and what they give is rounded where the graph stores it;
 *   - where the row says so, adds the op's own gradient nodes for loss = sum of outputs times fixed
 * random weights, runs them, compares each with its formula and the gradients with central
 * differences of the loss in double.
 */
#ifndef TN_TESTS_OPS_H
#define TN_TESTS_OPS_H
#include "graph/op.h"
#include "kernels/kernel.h"

enum { TN_OPS_MAX = 96 }; /* values of one graph that are filled, or looked at */

/* ---- graphs */

typedef enum tn_ops_fill {
    TN_OPS_UNIFORM,  /* f32 in [-a, a], none closer to zero than a / 1000 */
    TN_OPS_POSITIVE, /* f32 in [a / 4, a] */
    TN_OPS_BELOW,    /* i32 in [0, a) */
    TN_OPS_ALONG,    /* i32 a, a + 1, ... along the last dim */
    TN_OPS_GIVEN,    /* the numbers of `given`, repeated */
} tn_ops_fill;

typedef struct tn_ops_operand {
    const char *dims; /* "2,5,17", "2,5,34/2" (units); then its placement where that is not I: "5,17
                         {dp:R cp:R tp:0}" */
    tn_ops_fill fill;
    double a;
    const double *given;
    int n_given;
    bool constant; /* no gradient is wanted */
    bool wide;     /* fp32 where the case is one of bf16, too */
} tn_ops_operand;

typedef struct tn_ops {
    tn_graph *g;
    int64_t under_test; /* the node that was added last */
    tn_scope scope;     /* of the next nodes; HEAD and TAIL where the op belongs there */
    tn_phase phase;     /* of the next nodes */
    bool through_nodes; /* f32 operands are made by a node each */
    bool bf16;          /* f32 operands are bf16, save the wide ones; set before any is made */
    int n_leaves; /* states and inputs; leaf i is named "leaf<i>" and holds content[i] (f32 and i32
                     are exact in double) */
    int32_t leaf[TN_OPS_MAX];
    double *content[TN_OPS_MAX];
    uint64_t random;
    tn_step step; /* of the run: 1 and 1.0 unless the case sets it */
} tn_ops;

/* Values to compute with. i32 of rank 2 is an input of the step; everything else is a state. */
int32_t tn_ops_f32(tn_ops *t, tn_ops_operand o);
int32_t tn_ops_i32(tn_ops *t, tn_ops_operand o);

/* Adds a node; its first output. attrs "k=7 f=silu by=0.5" or NULL; a placement "{...}" for ops
 * that place their output. */
int32_t tn_ops_node(tn_ops *t, tn_op_id op, const char *attrs, const char *layout, int n_in,
                    const int32_t *in);
#define TN_OPS_NODE(t, op, attrs, ...)                                                             \
    tn_ops_node(t, op, attrs, NULL, TN_COUNT(((const int32_t[]){__VA_ARGS__})),                    \
                (const int32_t[]){__VA_ARGS__})

/* Rows and positions of a microbatch, runs of the loops. */
void tn_ops_loops(tn_ops *t, int64_t rows, int64_t seq, int64_t microbatches, int64_t chunks);

/* ---- formulas in double */

typedef struct tn_ops_ref {
    const tn_graph *g;
    const tn_node *n;
    double *in[TN_MAX_OPERANDS], *out[TN_MAX_OPERANDS]; /* an exact sum is one double */
    int64_t microbatch, chunk, iteration;               /* of the loops around the node */
    const tn_step *step;
} tn_ops_ref;

static inline const tn_value *tn_ops_in(const tn_ops_ref *r, int i)
{
    return &r->g->values[tn_node_in(r->g, r->n, i)];
}

static inline const tn_value *tn_ops_out(const tn_ops_ref *r, int i)
{
    return &r->g->values[r->n->out0 + i];
}

/* x as a value of this dtype keeps it. */
double tn_ops_stored(double x, int dtype);

/* Extent of dim d, counted from the end where d < 0. */
static inline int64_t tn_ops_extent(const tn_value *v, int d)
{
    return v->dim[d < 0 ? v->rank + d : d].extent;
}

/* Product of all extents but the last `keep` ones. */
static inline int64_t tn_ops_count(const tn_value *v, int keep)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank - keep; d++) n *= v->dim[d].extent;
    return n;
}

/* ---- rows */

typedef struct tn_op_test {
    int n_cases;
    void (*build)(
        tn_ops *t,
        int i); /* the graph of case i; the node that is added last is the one under test */
    void (*ref)(const tn_ops_ref *r);
    double tolerance; /* |result - double| <= tolerance * (1 + |double|) */
    double gradient;  /* the same for gradients against differences; 0: the op has none */
    double bf16;      /* 0: no cases in bf16; else the tolerance there, besides one unit in the last
                         place      of a bf16 result: what f32 errors do to roundings inside of the op */
    int carries;      /* leading outputs that gradients flow through; 0: all */
    double (*loss)(const tn_ops_ref *r); /* where the op's gradient is that of a loss of its own */
    void (*more)(void);                  /* layouts, places, errors */
} tn_op_test;

#define TN_OP(name) extern const tn_op_test tn_op_test_##name;
#include "graph/ops.def"
#undef TN_OP

const tn_op_test *tn_ops_row(tn_op_id op);

/* Counts a check; returns ok. */
bool tn_ops_check(bool ok, const char *fmt, ...) TN_PRINTF(2, 3);
/* Counts success of a call, or failure with `part` in its message. */
bool tn_ops_ok(tn_status st, const char *what);
bool tn_ops_bad(tn_status st, const char *part);

/* ---- what the rows stand on: tests/ops/graphs.c, doubles.c, guarded.c */

tn_ops tn_ops_begin(uint64_t seed, bool through_nodes);
void tn_ops_fini(tn_ops *t);
double tn_ops_random(uint64_t *state); /* uniform in [-1, 1) */
int32_t tn_ops_name_leaf(const tn_graph *g,
                         const char *name); /* value of a state or input, -1: none */

/* The value of `to` that is what `value` is in `from`: the same output of the k-th node of the op
 * (of what the lower pass puts in the place of cross_entropy). */
int32_t tn_ops_find_again(const tn_graph *from, int32_t value, const tn_graph *to);

/* Every value of g in double: values[v] of tn_value_elements each; leaves as t says. */
double **tn_ops_doubles(const tn_ops *t, const tn_graph *g);
void tn_ops_doubles_free(double **values, const tn_graph *g);
void tn_ops_evaluate(const tn_graph *g, double **values, const tn_step *step,
                     int64_t end); /* nodes before `end` */

/* Results of a graph: f32, i32 or exact sums as bytes, one block per kept value. */
typedef struct tn_ops_results {
    int n;
    unsigned char *bytes[TN_OPS_MAX];
    int64_t n_bytes[TN_OPS_MAX];
    bool took_over; /* an output of node `watch` lies in an operand's memory */
} tn_ops_results;

typedef struct tn_ops_run {
    const char *name;
    tn_graph *g; /* ready to be planned; taken over */
    int n_keep;
    const int32_t *keep;
    int64_t watch; /* node, -1: none */
} tn_ops_run;

/* Plans and runs everywhere as the head of this file says; false: a check failed before there were
 * results. */
bool tn_ops_run_everywhere(const tn_ops *t, const tn_ops_run *r, tn_ops_results *out);

/* Lowers t's graph, runs it everywhere and compares the values with their formulas
 * (tests/unit/test_ops.c). */
bool tn_ops_compute(const char *name, const tn_ops *t, int n, const int32_t *values,
                    tn_ops_results *out);

bool tn_ops_same(const tn_ops_results *a, const tn_ops_results *b); /* the same bits */
void tn_ops_results_free(tn_ops_results *r);
void tn_ops_end(void); /* gives threads back */

/* Tests beside the rows. */
void tn_ops_test_sums(void);  /* sums cut over microbatches and chunks */
void tn_ops_test_fused(void); /* fused programs as text, and against what they were made of */

#endif
