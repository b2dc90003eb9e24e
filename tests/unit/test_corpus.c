/* test_corpus.c - windows, document starts and the held-out tail against the plainest reading of
 * the same files; every wrong path. */
#include "engine/bytes.h"
#include "engine/corpus.h"
#include "tests/scratch.h"
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { MAX_FILES = 4 };

static const char *const rule_names[] = {"line", "blank_line", "file"};

/* Byte by byte, with what a document is said in words: (file, rule, offset) starts a document. The
 * line that ends right before o is [begin, o); it is empty when it holds nothing but its end. */
static bool plain_start(const char *text, int64_t n, int64_t o, tn_corpus_rule rule)
{
    if (o == 0) return true;
    if (rule == TN_CORPUS_FILE || text[o - 1] != '\n') return false;
    if (rule == TN_CORPUS_LINE) return true;
    int64_t begin = o - 1;
    while (begin > 0 && text[begin - 1] != '\n') begin--;
    bool empty = (o - begin == 1) || (o - begin == 2 && text[begin] == '\r');
    int64_t end = o;
    while (end < n && text[end] != '\n') end++;
    bool next_empty = end < n && (end == o || (end == o + 1 && text[o] == '\r'));
    return empty && !next_empty;
}

/* The files as one array of bytes and start flags. */
typedef struct plain {
    uint8_t bytes[4096];
    bool start[4096];
    int64_t n, documents;
} plain;

static void plain_read(plain *p, const char *const *texts, const int64_t *sizes, int n_files,
                       tn_corpus_rule rule)
{
    p->n = p->documents = 0;
    for (int f = 0; f < n_files; f++) {
        for (int64_t o = 0; o < sizes[f]; o++, p->n++) {
            p->bytes[p->n] = (uint8_t)texts[f][o];
            p->start[p->n] = plain_start(texts[f], sizes[f], o, rule);
            p->documents += p->start[p->n];
        }
    }
}

static void compare(const plain *p, const tn_corpus *c, const char *what)
{
    TN_CHECK_MSG(tn_corpus_tokens(c) == p->n, "%s: %lld tokens", what,
                 (long long)tn_corpus_tokens(c));
    TN_CHECK_MSG(tn_corpus_documents(c) == p->documents, "%s: %lld documents, expected %lld", what,
                 (long long)tn_corpus_documents(c), (long long)p->documents);

    bool copies = true, nexts = true;
    for (int64_t t = 0; t < p->n; t++) {
        for (int64_t end = t; end <= p->n; end++) {
            int32_t ids[4096];
            tn_corpus_copy(c, t, end - t, ids);
            for (int64_t i = t; i < end; i++) copies &= ids[i - t] == p->bytes[i];
            int64_t want = t + 1;
            while (want < end && !p->start[want]) want++;
            if (end > t) nexts &= tn_corpus_next(c, t, end) == want;
        }
    }
    TN_CHECK_MSG(copies, "%s: a window differs from the file", what);
    TN_CHECK_MSG(nexts, "%s: a document start is wrong", what);

    bool tails = true;
    for (int64_t n = 1; n <= p->documents; n++) {
        int64_t t = p->n, left = n;
        while (left > 0) left -= p->start[--t];
        tails &= tn_corpus_tail(c, n) == t;
    }
    TN_CHECK_MSG(tails, "%s: a tail starts at the wrong token", what);
}

static void check_files(const char *const *texts, const int64_t *sizes, int n_files,
                        const char *what)
{
    static const char *const names[MAX_FILES] = {"a", "b", "c", "d"};
    tn_data_path paths[MAX_FILES];
    for (int f = 0; f < n_files; f++)
        paths[f].pattern = tn_scratch_write(names[f], texts[f], (size_t)sizes[f]);
    for (int rule = 0; rule < TN_COUNT(rule_names); rule++) {
        static plain p;
        char label[64];
        tn_corpus *c = NULL;
        plain_read(&p, texts, sizes, n_files, (tn_corpus_rule)rule);
        snprintf(label, sizeof label, "%s, %s", what, rule_names[rule]);
        if (!TN_CHECK_OK(tn_corpus_open("data", paths, n_files, (tn_corpus_rule)rule, &c)))
            continue;
        TN_CHECK(tn_corpus_files(c) == n_files);
        compare(&p, c, label);
        tn_corpus_close(c);
    }
}

static void chosen_texts(void)
{
    static const char *const texts[] = {"a",
                                        "\n",
                                        "\n\n",
                                        "a\n",
                                        "a\nb",
                                        "\na",
                                        "\n\na",
                                        "a\n\nb",
                                        "a\n\n",
                                        "a\n\n\n\nb\n",
                                        "\r\n",
                                        "a\r\n\r\nb",
                                        "a\r\n\r\n\r\nb\r\n",
                                        "a\n\r\nb",
                                        "a\r\n\nb",
                                        "\r\n\r\na",
                                        "a\n\r",
                                        "a\n\n\r",
                                        "a\n\n\rb",
                                        "\r\r\n\nb",
                                        "a\rb\n\nc"};
    for (int i = 0; i < TN_COUNT(texts); i++) {
        check_files(&texts[i], &(int64_t){(int64_t)strlen(texts[i])}, 1, "one file");
        const char *pair[] = {texts[i], texts[TN_COUNT(texts) - 1 - i]};
        check_files(pair, (int64_t[]){(int64_t)strlen(pair[0]), (int64_t)strlen(pair[1])}, 2,
                    "two files");
    }
}

/* Texts of very few different bytes, so that every pattern of line ends occurs; NUL among them. */
static void random_texts(void)
{
    static const char alphabet[] = {'a', '\n', '\n', '\r', '\0', (char)0xff};
    uint32_t x = 1;
    for (int round = 0; round < 60; round++) {
        static char text[MAX_FILES][40];
        const char *texts[MAX_FILES] = {text[0], text[1], text[2], text[3]};
        int64_t sizes[MAX_FILES];
        int n_files = 1 + round % MAX_FILES;
        for (int f = 0; f < n_files; f++) {
            x = x * 1664525 + 1013904223;
            sizes[f] = 1 + (x >> 16) % 40;
            for (int64_t o = 0; o < sizes[f]; o++) {
                x = x * 1664525 + 1013904223;
                text[f][o] = alphabet[(x >> 16) % sizeof alphabet];
            }
        }
        check_files(texts, sizes, n_files, "random files");
    }
}

static tn_status open_one(const char *pattern, tn_corpus **out)
{
    return tn_corpus_open("data", &(tn_data_path){.pattern = pattern}, 1, TN_CORPUS_LINE, out);
}

static void globs(void)
{
    tn_scratch_text("g3.txt", "three\n");
    tn_scratch_text("g10.txt", "ten\n");
    tn_scratch_text("g2.txt", "two\n");
    tn_scratch_text("g[1].txt", "literal\n");
    mkdir(tn_scratch_path("gdir.txt"), 0777);
    int32_t ids[14];
    uint8_t text[15] = "";
    tn_corpus *c = NULL;

    /* By name, not as the folder lists them; folders are passed over. */
    if (TN_CHECK_OK(open_one(tn_scratch_path("g[0-9d]*.txt"), &c))) {
        TN_CHECK(tn_corpus_files(c) == 3 && tn_corpus_tokens(c) == 14);
        tn_corpus_copy(c, 0, 14, ids);
        TN_CHECK_OK(tn_bytes_decode(ids, 14, text));
        TN_CHECK_TEXT((const char *)text, "ten\ntwo\nthree\n");
        tn_corpus_close(c);
    }
    /* A file of that very name wins over what the brackets would match. */
    if (TN_CHECK_OK(open_one(tn_scratch_path("g[1].txt"), &c))) {
        TN_CHECK(tn_corpus_files(c) == 1 && tn_corpus_tokens(c) == 8);
        tn_corpus_close(c);
    }
}

static void wrong_paths(void)
{
    tn_corpus *c = NULL;
    TN_CHECK_FAILS(open_one(tn_scratch_path("nowhere.txt"), &c), TN_BAD_INPUT,
                   "nowhere.txt': No such file or directory; give ");
    TN_CHECK_FAILS(open_one(tn_scratch_path("a/b"), &c), TN_BAD_INPUT,
                   "a/b': Not a directory; give ");
    TN_CHECK_FAILS(open_one(tn_scratch_path("no*where"), &c), TN_BAD_INPUT,
                   "data.path: no file matches '");
    TN_CHECK_FAILS(open_one(tn_scratch_path("gd*.txt"), &c), TN_BAD_INPUT,
                   "data.path: no file matches '");
    TN_CHECK_FAILS(open_one(tn_scratch_path("gdir.txt"), &c), TN_BAD_INPUT,
                   "gdir.txt' is a directory; name the files in it");
    TN_CHECK_FAILS(open_one(tn_scratch_text("empty", ""), &c), TN_BAD_INPUT, "empty' is empty; ");
    TN_CHECK_FAILS(open_one("", &c), TN_BAD_INPUT, "data.path: the name is empty; ");
    TN_CHECK_FAILS(open_one("/dev/zero", &c), TN_BAD_INPUT, "'/dev/zero' is no regular file");
    TN_CHECK(mkfifo(tn_scratch_path("fifo"), 0600) == 0);
    TN_CHECK_FAILS(open_one(tn_scratch_path("fifo"), &c), TN_BAD_INPUT, "fifo' is no regular file");
    const char *secret = tn_scratch_text("secret", "x");
    chmod(secret, 0);
    if (access(secret, R_OK) != 0) /* root reads everything */
        TN_CHECK_FAILS(open_one(secret, &c), TN_BAD_INPUT, "secret");
    TN_CHECK(c == NULL);

    /* The first wrong one of a list is named, and what was opened before is closed (the sanitizer
     * looks). */
    tn_data_path list[] = {{.pattern = tn_scratch_text("a", "x")},
                           {.pattern = tn_scratch_path("nowhere")}};
    TN_CHECK_FAILS(tn_corpus_open("validation.data", list, 2, TN_CORPUS_LINE, &c), TN_BAD_INPUT,
                   "validation.data.path: '");
}

static void small_vocabulary(void)
{
    tn_corpus *c = NULL;
    tn_data_path list[] = {{.pattern = tn_scratch_text("a", "plain")},
                           {.pattern = tn_scratch_text("b", "caf\xc3\xa9")}};
    if (!TN_CHECK_OK(tn_corpus_open("data", list, 2, TN_CORPUS_LINE, &c))) return;
    TN_CHECK_FAILS(tn_corpus_check(c, "data", 128), TN_BAD_INPUT,
                   "b' holds id 195 at offset 3, and model.vocab_size is 128; use 256");
    TN_CHECK_FAILS(tn_corpus_check(c, "data", 'p'), TN_BAD_INPUT, "a' holds id 112 at offset 0, ");
    TN_CHECK_OK(tn_corpus_check(c, "data", 196));
    TN_CHECK_OK(tn_corpus_check(c, "data", 100000));
    tn_corpus_close(c);
}

/* Offsets beyond 2^32: a sparse file with a few bytes at its end, behind a small one. */
static void large_file(void)
{
    const int64_t size = (5ll << 30) + 17;
    static const char end[] = "the end\n";
    const char *path = tn_scratch_path("large");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), n_end = (int)strlen(end);
    if (fd < 0 || ftruncate(fd, size) != 0 || pwrite(fd, end, strlen(end), size - n_end) != n_end) {
        tn_test_skip("a file of 5 GiB", strerror(errno));
        if (fd >= 0) close(fd);
        return;
    }
    close(fd);
    tn_corpus *c = NULL;
    tn_data_path list[] = {{.pattern = tn_scratch_text("a", "small")}, {.pattern = path}};
    if (TN_CHECK_OK(tn_corpus_open("data", list, 2, TN_CORPUS_LINE, &c))) {
        int32_t ids[9];
        uint8_t text[10] = "";
        int64_t n = tn_corpus_tokens(c);
        TN_CHECK(n == size + 5);
        tn_corpus_copy(c, n - 8, 8, ids);
        TN_CHECK_OK(tn_bytes_decode(ids, 8, text));
        TN_CHECK_TEXT((const char *)text, end);
        tn_corpus_copy(c, n - 9, 1, ids);
        TN_CHECK(ids[0] == 0);
        TN_CHECK(tn_corpus_next(c, n - 8, n) == n && tn_corpus_next(c, 1, 100) == 5);
        tn_corpus_close(c);
    }
    unlink(path);
}

static tn_status open_and_close(void *arg)
{
    tn_corpus *c;
    TN_TRY(tn_corpus_open("data", arg, 2, TN_CORPUS_LINE, &c));
    tn_corpus_close(c);
    return TN_OK;
}

static void bytes(void)
{
    uint8_t all[256], back[256];
    int32_t ids[256];
    for (int i = 0; i < 256; i++) all[i] = (uint8_t)i;
    tn_bytes_encode(all, 256, ids);
    for (int i = 0; i < 256; i++) TN_CHECK(ids[i] == i);
    TN_CHECK_OK(tn_bytes_decode(ids, 256, back));
    TN_CHECK(memcmp(all, back, 256) == 0);
    memset(back, 7, sizeof back);
    ids[200] = 256;
    TN_CHECK_FAILS(tn_bytes_decode(ids, 256, back), TN_BAD_INPUT,
                   "bytes: id 256 at position 200 is no byte; ");
    ids[200] = -1;
    TN_CHECK_FAILS(tn_bytes_decode(ids, 256, back), TN_BAD_INPUT,
                   "bytes: id -1 at position 200 is no byte; ");
    TN_CHECK(back[0] == 7 && back[255] == 7);
}

int main(void)
{
    bytes();
    chosen_texts();
    random_texts();
    globs();
    wrong_paths();
    small_vocabulary();
    large_file();
    tn_data_path list[] = {{.pattern = tn_scratch_path("g*.txt")},
                           {.pattern = tn_scratch_text("a", "x")}};
    TN_CHECK(tn_test_each_alloc(open_and_close, list) >= 3);
    return tn_test_done("corpus");
}
