/* repack.h - a packing that is above its bound, mended: what lies in a window of ticks around the
 * highest item is taken out and put back in another order, again and again (large neighbourhood
 * search, Shaw 1998). Pure: the same input, the same offsets. */
#ifndef TN_GRAPH_REPACK_H
#define TN_GRAPH_REPACK_H
#include "graph/pack.h"

TN_C_BEGIN

enum { TN_REPACK_GOOD = 45 }; /* in 10,000: so far above the bound is good enough */

/* Lowers r->peak as far as `tries` go, until it is good enough; never raises it. */
tn_status tn_repack(tn_pack_item *items, int64_t n, int tries, tn_pack_result *r) TN_MUST_USE;

TN_C_END
#endif
