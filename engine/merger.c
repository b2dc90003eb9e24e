#include "engine/merger.h"

#include "engine/base/mem.h"
#include "engine/tokenizer_parts.h"

#include <string.h>

#ifdef TN_HOSTILE
enum { CACHE_BITS = 4, SHORT = 6 };
#else
enum {
    CACHE_BITS = 14, /* sets of two words: 2 MiB */
    SHORT = 48,      /* bytes up to which scanning for the lowest rank beats a heap */
};
#endif
enum { WORD_BYTES = 32, WORD_IDS = 7 };
#define NO_RANK UINT32_MAX

/* A cache line. Which bytes a key holds follows from n alone, so equal (key, n) are equal words. */
struct tn_word {
    uint64_t key[4];
    int32_t ids[WORD_IDS];
    uint32_t info; /* count of ids << 8 | n; 0: empty */
};

typedef struct symbol {
    int32_t id, prev, next; /* next < 0: the last */
    uint32_t rank;          /* of the pair with the next one; NO_RANK: none */
} symbol;

tn_status tn_merger_init(tn_merger *m, const tn_tokenizer *t)
{
    void *mem;
    TN_TRY(tn_alloc((size_t)2 << CACHE_BITS << 6, &mem));
    m->words = mem;
    m->t = t;
    return TN_OK;
}

void tn_merger_fini(tn_merger *m)
{
    tn_free(m->words);
    tn_free(m->symbols);
    tn_free(m->heap);
    *m = (tn_merger){0};
}

/* ------------------------------------------------------------ cache */

static uint64_t load8(const char *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static uint64_t load4(const char *p)
{
    uint32_t word;
    memcpy(&word, p, 4);
    return word;
}

/* n bytes, 1 .. WORD_BYTES; the last eight overlap with those before. Returns the hash. */
static uint64_t make_key(const char *p, int64_t n, uint64_t key[4])
{
    const unsigned char *u = (const unsigned char *)p;
    key[1] = key[2] = key[3] = 0;
    if (n < 4) {
        key[0] = u[0] | (uint64_t)u[n / 2] << 8 | (uint64_t)u[n - 1] << 16;
    } else if (n <= 8) {
        key[0] = load4(p) | load4(p + n - 4) << 32;
    } else {
        int last = (int)((n - 1) / 8);
        for (int i = 0; i < last; i++) key[i] = load8(p + 8 * i);
        key[last] = load8(p + n - 8);
    }
    uint64_t h = (key[0] + (uint64_t)n) * 0x9e3779b97f4a7c15u;
    if (n > 8) {
        h ^= h >> 29;
        h = (h + key[1]) * 0xbf58476d1ce4e5b9u;
        h ^= h >> 32;
        h = (h + key[2] * 0x94d049bb133111ebu + key[3] * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;
    }
    return h ^ h >> 32;
}

static bool same(const struct tn_word *w, const uint64_t key[4], int64_t n)
{
    return w->key[0] == key[0] && (w->info & 0xff) == (uint64_t)n && w->key[1] == key[1] &&
           w->key[2] == key[2] && w->key[3] == key[3];
}

static void remember(struct tn_word *set, const uint64_t key[4], int64_t n, const int32_t *ids,
                     int64_t count)
{
    if (count > WORD_IDS) return;
    set[1] = set[0];
    memcpy(set[0].key, key, sizeof set[0].key);
    memcpy(set[0].ids, ids, (size_t)count * sizeof *ids);
    set[0].info = (uint32_t)(count << 8 | n);
}

/* ------------------------------------------------------------ short pieces */

static uint32_t rank_of(const tn_tokenizer *t, int32_t left, int32_t right)
{
    const tn_merge *found = tn_tokenizer_merge(t, left, right);
    return found ? found->rank : NO_RANK;
}

/* ids: n <= SHORT of single bytes; returns how many are left. */
static int merge_short(const tn_tokenizer *t, int32_t *ids, int n)
{
    uint32_t ranks[SHORT];
    for (int i = 0; i + 1 < n; i++) ranks[i] = rank_of(t, ids[i], ids[i + 1]);
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++) {
            if (ranks[i] < ranks[best]) best = i;
        }
        if (ranks[best] == NO_RANK) break;
        ids[best] = tn_tokenizer_merge(t, ids[best], ids[best + 1])->id;
        n--;
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (size_t)(n - best - 1) * sizeof *ranks);
        if (best + 1 < n) ranks[best] = rank_of(t, ids[best], ids[best + 1]);
        if (best > 0) ranks[best - 1] = rank_of(t, ids[best - 1], ids[best]);
    }
    return n;
}

/* ------------------------------------------------------------ long pieces */

static void sift_down(uint64_t *heap, int64_t n, int64_t at)
{
    uint64_t item = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && heap[child + 1] < heap[child]) child++;
        if (heap[child] >= item) break;
        heap[at] = heap[child];
    }
    heap[at] = item;
}

static void push(uint64_t *heap, int64_t *n, uint64_t item)
{
    int64_t at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2] > item; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

/* The pair at `at` has changed. An entry of the heap whose rank is not that of its symbol any more
 * is stale: a symbol only grows, so a pair that was left never comes back. */
static void rank_pair(const tn_tokenizer *t, symbol *s, int32_t at, uint64_t *heap, int64_t *n)
{
    s[at].rank = s[at].next < 0 ? NO_RANK : rank_of(t, s[at].id, s[s[at].next].id);
    if (s[at].rank != NO_RANK) push(heap, n, (uint64_t)s[at].rank << 32 | (uint32_t)at);
}

static void merge_heap(const tn_tokenizer *t, symbol *s, uint64_t *heap, int64_t n)
{
    for (int64_t i = n / 2; i-- > 0;) sift_down(heap, n, i);
    while (n > 0) {
        int32_t at = (int32_t)(heap[0] & 0xffffffff);
        uint32_t rank = (uint32_t)(heap[0] >> 32);
        heap[0] = heap[--n];
        if (n) sift_down(heap, n, 0);
        if (s[at].rank != rank) continue;
        int32_t gone = s[at].next;
        s[at].id = tn_tokenizer_merge(t, s[at].id, s[gone].id)->id;
        s[at].next = s[gone].next;
        s[gone].rank = NO_RANK;
        if (s[at].next >= 0) s[s[at].next].prev = at;
        rank_pair(t, s, at, heap, &n);
        if (s[at].prev >= 0) rank_pair(t, s, s[at].prev, heap, &n);
    }
}

static tn_status merge_long(tn_merger *m, const char *piece, int64_t n, tn_ids *out)
{
    const tn_tokenizer *t = m->t;
    int64_t n_heap = 0;
    if (n >= INT32_MAX)
        TN_FAIL(TN_BAD_INPUT, "text: one piece of %lld bytes without a place to split; at most %d",
                (long long)n, INT32_MAX - 1);
    /* a merge takes one entry out and brings two, and there are at most n - 1 */
    TN_TRY(tn_grow(&m->symbols, &m->n_symbols, n, sizeof(symbol)));
    TN_TRY(tn_grow(&m->heap, &m->n_heap, 2 * n, sizeof(uint64_t)));
    symbol *s = m->symbols;
    uint64_t *heap = m->heap;
    for (int32_t i = 0; i < n; i++)
        s[i] =
            (symbol){t->byte_ids[(unsigned char)piece[i]], i - 1, i + 1 < n ? i + 1 : -1, NO_RANK};
    for (int32_t i = 0; i + 1 < n; i++) {
        s[i].rank = rank_of(t, s[i].id, s[i + 1].id);
        if (s[i].rank != NO_RANK) heap[n_heap++] = (uint64_t)s[i].rank << 32 | (uint32_t)i;
    }
    merge_heap(t, s, heap, n_heap);
    int64_t left = 0;
    for (int32_t i = 0; i >= 0; i = s[i].next) left++;
    TN_TRY(tn_ids_grow(out, left));
    for (int32_t i = 0; i >= 0; i = s[i].next) out->items[out->n++] = s[i].id;
    return TN_OK;
}

/* ------------------------------------------------------------ a piece */

static tn_status merge(tn_merger *m, const char *piece, int64_t n, tn_ids *out)
{
    const tn_tokenizer *t = m->t;
    int32_t whole = t->ignore_merges ? tn_tokenizer_lookup(t, piece, n, false) : -1;
    if (whole >= 0 && t->tokens[whole].outside) whole = -1;
    if (whole < 0 && n > SHORT) return merge_long(m, piece, n, out);
    TN_TRY(tn_ids_grow(out, n));
    int32_t *ids = out->items + out->n;
    if (whole >= 0) {
        ids[0] = whole;
        out->n++;
        return TN_OK;
    }
    for (int64_t i = 0; i < n; i++) ids[i] = t->byte_ids[(unsigned char)piece[i]];
    out->n += merge_short(t, ids, (int)n);
    return TN_OK;
}

tn_status tn_merger_piece(tn_merger *m, const char *piece, int64_t n, tn_ids *out)
{
    uint64_t key[4];
    if (n > WORD_BYTES) return merge(m, piece, n, out);
    uint64_t hash = make_key(piece, n, key);
    struct tn_word *set = m->words + 2 * (hash & ((1 << CACHE_BITS) - 1));
    const struct tn_word *hit = same(set, key, n) ? set : same(set + 1, key, n) ? set + 1 : NULL;
    int64_t before = out->n;
    if (!hit) {
        TN_TRY(merge(m, piece, n, out));
        remember(set, key, n, out->items + before, out->n - before);
        return TN_OK;
    }
    TN_TRY(tn_ids_grow(out, WORD_IDS));
    memcpy(out->items + out->n, hit->ids, sizeof hit->ids); /* all: the size is known */
    out->n += hit->info >> 8;
    return TN_OK;
}
