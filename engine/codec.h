/* codec.h - text to ids and back, for data: the byte tokenizer or a tokenizer.json, by the name
 * that data.tokenizer gives it.
 *
 * "bytes": ids are bytes, nothing is inserted (engine/bytes.h). A path: byte-level BPE
 * (engine/tokenizer.h); what its post-processor puts around a text is put around a document, and
 * behind it the end token, where there is one.
 */
#ifndef TN_ENGINE_CODEC_H
#define TN_ENGINE_CODEC_H
#include "engine/base/text.h"
#include "engine/ids.h"

TN_C_BEGIN

typedef struct tn_codec tn_codec; /* read-only: threads share it */

/* name: "bytes" (also NULL) or a path. end_token: as the file writes it; "": none; NULL: what
 * tokenizer_config.json beside it calls eos_token, or none. TN_BAD_INPUT "SECTION.tokenizer: ..."
 */
tn_status tn_codec_open(const char *section, const char *name, const char *end_token,
                        tn_codec **out) TN_MUST_USE;
void tn_codec_close(tn_codec *codec); /* NULL is fine */

const char *tn_codec_name(const tn_codec *codec);
int64_t tn_codec_size(const tn_codec *codec);          /* one above the largest id */
uint64_t tn_codec_fingerprint(const tn_codec *codec);  /* of the tokenizer */
const char *tn_codec_end_token(const tn_codec *codec); /* "": none */

/* What one thread needs to encode. */
typedef struct tn_codec_worker tn_codec_worker;
tn_status tn_codec_worker_open(const tn_codec *codec, tn_codec_worker **out) TN_MUST_USE;
void tn_codec_worker_close(tn_codec_worker *worker); /* NULL is fine */

/* Appends the ids of a piece of a document; first and last: it begins, ends the document. */
tn_status tn_codec_encode(tn_codec_worker *worker, const char *text, int64_t n, bool first,
                          bool last, tn_ids *out) TN_MUST_USE;

/* Appends the text; special tokens as they are written. */
tn_status tn_codec_decode(const tn_codec *codec, const int32_t *ids, int64_t n,
                          tn_text *out) TN_MUST_USE;

TN_C_END
#endif
