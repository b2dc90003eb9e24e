/* chunk.h - some documents of a source, whole or in pieces, ready for a tokenizer
 * (engine/documents.h).
 */
#ifndef TN_ENGINE_CHUNK_H
#define TN_ENGINE_CHUNK_H
#include "engine/base/base.h"

TN_C_BEGIN

/* Zeroed: the beginning. */
typedef struct tn_bookmark {
    int64_t file;   /* of the list */
    int64_t offset; /* in the file's text, unpacked */
    int64_t line;   /* lines before it in that file, for messages */
    int64_t state;  /* what the text before it says about the document: documents.c */
} tn_bookmark;

typedef struct tn_piece {
    int64_t n;        /* bytes */
    bool first, last; /* of its document */
} tn_piece;

/* Owned by the caller, reused; zeroed is empty. */
typedef struct tn_chunk {
    void *text_mem, *pieces_mem;
    int64_t text_capacity, pieces_capacity;
    int64_t n, n_pieces;
    tn_bookmark end;     /* where the next chunk begins */
    int64_t taken_bytes; /* of the files as they lie, from the beginning: for progress */
} tn_chunk;
void tn_chunk_fini(tn_chunk *chunk);
const char *tn_chunk_text(const tn_chunk *chunk);
const tn_piece *tn_chunk_pieces(const tn_chunk *chunk);

/* Room for n bytes behind the text: *at. They belong to the chunk when chunk->n says so. */
tn_status tn_chunk_reserve(tn_chunk *chunk, int64_t n, char **at) TN_MUST_USE;
tn_status tn_chunk_add(tn_chunk *chunk, const tn_piece *piece) TN_MUST_USE;

TN_C_END
#endif
