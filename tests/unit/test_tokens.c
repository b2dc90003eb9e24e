/* test_tokens.c - token files: what is built is what was read, whatever interrupted the build; what
 * was cut, flipped, crafted or written later is refused in one line; windows over them and over the
 * text itself are the same. */
#include "engine/base/fault.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/data_built.h"
#include "tests/packed.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <stdlib.h>
#include <unistd.h>

static uint32_t lcg = 3;

static uint32_t draw(uint32_t n)
{
    lcg = lcg * 1664525 + 1013904223;
    return (lcg >> 8) % n;
}

/* A path that lives as long as the test. */
static const char *keep(const char *path)
{
    static char paths[32][300];
    static int n;
    snprintf(paths[n], sizeof paths[n], "%s", path);
    return paths[n++];
}

/* ------------------------------------------------------------ building */

static tn_status build(const tn_data_path *sources, int64_t n, bool jsonl, const char *path,
                       int threads, bool *made)
{
    tn_paths paths;
    tn_codec *codec;
    TN_TRY(tn_codec_open("data", "bytes", NULL, &codec));
    tn_status st = tn_paths_find("data", sources, n, &paths);
    if (!st) {
        tn_tokens_build_options o = {
            .path = path,
            .sources = &paths,
            .rule = {.section = "data", .jsonl = jsonl, .field = "text", .cut = TN_CORPUS_LINE},
            .codec = codec,
            .threads = threads};
        st = tn_tokens_build(&o, made);
        tn_paths_fini(&paths);
    }
    tn_codec_close(codec);
    return st;
}

static const char *write_text(const char *name, int64_t bytes)
{
    char *text = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++) text[i] = draw(40) ? (char)('a' + draw(26)) : '\n';
    const char *path = tn_scratch_write(name, text, (size_t)bytes);
    free(text);
    return keep(path);
}

typedef struct contents {
    char *bytes;
    int64_t n;
} contents;

static contents load(const char *path)
{
    contents c = {0};
    TN_CHECK_OK(tn_file_read(path, 1 << 30, &c.bytes, &c.n));
    return c;
}

static bool same(const contents *a, const contents *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, (size_t)a->n) == 0;
}

/* Windows over text and over its token file: ids, document starts, tails. */
static void windows(void)
{
    tn_data_path texts[2] = {{.pattern = write_text("w0", 3000)},
                             {.pattern = write_text("w1", 2000)}},
                 tokens[2];
    tn_windows *a = NULL, *b = NULL;
    uint64_t tokenizer;
    bool made, ok = true;
    for (int i = 0; i < 2; i++) {
        tokens[i] = (tn_data_path){.pattern = keep(tn_scratch_path(i ? "w1.tokens" : "w0.tokens"))};
        if (!TN_CHECK_OK(build(&texts[i], 1, false, tokens[i].pattern, 1 + i, &made))) return;
        TN_CHECK(made);
    }
    if (!TN_CHECK_OK(tn_windows_open_text("data", texts, 2, TN_CORPUS_LINE, &a))) return;
    if (!TN_CHECK_OK(tn_windows_open_tokens("data", tokens, 2, &tokenizer, &b))) return;
    int64_t n = tn_windows_tokens(a), documents = tn_windows_documents(a);
    TN_CHECK(n == 5000 && tn_windows_tokens(b) == n && tn_windows_documents(b) == documents);
    static int32_t x[5000], y[5000];
    for (int i = 0; i < 300; i++) {
        int64_t at = draw(5000), k = draw((uint32_t)(5000 - at)), p, q;
        ok &= !tn_windows_copy(a, at, k, x) && !tn_windows_copy(b, at, k, y);
        ok &= !memcmp(x, y, (size_t)k * sizeof x[0]);
        ok &= !tn_windows_next(a, at, at + k, &p) && !tn_windows_next(b, at, at + k, &q) && p == q;
        tn_windows_forget(b, at, k);
    }
    for (int64_t d = 1; d <= documents; d++) {
        int64_t p, q;
        ok &= !tn_windows_tail(a, d, &p) && !tn_windows_tail(b, d, &q) && p == q;
    }
    TN_CHECK_MSG(ok, "token files and their texts differ");
    TN_CHECK_OK(tn_windows_check(b, "data", 123));
    TN_CHECK_FAILS(tn_windows_check(b, "data", 122), TN_BAD_INPUT,
                   "holds id 122, and model.vocab_size is 122; use 256");
    tn_windows_close(a);
    tn_windows_close(b);
}

/* A build that fails at any write, sync, rename, open or read, and one that is resumed, give what
 * an undisturbed one gives; a failed one leaves no FILE. */
static void interrupted(void)
{
    static const tn_fault places[] = {TN_FAULT_FILE_WRITE, TN_FAULT_FILE_SYNC, TN_FAULT_FILE_RENAME,
                                      TN_FAULT_FILE_OPEN,  TN_FAULT_FILE_READ, TN_FAULT_MAP};
    tn_data_path source = {.pattern = write_text("i", 8000)};
    const char *calm = keep(tn_scratch_path("calm.tokens")),
               *path = keep(tn_scratch_path("stormy.tokens")),
               *state = keep(tn_scratch_path("stormy.tokens.part.state"));
    bool made;
    if (!TN_CHECK_OK(build(&source, 1, false, calm, 2, &made))) return;
    contents want = load(calm);
    int64_t failures = 0, resumed = 0;
    for (int p = 0; p < TN_COUNT(places); p++) {
        for (int64_t n = 1; n < 400; n += n < 20 ? 1 : 1 + draw(20)) {
            unlink(path);
            tn_fault_arm(places[p], n);
            tn_status st = build(&source, 1, false, path, 1 + (int)draw(3), &made);
            tn_fault_clear();
            failures += st != TN_OK;
            if (st && tn_file_exists(path)) { /* only the folder could not be synced */
                contents early = load(path);
                TN_CHECK_MSG(same(&want, &early), "fault %d, %lld: a failed build left a part: %s",
                             (int)places[p], (long long)n, tn_error_text());
                tn_free(early.bytes);
            }
            resumed += st && tn_file_exists(state);
            tn_error_clear();
            if (st && !TN_CHECK_OK(build(&source, 1, false, path, 1 + (int)draw(3), &made)))
                continue;
            contents got = load(path);
            TN_CHECK_MSG(same(&want, &got), "fault %d, %lld: other bytes", (int)places[p],
                         (long long)n);
            tn_free(got.bytes);
            TN_CHECK(!tn_file_exists(state));
            if (!st && n > 20) break;
        }
    }
    TN_CHECK_MSG(failures > 20 && resumed > 3, "only %lld builds failed, %lld were resumed",
                 (long long)failures, (long long)resumed);
    tn_free(want.bytes);
}

static void up_to_date(void)
{
    tn_data_path source = {.pattern = write_text("u", 5000)};
    const char *path = keep(tn_scratch_path("u.tokens"));
    bool made = false;
    TN_CHECK_OK(build(&source, 1, false, path, 1, &made));
    TN_CHECK(made);
    contents a = load(path);
    TN_CHECK_OK(build(&source, 1, false, path, 1, &made));
    TN_CHECK(!made && !tn_file_exists(tn_scratch_path("u.tokens.part")));
    source.pattern = write_text("u", 5000); /* other text, other time */
    TN_CHECK_OK(build(&source, 1, false, path, 1, &made));
    contents b = load(path);
    TN_CHECK(made && !same(&a, &b));
    tn_free(a.bytes);
    tn_free(b.bytes);

    const char *other = tn_scratch_text("notes.txt", "dear to somebody\n");
    TN_CHECK_FAILS(build(&source, 1, false, other, 1, &made), TN_BAD_INPUT,
                   "notes.txt: exists and is no token file; ");
    tn_data_path bad = {.pattern = tn_scratch_text("bad.jsonl", "{\"text\":\"a\"}\n{]\n")};
    path = tn_scratch_path("bad.tokens");
    TN_CHECK_FAILS(build(&bad, 1, true, path, 1, &made), TN_BAD_INPUT, "bad.jsonl: line 2: ");
    TN_CHECK(!tn_file_exists(path) && !tn_file_exists(tn_scratch_path("bad.tokens.part")) &&
             !tn_file_exists(tn_scratch_path("bad.tokens.part.docs")));
    tn_data_path empty = {.pattern = tn_scratch_text("none.jsonl", "{\"text\":\"\"}\n")};
    TN_CHECK_FAILS(build(&empty, 1, true, path, 1, &made), TN_BAD_INPUT, "holds no text");
}

/* ------------------------------------------------------------ refusals */

static tn_status open_bytes(const contents *c, int64_t n)
{
    tn_tokens *t = NULL;
    char *exact = malloc((size_t)n + 1);
    memcpy(exact, c->bytes, (size_t)n);
    tn_status st = tn_tokens_parse("f.tokens", exact, n, &t);
    if (!st) st = tn_tokens_check(t);
    tn_tokens_close(t);
    free(exact);
    return st;
}

static void refused(void)
{
    tn_data_path source = {.pattern = write_text("r", 400)};
    const char *path = keep(tn_scratch_path("r.tokens"));
    bool made;
    if (!TN_CHECK_OK(build(&source, 1, false, path, 1, &made))) return;
    contents c = load(path);
    TN_CHECK_OK(open_bytes(&c, c.n));
    for (int64_t n = 0; n < c.n; n += n < 300 || n > 4000 ? 1 : 97)
        TN_CHECK_FAILS(open_bytes(&c, n), TN_BAD_INPUT, "f.tokens: ");
    int64_t told = 0, tried = 0;
    for (int64_t i = 0; i < c.n; i++) {
        if (i >= (int64_t)sizeof(tn_tokens_header) && i < TN_TOKENS_HEADER_BYTES) continue;
        for (int bit = 0; bit < 8; bit += 3, tried++) {
            c.bytes[i] = (char)(c.bytes[i] ^ 1 << bit);
            told += open_bytes(&c, c.n) == TN_BAD_INPUT && !strchr(tn_error_text(), '\n') &&
                    !strncmp(tn_error_text(), "f.tokens: ", 10);
            tn_error_clear();
            c.bytes[i] = (char)(c.bytes[i] ^ 1 << bit);
        }
    }
    TN_CHECK_MSG(told == tried, "%lld of %lld flipped bits were told", (long long)told,
                 (long long)tried);

    tn_tokens_header h, was;
    memcpy(&was, c.bytes, sizeof was);
    h = was;
    h.version = 2;
    memcpy(c.bytes, &h, sizeof h);
    TN_CHECK_FAILS(open_bytes(&c, c.n), TN_BAD_INPUT, "f.tokens: was written by a newer titan");
    const int64_t lies[] = {0, -1, 1, 500, INT64_MAX, INT64_MIN, INT64_MAX / 2, 1 << 20};
    for (int field = 0; field < 4; field++) {
        for (int k = 0; k < TN_COUNT(lies); k++) { /* counts that lie, with a good hash */
            h = was;
            *(field == 0   ? &h.n_tokens
              : field == 1 ? &h.n_documents
              : field == 2 ? &h.about_bytes
                           : &h.block_bytes) = lies[k];
            if (memcmp(&h, &was, sizeof h) == 0 || h.block_bytes == 1 << 20) continue;
            h.hash = tn_tokens_hash_header(&h);
            memcpy(c.bytes, &h, sizeof h);
            TN_CHECK_FAILS(open_bytes(&c, c.n), TN_BAD_INPUT, "f.tokens: ");
        }
    }
    h = was; /* a header that promises smaller ids than the file holds */
    h.largest = h.vocab = 98;
    h.largest--;
    h.hash = tn_tokens_hash_header(&h);
    memcpy(c.bytes, &h, sizeof h);
    TN_CHECK_FAILS(open_bytes(&c, c.n), TN_BAD_INPUT, "f.tokens: holds id ");
    tn_free(c.bytes);
}

/* ------------------------------------------------------------ a run's samples */

enum { S = 16, B = 4, STEPS = 40 };

static tn_status samples(const tn_data_options *o, int32_t *out)
{
    tn_data *d;
    TN_TRY(tn_data_open(o, &d));
    tn_status st = TN_OK;
    for (int64_t s = 0; !st && s < STEPS; s++) {
        int32_t *at = out + s * 4 * B * S;
        tn_data_batch b = {at, at + B * S, at + 2 * B * S, at + 3 * B * S};
        st = tn_data_rows(d, TN_DATA_TRAIN, s, 0, B, &b);
    }
    tn_data_close(d);
    return st;
}

/* Mapped text, packed text, token files of both: the same samples, shuffled or not, by document or
 * not. */
static void same_samples(void)
{
    enum { N = STEPS * 4 * B * S };
    static int32_t want[N], got[N];
    const char *plain = write_text("s.txt", 8000);
    contents c = load(plain);
    uint8_t *bytes = malloc((size_t)c.n * 2);
    size_t m = tn_packed_gzip(c.bytes, (size_t)c.n, 1000, bytes);
    tn_data_path paths[3] = {{.pattern = plain},
                             {.pattern = keep(tn_scratch_write("s.txt.gz", bytes, m))},
                             {.pattern = keep(tn_scratch_path("s.tokens"))}};
    bool made;
    TN_CHECK_OK(build(paths, 1, false, paths[2].pattern, 2, &made));
    for (int k = 0; k < 4; k++) {
        tn_data_options o = {.source = "text",
                             .paths = paths,
                             .n_paths = 1,
                             .packing = k & 1 ? "documents" : "stream",
                             .shuffle = k & 2,
                             .validation = 0.1,
                             .cache_folder = tn_scratch_path("cache"),
                             .seq_len = S,
                             .global_batch = B,
                             .vocab_size = 256};
        if (!TN_CHECK_OK(samples(&o, want))) break;
        o.paths = paths + 1;
        TN_CHECK_OK(samples(&o, got));
        TN_CHECK_MSG(!memcmp(want, got, sizeof want), "%d: packed text gives other samples", k);
        o.paths = paths + 2;
        o.source = "tokens";
        TN_CHECK_OK(samples(&o, got));
        TN_CHECK_MSG(!memcmp(want, got, sizeof want), "%d: a token file gives other samples", k);
        o.tokenizer = "bytes";
        TN_CHECK_OK(samples(&o, got));
        o.document = "file";
        TN_CHECK_FAILS(samples(&o, got), TN_BAD_INPUT,
                       "data.document: a token file knows its documents; leave it out");
        o.document = NULL;
        o.paths = paths;
        TN_CHECK_FAILS(samples(&o, got), TN_BAD_INPUT, "s.txt: is no token file");
    }
    free(bytes);
    tn_free(c.bytes);
}

/* A bit that flips in the ids is told by the row that reads it. */
static void damaged_rows(void)
{
    static int32_t out[STEPS * 4 * B * S];
    tn_data_path source = {.pattern = write_text("d.txt", 8000)},
                 path = {.pattern = keep(tn_scratch_path("d.tokens"))};
    bool made;
    if (!TN_CHECK_OK(build(&source, 1, false, path.pattern, 1, &made))) return;
    contents c = load(path.pattern);
    c.bytes[5000] ^= 1;
    tn_scratch_write("d.tokens", c.bytes, (size_t)c.n);
    tn_free(c.bytes);
    tn_data_options o = {.source = "tokens",
                         .paths = &path,
                         .n_paths = 1,
                         .seq_len = S,
                         .global_batch = B,
                         .vocab_size = 256};
    TN_CHECK_FAILS(samples(&o, out), TN_BAD_INPUT, "d.tokens: bytes ");
}

static tn_status build_again(void *arg)
{
    bool made;
    const char *path = tn_scratch_path("alloc.tokens");
    unlink(path);
    return build(arg, 1, false, path, 1, &made);
}

int main(void)
{
    windows();
    up_to_date();
    interrupted();
    refused();
    same_samples();
    damaged_rows();
    tn_data_path source = {.pattern = write_text("a", 300)};
    TN_CHECK(tn_test_each_alloc(build_again, &source) > 10);
    return tn_test_done("tokens");
}
