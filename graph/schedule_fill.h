/* schedule_fill.h - where the zero-bubble schedules run their weight gradients, in time. */
#ifndef TN_GRAPH_SCHEDULE_FILL_H
#define TN_GRAPH_SCHEDULE_FILL_H
#include "graph/schedule.h"

TN_C_BEGIN

/* The order of F and I stays as in the list; each rank's W follow its I first in, first out. */
typedef struct tn_schedule_filling {
    bool
        due; /* a W of the list is run there at the latest; else only gaps and the cap make W run */
    int quarters; /* a W runs in a gap of at least that many quarters of its time; -1: where it
                     fits, or where its rank would otherwise have been idle longer than any */
    int64_t cap;  /* saved sets of a rank: no F beyond */
} tn_schedule_filling;

/* s and costs have passed tn_schedule_simulate, and s has no B of both gradients. *out is NULL
 * where the list cannot run under the cap. */
tn_status tn_schedule_fill(const tn_schedule *s, const tn_schedule_costs *costs,
                           const tn_schedule_filling *how, tn_schedule **out) TN_MUST_USE;

TN_C_END
#endif
