/* tokenise.h - the documents of files as ids, in order, made by all threads: what fills token files
 * and what training reads when it tokenises on the fly.
 *
 * One thread reads and unpacks the next chunks while the others tokenise; memory is a few chunks a
 * thread, whatever the files' size. The ids depend on the files, the rule and the codec alone, not
 * on threads nor on where a reader was opened.
 */
#ifndef TN_ENGINE_TOKENISE_H
#define TN_ENGINE_TOKENISE_H
#include "engine/codec.h"
#include "engine/documents.h"

TN_C_BEGIN

typedef struct tn_tokenise_options {
    const tn_paths *paths; /* kept, as are the texts of rule */
    tn_documents_rule rule;
    const tn_codec *codec; /* kept */
    tn_bookmark from;
    int threads; /* 0: one per core */
} tn_tokenise_options;

/* The ids of a chunk. Good until the next call. */
typedef struct tn_run {
    const int32_t *ids; /* [n] */
    int64_t n;
    const int64_t *starts; /* [n_starts], ascending: offsets in ids where documents start */
    int64_t n_starts;
    tn_bookmark end;     /* where to open a reader that gives what follows */
    int64_t taken_bytes; /* of the files, for progress */
    bool ended;          /* nothing follows; n is 0 */
} tn_run;

typedef struct tn_tokenise tn_tokenise;

tn_status tn_tokenise_open(const tn_tokenise_options *options, tn_tokenise **out) TN_MUST_USE;
void tn_tokenise_close(tn_tokenise *t); /* NULL is fine */

tn_status tn_tokenise_next(tn_tokenise *t, tn_run *out) TN_MUST_USE;

TN_C_END
#endif
