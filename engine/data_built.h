/* data_built.h - the tokens that data.path means: mapped as they lie, or from a token file, which
 * is made first where it is missing.
 *
 * Token files that are made are named after the first source and everything that they depend on
 * (sources, tokenizer, rule), so a changed source or tokenizer is another file and two runs may
 * share a cache folder.
 */
#ifndef TN_ENGINE_DATA_BUILT_H
#define TN_ENGINE_DATA_BUILT_H
#include "engine/data_source.h"
#include "engine/tokens_build.h"
#include "engine/windows.h"

TN_C_BEGIN

/* The rule that source, field and document of the options mean. */
tn_status tn_data_built_rule(const tn_data_options *o, tn_documents_rule *out) TN_MUST_USE;

/* True for what needs no tokenising: plain text as bytes. */
bool tn_data_built_is_mapped(const tn_data_options *o, const tn_paths *sources);

/* TN_BAD_INPUT if a tokenizer.json has ids that the model lacks: said before an hour of work. */
tn_status tn_data_built_fits(const tn_data_options *o, const tn_codec *codec) TN_MUST_USE;

/* Makes the token file of one part, unless it is there. path: of `size` bytes, where; "": becomes
 * CACHE/NAME-HASH.tokens. */
tn_status tn_data_built_make(const tn_data_options *o, const tn_paths *sources, char *path,
                             size_t size, bool *made) TN_MUST_USE;

/* One part of the data: of a path with a weight, or of all paths. */
tn_status tn_data_built_open(const tn_data_options *o, const tn_data_path *paths, int64_t n_paths,
                             tn_windows **out) TN_MUST_USE;

TN_C_END
#endif
