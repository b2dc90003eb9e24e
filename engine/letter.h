/* letter.h - what pipeline ranks send each other: the sender copies into a slot of the receiver's
 * mail and raises the slot's flag. How many slots a channel needs follows from the schedule
 * (graph/pipeline.h), so a sender never waits. */
#ifndef TN_ENGINE_LETTER_H
#define TN_ENGINE_LETTER_H
#include "engine/exec.h"

TN_C_BEGIN

typedef struct tn_letter tn_letter;

/* For one send or recv of a program that is being bound to m; in `arena`. */
tn_status tn_letter_build(const tn_program *p, int32_t node, const tn_memory *m, tn_arena *arena,
                          const tn_letter **out) TN_MUST_USE;

/* run: the number of this run, the same on all ranks. */
tn_status tn_letter_run(const tn_letter *l, const tn_call *c, uint32_t run,
                        int64_t microbatch) TN_MUST_USE;

TN_C_END
#endif
