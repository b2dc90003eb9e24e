/* recompute.h - what a block is, for the recompute pass and for reports. */
#ifndef TN_GRAPH_RECOMPUTE_H
#define TN_GRAPH_RECOMPUTE_H
#include "engine/base/text.h"
#include "graph/passes.h"

TN_C_BEGIN

/* Length of the block part of a module path: up to its first numeric component ("layers.3" of
 * "layers.3.ffn_norm"), an element of an nn.list; 0 outside of blocks. */
size_t tn_recompute_block(const char *path);

/* "none", "full", "selective (op)", "selective (every 2nd layer)" */
tn_text_short tn_recompute_text(tn_recompute mode, int64_t every);

TN_C_END
#endif
