/* init.h - first contents of a program's states, by the attributes of op state.
 *
 * A random value is Philox(seed, parameter name, global element index): the same on every layout,
 * thread count and machine. */
#ifndef TN_ENGINE_INIT_H
#define TN_ENGINE_INIT_H
#include "engine/exec.h"

TN_C_BEGIN

/* Fills every state of the program that owns the executor's memory; buffers_only: not the
 * parameters, which come from a file. */
tn_status tn_init_states(tn_exec *e, uint64_t seed, bool buffers_only) TN_MUST_USE;

TN_C_END
#endif
