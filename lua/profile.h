/* profile.h - the steps that profiling.trace_steps names, as files in the dump folder:
 *
 *   trace/step_N.rank_R.json   the timeline of one rank, for tools
 *   trace/step_N.json          of all ranks, for Perfetto and chrome://tracing
 *   trace/step_N.rank_R.txt    where the step went, in percent
 *
 * All ranks run on one host and share its clock, so their timelines need no alignment. */
#ifndef TN_LUA_PROFILE_H
#define TN_LUA_PROFILE_H
#include "lua/session.h"

TN_C_BEGIN

typedef struct tn_profile tn_profile;

/* *out NULL: the recipe names no steps. s and folder must outlive it. */
tn_status tn_profile_open(const tn_session *s, const char *folder, tn_profile **out) TN_MUST_USE;
void tn_profile_close(tn_profile *p); /* NULL is fine */

const tn_train_watch *tn_profile_watch(const tn_profile *p);

/* The summary of the step that was traced since tn_profile_clear, or "". */
const char *tn_profile_take(const tn_profile *p);
void tn_profile_clear(tn_profile *p);

TN_C_END
#endif
