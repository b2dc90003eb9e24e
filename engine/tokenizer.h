/* tokenizer.h - byte-level BPE as Hugging Face's tokenizer.json describes it. engine/encoder.h
 * makes ids of text.
 *
 * The ids are those of the Python package `tokenizers`. What a file may say: model BPE without
 * dropout, prefix, suffix and byte_fallback, the vocabulary holding all 256 byte tokens; normalizer
 * NFC; pre-tokenizers Split, Digits and ByteLevel; post-processors ByteLevel and
 * TemplateProcessing; decoder ByteLevel; Sequences of these. Anything else is refused by name.
 * `truncation` and `padding` are settings of a call, not of the vocabulary, and are not read.
 */
#ifndef TN_ENGINE_TOKENIZER_H
#define TN_ENGINE_TOKENIZER_H
#include "engine/base/base.h"
#include "engine/base/text.h"

TN_C_BEGIN

typedef struct tn_tokenizer tn_tokenizer; /* read-only: threads share it */

/* TN_BAD_INPUT "PATH: KEY: what; mend" for a file that is broken or not supported. */
tn_status tn_tokenizer_open(const char *path, tn_tokenizer **out) TN_MUST_USE;

/* The same from memory; `where` stands for the path. */
tn_status tn_tokenizer_parse(const char *where, const char *json, int64_t n,
                             tn_tokenizer **out) TN_MUST_USE;
void tn_tokenizer_close(tn_tokenizer *t); /* NULL is fine */

/* One above the largest id, added tokens included: what a model's vocab_size must be at least. */
int64_t tn_tokenizer_size(const tn_tokenizer *t);

/* Of the bytes of the file (XXH64). */
uint64_t tn_tokenizer_fingerprint(const tn_tokenizer *t);

/* The id of the token that the file writes `token`, -1 if there is none. */
tn_status tn_tokenizer_find(const tn_tokenizer *t, const char *token, int32_t *out) TN_MUST_USE;

/* Appends the text of the ids: UTF-8, one U+FFFD for each broken part. An id without a token stands
 * for nothing; skip_special leaves the special tokens out. TN_BAD_INPUT for a file without a
 * decoder. */
tn_status tn_tokenizer_decode(const tn_tokenizer *t, const int32_t *ids, int64_t n,
                              bool skip_special, tn_text *out) TN_MUST_USE;

TN_C_END
#endif
