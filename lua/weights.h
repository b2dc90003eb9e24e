/* weights.h - a program's parameters from and to a Hugging Face folder, by the family's name map.
 */
#ifndef TN_LUA_WEIGHTS_H
#define TN_LUA_WEIGHTS_H
#include "engine/exec.h"
#include "lua/build.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* Every parameter from DIR, each on the ranks that hold it; missing, surplus or misshapen tensors
 * are named (TN_BAD_INPUT). */
tn_status tn_weights_load(tn_recipe *r, const tn_programs *programs, tn_exec *e,
                          const char *dir) TN_MUST_USE;

/* DIR/config.json and DIR/model.safetensors (fp32), as transformers loads them. */
/* Written by rank 0, which reads the shards of the others: collective. comm NULL: one rank. */
tn_status tn_weights_export(tn_recipe *r, const tn_programs *programs, tn_exec *e, tn_comm *comm,
                            const char *dir) TN_MUST_USE;

/* A parameter or gradient of one of the programs as a whole, from the shards of all its ranks;
 * copies elements [begin, begin + count). */
tn_status tn_weights_read(tn_exec *e, const tn_program *p, int32_t value, int64_t begin,
                          int64_t count, float *out) TN_MUST_USE;

/* The parameters of all programs in the order of the model: state nodes of kind param, with their
 * Hugging Face names. Lives in `arena`. */
typedef struct tn_weight {
    const tn_program *p;
    int32_t value;
    int64_t order;
    const char *name, *hf_name;
} tn_weight;
tn_status tn_weights_list(tn_recipe *r, const tn_programs *programs, tn_arena *arena,
                          tn_weight **out, int64_t *n_out) TN_MUST_USE;

TN_C_END
#endif
