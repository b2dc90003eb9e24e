/* meetings.h - where ranks wait for each other: which entries, and proof that all come.
 *
 * (1) An exchange brings together the ranks that differ from this one at most on a set of axes
 *     (tn_traffic_of_node); the empty set meets nobody. Ranks of one such group have that
 *     communicator of their own, and meet on it in program order.
 * (2) Every member has the same sequence of meetings on each communicator, and all ranks of the
 * mesh enter communicators in the same order. Then nobody waits for ever. (3) Neighbouring
 * exchanges of one group are one meeting, a bucket: all sources are written before it begins, and
 * none is overwritten, nor read by another of the bucket where one writes, before it ends. What a
 * rank may overwrite is taken from the buffers, which are those of all ranks. */
#ifndef TN_GRAPH_MEETINGS_H
#define TN_GRAPH_MEETINGS_H
#include "graph/program.h"

TN_C_BEGIN

/* Sets tn_entry.meets: buckets as large as (3) allows. */
void tn_meetings_join(tn_program *p);

/* (3), from entries and buffers as they are; TN_FAILED names what meets badly. */
tn_status tn_meetings_check_joined(const tn_program *p) TN_MUST_USE;

/* (2) for all ranks of a mesh; programs[r] is what rank r runs, often one for many. TN_FAILED names
 * two ranks, their axes and the first meeting that is not the same. */
tn_status tn_meetings_check(const tn_program *const *programs, int n_ranks) TN_MUST_USE;

/* Of the sequence of meetings over that set of axes (bit a: tn_axis a), 0: over any. */
uint64_t tn_meetings_hash(const tn_program *p, unsigned axes);

TN_C_END
#endif
