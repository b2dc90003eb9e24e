#include "engine/tokens_build.h"

#include "engine/base/fault.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/jsonout.h"
#include "engine/base/map.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef TN_HOSTILE
enum { BLOCK_BYTES = 64, BUFFER_BYTES = 100 };
#define SAVE_TOKENS 1000
#else
enum { BLOCK_BYTES = 1 << 16, BUFFER_BYTES = 1 << 20 };
#define SAVE_TOKENS ((int64_t)8 << 20) /* between two states: a second or so of work */
#endif
enum { PATH_BYTES = 4096 };

/* FILE.part.state, written whole. */
typedef struct state {
    char magic[8];
    tn_tokens_origin origin;
    int64_t width, block_bytes;
    tn_bookmark place;
    int64_t n_tokens, n_documents, largest;
    uint64_t hash;
} state;

typedef struct sink {
    int fd;
    const char *path;
    uint8_t *buffer;  /* [BUFFER_BYTES] */
    int64_t used, at; /* at: offset of buffer[0] in the file */
} sink;

typedef struct build {
    const tn_tokens_build_options *o;
    char part[PATH_BYTES], docs[PATH_BYTES], save[PATH_BYTES], draft[PATH_BYTES];
    sink ids, starts;
    state s;
    bool resumed;
    int64_t saved_tokens;
    tn_text about;
    tn_arena arena;
} build;

static const char STATE_MAGIC[8] = "TITANTB1";

tn_tokens_origin tn_tokens_origin_of(const tn_paths *sources, const tn_documents_rule *rule,
                                     const tn_codec *codec)
{
    tn_hash h;
    tn_hash_start(&h, TN_TOKENS_VERSION);
    int64_t kind[2] = {rule->jsonl, rule->jsonl ? 0 : (int64_t)rule->cut};
    tn_hash_add(&h, kind, sizeof kind);
    if (rule->jsonl) tn_hash_add(&h, rule->field, strlen(rule->field) + 1);
    tn_hash_add(&h, tn_codec_end_token(codec), strlen(tn_codec_end_token(codec)));
    return (tn_tokens_origin){tn_paths_fingerprint(sources), tn_codec_fingerprint(codec),
                              tn_hash_value(&h)};
}

static bool same_origin(const tn_tokens_origin *a, const tn_tokens_origin *b)
{
    return a->source == b->source && a->tokenizer == b->tokenizer && a->rule == b->rule;
}

/* ------------------------------------------------------------ writing */

static tn_status put_at(const sink *k, int64_t at, const void *data, int64_t n)
{
    const char *from = data;
    while (n > 0) {
        ssize_t w = tn_fault_hit(TN_FAULT_FILE_WRITE) ? -1 : pwrite(k->fd, from, (size_t)n, at);
        if (w < 0 && errno == EINTR) continue;
        if (w < 0) return tn_file_error(k->path, "write");
        from += w;
        at += w;
        n -= w;
    }
    return TN_OK;
}

static tn_status flush(sink *k)
{
    TN_TRY(put_at(k, k->at, k->buffer, k->used));
    k->at += k->used;
    k->used = 0;
    return TN_OK;
}

static tn_status sync_sink(sink *k)
{
    TN_TRY(flush(k));
    if (tn_fault_hit(TN_FAULT_FILE_SYNC) || fdatasync(k->fd) != 0)
        return tn_file_error(k->path, "sync");
    return TN_OK;
}

static tn_status cut(const sink *k, int64_t n)
{
    if (tn_fault_hit(TN_FAULT_FILE_WRITE) || ftruncate(k->fd, n) != 0)
        return tn_file_error(k->path, "write");
    return TN_OK;
}

/* Room for `each` bytes more. */
static tn_status room(sink *k, int64_t each)
{
    return k->used + each > BUFFER_BYTES ? flush(k) : TN_OK;
}

static tn_status put_ids(build *b, const tn_run *run)
{
    sink *k = &b->ids;
    for (int64_t i = 0; i < run->n; i++) {
        int32_t id = run->ids[i];
        if (id > b->s.largest) b->s.largest = id;
        TN_TRY(room(k, 4));
        uint16_t half = (uint16_t)id;
        memcpy(k->buffer + k->used, b->s.width == 16 ? (void *)&half : (void *)&id,
               (size_t)b->s.width / 8);
        k->used += b->s.width / 8;
    }
    return TN_OK;
}

static tn_status put_run(build *b, const tn_run *run)
{
    TN_TRY(put_ids(b, run));
    for (int64_t i = 0; i < run->n_starts; i++) {
        int64_t start = b->s.n_tokens + run->starts[i];
        TN_TRY(room(&b->starts, 8));
        memcpy(b->starts.buffer + b->starts.used, &start, 8);
        b->starts.used += 8;
    }
    b->s.n_tokens += run->n;
    b->s.n_documents += run->n_starts;
    b->s.place = run->end;
    return TN_OK;
}

/* ------------------------------------------------------------ states */

static uint64_t hash_state(const state *s)
{
    return tn_hash_xxh64(s, offsetof(state, hash), 0);
}

/* Under a fixed name first (base/file.h would leave one of a process that was killed). */
static tn_status write_state(const build *b)
{
    sink k = {.path = b->draft};
    k.fd = tn_fault_hit(TN_FAULT_FILE_OPEN)
               ? -1
               : open(b->draft, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (k.fd < 0) return tn_file_error(b->draft, "write");
    tn_status st = put_at(&k, 0, &b->s, sizeof b->s);
    if (!st) st = sync_sink(&k);
    close(k.fd);
    return st ? st : tn_file_rename(b->draft, b->save);
}

static tn_status save(build *b)
{
    TN_TRY(sync_sink(&b->ids));
    TN_TRY(sync_sink(&b->starts));
    b->s.hash = hash_state(&b->s);
    TN_TRY(write_state(b));
    b->saved_tokens = b->s.n_tokens;
    return TN_OK;
}

static int64_t size_of(const sink *k)
{
    struct stat s;
    return fstat(k->fd, &s) == 0 ? s.st_size : 0;
}

/* Takes up the state if there is one that fits; a wrong or missing one is no error. */
static void take_up(build *b)
{
    char *text = NULL;
    int64_t n = 0;
    state s;
    if (!tn_file_exists(b->save) || tn_file_read(b->save, 1 << 16, &text, &n)) {
        tn_error_clear();
        return;
    }
    if (n == (int64_t)sizeof s) {
        memcpy(&s, text, sizeof s);
        bool fits = memcmp(s.magic, STATE_MAGIC, sizeof s.magic) == 0 && s.hash == hash_state(&s) &&
                    same_origin(&s.origin, &b->s.origin) && s.width == b->s.width &&
                    s.block_bytes == b->s.block_bytes &&
                    size_of(&b->ids) >= TN_TOKENS_HEADER_BYTES + s.n_tokens * s.width / 8 &&
                    size_of(&b->starts) >= s.n_documents * 8;
        if (fits) b->s = s;
        b->resumed = fits && s.n_tokens > 0;
    }
    tn_free(text);
}

static tn_status begin(build *b)
{
    take_up(b);
    b->ids.at = TN_TOKENS_HEADER_BYTES + b->s.n_tokens * b->s.width / 8;
    b->starts.at = b->s.n_documents * 8;
    b->saved_tokens = b->s.n_tokens;
    TN_TRY(cut(&b->ids, b->ids.at));
    return cut(&b->starts, b->starts.at);
}

/* ------------------------------------------------------------ files */

static tn_status open_sink(build *b, const char *path, sink *k)
{
    void *mem;
    TN_TRY(tn_arena_alloc(&b->arena, BUFFER_BYTES, &mem));
    k->buffer = mem;
    k->path = path;
    k->fd = tn_fault_hit(TN_FAULT_FILE_OPEN) ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return k->fd < 0 ? tn_file_error(path, "write") : TN_OK;
}

/* (4): the lock is on the file that has this name now, not on one that another build has renamed.
 */
static tn_status lock_part(build *b)
{
    for (;;) {
        struct stat ours, named;
        TN_TRY(open_sink(b, b->part, &b->ids));
        while (flock(b->ids.fd, LOCK_EX) != 0)
            if (errno != EINTR) return tn_file_error(b->part, "lock");
        if (fstat(b->ids.fd, &ours) == 0 && stat(b->part, &named) == 0 &&
            ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
            return TN_OK;
        close(b->ids.fd);
        b->ids.fd = -1;
    }
}

static tn_status is_made(const build *b, bool *out)
{
    const char *path = b->o->path;
    tn_tokens *t;
    *out = false;
    if (!tn_file_exists(path)) return TN_OK;
    if (!tn_tokens_is(path))
        TN_FAIL(TN_BAD_INPUT, "%s: exists and is no token file; give another --out", path);
    if (tn_tokens_open(path, &t)) {
        tn_error_clear(); /* damaged, or of another version: it will be replaced */
        return TN_OK;
    }
    const tn_tokens_header *h = tn_tokens_about(t);
    *out = same_origin(&(tn_tokens_origin){h->source, h->tokenizer, h->rule}, &b->s.origin);
    tn_tokens_close(t);
    return TN_OK;
}

static tn_status say_what(build *b)
{
    static const char *const cuts[] = {"line", "blank_line", "file"};
    const tn_tokens_build_options *o = b->o;
    tn_jsonout w = {.text = &b->about};
    tn_jsonout_open(&w, NULL, '{');
    tn_jsonout_string(&w, "tokenizer", tn_codec_name(o->codec));
    tn_jsonout_string(&w, "end_token", tn_codec_end_token(o->codec));
    tn_jsonout_string(&w, "kind", o->rule.jsonl ? "jsonl" : "text");
    if (o->rule.jsonl) tn_jsonout_string(&w, "field", o->rule.field);
    else tn_jsonout_string(&w, "document", cuts[o->rule.cut]);
    tn_jsonout_open(&w, "sources", '[');
    for (int64_t i = 0; i < o->sources->n; i++) {
        const tn_path *p = &o->sources->items[i];
        tn_jsonout_open(&w, NULL, '{');
        tn_jsonout_string(&w, "path", p->name);
        tn_jsonout_int(&w, "bytes", p->bytes);
        tn_jsonout_int(&w, "modified_ns", p->modified_ns);
        tn_jsonout_close(&w);
    }
    tn_jsonout_close(&w);
    tn_jsonout_close(&w);
    return tn_text_end(&b->about);
}

/* ------------------------------------------------------------ the end */

static void drop_notes(const build *b)
{
    unlink(b->save);
    unlink(b->docs);
    unlink(b->draft);
}

/* The document starts move behind the ids. */
static tn_status append_documents(build *b, const tn_tokens_layout *l)
{
    int64_t all = b->s.n_documents * 8, at = 0;
    static const char padding[8];
    TN_TRY(put_at(&b->ids, b->ids.at, padding, l->documents - b->ids.at));
    while (at < all) {
        int64_t want = all - at < BUFFER_BYTES ? all - at : BUFFER_BYTES;
        ssize_t r = tn_fault_hit(TN_FAULT_FILE_READ)
                        ? -1
                        : pread(b->starts.fd, b->starts.buffer, (size_t)want, at);
        if (r < 0 && errno == EINTR) continue;
        if (r < 0) return tn_file_error(b->docs, "read");
        if (r == 0) TN_FAIL(TN_FAILED, "%s: ended while it was read", b->docs);
        TN_TRY(put_at(&b->ids, l->documents + at, b->starts.buffer, r));
        at += r;
    }
    return TN_OK;
}

typedef struct hashing {
    const uint8_t *bytes;
    const tn_tokens_layout *l;
    uint64_t *hashes;
} hashing;

static void hash_block(void *arg, int64_t block, int thread)
{
    const hashing *q = arg;
    int64_t begin = q->l->ids + block * BLOCK_BYTES, end = begin + BLOCK_BYTES;
    (void)thread;
    if (end > q->l->hashes) end = q->l->hashes;
    q->hashes[block] = tn_hash_xxh64(q->bytes + begin, (size_t)(end - begin), 0);
}

static tn_status append_hashes(build *b, const tn_tokens_layout *l, tn_tokens_header *h)
{
    tn_map map = {0};
    tn_pool *pool = NULL;
    void *mem = NULL;
    tn_status st = tn_alloc((size_t)l->n_blocks * 8, &mem);
    if (!st) st = tn_map_open(b->part, &map);
    if (!st && map.n < l->hashes)
        st = tn_error(TN_FAILED, "%s: was cut while it was written", b->part);
    if (!st) st = tn_pool_create(b->o->threads > 0 ? b->o->threads : tn_pool_cores(), &pool);
    if (!st) {
        hashing q = {(const uint8_t *)map.data, l, mem};
        tn_pool_run(pool, l->n_blocks, hash_block, &q);
        h->hashes_hash = tn_hash_xxh64(mem, (size_t)l->n_blocks * 8, 0);
        st = put_at(&b->ids, l->hashes, mem, l->n_blocks * 8);
    }
    tn_pool_destroy(pool);
    tn_map_close(&map);
    tn_free(mem);
    return st;
}

static tn_status finish(build *b)
{
    const tn_tokens_build_options *o = b->o;
    tn_tokens_layout l;
    tn_tokens_header h = {.version = TN_TOKENS_VERSION,
                          .width = (uint32_t)b->s.width,
                          .vocab = tn_codec_size(o->codec),
                          .largest = b->s.largest,
                          .n_tokens = b->s.n_tokens,
                          .n_documents = b->s.n_documents,
                          .source = b->s.origin.source,
                          .tokenizer = b->s.origin.tokenizer,
                          .rule = b->s.origin.rule,
                          .block_bytes = BLOCK_BYTES};
    memcpy(h.magic, TN_TOKENS_MAGIC, sizeof h.magic);
    if (!h.n_tokens)
        TN_FAIL(TN_BAD_INPUT, "%s.path: '%s' holds no text", o->rule.section,
                o->sources->items[0].name);
    TN_TRY(say_what(b));
    h.about_bytes = b->about.n_bytes;
    h.about_hash = tn_hash_xxh64(tn_text_str(&b->about), (size_t)h.about_bytes, 0);
    if (!tn_tokens_lay_out(&h, &l)) TN_FAIL(TN_FAILED, "%s: cannot be so large", o->path);
    h.file_bytes = l.end;
    TN_TRY(append_documents(b, &l));
    TN_TRY(append_hashes(b, &l, &h));
    h.hash = tn_tokens_hash_header(&h);
    TN_TRY(put_at(&b->ids, l.about, tn_text_str(&b->about), h.about_bytes));
    TN_TRY(put_at(&b->ids, 0, &h, sizeof h));
    TN_TRY(tn_paths_check(o->rule.section, o->sources));
    if (tn_fault_hit(TN_FAULT_FILE_SYNC) || fsync(b->ids.fd) != 0)
        return tn_file_error(b->part, "sync");
    tn_status st = tn_file_rename(b->part, o->path);
    if (!st || !tn_file_exists(b->part)) drop_notes(b); /* named, if perhaps not synced */
    return st;
}

static tn_status run(build *b)
{
    const tn_tokens_build_options *o = b->o;
    tn_tokenise_options t = {o->sources, o->rule, o->codec, b->s.place, o->threads};
    tn_tokens_progress p = {.resumed = b->resumed};
    tn_tokenise *stream;
    tn_status st;
    for (int64_t i = 0; i < o->sources->n; i++) p.all_bytes += o->sources->items[i].bytes;
    TN_TRY(tn_tokenise_open(&t, &stream));
    for (;;) {
        tn_run r;
        if ((st = tn_tokenise_next(stream, &r)) || r.ended) break;
        if ((st = put_run(b, &r))) break;
        if (b->s.n_tokens - b->saved_tokens >= SAVE_TOKENS && (st = save(b))) break;
        p.taken_bytes = r.taken_bytes;
        p.tokens = b->s.n_tokens;
        p.documents = b->s.n_documents;
        if (o->progress) o->progress(o->user, &p);
    }
    tn_tokenise_close(stream);
    return st ? st : save(b);
}

static tn_status build_all(build *b, bool *made)
{
    const tn_tokens_build_options *o = b->o;
    bool there;
    if (strlen(o->path) + 32 > PATH_BYTES) {
        errno = ENAMETOOLONG;
        return tn_file_error(o->path, "write");
    }
    snprintf(b->part, sizeof b->part, "%s.part", o->path);
    snprintf(b->docs, sizeof b->docs, "%s.part.docs", o->path);
    snprintf(b->save, sizeof b->save, "%s.part.state", o->path);
    snprintf(b->draft, sizeof b->draft, "%s.part.draft", o->path);
    memcpy(b->s.magic, STATE_MAGIC, sizeof b->s.magic);
    b->s.origin = tn_tokens_origin_of(o->sources, &o->rule, o->codec);
    b->s.width = tn_codec_size(o->codec) <= 1 << 16 ? 16 : 32;
    b->s.block_bytes = BLOCK_BYTES;
    TN_TRY(is_made(b, &there));
    if (!there) TN_TRY(lock_part(b));
    if (!there) TN_TRY(is_made(b, &there)); /* by the build that had the lock */
    if (there) {
        if (b->ids.fd >= 0) unlink(b->part);
        if (!tn_file_exists(b->part))
            drop_notes(b); /* of a build that was killed at its very end */
        *made = false;
        return TN_OK;
    }
    TN_TRY(open_sink(b, b->docs, &b->starts));
    TN_TRY(begin(b));
    TN_TRY(run(b));
    TN_TRY(finish(b));
    *made = true;
    return TN_OK;
}

tn_status tn_tokens_build(const tn_tokens_build_options *o, bool *made)
{
    build b = {.o = o, .ids.fd = -1, .starts.fd = -1};
    tn_status st = build_all(&b, made);
    if (st == TN_BAD_INPUT && b.ids.fd >= 0) { /* nothing will go on from here */
        drop_notes(&b);
        unlink(b.part);
    }
    if (b.ids.fd >= 0) close(b.ids.fd);
    if (b.starts.fd >= 0) close(b.starts.fd);
    tn_text_fini(&b.about);
    tn_arena_fini(&b.arena);
    return st;
}
