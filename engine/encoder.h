/* encoder.h - text to the ids of a tokenizer.
 *
 * Order of work (tests/golden/tokenizers): the added tokens with normalized = false are cut out of
 * the raw text; each segment between them is normalised and the other added tokens are cut out of
 * it; each segment of that is split by the pre-tokenizers, as a text of its own; each piece becomes
 * bytes, and these are merged, lowest rank first, leftmost among equals; the template adds its ids.
 *
 * A text may hold any bytes, NUL too. Where it is no UTF-8, one U+FFFD stands for each broken part
 * (engine/unicode.h).
 */
#ifndef TN_ENGINE_ENCODER_H
#define TN_ENGINE_ENCODER_H
#include "engine/ids.h"
#include "engine/tokenizer.h"

TN_C_BEGIN

typedef struct tn_encoder tn_encoder; /* scratch and word cache of one thread */

/* The tokenizer must outlive the encoder. */
tn_status tn_encoder_create(const tn_tokenizer *t, tn_encoder **out) TN_MUST_USE;
void tn_encoder_destroy(tn_encoder *e); /* NULL is fine */

enum {
    TN_ENCODE_TEMPLATE = 1, /* with the post-processor's ids: begin and end of text */
    TN_ENCODE_LITERAL = 2,  /* "<|eot|>" in the text is text, not the special token: for text that
                               nobody vouches for */
};

/* Appends the ids of text[0, n). Takes time linear in n (times log n inside one long piece). A text
 * cut anywhere but between two documents may give other ids. */
tn_status tn_encoder_encode(tn_encoder *e, const char *text, int64_t n, int flags,
                            tn_ids *out) TN_MUST_USE;

/* The same in parts of some 10,000 ids, in order, so that the ids of a text of any length need no
 * memory. What `fn` returns other than TN_OK ends it. */
typedef tn_status (*tn_encoder_fn)(void *user, const int32_t *ids, int64_t n);
tn_status tn_encoder_stream(tn_encoder *e, const char *text, int64_t n, int flags, tn_encoder_fn fn,
                            void *user) TN_MUST_USE;

TN_C_END
#endif
