/* plant.h - bugs that are planted to see whether the tests of layouts find them: a test of the
 * tests.
 *
 * Only the variant `plant` of the build (-DTN_PLANT) has them; there one is chosen by name before a
 * run (lua/titan.c), in every other variant the answer is false at compile time. None of them shows
 * on one rank with one microbatch: that run stays the reference. (All microbatches
 * in reverse order would be no bug: the tree over rows is the same from behind.)
 * tests/cli/test_planted.py. */
#ifndef TN_ENGINE_BASE_PLANT_H
#define TN_ENGINE_BASE_PLANT_H
#include "engine/base/base.h"

TN_C_BEGIN

#define TN_PLANTS(X)                                                                               \
    X(SUM_ORDER, "sum.order")         /* members of a pending sum are added from the left */       \
    X(SUM_DROPPED, "sum.dropped")     /* a pending sum becomes the part of its first member */     \
    X(SUM_DOUBLED, "sum.doubled")     /* it is added twice */                                      \
    X(LEAF_CUT, "leaf.cut")           /* two leaves of a rank meet one element too late */         \
    X(GATHER_STALE, "gather.stale")   /* a parameter is gathered in the first step only */         \
    X(BATCH_SWAPPED, "batch.swapped") /* each microbatch stands where the one before was */

typedef enum tn_plant {
#define TN_PLANT_ID(id, name) TN_PLANT_##id,
    TN_PLANTS(TN_PLANT_ID)
#undef TN_PLANT_ID
        TN_N_PLANTS
} tn_plant;

#ifdef TN_PLANT
bool tn_plant_is(tn_plant bug);
bool tn_plant_since(tn_plant bug, int64_t n); /* from its n-th call on */
/* NULL and "": none. */
tn_status tn_plant_choose(const char *name) TN_MUST_USE;
#else
static inline bool tn_plant_is(tn_plant bug)
{
    (void)bug;
    return false;
}
static inline bool tn_plant_since(tn_plant bug, int64_t n)
{
    (void)bug;
    (void)n;
    return false;
}
static inline tn_status tn_plant_choose(const char *name)
{
    (void)name;
    return TN_OK;
}
#endif

TN_C_END
#endif
