/* order.h - the order of every floating-point sum whose extent a layout may split (DESIGN.md 7).
 *
 * A sum is a small postfix program that kernels (and later exchanges) interpret on a stack:
 *   LEAF src k0 k1   one chain from +0 over k in [k0, k1) of source `src`, ascending, acc = fma(a,
 * b, acc) in fp32, ended by
 *                    + (+0); pushed. With `more` set the chain is not ended: the next LEAF
 * continues the same accumulator. ADD              pops right, pops left, pushes left + right. A
 * program may be cut between two instructions (microbatches, loss chunks): then the stack is kept
 * in memory between the runs, level 0 first. A whole program starts with an empty stack and ends
 * with one level.
 */
#ifndef TN_GRAPH_ORDER_H
#define TN_GRAPH_ORDER_H
#include "engine/base/base.h"
#include "engine/base/mem.h"

TN_C_BEGIN

typedef enum tn_order_op { TN_ORDER_LEAF, TN_ORDER_ADD } tn_order_op;

typedef struct tn_order_ins {
    uint8_t op, more;
    int16_t src;
    int64_t k0, k1;
} tn_order_ins;

enum { TN_ORDER_MAX_DEPTH = 12 }; /* stack levels: log2(grid) + 2 with room */

/* One run of a program: instructions, and the stack depth before and after. */
typedef struct tn_order_run {
    const tn_order_ins *ins;
    int64_t n;
    int depth_in, depth_out;
} tn_order_run;

/* The reduce grid (debug.reduce_grid): powers of two. tp parts of a parameter dim, seq parts of a
 * row's positions, row lanes. */
typedef struct tn_order_grid {
    int tp, seq, rows;
} tn_order_grid;

/* (1) Cut: part r of n of `extent` elements that form `units` equal units (0: every element is a
 * unit). */
static inline int64_t tn_order_cut(int64_t extent, int64_t units, int64_t r, int64_t n)
{
    if (units == 0) return r * extent / n;
    return (r * units / n) * extent / units;
}

/* (3), (4) Sum over a parameter dim. n_src sources, source i with extent[i], units[i]; leaf r
 * chains part r of source 0, then part r of source 1, ...; balanced tree over `parts` slots, empty
 * slots absent. parts = 1: one chain over all. */
tn_status tn_order_param(tn_arena *arena, int parts, int n_src, const int64_t *extent,
                         const int64_t *units, tn_order_run *out) TN_MUST_USE;

/* The part of that program which rank `rank` of `ranks` (a power of two, at most parts) computes:
 * node (log2 ranks, rank) of the tree. extent and units are the global ones; k counts within the
 * rank's own part of each source. The tree over the ranks' results, in rank order, completes the
 * sum. */
typedef struct tn_order_node {
    int parts, n_src;
    const int64_t *extent, *units;
    int ranks, rank;
} tn_order_node;
tn_status tn_order_param_node(tn_arena *arena, const tn_order_node *node,
                              tn_order_run *out) TN_MUST_USE;

/* A sum of nothing is one empty leaf: +0 (no sum is ever -0, so adding it changes no bit). */

/* (5) Sum over tokens: leaf (b, j) = position part j of row b, lanes are left folds over their
 * rows' leaves in (b, j) order, balanced tree over lanes. The program of the whole step of n_rows
 * rows of seq positions. k counts tokens within the operands of one run: a run over leaves [first,
 * last) has k = 0 at its first leaf. */
typedef struct tn_order_tokens tn_order_tokens;
tn_status tn_order_tokens_build(tn_arena *arena, tn_order_grid grid, int64_t n_rows, int64_t seq,
                                const tn_order_tokens **out) TN_MUST_USE;
int64_t tn_order_tokens_leaves(const tn_order_tokens *t); /* n_rows * grid.seq */

/* The run over leaves [first, last) (leaf index = b * grid.seq + j), with k relative to its first
 * token; in `arena`. */
tn_status tn_order_tokens_run(const tn_order_tokens *t, tn_arena *arena, int64_t first,
                              int64_t last, tn_order_run *out) TN_MUST_USE;

/* Stack levels that live in memory when the program is cut every `step` leaves: the largest depth
 * after any run, >= 1. */
int tn_order_tokens_depth(const tn_order_tokens *t, int64_t step);

TN_C_END
#endif
