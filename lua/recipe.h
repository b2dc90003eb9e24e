/* recipe.h - a recipe after everything was said: checked, overridden, completed by defaults, read
 * by dotted key.
 *
 * The keys, their types, ranges and defaults are in lua/prelude/schema.lua and nowhere else.
 * Opening runs the recipe's Lua in a closed host (host.h), applies the overrides in order (the last
 * one wins), and copies the result: the getters are plain C and cannot fail. The Lua state stays
 * alive behind the recipe, for the model (state.h).
 *
 * Errors are TN_BAD_INPUT, "recipe.lua:LINE: section.key: WHAT; MEND" or "command line: ...",
 * further errors of the same recipe as context lines. Nothing is written anywhere.
 */
#ifndef TN_LUA_RECIPE_H
#define TN_LUA_RECIPE_H
#include "engine/base/base.h"
#include "lua/host.h"

TN_C_BEGIN

typedef struct tn_recipe tn_recipe;

typedef struct tn_recipe_options {
    const char *path;             /* a file; "-" reads standard input; NULL: `text` */
    const char *text, *name;      /* a recipe in memory and what messages call it */
    const char *const *overrides; /* "section.key=value", "model.key=value" */
    int n_overrides;
    tn_host_options host;
} tn_recipe_options;

tn_status tn_recipe_open(const tn_recipe_options *options, tn_recipe **out) TN_MUST_USE;
void tn_recipe_close(tn_recipe *r); /* NULL is fine */

/* Values by key: "training.steps"; of lists "optimizer.betas[1]", "optimizer.groups[2].pattern"
 * (counted from 1, as Lua and the messages do). The key must be one of the schema; asking a key for
 * what it is not is a programming error (assert). A key that is not set (tn_recipe_is_set) reads as
 * 0, false, "". */
bool tn_recipe_is_set(const tn_recipe *r,
                      const char *key); /* false: nil, and for a key the recipe does not have */
bool tn_recipe_is_text(const tn_recipe *r, const char *key); /* of a key that may be two kinds */
int64_t tn_recipe_int(const tn_recipe *r, const char *key);
double tn_recipe_num(const tn_recipe *r, const char *key); /* integers too */
bool tn_recipe_bool(const tn_recipe *r, const char *key);
const char *tn_recipe_text(const tn_recipe *r, const char *key);
int tn_recipe_count(const tn_recipe *r,
                    const char *key); /* items of a list; a key that may be one text or a list: 1 */
int64_t tn_recipe_int_at(const tn_recipe *r, const char *key, int i); /* items, i from 0 */
double tn_recipe_num_at(const tn_recipe *r, const char *key, int i);
const char *tn_recipe_text_at(const tn_recipe *r, const char *key, int i);

/* Where the value was said: "default", "default for cpu", "recipe.lua:7", "command line". */
const char *tn_recipe_where(const tn_recipe *r, const char *key);

/* One of optimizer.groups: what it does not say is the optimizer's own. */
typedef struct tn_recipe_group {
    const char *pattern, *where;
    double lr, beta1, beta2, eps, weight_decay, momentum;
} tn_recipe_group;
int tn_recipe_groups(const tn_recipe *r);
tn_recipe_group tn_recipe_group_at(const tn_recipe *r, int i); /* i from 0 */
tn_recipe_group
tn_recipe_group_default(const tn_recipe *r); /* of parameters that no group matches; pattern "" */

/* The resolved recipe as Lua that can be run again, each line with where its value came from. */
const char *tn_recipe_config(const tn_recipe *r);
const char *tn_recipe_name(const tn_recipe *r); /* as messages call it: the path as given */
const char *
tn_recipe_folder(const tn_recipe *r); /* "." or what stands before the last '/' of the path */

/* "cpu" or "cuda": device.kind, with `auto` decided. */
const char *tn_recipe_device(const tn_recipe *r);

TN_C_END
#endif
