#include "engine/corpus.h"

#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "engine/bytes.h"
#include "engine/paths.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>

#ifdef TN_HOSTILE
enum { KEEP_BYTES = 0, STRIDE_BYTES = 1 << 12 };
#else
enum {
    KEEP_BYTES = 16 << 20, /* a text up to this size may stay mapped in */
    STRIDE_BYTES =
        4 << 20, /* of a larger one that is read from end to end, what is let go at once */
};
#endif

typedef struct file {
    const char *path;
    tn_map map;
    const uint8_t *bytes; /* of the map */
    int64_t size;         /* > 0 */
    int64_t first;        /* token of the corpus */
} file;

struct tn_corpus {
    tn_corpus_rule rule;
    tn_paths paths;
    file *files;
    int64_t n_files, n_tokens;
};

/* ------------------------------------------------------------ opening */

static tn_status add_file(tn_corpus *c, const char *section, const char *path)
{
    file *f = &c->files[c->n_files];
    f->path = path;
    TN_TRY_WHILE(tn_map_open(path, &f->map), "opening %s.path", section);
    c->n_files++;
    f->bytes = (const uint8_t *)f->map.data;
    f->size = f->map.n;
    f->first = c->n_tokens;
    c->n_tokens += f->size;
    return TN_OK;
}

static tn_status open_files(tn_corpus *c, const char *section, const tn_data_path *paths,
                            int64_t n_paths)
{
    void *mem;
    TN_TRY(tn_paths_find(section, paths, n_paths, &c->paths));
    TN_TRY(tn_alloc((size_t)c->paths.n * sizeof *c->files, &mem));
    c->files = mem;
    for (int64_t i = 0; i < c->paths.n; i++)
        TN_TRY(add_file(c, section, c->paths.items[i].name));
    return TN_OK;
}

tn_status tn_corpus_open(const char *section, const tn_data_path *paths, int64_t n_paths,
                         tn_corpus_rule rule, tn_corpus **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_corpus), &mem));
    tn_corpus *c = mem;
    c->rule = rule;
    tn_status st = open_files(c, section, paths, n_paths);
    if (st) {
        tn_corpus_close(c);
        return st;
    }
    *out = c;
    return TN_OK;
}

void tn_corpus_close(tn_corpus *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->n_files; i++) tn_map_close(&c->files[i].map);
    tn_free(c->files);
    tn_paths_fini(&c->paths);
    tn_free(c);
}

int64_t tn_corpus_files(const tn_corpus *c)
{
    return c->n_files;
}

int64_t tn_corpus_tokens(const tn_corpus *c)
{
    return c->n_tokens;
}

/* ------------------------------------------------------------ pages */

static const file *find_file(const tn_corpus *c, int64_t token)
{
    int64_t low = 0, high = c->n_files; /* files[low].first <= token < files[high].first */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (c->files[middle].first <= token) low = middle;
        else high = middle;
    }
    return &c->files[low];
}

/* Offsets [begin, end) are done with. A fault maps in up to a page table's worth around it (1 MiB
 * was seen), so as much goes. Measured: 15 us a row, nothing beside a step; without it a run over 1
 * GiB of text shows 1 GiB that no plan knows of. Reading instead of mapping would cost 1 us a row,
 * but a descriptor for every file. */
static void forget(const tn_corpus *c, const file *f, int64_t begin, int64_t end)
{
    const uintptr_t around = 1 << 21, first = (uintptr_t)f->bytes,
                    last = first + (uintptr_t)f->size;
    if (c->n_tokens <= KEEP_BYTES || begin >= end) return;
    uintptr_t from = (first + (uintptr_t)begin) & ~(around - 1);
    uintptr_t to = (first + (uintptr_t)end + around - 1) & ~(around - 1);
    if (from < first) from = first; /* where a map starts, at a page */
    if (to > last) to = last;
    (void)madvise((void *)from, to - from, MADV_DONTNEED); /* a hint: nothing to do if it fails */
}

void tn_corpus_forget(const tn_corpus *c, int64_t token, int64_t n)
{
    for (const file *f = find_file(c, token); n > 0; f++) {
        int64_t o = token - f->first, count = f->size - o < n ? f->size - o : n;
        forget(c, f, o, o + count);
        token += count;
        n -= count;
    }
}

/* For a pass over the whole file that has come to offset o: lets go what lies a stride behind. */
static void pass(const tn_corpus *c, const file *f, int64_t o, int64_t *kept_from)
{
    if (o < f->size && o - *kept_from < STRIDE_BYTES) return;
    forget(c, f, *kept_from, o);
    *kept_from = o;
}

/* ------------------------------------------------------------ documents */

static bool is_empty_line(const file *f, int64_t o)
{
    return f->bytes[o] == '\n' ||
           (f->bytes[o] == '\r' && o + 1 < f->size && f->bytes[o + 1] == '\n');
}

/* Does the byte at offset o > 0, which follows a newline, start a document? */
static bool starts_behind_newline(tn_corpus_rule rule, const file *f, int64_t o)
{
    if (rule == TN_CORPUS_LINE) return true;
    if (is_empty_line(f, o)) return false;
    int64_t end = o - 1; /* of the line before: is it empty? */
    if (end > 0 && f->bytes[end - 1] == '\r') end--;
    return end == 0 || f->bytes[end - 1] == '\n';
}

/* The next start behind offset o, or `end` (at most the file's size) if there is none before. */
static int64_t next_start(tn_corpus_rule rule, const file *f, int64_t o, int64_t end)
{
    while (rule != TN_CORPUS_FILE && o < end) {
        const uint8_t *newline = memchr(f->bytes + o, '\n', (size_t)(end - o));
        if (!newline) break;
        o = newline - f->bytes + 1;
        if (o < end && starts_behind_newline(rule, f, o)) return o;
    }
    return end;
}

tn_status tn_corpus_check(const tn_corpus *c, const char *section, int64_t vocab_size)
{
    if (vocab_size >= TN_BYTES_VOCAB) return TN_OK;
    for (int64_t i = 0; i < c->n_files; i++) {
        const file *f = &c->files[i];
        for (int64_t o = 0, kept_from = 0; o < f->size; o++) {
            pass(c, f, o, &kept_from);
            if (f->bytes[o] >= vocab_size)
                TN_FAIL(TN_BAD_INPUT,
                        "%s.path: '%s' holds id %d at offset %lld, and model.vocab_size is %lld; "
                        "use %d",
                        section, f->path, f->bytes[o], (long long)o, (long long)vocab_size,
                        TN_BYTES_VOCAB);
        }
        forget(c, f, 0, f->size);
    }
    return TN_OK;
}

int64_t tn_corpus_documents(const tn_corpus *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n_files; i++) {
        const file *f = &c->files[i];
        for (int64_t o = 0, kept_from = 0; o < f->size; n++) {
            o = next_start(c->rule, f, o, f->size);
            pass(c, f, o, &kept_from);
        }
    }
    return n;
}

int64_t tn_corpus_tail(const tn_corpus *c, int64_t documents)
{
    assert(documents >= 1);
    for (int64_t i = c->n_files - 1; i >= 0; i--) {
        const file *f = &c->files[i];
        int64_t kept_to = f->size;
        for (int64_t o = f->size - 1; o > 0 && c->rule != TN_CORPUS_FILE; o--) {
            if (kept_to - o == STRIDE_BYTES) forget(c, f, o, kept_to), kept_to = o;
            if (f->bytes[o - 1] != '\n' || !starts_behind_newline(c->rule, f, o)) continue;
            if (--documents == 0) return f->first + o;
        }
        forget(c, f, 0, kept_to);
        if (--documents == 0) return f->first;
    }
    return 0;
}

int64_t tn_corpus_next(const tn_corpus *c, int64_t token, int64_t end)
{
    const file *f = find_file(c, token);
    int64_t stop = end - f->first < f->size ? end - f->first : f->size;
    return f->first + next_start(c->rule, f, token - f->first, stop);
}

void tn_corpus_copy(const tn_corpus *c, int64_t token, int64_t n, int32_t *ids)
{
    assert(token >= 0 && n >= 0 && token + n <= c->n_tokens);
    for (const file *f = find_file(c, token); n > 0; f++) {
        int64_t o = token - f->first, count = f->size - o < n ? f->size - o : n;
        tn_bytes_encode(f->bytes + o, count, ids);
        token += count;
        ids += count;
        n -= count;
    }
}
