#include "engine/corpus.h"

#include "engine/base/file.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "engine/bytes.h"
#include "engine/corpus_ids.h"

#include <assert.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

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
    tn_arena names;
    file *files;
    int64_t n_files, capacity, n_tokens; /* tokens of the bytes */
    tn_corpus_ids *encoded;              /* NULL: the bytes are the tokens */
};

/* ------------------------------------------------------------ opening */

/* What the user can have got wrong, in the words of the recipe; the map refuses the rest. */
static tn_status check_file(const char *section, const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s': %s; give a file that exists, or a glob", section,
                path, strerror(errno));
    if (S_ISDIR(s.st_mode))
        TN_FAIL(TN_BAD_INPUT,
                "%s.path: '%s' is a directory; name the files in it, as in '%s/*.txt'", section,
                path, path);
    if (!S_ISREG(s.st_mode))
        TN_FAIL(
            TN_BAD_INPUT,
            "%s.path: '%s' is no regular file and cannot be read twice; write it to a file first",
            section, path);
    if (s.st_size == 0)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s' is empty; leave it out or fill it", section, path);
    return TN_OK;
}

static tn_status add_file(tn_corpus *c, const char *section, const char *path)
{
    void *files = c->files;
    TN_TRY(tn_grow(&files, &c->capacity, c->n_files + 1, sizeof *c->files));
    c->files = files;
    TN_TRY(check_file(section, path));
    file *f = &c->files[c->n_files];
    TN_TRY(tn_arena_text(&c->names, path, &f->path));
    TN_TRY_WHILE(tn_map_open(path, &f->map), "while opening %s.path", section);
    c->n_files++;
    f->bytes = (const uint8_t *)f->map.data;
    f->size = f->map.n;
    f->first = c->n_tokens;
    c->n_tokens += f->size;
    return TN_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tn_status add_glob(tn_corpus *c, const char *section, const char *pattern)
{
    glob_t g = {0};
    tn_status st = TN_OK;
    int64_t before = c->n_files;
    int rc = glob(pattern, GLOB_NOSORT, NULL, &g); /* glob sorts by locale */
    if (rc == GLOB_NOSPACE) {
        st = tn_error(TN_FAILED, "memory: too many files match '%s'", pattern);
        goto out;
    }
    if (g.gl_pathc) qsort(g.gl_pathv, g.gl_pathc, sizeof *g.gl_pathv, by_name);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        if (tn_file_is_folder(g.gl_pathv[i])) continue;
        if ((st = add_file(c, section, g.gl_pathv[i]))) goto out;
    }
    if (c->n_files == before)
        st = tn_error(TN_BAD_INPUT,
                      "%s.path: no file matches '%s'; correct the glob or put files there", section,
                      pattern);
out:
    globfree(&g);
    return st;
}

/* A file that is there goes before a glob: names may hold brackets. */
static tn_status add_pattern(tn_corpus *c, const char *section, const char *pattern)
{
    struct stat s;
    if (!pattern || !pattern[0])
        TN_FAIL(TN_BAD_INPUT, "%s.path: the name is empty; give a file or a glob", section);
    if (stat(pattern, &s) == 0 || !strpbrk(pattern, "*?[")) return add_file(c, section, pattern);
    return add_glob(c, section, pattern);
}

tn_status tn_corpus_open(const char *section, const tn_data_path *paths, int64_t n_paths,
                         tn_corpus_rule rule, tn_corpus **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_corpus), &mem));
    tn_corpus *c = mem;
    c->rule = rule;
    for (int64_t i = 0; i < n_paths; i++) {
        tn_status st = add_pattern(c, section, paths[i].pattern);
        if (st) {
            tn_corpus_close(c);
            return st;
        }
    }
    *out = c;
    return TN_OK;
}

void tn_corpus_close(tn_corpus *c)
{
    if (!c) return;
    for (int64_t i = 0; i < c->n_files; i++) tn_map_close(&c->files[i].map);
    tn_corpus_ids_destroy(c->encoded);
    tn_free(c->files);
    tn_arena_fini(&c->names);
    tn_free(c);
}

int64_t tn_corpus_files(const tn_corpus *c)
{
    return c->n_files;
}

int64_t tn_corpus_tokens(const tn_corpus *c)
{
    return c->encoded ? tn_corpus_ids_tokens(c->encoded) : c->n_tokens;
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
static void let_go(const void *map, int64_t size, int64_t begin, int64_t end)
{
    const uintptr_t around = 1 << 21, first = (uintptr_t)map, last = first + (uintptr_t)size;
    if (begin >= end) return;
    uintptr_t from = (first + (uintptr_t)begin) & ~(around - 1);
    uintptr_t to = (first + (uintptr_t)end + around - 1) & ~(around - 1);
    if (from < first) from = first; /* where a map starts, at a page */
    if (to > last) to = last;
    (void)madvise((void *)from, to - from, MADV_DONTNEED); /* a hint: nothing to do if it fails */
}

static void forget(const tn_corpus *c, const file *f, int64_t begin, int64_t end)
{
    if (c->n_tokens > KEEP_BYTES) let_go(f->bytes, f->size, begin, end);
}

static void forget_ids(const tn_corpus_ids *encoded, int64_t token, int64_t n)
{
    const int64_t each = (int64_t)sizeof(int32_t), size = tn_corpus_ids_tokens(encoded) * each;
    if (size > KEEP_BYTES)
        let_go(tn_corpus_ids_items(encoded), size, token * each, (token + n) * each);
}

void tn_corpus_forget(const tn_corpus *c, int64_t token, int64_t n)
{
    if (c->encoded) {
        forget_ids(c->encoded, token, n);
        return;
    }
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
    if (c->encoded || vocab_size >= TN_BYTES_VOCAB) return TN_OK; /* the former was asked before */
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

static tn_status encode(const tn_corpus *c, tn_corpus_ids *encoded)
{
    for (int64_t i = 0; i < c->n_files; i++) {
        const file *f = &c->files[i];
        for (int64_t o = 0, end, kept_from = 0; o < f->size; o = end) {
            end = next_start(c->rule, f, o, f->size);
            TN_TRY_WHILE(tn_corpus_ids_add(encoded, (const char *)f->bytes + o, end - o),
                         "encoding '%s' at byte %lld", f->path, (long long)o);
            pass(c, f, end, &kept_from);
        }
        forget(c, f, 0, f->size);
    }
    return tn_corpus_ids_seal(encoded);
}

tn_status tn_corpus_encode(tn_corpus *c, const char *section, const char *tokenizer,
                           int64_t vocab_size)
{
    tn_corpus_ids *encoded = NULL;
    TN_TRY(tn_corpus_ids_create(section, tokenizer, vocab_size, &encoded));
    tn_status st = encode(c, encoded);
    if (st) tn_corpus_ids_destroy(encoded);
    else c->encoded = encoded;
    return st;
}

int64_t tn_corpus_documents(const tn_corpus *c)
{
    int64_t n = 0;
    if (c->encoded) return tn_corpus_ids_documents(c->encoded);
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
    if (c->encoded) return tn_corpus_ids_tail(c->encoded, documents);
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
    if (c->encoded) return tn_corpus_ids_next(c->encoded, token, end);
    const file *f = find_file(c, token);
    int64_t stop = end - f->first < f->size ? end - f->first : f->size;
    return f->first + next_start(c->rule, f, token - f->first, stop);
}

void tn_corpus_copy(const tn_corpus *c, int64_t token, int64_t n, int32_t *ids)
{
    assert(token >= 0 && n >= 0 && token + n <= tn_corpus_tokens(c));
    if (c->encoded) {
        memcpy(ids, tn_corpus_ids_items(c->encoded) + token, (size_t)n * sizeof *ids);
        return;
    }
    for (const file *f = find_file(c, token); n > 0; f++) {
        int64_t o = token - f->first, count = f->size - o < n ? f->size - o : n;
        tn_bytes_encode(f->bytes + o, count, ids);
        token += count;
        ids += count;
        n -= count;
    }
}
