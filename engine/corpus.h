/* corpus.h - text files as one stream of byte tokens, with the places where documents start.
 *
 * Files are mapped and never copied: opening costs nothing but the tables, a window of tokens is
 * converted where it lies, and document starts are found in the bytes themselves, so no table grows
 * with the text. Of more than 16 MiB of text no page stays mapped in longer than it is looked at,
 * because such pages count as memory of the process, whose peak is promised before it runs; the
 * system keeps them in its cache all the same. A file that another process truncates while it is
 * mapped ends this process by SIGBUS, as with every map.
 *
 * Files come in the order of the list, those of a glob sorted by name (strcmp). A file always
 * starts a document; inside it a document starts line        behind every newline blank_line behind
 * an empty line ("\n" or "\r\n"), where no further one follows file        nowhere
 */
#ifndef TN_ENGINE_CORPUS_H
#define TN_ENGINE_CORPUS_H
#include "engine/data.h"

TN_C_BEGIN

typedef enum tn_corpus_rule { TN_CORPUS_LINE, TN_CORPUS_BLANK_LINE, TN_CORPUS_FILE } tn_corpus_rule;

typedef struct tn_corpus tn_corpus;

/* Fails with TN_BAD_INPUT "SECTION.path: ..." for what is missing, no regular file, empty or
 * matches nothing. */
tn_status tn_corpus_open(const char *section, const tn_data_path *paths, int64_t n_paths,
                         tn_corpus_rule rule, tn_corpus **out) TN_MUST_USE;
void tn_corpus_close(tn_corpus *corpus); /* NULL is fine */

int64_t tn_corpus_files(const tn_corpus *corpus);
int64_t tn_corpus_tokens(const tn_corpus *corpus); /* also the bytes of all files */

/* TN_BAD_INPUT names the first byte that is not below vocab_size: file, offset, value. Reads
 * everything once. */
tn_status tn_corpus_check(const tn_corpus *corpus, const char *section,
                          int64_t vocab_size) TN_MUST_USE;

/* Reads everything once (several GB/s from the page cache). */
int64_t tn_corpus_documents(const tn_corpus *corpus);

/* Where the last `documents` documents start, 1 <= documents <= tn_corpus_documents. */
int64_t tn_corpus_tail(const tn_corpus *corpus, int64_t documents);

/* The next document start behind `token`, or `end` if that comes first. */
int64_t tn_corpus_next(const tn_corpus *corpus, int64_t token, int64_t end);

void tn_corpus_copy(const tn_corpus *corpus, int64_t token, int64_t n, int32_t *ids);

/* These tokens will not be asked for soon: a hint, and safe while others read them. */
void tn_corpus_forget(const tn_corpus *corpus, int64_t token, int64_t n);

TN_C_END
#endif
