/* show_sample.h - what sample i of a run really is: ids, text, where documents meet, which
 * positions have no target. */
#ifndef TN_LUA_SHOW_SAMPLE_H
#define TN_LUA_SHOW_SAMPLE_H
#include "engine/base/text.h"
#include "engine/data.h"
#include "lua/recipe.h"

TN_C_BEGIN

typedef struct tn_show_sample_options {
    int64_t sample;
    tn_data_split split;
    bool json;
    int64_t world; /* ranks of the run; 0: what the recipe says */
    void (*progress)(void *user, const struct tn_tokens_progress *p);
} tn_show_sample_options;

/* Opens the data as the run would, token files that it lacks are made. The recipe is closed, also
 * when this fails. */
tn_status tn_show_sample(tn_recipe *recipe, const tn_show_sample_options *options,
                         tn_text *out) TN_MUST_USE;

TN_C_END
#endif
