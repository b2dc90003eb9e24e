/* hf_config.h - config.json of a Hugging Face folder: values that were checked, and one form for
 * both generations of keys.
 *
 * What a key means is the model file's business (Lua). Here: a key is found, has the type asked for
 * and lies in the range asked for, or the message says "DIR/config.json: key: what; nearest legal
 * value". null counts as absent, as in transformers. A dotted key ("rope_scaling.factor") looks
 * inside objects. Strings and trees live until free.
 */
#ifndef TN_CHECKPOINTS_HF_CONFIG_H
#define TN_CHECKPOINTS_HF_CONFIG_H
#include "engine/base/base.h"
#include "engine/base/json.h"

TN_C_BEGIN

typedef struct tn_hf_config {
    const char *path;    /* DIR/config.json */
    const tn_json *root; /* an object */
} tn_hf_config;

tn_status tn_hf_config_read(const char *dir, tn_hf_config *out) TN_MUST_USE;
/* The same from text in memory (n bytes); `path` names it in messages. */
tn_status tn_hf_config_parse(const char *path, const char *text, int64_t n,
                             tn_hf_config *out) TN_MUST_USE;
void tn_hf_config_free(tn_hf_config *c); /* a zero-initialised one is fine */

/* The value, or NULL when absent or null. */
const tn_json *tn_hf_config_find(const tn_hf_config *c, const char *key);

/* fallback: what an absent key gives; NULL: the key is required. Bounds are inclusive. */
tn_status tn_hf_config_int(const tn_hf_config *c, const char *key, int64_t min, int64_t max,
                           const int64_t *fallback, int64_t *out) TN_MUST_USE;
tn_status tn_hf_config_number(const tn_hf_config *c, const char *key, double min, double max,
                              const double *fallback, double *out) TN_MUST_USE;
tn_status tn_hf_config_bool(const tn_hf_config *c, const char *key, const bool *fallback,
                            bool *out) TN_MUST_USE;

/* legal: n_legal words, one of which it must be; n_legal 0: any. fallback NULL: required. */
typedef struct tn_hf_config_words {
    const char *const *legal;
    int n_legal;
    const char *fallback;
} tn_hf_config_words;
tn_status tn_hf_config_string(const tn_hf_config *c, const char *key,
                              const tn_hf_config_words *words, const char **out) TN_MUST_USE;

/* Rotary embedding. transformers 5 writes rope_parameters {rope_theta, rope_type, ...};
 * transformers 4 wrote rope_theta and, when scaled, rope_scaling {rope_type or type, ...}. The
 * further parameters (factor, low_freq_factor, original_max_position_embeddings, ...) have the same
 * names in both; read them with tn_hf_config_rope_key. Both generations together must agree.
 * Parameters per layer type are refused. */
typedef struct tn_hf_config_rope {
    const char *type; /* "default" when nothing is scaled; else "linear", "dynamic", "yarn",
                         "longrope", "llama3" */
    double theta;     /* default_theta when absent */
    const char
        *section; /* "rope_parameters" or "rope_scaling": where the further parameters stand */
    const tn_json *params; /* that object, or NULL; it may also hold rope_theta, rope_type, type */
} tn_hf_config_rope;
tn_status tn_hf_config_rope_find(const tn_hf_config *c, double default_theta,
                                 tn_hf_config_rope *out) TN_MUST_USE;

typedef struct tn_hf_config_key {
    char s[96];
} tn_hf_config_key;
/* "rope_scaling.factor": the dotted key of a further parameter, good inside the full expression
 * that calls it. */
tn_hf_config_key tn_hf_config_rope_key(const tn_hf_config_rope *rope, const char *name);

/* "float32", "float16", "bfloat16", ... from dtype or torch_dtype; NULL when neither is there. */
tn_status tn_hf_config_dtype(const tn_hf_config *c, const char **out) TN_MUST_USE;

TN_C_END
#endif
