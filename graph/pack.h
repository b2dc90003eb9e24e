/* pack.h - offsets in one arena for buffers whose lifetimes are known (dynamic storage allocation,
 * NP-hard): two stacks and what fits between them, in a few greedy rounds. Pure: same input, same
 * offsets. An item with start == end takes no room. */
#ifndef TN_GRAPH_PACK_H
#define TN_GRAPH_PACK_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_pack_item {
    int64_t start, end; /* live in ticks [start, end) */
    int64_t bytes;      /* a multiple of TN_PACK_ALIGN; 0 is legal */
    int64_t offset;     /* out */
} tn_pack_item;

enum { TN_PACK_ALIGN = 64 };

typedef struct tn_pack_result {
    int64_t peak;      /* bytes of the arena */
    int64_t bound;     /* most bytes live at one tick: no packing can need less */
    int64_t peak_tick; /* the first such tick */
    const char *order; /* the order that won */
} tn_pack_result;

tn_status tn_pack(tn_pack_item *items, int64_t n, tn_pack_result *out) TN_MUST_USE;

TN_C_END
#endif
