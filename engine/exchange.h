/* exchange.h - moving a value from one layout to another: gathers, reduce-scatters, all-reduces,
 * all-to-alls and slices are one mechanism. The rectangle that a rank needs is cut into the
 * rectangles that others hold; where the source is pending, all members' rectangles are added in
 * the balanced tree over them (DESIGN.md 7 (3), (5), (10)). */
#ifndef TN_ENGINE_EXCHANGE_H
#define TN_ENGINE_EXCHANGE_H
#include "engine/comm.h"
#include "graph/program.h"
#include "kernels/kernel.h"

TN_C_BEGIN

typedef struct tn_exchange tn_exchange;

/* Where the ranks' memory is: regions from first_region on; what of the mail is this program's;
 * whose states lie in the process region (NULL: the program's own). */
typedef struct tn_exchange_memory {
    tn_comm *comm;
    int first_region;
    int64_t mail_base;
    const tn_program *owner;
} tn_exchange_memory;

/* For one exchange entry of the program; in `arena`. Refuses transitions that no model's table
 * needs (TN_BAD_INPUT). */
tn_status tn_exchange_build(const tn_program *p, const tn_entry *entry, const tn_exchange_memory *m,
                            tn_arena *arena, const tn_exchange **out) TN_MUST_USE;

/* In iteration (microbatch, chunk). */
tn_status tn_exchange_run(const tn_exchange *x, const tn_cpu *cpu, int64_t microbatch,
                          int64_t chunk) TN_MUST_USE;

TN_C_END
#endif
