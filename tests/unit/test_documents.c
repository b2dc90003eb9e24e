/* test_documents.c - documents of text against the corpus that maps it, however it is packed, read
 * or resumed; long ones in pieces; JSONL; damaged and cut files. */
#include "engine/documents.h"
#include "tests/packed.h"
#include "tests/scratch.h"
#include "tests/test.h"

enum { MAX_TEXT = 1 << 16, MAX_STARTS = 1 << 14 };

static uint32_t lcg = 7;

static uint32_t draw(uint32_t n)
{
    lcg = lcg * 1664525 + 1013904223;
    return (lcg >> 8) % n;
}

/* What a reader gave: all text, where documents start. */
typedef struct seen {
    char text[MAX_TEXT];
    int64_t n, starts[MAX_STARTS], n_starts;
    int64_t n_ends;
} seen;

static tn_status read_all(const tn_paths *paths, const tn_documents_rule *rule, int64_t want,
                          bool reopen, seen *out)
{
    tn_bookmark at = {0};
    tn_documents *d = NULL;
    tn_chunk c = {0};
    tn_status st;
    out->n = out->n_starts = out->n_ends = 0;
    for (;;) {
        if (!d && (st = tn_documents_open(paths, rule, &at, &d))) break;
        if ((st = tn_documents_read(d, want, &c)) || !c.n_pieces) break;
        int64_t n = 0;
        for (int64_t i = 0; i < c.n_pieces; i++) {
            const tn_piece *p = &tn_chunk_pieces(&c)[i];
            if (p->first) out->starts[out->n_starts++] = out->n + n;
            out->n_ends += p->last;
            TN_CHECK(p->n > 0);
            n += p->n;
        }
        TN_CHECK(n == c.n);
        memcpy(out->text + out->n, tn_chunk_text(&c), (size_t)c.n);
        out->n += c.n;
        at = c.end;
        if (reopen) tn_documents_close(d), d = NULL;
    }
    tn_documents_close(d);
    tn_chunk_fini(&c);
    return st;
}

static bool same(const seen *a, const seen *b)
{
    return a->n == b->n && a->n_starts == b->n_starts && a->n_ends == b->n_ends &&
           !memcmp(a->text, b->text, (size_t)a->n) &&
           !memcmp(a->starts, b->starts, (size_t)a->n_starts * sizeof a->starts[0]);
}

/* ------------------------------------------------------------ text */

static void against_corpus(const tn_data_path *paths, int64_t n, const tn_documents_rule *rule,
                           const seen *got)
{
    tn_corpus *c = NULL;
    if (!TN_CHECK_OK(tn_corpus_open("data", paths, n, rule->cut, &c))) return;
    int64_t all = tn_corpus_tokens(c);
    static int32_t ids[MAX_TEXT];
    bool equal = all == got->n && tn_corpus_documents(c) == got->n_starts;
    TN_CHECK_MSG(equal, "%lld bytes in %lld documents, expected %lld in %lld", (long long)got->n,
                 (long long)got->n_starts, (long long)all, (long long)tn_corpus_documents(c));
    TN_CHECK(got->n_ends == got->n_starts);
    tn_corpus_copy(c, 0, all, ids);
    for (int64_t i = 0; equal && i < all; i++) equal = ids[i] == (uint8_t)got->text[i];
    for (int64_t i = 0; equal && i < got->n_starts; i++)
        equal = tn_corpus_next(c, got->starts[i], all) ==
                (i + 1 < got->n_starts ? got->starts[i + 1] : all);
    TN_CHECK_MSG(equal, "rule %d: text or documents differ from the corpus", (int)rule->cut);
    tn_corpus_close(c);
}

static void random_texts(void)
{
    static const char alphabet[] = {'a', '\n', '\n', '\r', '\0', (char)0xc3, (char)0xa9};
    static seen first, again;
    for (int round = 0; round < 40; round++) {
        char text[3][300];
        tn_data_path plain[3], packed[3];
        static uint8_t bytes[2000];
        for (int f = 0; f < 3; f++) {
            char name[3][16];
            snprintf(name[0], 16, "%d.txt", f);
            snprintf(name[1], 16, "%d.txt.gz", f);
            snprintf(name[2], 16, "%d.txt.zst", f);
            size_t n = 1 + draw(299), half = draw((uint32_t)n), m;
            for (size_t i = 0; i < n; i++) text[f][i] = alphabet[draw(sizeof alphabet)];
            plain[f].pattern = tn_scratch_write(name[0], text[f], n);
            plain[f].weight = packed[f].weight = 0;
            if (f < 2) { /* two members */
                m = tn_packed_gzip(text[f], half, 20, bytes);
                m += tn_packed_gzip(text[f] + half, n - half, 100, bytes + m);
                packed[f].pattern = tn_scratch_write(name[1], bytes, m);
            } else {
                m = tn_packed_zstd(text[f], half, 20, bytes);
                m += tn_packed_zstd(text[f] + half, n - half, 100, bytes + m);
                packed[f].pattern = tn_scratch_write(name[2], bytes, m);
            }
        }
        tn_paths a = {0}, b = {0};
        if (!TN_CHECK_OK(tn_paths_find("data", plain, 3, &a))) return;
        if (!TN_CHECK_OK(tn_paths_find("data", packed, 3, &b))) return;
        for (int cut = 0; cut < 3; cut++) {
            tn_documents_rule rule = {.section = "data", .cut = (tn_corpus_rule)cut};
            if (!TN_CHECK_OK(read_all(&a, &rule, 1 << 20, false, &first))) continue;
            against_corpus(plain, 3, &rule, &first);
            for (int k = 0; k < 4; k++) {
                int64_t want = k == 0 ? 1 : 1 + draw(60);
                TN_CHECK_OK(read_all(k % 2 ? &a : &b, &rule, want, true, &again));
                TN_CHECK_MSG(same(&first, &again), "rule %d, chunks of %lld: differs", cut,
                             (long long)want);
            }
        }
        tn_paths_fini(&a);
        tn_paths_fini(&b);
    }
}

/* ------------------------------------------------------------ long documents */

/* Pieces of at most 1 MiB that begin where characters do, the same for every chunk size, in text
 * and in JSONL. */
static void long_documents(void)
{
    enum { N = 3600000 };
    static char text[N + 64], line[N + 64];
    tn_data_path path[2];
    tn_paths paths[2];
    int64_t n = 0, m, first_n = -1;
    while (n < N) { /* some lines, then none for long */
        memcpy(text + n, "\xe2\x98\x83 x", 5);
        n += 5;
        if (n < 500000 && n % 1000 == 0) text[n - 1] = '\n';
    }
    m = snprintf(line, sizeof line, "{\"text\": \"");
    for (int64_t i = 0; i < n; i++) {
        if (text[i] == '\n') line[m++] = '\\', line[m++] = 'n';
        else line[m++] = text[i];
        if (m > N) break;
    }
    while ((line[m - 1] & 0xc0) == 0x80 || (unsigned char)line[m - 1] >= 0xc0) m--;
    m += snprintf(line + m, 8, "\"}\n");
    path[0] = (tn_data_path){.pattern = tn_scratch_write("long.txt", text, (size_t)n)};
    path[1] = (tn_data_path){.pattern = tn_scratch_write("long.jsonl", line, (size_t)m)};
    for (int k = 0; k < 4; k++) {
        tn_documents_rule rule = {
            .section = "data", .jsonl = k / 2, .field = "text", .cut = TN_CORPUS_FILE};
        tn_documents *d = NULL;
        tn_chunk c = {0};
        tn_bookmark at = {0};
        int64_t pieces = 0, bytes = 0, largest = 0, broken = 0, starts = 0;
        if (!TN_CHECK_OK(tn_paths_find("data", &path[k / 2], 1, &paths[0]))) return;
        while (!tn_documents_open(&paths[0], &rule, &at, &d) &&
               !tn_documents_read(d, k % 2 ? 1 : 1 << 30, &c) && c.n_pieces) {
            const char *p = tn_chunk_text(&c);
            for (int64_t i = 0; i < c.n_pieces; i++) {
                const tn_piece *q = &tn_chunk_pieces(&c)[i];
                broken += (*p & 0xc0) == 0x80;
                starts += q->first;
                largest = q->n > largest ? q->n : largest;
                p += q->n;
            }
            pieces += c.n_pieces;
            bytes += c.n;
            at = c.end;
            tn_documents_close(d);
            d = NULL;
        }
        tn_documents_close(d);
        tn_chunk_fini(&c);
        tn_paths_fini(&paths[0]);
        TN_CHECK_MSG(starts == 1 && !broken && pieces > 3 && largest <= 1 << 20,
                     "%lld pieces, the largest %lld, %lld broken characters", (long long)pieces,
                     (long long)largest, (long long)broken);
        if (k < 2) TN_CHECK(bytes == n);
        if (k % 2) TN_CHECK_MSG(pieces == first_n, "pieces depend on chunks");
        first_n = pieces;
    }
}

/* ------------------------------------------------------------ JSONL and failures */

static tn_status read_file(const char *name, const void *bytes, size_t n, bool jsonl, seen *out)
{
    tn_documents_rule rule = {
        .section = "data", .jsonl = jsonl, .field = "text", .cut = TN_CORPUS_LINE};
    tn_data_path path = {.pattern = tn_scratch_write(name, bytes, n)};
    tn_paths paths;
    TN_TRY(tn_paths_find("data", &path, 1, &paths));
    tn_status st = read_all(&paths, &rule, 1, true, out);
    tn_paths_fini(&paths);
    return st;
}

static void jsonl(void)
{
    static seen got;
    static const char text[] = "{\"text\":\"one\\u00e9\"}\n\n  \r\n{\"id\":[1,{}],\"text\":\"\"}\n"
                               "{\"text\":\"two\",\"more\":null}\r\n{\"text\": \"three\"}";
    if (!TN_CHECK_OK(read_file("a.jsonl", text, strlen(text), true, &got))) return;
    got.text[got.n] = 0;
    TN_CHECK_TEXT(got.text, "one\xc3\xa9twothree");
    TN_CHECK(got.n_starts == 3 && got.starts[1] == 5 && got.starts[2] == 8);
    static const char bad[] = "{\"text\":\"one\"}\n\n{\"text\":\"two\"\n";
    TN_CHECK_FAILS(read_file("bad.jsonl", bad, strlen(bad), true, &got), TN_BAD_INPUT,
                   "bad.jsonl: line 3: column ");
    TN_CHECK_FAILS(read_file("no.jsonl", "{\"txt\":1}\n", 10, true, &got), TN_BAD_INPUT,
                   "no.jsonl: line 1: has no field 'text'; set data.field");
}

static void damaged(void)
{
    static seen got;
    static uint8_t gz[300], zst[300];
    const char *text = "some lines\nof text\nto be damaged\n";
    size_t n = tn_packed_gzip(text, strlen(text), 9, gz),
           m = tn_packed_zstd(text, strlen(text), 9, zst);
    TN_CHECK_OK(read_file("ok.gz", gz, n, false, &got));
    TN_CHECK(got.n == (int64_t)strlen(text));
    TN_CHECK_OK(read_file("ok.zst", zst, m, false, &got));
    TN_CHECK(got.n == (int64_t)strlen(text));
    for (size_t i = 1; i < n; i++)
        TN_CHECK_FAILS(read_file("cut.gz", gz, i, false, &got), TN_BAD_INPUT, "cut.gz: ");
    for (size_t i = 1; i < m; i++)
        TN_CHECK_FAILS(read_file("cut.zst", zst, i, false, &got), TN_BAD_INPUT, "cut.zst: ");
    for (size_t i = 10; i < n; i++) { /* behind the header every byte counts */
        gz[i] ^= 0x02;
        TN_CHECK_FAILS(read_file("flip.gz", gz, n, false, &got), TN_BAD_INPUT, "flip.gz: damaged");
        gz[i] ^= 0x02;
    }
    memcpy(gz + n, "\0\0\0", 3); /* padding is fine, anything else is not */
    TN_CHECK_OK(read_file("padded.gz", gz, n + 3, false, &got));
    gz[n + 2] = 'x';
    TN_CHECK_FAILS(read_file("more.gz", gz, n + 3, false, &got), TN_BAD_INPUT, "more.gz: ");
    TN_CHECK_FAILS(read_file("plain.gz", text, strlen(text), false, &got), TN_BAD_INPUT,
                   "plain.gz: damaged, or no gzip data");
    TN_CHECK_FAILS(read_file("plain.zst", text, strlen(text), false, &got), TN_BAD_INPUT,
                   "plain.zst: damaged, or no zstd data");
}

static tn_status read_packed(void *arg)
{
    static seen got;
    tn_documents_rule rule = {.section = "data", .cut = TN_CORPUS_LINE};
    return read_all(arg, &rule, 1, true, &got);
}

int main(void)
{
    static uint8_t gz[300];
    random_texts();
    long_documents();
    jsonl();
    damaged();
    size_t n = tn_packed_gzip("a\nb\n", 4, 9, gz);
    tn_data_path path = {.pattern = tn_scratch_write("alloc.gz", gz, n)};
    tn_paths paths;
    if (TN_CHECK_OK(tn_paths_find("data", &path, 1, &paths)))
        TN_CHECK(tn_test_each_alloc(read_packed, &paths) > 5);
    tn_paths_fini(&paths);
    return tn_test_done("documents");
}
