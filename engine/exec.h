/* exec.h - replays a program: an array that is walked without a decision.
 *
 * Creating binds every entry to addresses, sum orders and parsed attributes; running allocates
 * nothing. Several programs (train, evaluation, logits) share the memory of one tn_memory: states
 * by name, the step region one after another. */
#ifndef TN_ENGINE_EXEC_H
#define TN_ENGINE_EXEC_H
#include "engine/comm.h"
#include "engine/device.h"
#include "graph/program.h"

TN_C_BEGIN

/* Bytes that running `p` needs beside its regions: the largest scratch of any kernel. */
tn_status tn_exec_scratch_bytes(const tn_program *p, const tn_device *d, int64_t *out) TN_MUST_USE;

/* The three lifetimes. `owner` is the program whose states live in the process region; others find
 * them by name. */
typedef struct tn_memory {
    tn_device *device;
    tn_comm *
        comm; /* NULL: one rank, memory of the device; else the regions are shared with the peers */
    int first_region; /* number of the first of them in comm */
    const tn_program *owner;
    void *base[TN_N_REGIONS];
    int64_t bytes[TN_N_REGIONS];
    int64_t mail_used[TN_COMM_MAX_RANKS]; /* by pipeline rank: by the programs that were created */
    uint32_t runs;                        /* of any program: what the flags of the mail count */
    void *scratch; /* of the kernels, one at a time */
    int64_t scratch_bytes;
} tn_memory;

/* Room for all n programs; programs[0] is the owner. Collective where there are several ranks;
 * first_region: TN_N_REGIONS numbers of comm that nothing else uses. */
tn_status tn_memory_create(tn_device *d, tn_comm *comm, int first_region,
                           const tn_program *const *programs, int n, tn_memory **out) TN_MUST_USE;
void tn_memory_destroy(tn_memory *m); /* NULL is fine */

typedef struct tn_exec tn_exec;

tn_status tn_exec_create(tn_memory *m, const tn_program *p, tn_exec **out) TN_MUST_USE;
void tn_exec_destroy(tn_exec *e); /* NULL is fine */

/* Called behind every entry with the entry's node; a hook may read its outputs. NULL: none. */
typedef bool (*tn_exec_hook)(void *user, const tn_call *c);

/* The whole program, or without the update (its first optimizer entry and what follows), or the
 * update alone. */
typedef enum tn_exec_part { TN_EXEC_ALL, TN_EXEC_BEFORE_UPDATE, TN_EXEC_UPDATE } tn_exec_part;
tn_status tn_exec_run(tn_exec *e, tn_exec_part part,
                      const tn_step *step) TN_MUST_USE; /* fails only with a peer */

/* The same part again: the first node behind whose entry hook returned true, or -1. One rank stops
 * there; several run on to the end, since their peers wait for them. */
tn_status tn_exec_search(tn_exec *e, tn_exec_part part, const tn_step *step, tn_exec_hook hook,
                         void *user, int32_t *node_out) TN_MUST_USE;

/* Where a rank has a value (iteration 0): p is this program, or the one of another pipeline rank, and
 * rank one of the ranks of its stages. Of other programs only states and the step can be read. */
void *tn_exec_peer(const tn_exec *e, const tn_program *p, int rank, int32_t value);

/* The memory of a value in iteration 0, and of an input or state by name (NULL: the program has
 * none of that name). */
void *tn_exec_value(const tn_exec *e, int32_t value);
void *tn_exec_named(const tn_exec *e, const char *name, const tn_value **value_out);
const tn_program *tn_exec_program(const tn_exec *e);
tn_pool *tn_exec_pool(const tn_exec *e);

TN_C_END
#endif
