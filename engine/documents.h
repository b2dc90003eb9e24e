/* documents.h - the documents of text and JSONL files in order, in chunks that any thread can
 * tokenise.
 *
 * What a document is: of text what engine/corpus.h says (line, blank line, file; what separates two
 * documents ends the first); of JSONL the field of one line. Empty documents are passed over.
 * Documents of more than 1 MiB come in pieces of at most that, cut behind a newline where there is
 * one, else between two characters. Where depends on the document alone and a piece is tokenised by
 * itself, so memory stays constant and the tokens depend on nothing else.
 *
 * A place is where a chunk ends and the next begins; a reader opened at a place goes on from there.
 * Places are plain numbers that may be written to a file.
 */
#ifndef TN_ENGINE_DOCUMENTS_H
#define TN_ENGINE_DOCUMENTS_H
#include "engine/chunk.h"
#include "engine/corpus.h"
#include "engine/inflate.h"
#include "engine/paths.h"

TN_C_BEGIN

typedef struct tn_documents_rule {
    const char *section; /* of the recipe, for messages */
    bool jsonl;
    const char *field;  /* jsonl */
    tn_corpus_rule cut; /* text */
} tn_documents_rule;

typedef struct tn_documents tn_documents;

/* Keeps `paths` and the texts of `rule`, which must outlive it. */
tn_status tn_documents_open(const tn_paths *paths, const tn_documents_rule *rule,
                            const tn_bookmark *from, tn_documents **out) TN_MUST_USE;
void tn_documents_close(tn_documents *d); /* NULL is fine */

/* At least `want` bytes of whole pieces, fewer only at the end; n_pieces = 0: nothing is left. */
tn_status tn_documents_read(tn_documents *d, int64_t want, tn_chunk *out) TN_MUST_USE;

TN_C_END
#endif
