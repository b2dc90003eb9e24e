/* embedding.h - rows of a table by id, and the table's gradient.
 *
 * The table holds rows [v_begin, v_begin + v_count) of the vocabulary; an id outside gives a row of zeros. Every row ends with
 * + (+0), so no element is ever -0 (DESIGN.md 7 (2)).
 */
#ifndef TN_KERNELS_CPU_EMBEDDING_H
#define TN_KERNELS_CPU_EMBEDDING_H
#include "graph/order.h"
#include "kernels/cpu/isa.h"

TN_C_BEGIN

typedef struct tn_embedding_args {
    int64_t tokens, d, v_begin, v_count;
    const int32_t *ids;  /* [tokens] */
    const float *table;  /* [v_count d] */
    float *y;            /* [tokens d] */
} tn_embedding_args;
void tn_embedding_forward(const tn_cpu *cpu, const tn_embedding_args *a);

/* dE [v d] += over one run of the token order: a leaf chains, per id, the rows of its tokens, ascending; ids without a token in a
 * leaf are absent there. stack: levels [v d], read below run.depth_in, written below run.depth_out; in a level that is written,
 * ids without a token so far are +0. */
typedef struct tn_embedding_grad_args {
    int64_t tokens, d, v_begin, v_count;
    const int32_t *ids; /* [tokens] */
    const float *dy;    /* [tokens d] */
    tn_order_run run;
    float *stack[TN_ORDER_MAX_DEPTH];
} tn_embedding_grad_args;
void tn_embedding_backward(const tn_cpu *cpu, const tn_embedding_grad_args *a);
size_t tn_embedding_scratch(int64_t tokens, int64_t v_count);

TN_C_END
#endif
