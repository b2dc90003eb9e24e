/* embedding.h - rows of a table by id, and the table's gradient.
 *
 * The table holds rows [v_begin, v_begin + v_count) of the vocabulary; an id outside gives a row of
 * zeros. Every row ends with
 * + (+0), so no element is ever -0 (DESIGN.md 7 (2)). Table, rows and their gradients may be bf16
 * (the rows of a bf16 table fp32, too); the sums are fp32.
 */
#ifndef TN_KERNELS_CPU_EMBEDDING_H
#define TN_KERNELS_CPU_EMBEDDING_H
#include "graph/order.h"
#include "kernels/cpu/isa.h"

TN_C_BEGIN

typedef struct tn_embedding_args {
    int64_t tokens, d, v_begin, v_count;
    const int32_t *ids; /* [tokens] */
    const void *table;  /* [v_count d] */
    void *y;            /* [tokens d] */
    bool table_bf16, y_bf16;
} tn_embedding_args;
void tn_embedding_forward(const tn_cpu *cpu, const tn_embedding_args *a);

/* dE [v_count d] over one run of the token order: a leaf chains, per id, the rows of its tokens,
 * ascending; ids without a token in a leaf are absent there (what an ADD does with +0 instead).
 * stack: levels [v_count d], read below run.depth_in, written below run.depth_out; ids that have no
 * token so far are +0 in every level. Rows that a run does not change are not touched. */
typedef struct tn_embedding_grad_args {
    int64_t tokens, d, v_begin, v_count;
    const int32_t *ids; /* [tokens] */
    const void *dy;     /* [tokens d] */
    tn_order_run run;
    float *stack[TN_ORDER_MAX_DEPTH];
    bool bf16; /* dy */
} tn_embedding_grad_args;
void tn_embedding_backward(const tn_cpu *cpu, const tn_embedding_grad_args *a);
size_t tn_embedding_scratch(int64_t tokens, int64_t v_count);

/* ---- between embedding.c and embedding_isa.c ----
 *
 * Items of a run, in order: the levels in memory, then its chains that have tokens. join[i] says
 * when items i and i + 1 come together: one more than the number of the ADD, INT32_MAX if they end
 * in different levels. Two items i < k come together at the largest join between them; so a row is
 * summed from the items that it has, without walking the program. */
typedef struct tn_embedding_plan {
    const tn_embedding_grad_args *a;
    const int32_t *first; /* tokens of local id v: token[first[v]] .. token[first[v + 1] - 1] */
    const int32_t *token, *item; /* the token, and the item of its chain; in program order per id */
    const int32_t *join;
    int32_t level_begin[TN_ORDER_MAX_DEPTH +
                        1]; /* the items of output level l: from here to the next one's begin */
} tn_embedding_plan;

/* Once per instruction set: tokens [begin, end); local ids [begin, end), columns [c, c + n), n <=
 * TN_EMBEDDING_COLS. */
enum { TN_EMBEDDING_COLS = 512 };
typedef struct tn_embedding_fns {
    void (*forward)(const tn_embedding_args *a, int64_t begin, int64_t end);
    void (*backward)(const tn_embedding_plan *p, int64_t begin, int64_t end, int64_t c, int64_t n);
} tn_embedding_fns;

TN_C_END
#endif
