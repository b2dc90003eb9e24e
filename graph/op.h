/* op.h - what an op says about itself: one table per op, in graph/ops/<op>.c.
 *
 * Factor string: the loop indices of the op, as in einsum. "... d!, d! -> ... d!, ..." One dim per
 * word; "..." is any number of leading dims; (h k) a composite dim of which only the outermost
 * factor may be split; "!" must stay whole; "{f d}+" one or more operands (outputs) of that form,
 * factors that occur only inside braces are one per operand. "1" is a scalar; "?" behind an operand
 * marks one that may be left out at the end. From it follow shape checks, sharding and Partial
 * rules: a factor that is split and not in an output makes that output Partial on the axis.
 */
#ifndef TN_GRAPH_OP_H
#define TN_GRAPH_OP_H
#include "graph/graph.h"
#include "graph/sig.h"

TN_C_BEGIN

enum { TN_MAX_OPERANDS = 64 };

typedef struct tn_bind tn_bind; /* the factors of one node (graph/infer.c) */

typedef struct tn_infer {
    const tn_graph *g;
    tn_bind *bind;
    const tn_node_desc *d;
    const tn_attr *attrs;
    const tn_value *in[TN_MAX_OPERANDS];
    int n_in;
    tn_value *out;
    int n_out;
} tn_infer;

typedef struct tn_vjp tn_vjp;

typedef struct tn_op {
    const char *name;
    const char *sig;
    const char *attrs; /* "eps=1e-5 causal=1 f=silu": name=default, kind by its form */
    uint32_t linear; /* operands in each of which the op is linear (bit i); bit 31: jointly (add) */
    tn_status (*dtype)(tn_infer *t); /* NULL: outputs as operand 0. What is pending on an axis of
                                        several ranks is fp32 in any case */
    tn_status (*factors)(
        tn_infer *t); /* only where attributes set a factor: tn_infer_factor, before the rule */
    tn_status (*shape)(
        tn_infer *t); /* only where attributes set an extent: after the factor rule */
    tn_status (*layout)(tn_infer *t); /* only where the factor rule does not decide: state, input,
                                         redistribute, ... */
    tn_status (*vjp)(tn_vjp *v);      /* emits gradient nodes; NULL: no gradient */
    double (*flops)(const tn_graph *g, const tn_node *n); /* global; NULL: 0 */
    int8_t reuse[4];   /* 1 + operand whose buffer output i may take over when this is its last use;
                          0: none */
    bool reuse_must;   /* it must: the outputs are the operands' buffers (state updates) */
    bool variable_out; /* the number of outputs is attribute `outs`; all like the last one of the
                          form */
    bool view;         /* output 0 is operand 0's buffer read in another shape; no work */
    bool cheap;        /* its output is cheap to recompute */
    bool partial; /* may consume a P value in canonical mode: reductions, views, the exact sum */
} tn_op;

/* Helpers of the hooks. */
void tn_infer_factor(tn_infer *t, char letter, int64_t extent);
tn_attr tn_infer_attr(const tn_infer *t, const char *name);
tn_status tn_infer_bad(const tn_infer *t, const char *fmt, ...)
    TN_PRINTF(2, 3); /* "PATH: OP: ...", TN_BAD_INPUT */

/* Shape rule of leaves: output 0 has the dims of desc->like, none of them empty. */
tn_status tn_infer_like(tn_infer *t) TN_MUST_USE;

tn_status
tn_infer_layouts(tn_infer *t) TN_MUST_USE; /* the factor rule, for layout hooks that amend it */
tn_status tn_infer_dtype_f32(tn_infer *t) TN_MUST_USE;  /* dtype rule: every output fp32 */
tn_status tn_infer_dtype_same(tn_infer *t) TN_MUST_USE; /* all operands and outputs alike */
tn_status
tn_infer_dtype_cast(tn_infer *t) TN_MUST_USE;       /* as attribute `dtype` says; "": operand 0's */
tn_status tn_infer_placed(tn_infer *t) TN_MUST_USE; /* layout rule: output 0 as desc->layout says */

/* Shapes, dtypes and types of t->out from the signature; graph/infer.c. */
tn_status tn_infer_run(tn_infer *t, const struct tn_sig *sig) TN_MUST_USE;

#define TN_OP(name) extern const tn_op tn_op_##name;
#include "graph/ops.def"
#undef TN_OP

const tn_op *tn_op_get(tn_op_id id);

/* The gradient context of one node: upstream gradients by output (-1: none), where to put those of
 * the operands. */
struct tn_vjp {
    tn_graph *g;
    const tn_node *n;  /* the forward node (a copy: stable while nodes are added) */
    const int32_t *in; /* its operands */
    const int32_t *dy; /* gradient of output i, or -1 */
    int32_t *dx;       /* out: gradient of operand i, or -1 (left -1 where no gradient is wanted) */
    bool wanted[TN_MAX_OPERANDS];
    const tn_layout
        *layout; /* placement for the next tn_vjp_add, for ops that need one; reset by it */
};
/* Adds a gradient node for the forward node of v (same path, scope, stage). */
tn_status tn_vjp_add(tn_vjp *v, tn_op_id op, tn_phase phase, int n_in, const int32_t *in,
                     int n_attrs, const tn_named_attr *attrs, int32_t *first_out) TN_MUST_USE;

TN_C_END
#endif
