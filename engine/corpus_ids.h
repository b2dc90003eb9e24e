/* corpus_ids.h - the documents of a corpus as the ids of a tokenizer.json, for corpus.c.
 *
 * Encoded once, when the corpus is opened, each document as a text of its own with the template's
 * ids around it. The ids lie in a file without a name that is mapped like the texts themselves, so
 * that a large text does not count as memory of the process; only a table of the documents does.
 */
#ifndef TN_ENGINE_CORPUS_IDS_H
#define TN_ENGINE_CORPUS_IDS_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_corpus_ids tn_corpus_ids;

/* TN_BAD_INPUT "SECTION.tokenizer: ..." for a file that is missing, broken, or has ids that a model
 * with this vocab_size lacks. */
tn_status tn_corpus_ids_create(const char *section, const char *tokenizer, int64_t vocab_size,
                               tn_corpus_ids **out) TN_MUST_USE;
void tn_corpus_ids_destroy(tn_corpus_ids *c); /* NULL is fine */

/* The next document; then, behind the last, seal: nothing else may be asked before. */
tn_status tn_corpus_ids_add(tn_corpus_ids *c, const char *text, int64_t n) TN_MUST_USE;
tn_status tn_corpus_ids_seal(tn_corpus_ids *c) TN_MUST_USE;

/* As in corpus.h. */
int64_t tn_corpus_ids_tokens(const tn_corpus_ids *c);
int64_t tn_corpus_ids_documents(const tn_corpus_ids *c);
int64_t tn_corpus_ids_tail(const tn_corpus_ids *c, int64_t documents);
int64_t tn_corpus_ids_next(const tn_corpus_ids *c, int64_t token, int64_t end);

/* int32 [tokens] */
const int32_t *tn_corpus_ids_items(const tn_corpus_ids *c);

TN_C_END
#endif
