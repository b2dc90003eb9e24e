/* events.h - which entry of a stream waits for which entry of another one.
 *
 * (1) Streams run side by side; within a stream entries run in program order, loop by loop.
 * (2) An event (entry, after): every run of `entry` waits for the latest run of `after` that was
 *     started before it. That may be one of the iteration before, or of the step before.
 * (3) Two runs conflict if they touch the same bytes and one of them writes. Of every pair in
 *     conflict the later one must come behind the earlier one by streams and events alone.
 * An exchange reads its operand and writes its result; that peers read the operand too is inside of
 * the entry, which ends when all members have what they came for. */
#ifndef TN_GRAPH_EVENTS_H
#define TN_GRAPH_EVENTS_H
#include "graph/program.h"

TN_C_BEGIN

/* The events that (3) needs and no more: none that follows from streams and other events. Fills
 * p->events, ascending. */
tn_status tn_events_build(tn_program *p) TN_MUST_USE;

/* (3), from the entries, places and events as they are: TN_FAILED names the pair that nothing
 * orders. */
tn_status tn_events_check(const tn_program *p) TN_MUST_USE;

const char *tn_events_stream(tn_stream s); /* compute, tensor, gather, reduce */

TN_C_END
#endif
