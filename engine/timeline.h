/* timeline.h - where the time of one step went: every run of every entry with its begin and end, as
 * a trace in the trace-event format that Perfetto and chrome://tracing read, and as a sum that adds
 * up to 100.0 % of the step.
 *
 * One track per stream (pid: rank, tid: stream), and below them the same entries as the cost model
 * predicted them (tid: 100 + stream). On the CPU one entry runs at a time, so the slices of all
 * tracks are disjoint. An entry lasts from the end of the one before; the time that it spent
 * waiting for other ranks is told apart. Recording allocates nothing; a step that is not recorded
 * runs without a hook.
 *
 * Times are the machine's monotonic clock: the ranks of one host share it. */
#ifndef TN_ENGINE_TIMELINE_H
#define TN_ENGINE_TIMELINE_H
#include "engine/comm.h"
#include "graph/cost.h"
#include "graph/program.h"
#include "graph/traffic.h"
#include "kernels/kernel.h"

TN_C_BEGIN

typedef struct tn_timeline tn_timeline;

/* comm NULL: one rank. p and comm must outlive it. */
tn_status tn_timeline_create(const tn_program *p, const tn_comm *comm, const tn_cost_machine *m,
                             int rank, tn_timeline **out) TN_MUST_USE;
void tn_timeline_destroy(tn_timeline *t); /* NULL is fine */

void tn_timeline_begin(tn_timeline *t, int64_t step);
bool tn_timeline_entry(void *timeline, const tn_call *c); /* a tn_exec_hook: false */
void tn_timeline_mark(tn_timeline *t, const char *what);  /* "data", or "idle": since the last */

typedef struct tn_timeline_sum {
    double step_s, predicted_s, compute_s, waiting_s, data_s, idle_s;
    double exposed_s[TN_TRAFFIC_KINDS]; /* moving bytes, without the waiting */
} tn_timeline_sum;

/* Of what was recorded last: the events, a line each, those that describe tracks first; without the
 * frame around them. memory: counters of the step region. */
tn_status tn_timeline_print(const tn_timeline *t, bool memory, tn_text *out,
                            tn_timeline_sum *sum) TN_MUST_USE;

/* The ends, at this rank, of the arrows from sends to receives, in the same form; a trace of all
 * ranks has both ends of each. Nothing without a pipeline. */
tn_status tn_timeline_letters(const tn_timeline *t, tn_text *out) TN_MUST_USE;

/* "compute 91.3 %, ...": the parts are rounded so that they add up to 100.0. */
void tn_timeline_summary(const tn_timeline_sum *s, tn_text *out);

TN_C_END
#endif
