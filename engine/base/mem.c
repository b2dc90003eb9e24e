#include "engine/base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Hostile: arrays move at nearly every growth and each arena block is a heap block of its own,
 * where a sanitizer sees its ends. */
#ifdef TN_HOSTILE
enum { FIRST_ITEMS = 1, BLOCK_BYTES = 1 };
#else
enum { FIRST_ITEMS = 16, BLOCK_BYTES = 1 << 16 };
#endif

static _Atomic int64_t n_allocs;
static _Atomic int64_t fail_at;

static void *get(void *old, size_t bytes)
{
    int64_t n = atomic_fetch_add(&n_allocs, 1) + 1;
    int64_t f = atomic_load(&fail_at);
    if (f && n == f) return NULL;
    return old ? realloc(old, bytes) : calloc(1, bytes ? bytes : 1);
}

int64_t tn_mem_count(void)
{
    return atomic_load(&n_allocs);
}

void tn_mem_fail_at(int64_t n)
{
    atomic_store(&fail_at, n ? atomic_load(&n_allocs) + n : 0);
}

tn_status tn_alloc(size_t bytes, void **out)
{
    void *p = get(NULL, bytes);
    if (!p) TN_FAIL(TN_FAILED, "memory: cannot allocate %zu bytes", bytes);
    *out = p;
    return TN_OK;
}

void tn_free(void *p)
{
    free(p);
}

tn_status tn_grow(void **items, int64_t *capacity, int64_t need, size_t size)
{
    if (need <= *capacity) return TN_OK;
    int64_t cap = *capacity ? *capacity : FIRST_ITEMS;
    while (cap < need) cap *= 2;
    void *p = get(*items, (size_t)cap * size);
    if (!p) TN_FAIL(TN_FAILED, "memory: cannot allocate %zu bytes", (size_t)cap * size);
    memset((char *)p + (size_t)*capacity * size, 0, (size_t)(cap - *capacity) * size);
    *items = p;
    *capacity = cap;
    return TN_OK;
}

struct tn_arena_block {
    struct tn_arena_block *next;
    size_t used, size;
    max_align_t data[];
};

tn_status tn_arena_alloc(tn_arena *a, size_t bytes, void **out)
{
    struct tn_arena_block *b = a->blocks;
    size_t n = (bytes + 15) & ~(size_t)15;
    if (!b || b->size - b->used < n) {
        size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        void *mem = NULL;
        TN_TRY(tn_alloc(sizeof *b + size, &mem));
        b = mem;
        b->size = size;
        b->next = a->blocks;
        a->blocks = b;
    }
    *out = (char *)b->data + b->used;
    b->used += n;
    a->used_bytes += n;
    return TN_OK;
}

tn_status tn_arena_text(tn_arena *a, const char *text, const char **out)
{
    size_t n = strlen(text) + 1;
    void *p;
    TN_TRY(tn_arena_alloc(a, n, &p));
    memcpy(p, text, n);
    *out = p;
    return TN_OK;
}

void tn_arena_fini(tn_arena *a)
{
    struct tn_arena_block *b = a->blocks;
    while (b) {
        struct tn_arena_block *next = b->next;
        tn_free(b);
        b = next;
    }
    *a = (tn_arena){0};
}
