/* merger.h - one piece of a text to ids: lowest rank first, leftmost among equals.
 *
 * Words come again, so each thread keeps those it has seen (2 MiB); short pieces are merged by
 * scanning for the lowest rank, long ones by a heap, in time n log n.
 */
#ifndef TN_ENGINE_MERGER_H
#define TN_ENGINE_MERGER_H
#include "engine/ids.h"
#include "engine/tokenizer.h"

TN_C_BEGIN

/* The scratch of one thread. */
typedef struct tn_merger {
    const tn_tokenizer *t;
    struct tn_word *words;
    void *symbols, *heap;
    int64_t n_symbols, n_heap; /* capacities */
} tn_merger;

tn_status tn_merger_init(tn_merger *m, const tn_tokenizer *t) TN_MUST_USE;
void tn_merger_fini(tn_merger *m);

/* Appends the ids of piece[0, n), n > 0. */
tn_status tn_merger_piece(tn_merger *m, const char *piece, int64_t n, tn_ids *out) TN_MUST_USE;

TN_C_END
#endif
