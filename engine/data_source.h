/* data_source.h - what data.c asks of a source of samples: text, batches and random are three
 * tables of this type.
 *
 * Sample i is the i-th of the run, counted through all epochs; which piece of the data that is
 * (shuffle, mixture) is the source's business. A row is a pure function of (what was opened, split,
 * i), and may be asked for by several threads.
 */
#ifndef TN_ENGINE_DATA_SOURCE_H
#define TN_ENGINE_DATA_SOURCE_H
#include "engine/data.h"
#include "engine/mixture.h"

TN_C_BEGIN

/* [seq_len] each, NULL for what is not wanted. */
typedef struct tn_data_row {
    int32_t *ids_s, *labels_s, *positions_s, *documents_s;
} tn_data_row;

typedef struct tn_data_source {
    const char *name;
    /* The options have been checked as far as they concern every source. Fills the state, what
     * tn_data_about says, and the first sample that each split does not have (INT64_MAX: no end).
     * Keeps no pointer of the options. */
    tn_status (*open)(const tn_data_options *options, void **state, tn_data_info *info,
                      int64_t end[TN_DATA_N_SPLITS]);
    void (*close)(void *state);
    tn_status (*row)(void *state, tn_data_split split, int64_t sample, const tn_data_row *out);
} tn_data_source;

extern const tn_data_source tn_data_text, tn_data_jsonl, tn_data_tokens, tn_data_batches,
    tn_data_random;

/* What mode = "stream" makes of text and jsonl. */
extern const tn_data_source tn_data_stream;

/* The index of `value` in names (NULL: 0); TN_BAD_INPUT "SECTION.KEY: 'value' is unknown; use ...".
 */
tn_status tn_data_choose(const tn_data_options *options, const char *key, const char *value,
                         const char *const *names, int n, int *out) TN_MUST_USE;

/* For a key that means nothing to the chosen source: TN_BAD_INPUT if it is set. */
tn_status tn_data_refuse(const tn_data_options *options, const char *key, bool is_set,
                         const char *why) TN_MUST_USE;

/* The weights of the paths, all or none; without them the mixture has one part, of all paths. */
tn_status tn_data_mix(const tn_data_options *options, tn_mixture *out) TN_MUST_USE;

/* One document from position 0. */
void tn_data_plain(const tn_data_row *out, int64_t seq_len);

/* a * b, INT64_MAX if that is larger. */
int64_t tn_data_times(int64_t a, int64_t b);

TN_C_END
#endif
