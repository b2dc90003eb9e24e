/* tokens_build.h - makes a token file (engine/tokens.h) of text and JSONL files.
 *
 * NOTES ON BUILDING
 * (1) FILE exists if and only if it is complete: it is written as FILE.part, synced, renamed.
 * (2) FILE.part.state says up to which place of the sources FILE.part (ids) and FILE.part.docs
 *     (document starts) are on disk; it is replaced in one stroke, after these two were synced.
 * (3) A build that finds a state of the same sources, tokenizer and rule goes on from there,
 * whatever follows in the parts is cut off; else it starts anew. So the result is the same bytes
 * however often it was interrupted, and by any number of threads. (4) FILE.part is locked while it
 * is written: a second build of FILE waits and then finds it made.
 */
#ifndef TN_ENGINE_TOKENS_BUILD_H
#define TN_ENGINE_TOKENS_BUILD_H
#include "engine/tokenise.h"
#include "engine/tokens.h"

TN_C_BEGIN

typedef struct tn_tokens_progress {
    int64_t taken_bytes, all_bytes; /* of the sources as they lie */
    int64_t tokens, documents;
    bool resumed;
} tn_tokens_progress;

typedef struct tn_tokens_build_options {
    const char *path;
    const tn_paths *sources;
    tn_documents_rule rule;
    const tn_codec *codec;
    int threads;                                               /* 0: one per core */
    void (*progress)(void *user, const tn_tokens_progress *p); /* NULL: none; every chunk */
    void *user;
} tn_tokens_build_options;

/* *made: false when FILE was there already, of the same sources, tokenizer and rule. A FILE that is
 * something else than a token file is refused. */
tn_status tn_tokens_build(const tn_tokens_build_options *options, bool *made) TN_MUST_USE;

/* What a token file must carry to be taken as made of these. */
typedef struct tn_tokens_origin {
    uint64_t source, tokenizer, rule;
} tn_tokens_origin;
tn_tokens_origin tn_tokens_origin_of(const tn_paths *sources, const tn_documents_rule *rule,
                                     const tn_codec *codec);

TN_C_END
#endif
