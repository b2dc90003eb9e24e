#include "engine/tokens.h"

#include "engine/base/hash.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(sizeof(tn_tokens_header) <= TN_TOKENS_HEADER_BYTES, "the header fits its page");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token files are read as they lie");

#ifdef TN_HOSTILE
enum { KEEP_BYTES = 0 };
#else
enum { KEEP_BYTES = 16 << 20 }; /* a file up to this size may stay mapped in (engine/corpus.h) */
#endif

struct tn_tokens {
    const char *where;
    tn_map map; /* zeroed: bytes of the caller */
    const uint8_t *bytes;
    tn_tokens_header header;
    tn_tokens_layout at;
    _Atomic uint64_t *seen; /* a bit for each block that was checked */
    tn_arena arena;
};

/* ------------------------------------------------------------ layout */

static bool add(int64_t a, int64_t n, int64_t each, int64_t *out)
{
    int64_t more;
    return !__builtin_mul_overflow(n, each, &more) && !__builtin_add_overflow(a, more, out);
}

bool tn_tokens_lay_out(const tn_tokens_header *h, tn_tokens_layout *out)
{
    tn_tokens_layout l = {.ids = TN_TOKENS_HEADER_BYTES};
    int64_t b = h->block_bytes;
    if ((h->width != 16 && h->width != 32) || h->n_tokens < 1 || h->n_documents < 1 ||
        h->n_documents > h->n_tokens || h->about_bytes < 0 || b < 64 || b > 1 << 30 ||
        (b & (b - 1)))
        return false;
    if (h->vocab < 1 || h->vocab > INT32_MAX || h->largest < 0 || h->largest >= h->vocab)
        return false;
    if (!add(l.ids, h->n_tokens, h->width / 8, &l.documents) || l.documents > INT64_MAX - 8)
        return false;
    l.documents = (l.documents + 7) & ~(int64_t)7;
    if (!add(l.documents, h->n_documents, 8, &l.hashes)) return false;
    l.n_blocks = (l.hashes - l.ids - 1) / b + 1;
    if (!add(l.hashes, l.n_blocks, 8, &l.about)) return false;
    if (!add(l.about, h->about_bytes, 1, &l.end)) return false;
    *out = l;
    return true;
}

uint64_t tn_tokens_hash_header(const tn_tokens_header *h)
{
    return tn_hash_xxh64(h, offsetof(tn_tokens_header, hash), 0);
}

/* ------------------------------------------------------------ opening */

static tn_status check_header(const char *where, const tn_tokens_header *h, int64_t n,
                              tn_tokens_layout *at)
{
    if (memcmp(h->magic, TN_TOKENS_MAGIC, sizeof h->magic) != 0)
        TN_FAIL(TN_BAD_INPUT, "%s: is no token file; `titan data build` makes one", where);
    if (h->version > TN_TOKENS_VERSION)
        TN_FAIL(TN_BAD_INPUT,
                "%s: was written by a newer titan (version %u of the format, this one reads %d); "
                "build it again",
                where, h->version, TN_TOKENS_VERSION);
    if (h->hash != tn_tokens_hash_header(h) || h->version < 1 || !tn_tokens_lay_out(h, at))
        TN_FAIL(TN_BAD_INPUT, "%s: its header is damaged; build it again", where);
    if (h->file_bytes != at->end || n != at->end)
        TN_FAIL(TN_BAD_INPUT, "%s: is %lld bytes long and should be %lld; build it again", where,
                (long long)n, (long long)at->end);
    return TN_OK;
}

static tn_status parse(const char *where, const void *bytes, int64_t n, tn_tokens *t)
{
    void *mem;
    tn_tokens_header *h = &t->header;
    if (n < 8 || memcmp(bytes, TN_TOKENS_MAGIC, 8) != 0)
        TN_FAIL(TN_BAD_INPUT, "%s: is no token file; `titan data build` makes one", where);
    if (n < TN_TOKENS_HEADER_BYTES)
        TN_FAIL(TN_BAD_INPUT, "%s: was cut inside its header; build it again", where);
    memcpy(h, bytes, sizeof *h);
    TN_TRY(check_header(where, h, n, &t->at));
    t->bytes = bytes;
    const uint8_t *hashes = t->bytes + t->at.hashes, *about = t->bytes + t->at.about;
    if (tn_hash_xxh64(hashes, (size_t)(t->at.about - t->at.hashes), 0) != h->hashes_hash ||
        tn_hash_xxh64(about, (size_t)h->about_bytes, 0) != h->about_hash)
        TN_FAIL(TN_BAD_INPUT, "%s: its end is damaged; build it again", where);
    TN_TRY(tn_arena_text(&t->arena, where, &t->where));
    TN_TRY(tn_arena_alloc(&t->arena, (size_t)(t->at.n_blocks / 64 + 1) * sizeof *t->seen, &mem));
    t->seen = mem;
    return TN_OK;
}

tn_status tn_tokens_parse(const char *where, const void *bytes, int64_t n, tn_tokens **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_tokens), &mem));
    tn_tokens *t = mem;
    tn_status st = parse(where, bytes, n, t);
    if (st) {
        tn_tokens_close(t);
        return st;
    }
    *out = t;
    return TN_OK;
}

tn_status tn_tokens_open(const char *path, tn_tokens **out)
{
    tn_map map;
    TN_TRY(tn_map_open(path, &map));
    tn_status st = tn_tokens_parse(path, map.data, map.n, out);
    if (st) tn_map_close(&map);
    else (*out)->map = map;
    return st;
}

void tn_tokens_close(tn_tokens *t)
{
    if (!t) return;
    tn_map_close(&t->map);
    tn_arena_fini(&t->arena);
    tn_free(t);
}

const tn_tokens_header *tn_tokens_about(const tn_tokens *t)
{
    return &t->header;
}

const char *tn_tokens_json(const tn_tokens *t, int64_t *n)
{
    *n = t->header.about_bytes;
    return (const char *)t->bytes + t->at.about;
}

bool tn_tokens_is(const char *path)
{
    char magic[8];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, magic, sizeof magic) == (ssize_t)sizeof magic &&
              memcmp(magic, TN_TOKENS_MAGIC, sizeof magic) == 0;
    if (fd >= 0) close(fd);
    return is;
}

/* ------------------------------------------------------------ blocks */

/* The largest id whose bytes begin in [begin, end): ids are aligned, so none crosses a block. */
static int64_t largest_in(const tn_tokens *t, int64_t begin, int64_t end)
{
    uint32_t most = 0;
    int64_t stop = t->at.ids + t->header.n_tokens * (t->header.width / 8);
    if (end > stop) end = stop;
    if (begin >= end) return 0;
    if (t->header.width == 16) {
        const uint16_t *p = (const uint16_t *)(const void *)(t->bytes + begin);
        for (int64_t i = 0; i < (end - begin) / 2; i++) most = p[i] > most ? p[i] : most;
    } else {
        const uint32_t *p = (const uint32_t *)(const void *)(t->bytes + begin);
        for (int64_t i = 0; i < (end - begin) / 4; i++) most = p[i] > most ? p[i] : most;
    }
    return most;
}

static tn_status check_block(const tn_tokens *t, int64_t block)
{
    int64_t begin = t->at.ids + block * t->header.block_bytes, end = begin + t->header.block_bytes;
    uint64_t want;
    if (end > t->at.hashes) end = t->at.hashes;
    memcpy(&want, t->bytes + t->at.hashes + block * 8, 8);
    if (tn_hash_xxh64(t->bytes + begin, (size_t)(end - begin), 0) != want)
        TN_FAIL(TN_BAD_INPUT, "%s: bytes %lld to %lld are damaged; build it again", t->where,
                (long long)begin, (long long)end);
    int64_t most = largest_in(t, begin, end);
    if (most > t->header.largest)
        TN_FAIL(TN_BAD_INPUT,
                "%s: holds id %lld between bytes %lld and %lld, and its header says %lld is the "
                "largest; build it again",
                t->where, (long long)most, (long long)begin, (long long)end,
                (long long)t->header.largest);
    return TN_OK;
}

/* Bytes [begin, end) of the file have been checked when this comes back. Two threads may check one
 * block: no harm. */
static tn_status see(tn_tokens *t, int64_t begin, int64_t end)
{
    int64_t first = (begin - t->at.ids) / t->header.block_bytes,
            last = (end - 1 - t->at.ids) / t->header.block_bytes;
    for (int64_t b = first; b <= last; b++) {
        uint64_t bit = (uint64_t)1 << (b & 63);
        if (atomic_load_explicit(&t->seen[b >> 6], memory_order_relaxed) & bit) continue;
        TN_TRY(check_block(t, b));
        atomic_fetch_or_explicit(&t->seen[b >> 6], bit, memory_order_relaxed);
    }
    return TN_OK;
}

/* ------------------------------------------------------------ reading */

tn_status tn_tokens_copy(tn_tokens *t, int64_t token, int64_t n, int32_t *ids)
{
    int64_t size = t->header.width / 8, begin = t->at.ids + token * size;
    assert(token >= 0 && n >= 0 && n <= t->header.n_tokens - token);
    if (n == 0) return TN_OK;
    TN_TRY(see(t, begin, begin + n * size));
    if (size == 2) {
        const uint16_t *p = (const uint16_t *)(const void *)(t->bytes + begin);
        for (int64_t i = 0; i < n; i++) ids[i] = p[i];
    } else {
        memcpy(ids, t->bytes + begin, (size_t)n * sizeof *ids);
    }
    return TN_OK;
}

tn_status tn_tokens_start(tn_tokens *t, int64_t document, int64_t *out)
{
    int64_t at = t->at.documents + document * 8, start;
    assert(document >= 0 && document <= t->header.n_documents);
    if (document == t->header.n_documents) {
        *out = t->header.n_tokens;
        return TN_OK;
    }
    TN_TRY(see(t, at, at + 8));
    memcpy(&start, t->bytes + at, sizeof start);
    if (start < 0 || start >= t->header.n_tokens)
        TN_FAIL(TN_BAD_INPUT, "%s: document %lld starts at token %lld of %lld; build it again",
                t->where, (long long)document, (long long)start, (long long)t->header.n_tokens);
    *out = start;
    return TN_OK;
}

tn_status tn_tokens_next(tn_tokens *t, int64_t token, int64_t end, int64_t *out)
{
    int64_t low = 0, high = t->header.n_documents,
            start; /* the first start > token is in [low, high] */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        TN_TRY(tn_tokens_start(t, middle, &start));
        if (start > token) high = middle;
        else low = middle + 1;
    }
    TN_TRY(tn_tokens_start(t, low, &start));
    *out = start > token && start < end ? start : end;
    return TN_OK;
}

void tn_tokens_forget(const tn_tokens *t, int64_t token, int64_t n)
{
    const uintptr_t around = 1 << 21, first = (uintptr_t)t->bytes,
                    last = first + (uintptr_t)t->map.n;
    if (t->map.n <= KEEP_BYTES || n <= 0) return;
    int64_t size = t->header.width / 8, begin = t->at.ids + token * size, end = begin + n * size;
    uintptr_t from = (first + (uintptr_t)begin) & ~(around - 1);
    uintptr_t to = (first + (uintptr_t)end + around - 1) & ~(around - 1);
    if (from < first) from = first;
    if (to > last) to = last;
    (void)madvise((void *)from, to - from, MADV_DONTNEED); /* a hint: nothing to do if it fails */
}

tn_status tn_tokens_check(tn_tokens *t)
{
    int64_t before = -1, size = t->header.width / 8, stride = (int64_t)4 << 20;
    for (int64_t token = 0; token < t->header.n_tokens; token += stride) {
        int64_t n = t->header.n_tokens - token < stride ? t->header.n_tokens - token : stride;
        TN_TRY(see(t, t->at.ids + token * size, t->at.ids + (token + n) * size));
        tn_tokens_forget(t, token, n);
    }
    for (int64_t d = 0; d < t->header.n_documents; d++) {
        int64_t start;
        TN_TRY(tn_tokens_start(t, d, &start));
        if (start < before || (d == 0 && start != 0))
            TN_FAIL(TN_BAD_INPUT,
                    "%s: document %lld starts at token %lld, before the one before it; "
                    "build it again",
                    t->where, (long long)d, (long long)start);
        before = start;
    }
    return TN_OK;
}
