/* text.h - the graph as text: one node a line, stable names, every type written out; parses back to
 * the same graph.
 *
 *   graph titan 1
 *   mesh pp=1 dp_replicate=1 dp_shard=1 cp=1 tp=1
 *   sums canonical tp=8 seq=8 rows=8
 *   step rows=8 seq=512 microbatches=1 chunks=2
 *   %norm.rmsnorm : f32[8,512,256] {dp:0 cp:1 tp:1}, %norm.rmsnorm:1 : f32[8,512] {..} =
 * rmsnorm(%a, %b) eps=1e-06 @norm F microbatch s0
 *
 * A dim reads extent or extent/units. Attributes that have their default are not written. Behind
 * the type of an accumulator stands carried=LEVELS, behind the scope the order of the node's sums:
 * order=param:8, order=tokens. '#' begins a comment: behind an exchange it says what travels, each
 * time, and on which stream. Reading checks everything again: each line's types must be those that its op gives. */
#ifndef TN_GRAPH_TEXT_H
#define TN_GRAPH_TEXT_H
#include "engine/base/text.h"
#include "graph/graph.h"

TN_C_BEGIN

/* Only nodes at or below the module path `under` (NULL or "": all; then it parses back). */
tn_status tn_graph_print(const tn_graph *g, const char *under, tn_text *out) TN_MUST_USE;

/* where: how messages call the text, "file.graph". TN_BAD_INPUT "WHERE:LINE: what; mend". */
tn_status tn_graph_parse(const char *where, const char *text, size_t n, tn_graph **out) TN_MUST_USE;

TN_C_END
#endif
