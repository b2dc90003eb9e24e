/* session.h - an open recipe made ready to run on one rank: device, programs, memory, data.
 *
 * Opening in stages, so that nothing of the model's size exists before everything that can be wrong
 * has been looked at: recipe -> programs -> plan (memory compared with the machine) -> memory ->
 * states. */
#ifndef TN_LUA_SESSION_H
#define TN_LUA_SESSION_H
#include "engine/data.h"
#include "engine/exec.h"
#include "engine/train.h"
#include "lua/build.h"

TN_C_BEGIN

typedef struct tn_session {
    tn_recipe *recipe;
    tn_world world;
    tn_comm *comm; /* NULL: one rank */
    tn_device *device;
    tn_shape shape;
    tn_programs trains, evals; /* of all pipeline ranks */
    tn_program *train, *eval;  /* this rank's; eval: NULL without validation */
    tn_memory *memory;
    tn_exec *train_exec, *eval_exec;
    tn_data *data,
        *validation; /* validation: a file of its own, NULL if it is data's share or none */
    int64_t global_batch, vocab, scratch_bytes;
    char tokenizer[4096]; /* path of the tokenizer.json in use; "": none */
    bool validates;
    void (*progress)(void *user, const struct tn_tokens_progress *p); /* NULL, or told while a token
                                                                         file is made */
    double
        first_kernel_s; /* tn_clock_s before the first kernel: the one that fills the first state */
} tn_session;

/* Recipe, shape, programs and, to run, the device; no memory of the model's size. The recipe
 * becomes the session's, also when this fails. only_plan: the device need not be here (then
 * kernels' scratch is not counted), and `world` says how many ranks there would be. */
tn_status tn_session_plan(tn_recipe *recipe, bool only_plan, int64_t world,
                          tn_session *s) TN_MUST_USE;

/* Refuses with the memory table when the plan does not fit this machine; then data, memory,
 * executors, first states. */
tn_status tn_session_ready(tn_session *s) TN_MUST_USE;
/* The data alone, behind tn_session_plan. */
tn_status tn_session_data(tn_session *s) TN_MUST_USE;
void tn_session_close(tn_session *s);

/* Planned bytes of a run: regions, scratch, and what the process needs beside them. */
typedef struct tn_session_bytes {
    int64_t parameters, moments, buffers, inputs, step, mail, scratch, process;
    int64_t total;
} tn_session_bytes;
tn_session_bytes tn_session_memory(const tn_session *s);
tn_session_bytes tn_session_memory_of(const tn_session *s, int pipeline_rank); /* of any of them */

/* A device of the kind that the recipe asks for. TN_BAD_INPUT: it is not here; what to run instead.
 */
tn_status tn_session_device(const tn_recipe *r, const tn_world *w, tn_device **out) TN_MUST_USE;

TN_C_END
#endif
