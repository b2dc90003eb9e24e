/* schedule_faults.h - all that is wrong with a schedule or a split in one error: the first fault is
 * its line, the next ones are notes, and behind eight of them stands how many are left. */
#ifndef TN_GRAPH_SCHEDULE_FAULTS_H
#define TN_GRAPH_SCHEDULE_FAULTS_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_schedule_faults {
    const char *where; /* in front of every line, with ": "; NULL: nothing */
    int64_t n;         /* so far */
} tn_schedule_faults;

void tn_schedule_fault(tn_schedule_faults *f, const char *fmt, ...) TN_PRINTF(2, 3);
tn_status
tn_schedule_faults_end(const tn_schedule_faults *f) TN_MUST_USE; /* TN_OK or TN_BAD_INPUT */

TN_C_END
#endif
