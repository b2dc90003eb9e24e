/* weights.h - a program's parameters from and to a Hugging Face folder, by the family's name map.
 */
#ifndef TN_LUA_WEIGHTS_H
#define TN_LUA_WEIGHTS_H
#include "engine/exec.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* Every parameter from DIR; missing, surplus or misshapen tensors are named (TN_BAD_INPUT). */
tn_status tn_weights_load(tn_recipe *r, tn_exec *e, const char *dir) TN_MUST_USE;

/* DIR/config.json and DIR/model.safetensors (fp32), as transformers loads them. */
/* Written by rank 0, which reads the shards of the others: collective. comm NULL: one rank. */
tn_status tn_weights_export(tn_recipe *r, tn_exec *e, tn_comm *comm, const char *dir) TN_MUST_USE;

/* A parameter or gradient as a whole, from the shards of all ranks; copies elements [begin, begin +
 * count). */
tn_status tn_weights_read(tn_exec *e, int32_t value, int64_t begin, int64_t count,
                          float *out) TN_MUST_USE;

/* The parameters of a program: state nodes of kind param, with their Hugging Face names. Lives in
 * `arena`. */
typedef struct tn_weight {
    int32_t value;
    const char *name, *hf_name;
} tn_weight;
tn_status tn_weights_list(tn_recipe *r, const tn_graph *g, tn_arena *arena, tn_weight **out,
                          int64_t *n_out) TN_MUST_USE;

TN_C_END
#endif
