/* kernel.h - what a backend implements per op, and what a kernel call receives.
 *
 * graph/ops.def expands into one table per backend; an op without a kernel is a link error. Kernels
 * cannot fail and never allocate: what could go wrong was checked by the graph, what they need
 * besides operands is planned scratch.
 */
#ifndef TN_KERNELS_KERNEL_H
#define TN_KERNELS_KERNEL_H
#include "graph/program.h"
#include "kernels/cpu/isa.h"

TN_C_BEGIN

enum { TN_CALL_MAX_IN = 24, TN_CALL_MAX_OUT = 16 };

/* What changes from step to step and is no tensor: set by the training loop before the program
 * runs. */
typedef struct tn_step {
    int64_t step;     /* 1-based: bias corrections */
    double lr_factor; /* of the schedule; multiplies every group's lr */
} tn_step;

typedef struct tn_call {
    const tn_cpu *cpu;
    const tn_program *p;
    const tn_graph *g; /* of p: global extents */
    const tn_node *n;
    void *in[TN_CALL_MAX_IN];
    void *out[TN_CALL_MAX_OUT];
    int64_t level_bytes; /* from one stack level of output 0 to the next, while its sum is cut over
                            iterations */
    int64_t iteration;   /* of the loops around the node, 0 first */
    const tn_order_run *order; /* the run of its sum in this iteration, NULL if it has none */
    const void *prepared;
    const tn_step *step;
} tn_call;

typedef struct tn_kernel {
    /* Parses what the node's attributes say once, into `arena`; NULL: nothing. */
    tn_status (*prepare)(const tn_graph *g, const tn_node *n, tn_arena *arena, const void **out);
    /* Bytes of scratch of one call; reads extents, pointers only as identities. NULL: none. */
    size_t (*scratch)(const tn_call *c);
    void (*run)(const tn_call *c); /* NULL: never runs (leaves, views) */
} tn_kernel;

/* Operands and outputs with this rank's extents; where their shards begin. */
static inline const tn_value *tn_call_in(const tn_call *c, int i)
{
    return &c->p->local[tn_node_in(c->g, c->n, i)];
}

static inline const tn_value *tn_call_out(const tn_call *c, int i)
{
    return &c->p->local[c->n->out0 + i];
}

static inline const int64_t *tn_call_in_begin(const tn_call *c, int i)
{
    return c->p->begin[tn_node_in(c->g, c->n, i)];
}

static inline const int64_t *tn_call_out_begin(const tn_call *c, int i)
{
    return c->p->begin[c->n->out0 + i];
}

/* Is it stored in bf16? Else kernels take it as fp32. */
static inline bool tn_call_in_bf16(const tn_call *c, int i)
{
    return tn_call_in(c, i)->dtype == TN_BF16;
}

static inline bool tn_call_out_bf16(const tn_call *c, int i)
{
    return tn_call_out(c, i)->dtype == TN_BF16;
}

/* Product of all extents but the last `keep` ones. */
static inline int64_t tn_call_rows(const tn_value *v, int keep)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank - keep; d++) n *= v->dim[d].extent;
    return n;
}

#define TN_OP(name) extern const tn_kernel tn_cpu_kernel_##name;
#include "graph/ops.def"
#undef TN_OP

const tn_kernel *tn_cpu_kernel(tn_op_id op);

TN_C_END
#endif
