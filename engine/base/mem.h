/* mem.h - heap blocks that can be made to fail, growable arrays, and the arena that graphs live in.
 *
 * Every allocation of titan goes through these, so that a test can make each one fail in turn
 * (tn_mem_fail_at) and can count them (tn_mem_count: no step may allocate).
 */
#ifndef TN_ENGINE_BASE_MEM_H
#define TN_ENGINE_BASE_MEM_H
#include "engine/base/base.h"

TN_C_BEGIN

/* A zeroed block; the caller frees it with tn_free (NULL is fine). Fails with TN_FAILED "out of
 * memory". */
tn_status tn_alloc(size_t bytes, void **out) TN_MUST_USE;
void tn_free(void *p);

/* Make *items hold at least `need` elements of `size` bytes: grows by doubling, zeroes what is new,
 * keeps what was there. */
tn_status tn_grow(void **items, int64_t *capacity, int64_t need, size_t size) TN_MUST_USE;

/* A bump allocator: blocks have no free of their own, the arena frees them all. Zero-initialised is
 * empty and legal. */
typedef struct tn_arena {
    struct tn_arena_block *blocks;
    size_t used_bytes; /* handed out so far */
} tn_arena;

/* Zeroed, aligned to 16. */
tn_status tn_arena_alloc(tn_arena *a, size_t bytes, void **out) TN_MUST_USE;
tn_status tn_arena_text(tn_arena *a, const char *text, const char **out) TN_MUST_USE; /* a copy */
void tn_arena_fini(tn_arena *a);

/* Test hooks: number of allocations so far in this process, and "the n-th from now fails" (0:
 * none). */
int64_t tn_mem_count(void);
void tn_mem_fail_at(int64_t n);

TN_C_END
#endif
