/* graph.h - the graph: append-only arrays of values and nodes.
 *
 * A value is an edge: global shape, dtype, layout. A node is an op instance: operands, attributes,
 * module path, phase, scope, stage. Nothing is edited in place: a pass walks one graph in order and
 * emits a new one. Node order is program order. tn_graph_add infers shapes, dtypes and types from
 * the op's signature and checks them; no node is ever unchecked.
 *
 * Errors of the checker read "PATH: OP: what; mend" with the axis and both types (TN_BAD_INPUT).
 */
#ifndef TN_GRAPH_GRAPH_H
#define TN_GRAPH_GRAPH_H
#include "engine/base/base.h"
#include "engine/base/mem.h"
#include "graph/order.h"
#include "graph/types.h"

TN_C_BEGIN

typedef enum tn_dtype { TN_F32, TN_BF16, TN_F16, TN_I32, TN_EXACT, TN_N_DTYPES } tn_dtype;
enum { TN_EXACT_BYTES = 168 };
/* TN_EXACT: one order-free accumulator (kernels/cpu/exact.h); shape []. */
const char *tn_dtype_name(tn_dtype t); /* f32 bf16 f16 i32 exact */
bool tn_dtype_parse(const char *name, tn_dtype *out);
int64_t tn_dtype_bytes(tn_dtype t);

typedef enum tn_phase { TN_PHASE_F, TN_PHASE_B, TN_PHASE_W, TN_PHASE_OPT, TN_PHASE_COMM } tn_phase;

/* How often a node runs: once a step before the microbatches, per loss chunk, per microbatch, once
 * a step after them. */
typedef enum tn_scope {
    TN_SCOPE_HEAD,
    TN_SCOPE_MICROBATCH,
    TN_SCOPE_CHUNK,
    TN_SCOPE_TAIL
} tn_scope;

typedef enum tn_op_id {
#define TN_OP(name) TN_OP_##name,
#include "graph/ops.def"
#undef TN_OP
    TN_N_OPS
} tn_op_id;

typedef struct tn_attr {
    char kind; /* 'i', 'f', 's' */
    union {
        int64_t i;
        double f;
        const char *s;
    } u;
} tn_attr;

typedef struct tn_dim {
    int64_t extent; /* global */
    int64_t
        units; /* 0: elements; else the dim consists of so many units (heads), which cuts respect */
} tn_dim;

typedef struct tn_value {
    int32_t node; /* producer */
    int16_t out;  /* which of its outputs */
    uint8_t dtype, rank;
    tn_dim dim[TN_MAX_RANK];
    tn_layout layout;
    bool grad;     /* a gradient may flow into it (depends on a parameter) */
    bool carried;  /* kept and continued over microbatches and chunks (accumulators) */
    int8_t levels; /* buffers it needs while it is carried: stack levels of its sum, 1 otherwise */
} tn_value;

typedef enum tn_order_kind {
    TN_ORDER_NONE,
    TN_ORDER_OVER_PARAM,
    TN_ORDER_OVER_TOKENS
} tn_order_kind;

typedef struct tn_node {
    uint16_t op;
    uint8_t phase, scope;
    int16_t stage;
    uint8_t order; /* tn_order_kind of its sums, attached by the lower pass */
    uint16_t
        parts; /* of TN_ORDER_OVER_PARAM: leaves (grid.tp, or 1 where no layout splits the dim) */
    int32_t n_in, n_out;
    int32_t in0;          /* first operand in graph->operands */
    int32_t out0;         /* first output value; outputs are consecutive */
    const tn_attr *attrs; /* by the op's attribute list */
    const char *path;     /* module path, "" for none */
} tn_node;

typedef struct tn_graph {
    tn_mesh mesh;
    tn_order_grid grid;
    bool canonical; /* debug.reduce: a P value is consumed only by its reduction, accumulate and the
                       exact sum */
    int64_t rows, seq, n_microbatches,
        n_chunks; /* of one microbatch: rows, positions; runs per step, chunks per microbatch */
    int64_t n_values, n_nodes, n_operands;
    tn_value *values;
    tn_node *nodes;
    int32_t *operands;
    int64_t cap_values, cap_nodes, cap_operands;
    tn_arena arena;            /* attributes, paths */
    const struct tn_sig *sigs; /* by op */
    const struct tn_attr_list *lists;
} tn_graph;

/* What the constructor takes: larger values and stranger paths are refused, so that sizes add up
 * and texts parse back. */
#define TN_MAX_ELEMENTS ((int64_t)1 << 48)
enum { TN_MAX_PATH = 511 };

/* What tn_graph_add needs to know. attrs NULL: the op's defaults; else values by name, the others
 * default. */
typedef struct tn_named_attr {
    const char *name;
    tn_attr value;
} tn_named_attr;

typedef struct tn_node_desc {
    tn_op_id op;
    int n_in;
    const int32_t *in;
    int n_attrs;
    const tn_named_attr *attrs;
    const char *path;
    tn_phase phase;
    tn_scope scope;
    int stage;
    const tn_layout *layout; /* for ops that place their output: state, input, redistribute */
    const tn_value *like;    /* for state and input: dims, rank, dtype, grad */
} tn_node_desc;

tn_status tn_graph_create(const tn_mesh *mesh, tn_order_grid grid, bool canonical,
                          tn_graph **out) TN_MUST_USE;
void tn_graph_destroy(tn_graph *g); /* NULL is fine */

/* Adds a node; *first_out is its first output value (may be NULL if it is not wanted). */
tn_status tn_graph_add(tn_graph *g, const tn_node_desc *d, int32_t *first_out) TN_MUST_USE;

static inline int32_t tn_node_in(const tn_graph *g, const tn_node *n, int i)
{
    return g->operands[n->in0 + i];
}

/* Attribute by name; it must exist in the op's list. */
int64_t tn_node_attr_int(const tn_node *n, const char *name);
double tn_node_attr_num(const tn_node *n, const char *name);
const char *tn_node_attr_text(const tn_node *n, const char *name);

/* The attribute list of an op: number, names and defaults, in the order of tn_node.attrs. */
int tn_graph_attr_count(const tn_graph *g, tn_op_id op);
const char *tn_graph_attr_name(const tn_graph *g, tn_op_id op, int i);
const tn_attr *tn_graph_attr_default(const tn_graph *g, tn_op_id op, int i);

tn_op_id tn_op_find(const char *name, bool *found);
const char *tn_op_name(tn_op_id id);

int64_t tn_value_elements(const tn_value *v); /* global */

TN_C_END
#endif
