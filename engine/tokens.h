/* tokens.h - a token file: text that was tokenised once, read through a map.
 *
 * Layout (little-endian, docs/data.md):
 *   header, 4096 bytes | ids, 16 or 32 bits each | padding to 8 bytes | documents: int64, the token
 * at which each starts | block hashes: uint64, XXH64 of every block of all bytes from the ids to
 * the end of the documents | about: JSON that says what it was made of The header carries counts,
 * fingerprints, the hashes of the last two parts, and its own.
 *
 * Opening looks at header, hashes and about (milliseconds at any size) and refuses what was cut,
 * changed or written by a later version. Blocks are checked when they are first read, their ids
 * against the vocabulary as well: a flipped bit is told by the first batch that meets it, and no id
 * outside the vocabulary ever leaves. Several threads may read.
 *
 * Messages are TN_BAD_INPUT "PATH: WHAT; MEND".
 */
#ifndef TN_ENGINE_TOKENS_H
#define TN_ENGINE_TOKENS_H
#include "engine/base/base.h"

TN_C_BEGIN

#define TN_TOKENS_MAGIC "TITANTOK"
enum { TN_TOKENS_VERSION = 1, TN_TOKENS_HEADER_BYTES = 4096 };

typedef struct tn_tokens_header {
    char magic[8];
    uint32_t version, width; /* bits of an id: 16, 32 */
    int64_t vocab;           /* ids are below */
    int64_t largest;         /* id that occurs */
    int64_t n_tokens, n_documents;
    uint64_t source, tokenizer, rule; /* fingerprints: files, codec, what a document is */
    int64_t block_bytes;              /* a power of two */
    int64_t about_bytes, file_bytes;
    uint64_t hashes_hash, about_hash;
    uint64_t hash; /* of everything before it, this struct alone */
} tn_tokens_header;

/* Where the parts of such a file begin; false if the counts cannot be. */
typedef struct tn_tokens_layout {
    int64_t ids, documents, hashes, about, end;
    int64_t n_blocks;
} tn_tokens_layout;
bool tn_tokens_lay_out(const tn_tokens_header *header, tn_tokens_layout *out);
uint64_t tn_tokens_hash_header(const tn_tokens_header *header);

typedef struct tn_tokens tn_tokens;

tn_status tn_tokens_open(const char *path, tn_tokens **out) TN_MUST_USE;
/* The same from memory, which must stay; `where` opens the messages. */
tn_status tn_tokens_parse(const char *where, const void *bytes, int64_t n,
                          tn_tokens **out) TN_MUST_USE;
void tn_tokens_close(tn_tokens *t); /* NULL is fine */

const tn_tokens_header *tn_tokens_about(const tn_tokens *t);
const char *tn_tokens_json(const tn_tokens *t, int64_t *n); /* about; no NUL behind it */

/* True for a file that begins like a token file, whatever follows. */
bool tn_tokens_is(const char *path);

/* Ids [token, token + n). */
tn_status tn_tokens_copy(tn_tokens *t, int64_t token, int64_t n, int32_t *ids) TN_MUST_USE;

/* The next document start behind `token`, or `end` if that comes first. */
tn_status tn_tokens_next(tn_tokens *t, int64_t token, int64_t end, int64_t *out) TN_MUST_USE;

/* Where document i starts, 0 <= i <= n_documents (the end). */
tn_status tn_tokens_start(tn_tokens *t, int64_t document, int64_t *out) TN_MUST_USE;

/* These tokens will not be asked for soon: a hint. */
void tn_tokens_forget(const tn_tokens *t, int64_t token, int64_t n);

/* Every block, and that documents ascend. */
tn_status tn_tokens_check(tn_tokens *t) TN_MUST_USE;

TN_C_END
#endif
