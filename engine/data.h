/* data.h - the training data of one rank.
 *
 * A batch depends only on (source, settings, seed, step, row): nothing is remembered between calls,
 * so one integer, the step, resumes a run, and any rank may ask for any rows. Row i of step s is
 * sample s * global_batch + i.
 *
 * Sources
 *   text, jsonl  files, also .gz and .zst, as one stream of tokens (engine/documents.h, codec.h). A
 *            sample is seq_len + 1 consecutive tokens; the next one starts seq_len tokens later, so
 *            that every token but the very first is a target exactly once an epoch; what does not
 *            fill a sample at the end is left out. An epoch visits every sample once, when shuffled
 *            in an order of its own. Plain text with the byte tokenizer is mapped as it lies;
 *            anything else is tokenised once into a token file in the cache folder (mode "built"),
 * or while training reads it (mode "stream": engine/data_stream.c; the same samples when nothing is
 * shuffled, no held-out share, and shuffling stays inside blocks). tokens   token files
 * (engine/tokens.h): the same, tokenised before. batches  a safetensors file with input_ids and
 * labels, int32 or int64 [N, global_batch, seq_len], and optionally positions and documents of that
 * shape. Step s is entry s: exact data from outside. Without positions each row counts from 0,
 * without documents a row is one document. random   ids uniform over the vocabulary (Philox),
 * without end: for speed measurements.
 *
 * Documents of a text are its lines, the paragraphs that blank lines separate, or its files
 * (`document`); the bytes that separate two documents end the first; of JSONL, its lines. They are
 * what `validation` holds out: the last share of the documents, in the order of the files.
 * `packing` says what a document means inside a sample: stream     nothing: positions run through
 * the row, the first token behind a boundary is a target like any other documents  positions
 * restart, attention stays inside the document, no target crosses a boundary
 *
 * The validation split is never shuffled. One pass is ceil(samples / global_batch) steps; rows
 * behind the last sample have no targets, so that a loss over all valid tokens counts every sample
 * once.
 *
 * Messages start with the recipe key. Rows may be asked for from several threads at once; nothing
 * allocates after open, but for mode "stream".
 */
#ifndef TN_ENGINE_DATA_H
#define TN_ENGINE_DATA_H
#include "engine/base/base.h"

TN_C_BEGIN

enum { TN_DATA_NO_TARGET = -100 };

struct tn_tokens_progress; /* engine/tokens_build.h */

typedef enum tn_data_split { TN_DATA_TRAIN, TN_DATA_VALIDATION, TN_DATA_N_SPLITS } tn_data_split;

/* A file or a glob. Text may list several: without weights they follow one another; with weights
 * (all of them) each is a source of its own, and samples are drawn in proportion to the weights, to
 * 1/4096 of the whole. */
typedef struct tn_data_path {
    const char *pattern;
    double weight; /* 0: none */
} tn_data_path;

/* Zero means the default. Nothing is kept of what the pointers show. */
typedef struct tn_data_options {
    const char *section; /* that messages name: "data" (default) or "validation.data" */
    const char *source;  /* "text" (default), "jsonl", "tokens", "batches", "random" */
    const tn_data_path *paths;
    int64_t n_paths;
    const char *tokenizer; /* "bytes" (default), or a tokenizer.json; tokens: NULL: any */
    const char
        *end_token;    /* put behind each document; NULL: what the tokenizer's own settings say */
    const char *field; /* jsonl: "text" (default) */
    const char *mode;  /* text, jsonl: "built" (default), "stream" */
    const char *cache_folder; /* of token files that are made (default: "cache") */
    int threads;              /* that tokenise; 0: one per core */
    void (*progress)(void *user, const struct tn_tokens_progress *p); /* while a file is made */
    void *user;
    const char *document; /* text: "line" (default), "blank_line", "file" */
    const char *packing;  /* text: "stream" (default), "documents" */
    double validation;    /* share held out, 0 .. 1; 1: everything, for data that only validates */
    bool shuffle;         /* text, training split */
    uint64_t seed;        /* of shuffle and random */
    int64_t epochs; /* training may see each sample so often; 0: as often as its steps ask (batches:
                       once) */
    int64_t seq_len, global_batch, vocab_size;
} tn_data_options;

/* [n_rows, seq_len] each; NULL for what is not wanted. */
typedef struct tn_data_batch {
    int32_t *ids_bs;
    int32_t *labels_bs;    /* the id that follows, TN_DATA_NO_TARGET for none */
    int32_t *positions_bs; /* 0 .. seq_len - 1 */
    int32_t *documents_bs; /* number of the document inside its row, from 0 */
} tn_data_batch;

typedef struct tn_data_info {
    int64_t files;
    int64_t mapped_bytes; /* of the files; pages that were touched count as memory of the process */
    int64_t tokens[TN_DATA_N_SPLITS];
    int64_t samples[TN_DATA_N_SPLITS];   /* in one epoch; 0 and no end for random */
    int64_t documents[TN_DATA_N_SPLITS]; /* -1: not counted (counted where the held-out share needs
                                            it) */
} tn_data_info;

typedef struct tn_data tn_data;

/* Checks everything that could be wrong with the data, ids and labels included, so that rows cannot
 * fail later: TN_BAD_INPUT with the key, the file and the offset. */
tn_status tn_data_open(const tn_data_options *options, tn_data **out) TN_MUST_USE;
void tn_data_close(tn_data *data); /* NULL is fine */

const tn_data_info *tn_data_about(const tn_data *data);

/* Steps that the split can serve: INT64_MAX without end; training stops before a batch it cannot
 * fill. */
int64_t tn_data_steps(const tn_data *data, tn_data_split split);

/* TN_BAD_INPUT unless training can take `steps` steps; the message names training.steps and what to
 * set. */
tn_status tn_data_check_steps(const tn_data *data, int64_t steps) TN_MUST_USE;

/* Rows [first_row, first_row + n_rows) of `step`, 0 <= row < global_batch. Fails only for a step >=
 * tn_data_steps, where a
 * token file turns out to be damaged, and, in mode "stream", where the files cannot be read. */
tn_status tn_data_rows(const tn_data *data, tn_data_split split, int64_t step, int64_t first_row,
                       int64_t n_rows, const tn_data_batch *out) TN_MUST_USE;

TN_C_END
#endif
