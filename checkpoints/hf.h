/* hf.h - a Hugging Face folder: config.json and its weights, read strictly, written so that
 * transformers loads it.
 *
 * Weights are model.safetensors or, when that is absent (the order of transformers), the files that
 * model.safetensors.index.json names. A folder that opens is whole: every tensor of the index is in
 * the file that the index names, every tensor of those files is in the index, file names stay in
 * the folder.
 *
 * NOTES ON EXPORT
 * (1) Where config.json stands, the weights beside it are the ones it was written with, complete:
 * config.json goes first and comes last.
 */
#ifndef TN_CHECKPOINTS_HF_H
#define TN_CHECKPOINTS_HF_H
#include "checkpoints/hf_config.h"
#include "checkpoints/safetensors.h"

TN_C_BEGIN

typedef struct tn_hf tn_hf;

tn_status tn_hf_open(const char *dir, tn_hf **out) TN_MUST_USE;
void tn_hf_close(tn_hf *hf); /* NULL is fine */

const char *tn_hf_dir(const tn_hf *hf);
const tn_hf_config *tn_hf_config_of(const tn_hf *hf);
int64_t tn_hf_files(const tn_hf *hf);
int64_t tn_hf_count(const tn_hf *hf);
const tn_safetensors_tensor *tn_hf_get(const tn_hf *hf, int64_t i);         /* sorted by name */
const tn_safetensors_tensor *tn_hf_find(const tn_hf *hf, const char *name); /* or NULL */

/* What a model takes from the folder. */
typedef struct tn_hf_want {
    const char *name;
    int rank;
    int64_t shape[TN_SAFETENSORS_MAX_RANK];
} tn_hf_want;

/* Every wanted tensor is there with its shape and a floating dtype, and nothing else, but for names
 * that end in one of `ignored` (rotary_emb.inv_freq; lm_head.weight when it is tied). Names the
 * first missing and surplus ones and how many. */
tn_status tn_hf_match(const tn_hf *hf, const tn_hf_want *wants, int64_t n,
                      const char *const *ignored, int n_ignored) TN_MUST_USE;

/* Write DIR/config.json (config_text, an object) and DIR/model.safetensors, by (1); DIR is made
 * when missing. The metadata
 * {"format": "pt"} that transformers asks for is added. */
tn_status tn_hf_export(const char *dir, const char *config_text, const tn_safetensors_spec *specs,
                       int64_t n, tn_safetensors_source source, void *arg) TN_MUST_USE;

TN_C_END
#endif
