/* windows.h - a long row of tokens with the places where documents start, read in windows: text
 * files whose bytes are the tokens (engine/corpus.h), or token files behind one another.
 *
 * Windows may be asked for from several threads.
 */
#ifndef TN_ENGINE_WINDOWS_H
#define TN_ENGINE_WINDOWS_H
#include "engine/corpus.h"

TN_C_BEGIN

typedef struct tn_windows tn_windows;

/* The arguments and messages of tn_corpus_open. */
tn_status tn_windows_open_text(const char *section, const tn_data_path *paths, int64_t n_paths,
                               tn_corpus_rule rule, tn_windows **out) TN_MUST_USE;

/* Token files, of one tokenizer; *tokenizer: its fingerprint. */
tn_status tn_windows_open_tokens(const char *section, const tn_data_path *paths, int64_t n_paths,
                                 uint64_t *tokenizer, tn_windows **out) TN_MUST_USE;
void tn_windows_close(tn_windows *w); /* NULL is fine */

int64_t tn_windows_files(const tn_windows *w);
int64_t tn_windows_bytes(const tn_windows *w); /* of the maps */
int64_t tn_windows_tokens(const tn_windows *w);

/* TN_BAD_INPUT if an id is not below vocab_size. */
tn_status tn_windows_check(const tn_windows *w, const char *section,
                           int64_t vocab_size) TN_MUST_USE;

int64_t tn_windows_documents(const tn_windows *w); /* of text: reads everything once */

/* Where the last `documents` documents start, 1 <= documents <= tn_windows_documents. */
tn_status tn_windows_tail(const tn_windows *w, int64_t documents, int64_t *out) TN_MUST_USE;

/* The next document start behind `token`, or `end` if that comes first. */
tn_status tn_windows_next(const tn_windows *w, int64_t token, int64_t end,
                          int64_t *out) TN_MUST_USE;
tn_status tn_windows_copy(const tn_windows *w, int64_t token, int64_t n, int32_t *ids) TN_MUST_USE;
void tn_windows_forget(const tn_windows *w, int64_t token, int64_t n);

TN_C_END
#endif
