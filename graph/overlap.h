/* overlap.h - pass 8: exchanges leave the place where they were traced, so that they may run beside
 * computation (DESIGN.md 6; backward list scheduling after XLA's latency hiding scheduler).
 *
 * (1) The order of computation never changes, so no bit does.
 * (2) What needs more memory behind the exchange than before it (UNSHARD, gathers) goes as late as
 * it can and still be complete when its first reader starts, by the cost model, each stream one
 *     exchange at a time. The UNSHARDs that one block reads in one direction go together, and never
 *     further ahead than the block before.
 * (3) What needs less (reductions) goes as early as its operand allows. Parameter gradients of a
 * block go together when the last of them is complete; with several microbatches that is behind
 * them. (4) Nothing moves to a later place, into or out of a loop, or from one stage to another. */
#ifndef TN_GRAPH_OVERLAP_H
#define TN_GRAPH_OVERLAP_H
#include "graph/passes.h"

TN_C_BEGIN

tn_status tn_pass_overlap(const tn_graph *in, const tn_pass_options *o, tn_graph **out) TN_MUST_USE;

TN_C_END
#endif
