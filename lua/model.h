/* model.h - what a recipe's model says of itself besides its graph: its Hugging Face names and its
 * config.json.
 *
 * All of it is data in the model's Lua file (nn.family, field hugging_face); this is its C face.
 */
#ifndef TN_LUA_MODEL_H
#define TN_LUA_MODEL_H
#include "engine/base/mem.h"
#include "graph/graph.h"
#include "lua/door.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* The name of a parameter in Hugging Face files, and back. *out is in `arena`; "" for a tensor that
 * has no place on the other side (a tied head, rotary buffers). An unknown name is TN_BAD_INPUT. A
 * model that transformers does not know (a family without a map, a swapped block) keeps titan's
 * names, and its config.json has titan's keys. */
tn_status tn_model_hf_name(tn_recipe *r, const char *name, tn_arena *arena,
                           const char **out) TN_MUST_USE;
tn_status tn_model_titan_name(tn_recipe *r, const char *hf_name, tn_arena *arena,
                              const char **out) TN_MUST_USE;

/* config.json of the model; `dtype` is that of the weights beside it. */
tn_status tn_model_config_json(tn_recipe *r, tn_dtype dtype, tn_arena *arena,
                               const char **out) TN_MUST_USE;

/* The folder of `model.hf = DIR`, "" if the model has none; "llama3" and "8B" (or "custom", "hf").
 */
tn_status tn_model_hf_dir(tn_recipe *r, tn_arena *arena, const char **out) TN_MUST_USE;
tn_status tn_model_name(tn_recipe *r, tn_arena *arena, const char **family,
                        const char **flavour) TN_MUST_USE;

/* A whole number of the finished config, "vocab_size"; 0 if the model has no such key. */
tn_status tn_model_int(tn_recipe *r, const char *key, int64_t *out) TN_MUST_USE;

/* The Lua function trace.config(dir) -> DIR/config.json as a table, its rotary parameters (a
 * lua_CFunction for lua/trace.c). */
int tn_model_read_config(lua_State *L);

TN_C_END
#endif
