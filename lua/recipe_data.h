/* recipe_data.h - the sections data and validation of a recipe as options of engine/data.h. */
#ifndef TN_LUA_RECIPE_DATA_H
#define TN_LUA_RECIPE_DATA_H
#include "engine/base/mem.h"
#include "engine/tokens_build.h"
#include "lua/recipe.h"

TN_C_BEGIN

/* What the recipe does not say. */
typedef struct tn_recipe_data_run {
    int64_t seq_len, global_batch, vocab_size;
    int threads;                                               /* that tokenise; 0: one per core */
    void (*progress)(void *user, const tn_tokens_progress *p); /* NULL: none */
    void *user;
} tn_recipe_data_run;

/* Texts lie in the recipe or in `arena`. */
tn_status tn_recipe_data_options(tn_recipe *r, const tn_recipe_data_run *run, tn_arena *arena,
                                 tn_data_options *out) TN_MUST_USE;

/* Opens the data, makes the token files that it needs, and opens validation.data where that is a
 * file of its own; else *validation is left as it is. */
tn_status tn_recipe_data_open(tn_recipe *r, const tn_recipe_data_run *run, tn_data **data,
                              tn_data **validation) TN_MUST_USE;

/* "bytes", or the path of the tokenizer.json that the ids are of; "" where it is not known (random
 * ids, batches, a token file whose tokenizer is gone or has changed). */
tn_status tn_recipe_data_tokenizer(tn_recipe *r, char *out, size_t size) TN_MUST_USE;

TN_C_END
#endif
