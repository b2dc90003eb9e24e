/* Tokenizers from small files: what the golden cases (tests/cli/test_tokenize.py) do not reach -
 * every behaviour of Split, long pieces against a plain merger, failing allocations, text in blocks
 * of its own size. */
#include "engine/base/file.h"
#include "engine/data_built.h"
#include "engine/encoder.h"
#include "engine/tokenizer.h"
#include "tests/scratch.h"
#include "tests/tokens.h"

#include <stdlib.h>

static tn_tokenizer *load(const tn_words *s)
{
    tn_tokenizer *t = NULL;
    tn_text file = tn_words_file(s);
    TN_CHECK_OK(tn_tokenizer_parse("small", tn_text_str(&file), file.n_bytes, &t));
    tn_text_fini(&file);
    return t;
}

static void refused(const tn_words *s, const char *message)
{
    tn_tokenizer *t = NULL;
    tn_text file = tn_words_file(s);
    TN_CHECK_FAILS(tn_tokenizer_parse("small", tn_text_str(&file), file.n_bytes, &t), TN_BAD_INPUT,
                   message);
    TN_CHECK(t == NULL);
    tn_text_fini(&file);
}

/* "97 256" */
static const char *ids_of(const tn_tokenizer *t, const char *text, int64_t n, int flags)
{
    static tn_text line;
    tn_encoder *e = NULL;
    tn_ids ids = {0};
    char *exact = malloc((size_t)n + !n); /* a sanitizer sees one byte too far */
    tn_text_cut(&line, 0);
    if (!exact || !TN_CHECK_OK(tn_encoder_create(t, &e))) return "";
    memcpy(exact, text, (size_t)n);
    TN_CHECK_OK(tn_encoder_encode(e, exact, n, flags, &ids));
    for (int64_t i = 0; i < ids.n; i++) tn_text_add(&line, i ? " %d" : "%d", ids.items[i]);
    tn_ids_fini(&ids);
    tn_encoder_destroy(e);
    free(exact);
    return tn_text_str(&line);
}

#define IDS(t, text, want) TN_CHECK_TEXT(ids_of((t), (text), (int64_t)sizeof(text) - 1, 0), (want))

static void merging(void)
{
    const tn_words s = {.words = ", \"ab\": 256, \"bc\": 257, \"abc\": 258, \"aa\": 259",
                        .merges = "\"b c\", \"a b\", \"a a\", \"a bc\", \"ab c\""};
    tn_tokenizer *t = load(&s);
    if (!t) return;
    TN_CHECK(tn_tokenizer_size(t) == 260);
    IDS(t, "ab", "256");
    IDS(t, "abc", "258"); /* b c first: a bc */
    IDS(t, "aaa", "259 97");
    IDS(t, "aab", "97 256");
    IDS(t, "", "");
    IDS(t, "a\0b", "97 0 98");
    IDS(t, "\xff", "239 191 189");
    tn_tokenizer_close(t);

    const tn_words whole = {.words = ", \"ab\": 256, \"abc\": 257",
                            .merges = "\"a b\"",
                            .model = ", \"ignore_merges\": true"};
    t = load(&whole);
    if (!t) return;
    IDS(t, "abc", "257");
    IDS(t, "abcd", "256 99 100");
    tn_tokenizer_close(t);
}

/* Lowest rank first, leftmost among equals, one pair at a time: as it is defined. */
static int64_t plain_merge(int32_t *ids, int64_t n, int32_t (*const rules)[3], int n_rules)
{
    for (;;) {
        int64_t best = -1;
        int best_rank = n_rules;
        for (int64_t i = 0; i + 1 < n; i++) {
            for (int r = 0; r < best_rank; r++) {
                if (ids[i] == rules[r][0] && ids[i + 1] == rules[r][1]) best = i, best_rank = r;
            }
        }
        if (best < 0) return n;
        ids[best] = rules[best_rank][2];
        n--;
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 1) * sizeof *ids);
    }
}

static void long_pieces(void)
{
    const tn_words s = {.words = ", \"ab\": 256, \"ba\": 257, \"abab\": 258, \"aa\": 259, "
                                 "\"aaaa\": 260, \"bb\": 261, \"aba\": 262, \"bba\": 263",
                        .merges = "\"a a\", \"b b\", \"a b\", \"ab ab\", \"aa aa\", \"bb a\", "
                                  "\"ab a\", \"a ba\", \"b a\""};
    int32_t rules[][3] = {{97, 97, 259},   {98, 98, 261},   {97, 98, 256},
                          {256, 256, 258}, {259, 259, 260}, {261, 97, 263},
                          {256, 97, 262},  {97, 257, 262},  {98, 97, 257}};
    tn_tokenizer *t = load(&s);
    tn_encoder *e = NULL;
    tn_ids ids = {0};
    if (!t || !TN_CHECK_OK(tn_encoder_create(t, &e))) return;
    uint64_t state = 7;
    bool equal = true;
    for (int k = 0; k < 600; k++) {
        char text[400];
        int32_t want[400];
        int64_t n = k % 397 + 1;
        for (int64_t i = 0; i < n; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            text[i] = (char)('a' + (state >> 33) % (k % 3 ? 2 : 3));
            want[i] = text[i];
        }
        int64_t left = plain_merge(want, n, rules, TN_COUNT(rules));
        for (int again = 0; again < 2; again++) { /* the second time from the cache */
            ids.n = 0;
            TN_CHECK_OK(tn_encoder_encode(e, text, n, 0, &ids));
            equal &= ids.n == left && memcmp(ids.items, want, (size_t)left * sizeof *want) == 0;
        }
    }
    TN_CHECK_MSG(equal, "ids differ from those of the plain merger");
    tn_ids_fini(&ids);
    tn_encoder_destroy(e);
    tn_tokenizer_close(t);
}

/* ------------------------------------------------------------ pre-tokenizers */

/* The pieces of a text, told by the ids of whole words: "a-b" in one piece is 256, ... */
static void behaviours(void)
{
    static const struct {
        const char *name, *invert, *want;
    } rows[] = {
        {"Isolated", "false", "97 45 45 98 45"},
        {"Removed", "false", "97 98"},
        {"Removed", "true", "45 45 45"},
        {"Contiguous", "false", "97 256 98 45"},
        {"Contiguous", "true", "97 256 98 45"},
        {"MergedWithPrevious", "false", "257 45 259"},
        {"MergedWithNext", "false", "97 45 258 45"},
        {"MergedWithPrevious", "true", "97 45 258 45"},
        {"MergedWithNext", "true", "257 45 259"},
    };
    for (int i = 0; i < TN_COUNT(rows); i++) {
        for (int regex = 0; regex < 2; regex++) {
            char steps[256];
            snprintf(steps, sizeof steps,
                     "{\"type\": \"Split\", \"pattern\": {\"%s\": \"-\"}, \"behavior\": \"%s\", "
                     "\"invert\": %s}, ",
                     regex ? "Regex" : "String", rows[i].name, rows[i].invert);
            const tn_words s = {.words = ", \"--\": 256, \"a-\": 257, \"-b\": 258, \"b-\": 259, "
                                         "\"a--\": 260, \"--b\": 261",
                                .model = ", \"ignore_merges\": true",
                                .steps = steps};
            tn_tokenizer *t = load(&s);
            if (t) IDS(t, "a--b-", rows[i].want);
            tn_tokenizer_close(t);
        }
    }
}

/* A regex in one Split, Isolated; pieces are told by words that only a whole piece can be. */
static void splits(const char *regex, const char *words, const char *text, const char *want)
{
    char steps[512];
    snprintf(
        steps, sizeof steps,
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}, ",
        regex);
    const tn_words s = {.words = words, .model = ", \"ignore_merges\": true", .steps = steps};
    tn_tokenizer *t = load(&s);
    if (t) TN_CHECK_TEXT(ids_of(t, text, (int64_t)strlen(text), 0), want);
    tn_tokenizer_close(t);
}

static void regexes(void)
{
    const char *numbers =
        ", \"12\": 256, \"123\": 257, \"1234567\": 258, \"67\": 259, \"456\": 260";
    splits("\\\\d{2}", numbers, "1212", "256 256");
    splits("\\\\p{N}{1,3}+", numbers, "1234567", "258"); /* greedy twice, not possessive */
    splits("\\\\p{N}{1,3}", numbers, "12345667", "257 260 259");
    splits("(?:\\\\d{,2})", numbers, "123", "256 51");
    splits("x*", ", \"xx\": 256", "axxb", "97 256 98"); /* empty matches cut, too */
    splits("^a", ", \"a\\u010aa\": 256", "a\na", "97 10 97");
    splits("a$", ", \"ba\": 256", "ba\nba", "98 97 10 98 97");
    splits("\\\\ba", ", \"ba\\u0120\": 256", "ba a", "256 97");
    splits("[^\\\\S\\\\n]+", ", \"\\u0120\\u0120\": 256", "a  \n", "97 256 10");
    splits("\\\\s", ", \"\\u00e1\\u0142\\u0130\": 256", "\xe1\xa0\x8e", "256"); /* U+180E is none */
    splits("\\\\w+", ", \"a\\u00cc\\u0123b\": 256",
           "a\xcc\x81"
           "b",
           "256"); /* marks are word characters */
    splits("(?i:k)", ", \"\\u00e2\\u0126\\u00aa\": 256", "\xe2\x84\xaa", "256");
    splits("{", ", \"a{\": 256", "a{", "97 123");
    splits("\\\\d{2}?", numbers, "123", "256 51"); /* optional, not reluctant */
    splits("\\\\w+", ", \"a\\u00c2\\u00b2\": 256", "a\xc2\xb2", "256"); /* a letter to Oniguruma, */
    splits("[\\\\w]+", ", \"a\\u00c2\\u00b2\": 256", "a\xc2\xb2",
           "97 194 178"); /* but not in brackets */
}

static void refused_regexes(void)
{
    static const struct {
        const char *regex, *message;
    } rows[] = {
        {"a\\\\h", "'\\h' is not supported"},
        {"(a)\\\\1", "'\\1' is not supported"},
        {"[a[b]]", "'[' is not supported"},
        {"[a&&b]", "'&&' is not supported"},
        {"(?<n>a)", "'(?<' is not supported"},
        {"(?m:a)", "'(?m' is not supported"},
        {"a(?i)b", "'(?i' is not supported"},
        {"[]a]", "']' is not supported"},
        {"a\\\\", "'\\' is not supported"},
        {"[ab", "'[' has no ']'"},
        {"\\\\p{Banana}", "sc:Banana"},
        {"\\\\pL", "write \\p{NAME}"},
        {"\\\\xff", "it is a byte"},
        {"(a", "missing closing parenthesis"},
        {"a)", "unmatched closing parenthesis"},
        {"+", "quantifier does not follow"},
        {"\\\\W[\\\\W]", "byte 3 of the regex: '\\W'"},
        {"\\\\x{110000}", "code point value"},
    };
    for (int i = 0; i < TN_COUNT(rows); i++) {
        char steps[512];
        snprintf(steps, sizeof steps,
                 "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": "
                 "\"Isolated\"}, ",
                 rows[i].regex);
        refused(&(tn_words){.steps = steps}, rows[i].message);
    }
    char deep[2048] = "";
    for (int i = 0; i < 70; i++) strcat(deep, "(");
    char steps[4096];
    snprintf(steps, sizeof steps, "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}}, ",
             deep);
    refused(&(tn_words){.steps = steps}, "nested too deep");

    /* A pattern without end on some text fails; it does not hang. */
    const tn_words s = {.steps = "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
                                 "\"(?:(?:a|a)+)+[bc]\"}, \"behavior\": \"Isolated\"}, "};
    tn_tokenizer *t = load(&s);
    tn_encoder *e = NULL;
    tn_ids ids = {0};
    if (!t || !TN_CHECK_OK(tn_encoder_create(t, &e))) return;
    char text[4000];
    memset(text, 'a', sizeof text);
    TN_CHECK_FAILS(tn_encoder_encode(e, text, sizeof text, 0, &ids), TN_FAILED, "regex: ");
    tn_ids_fini(&ids);
    tn_encoder_destroy(e);
    tn_tokenizer_close(t);
}

/* ------------------------------------------------------------ the rest of the file */

#define ADDED(id, content, flags)                                                                  \
    "{\"id\": " id ", \"content\": \"" content "\", \"single_word\": false, \"lstrip\": false, "   \
    "\"rstrip\": false, \"normalized\": false, \"special\": true" flags "}"

/* An added token is cut out of text or it is not there: no piece becomes it. And one that stripped
 * another's blanks leaves nothing of that. */
static void added_only(void)
{
    const tn_words s = {
        .model = ", \"ignore_merges\": true",
        .rest = ", \"added_tokens\": [{\"id\": 256, \"content\": \"ab\", \"single_word\": true}, "
                "{\"id\": 257, \"content\": \"  \", \"lstrip\": true, \"rstrip\": true}]"};
    tn_tokenizer *t = load(&s);
    if (!t) return;
    IDS(t, "ab", "256");
    IDS(t, "1ab", "49 97 98");
    IDS(t, "ab1ab", "97 98 49 97 98");
    IDS(t, "a      b", "97 257 98");
    tn_tokenizer_close(t);
    t = load(&(tn_words){.model = s.model, .steps = "{\"type\": \"Digits\"}, ", .rest = s.rest});
    if (t) IDS(t, "1ab", "49 97 98");
    tn_tokenizer_close(t);
}

static void added_tokens(void)
{
    const tn_words s = {
        .rest = ", \"added_tokens\": [" ADDED("256", "<a>", "") ", " ADDED(
            "257", "<a><b>",
            "") ", " ADDED("258", "<c",
                           "") "], "
                               "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                               "[{\"SpecialToken\": {\"id\": \"<a>\"}}, {\"Sequence\": {\"id\": "
                               "\"A\"}}], \"special_tokens\": {\"<a>\": {\"ids\": [256, 257]}}}"};
    tn_tokenizer *t = load(&s);
    if (!t) return;
    int32_t id = 0;
    TN_CHECK(tn_tokenizer_size(t) == 259);
    TN_CHECK_OK(tn_tokenizer_find(t, "<a><b>", &id));
    TN_CHECK(id == 257);
    TN_CHECK_OK(tn_tokenizer_find(t, "<c>", &id));
    TN_CHECK(id == -1);
    IDS(t, "x<a><b><a>", "120 257 256");
    IDS(t, "<a><cx", "256 258 120");
    IDS(t, "<<c<a", "60 258 60 97");
    TN_CHECK_TEXT(ids_of(t, "<a>", 3, TN_ENCODE_LITERAL), "60 97 62");
    TN_CHECK_TEXT(ids_of(t, "", 0, TN_ENCODE_TEMPLATE), "256 257");
    TN_CHECK_TEXT(ids_of(t, "b", 1, TN_ENCODE_TEMPLATE), "256 257 98");

    tn_text text = {0};
    const int32_t ids[] = {256, 'h', -1, 0xe2, 0x82, 99999, 'i', 258, INT32_MAX, 0};
    TN_CHECK_OK(tn_tokenizer_decode(t, ids, TN_COUNT(ids), false, &text));
    TN_CHECK(text.n_bytes == 11 && !memcmp(tn_text_str(&text), "<a>h\xef\xbf\xbdi<c", 11));
    tn_text_cut(&text, 0);
    TN_CHECK_OK(tn_tokenizer_decode(t, ids, 2, true, &text));
    TN_CHECK_TEXT(tn_text_str(&text), "h");
    tn_text_fini(&text);
    tn_tokenizer_close(t);
}

static void refused_parts(void)
{
    refused(&(tn_words){.model = ", \"byte_fallback\": true"}, "byte_fallback is not supported");
    refused(&(tn_words){.model = ", \"ignore_merges\": 1"},
            "model.ignore_merges is a whole number");
    refused(&(tn_words){.rest = ", \"normalizer\": {\"type\": \"NFKC\"}"},
            "normalizer.type: \"NFKC\" is not supported");
    refused(&(tn_words){.rest = ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": "
                                "[{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}"},
            "normalizer.normalizers[1].type: \"Lowercase\" is not supported");
    refused(&(tn_words){.steps = "{\"type\": \"Metaspace\"}, "}, "\"Metaspace\" is not supported");
    refused(&(tn_words){.steps = "{\"type\": \"ByteLevel\"}, "}, "behind ByteLevel");
    refused(&(tn_words){.steps = "{\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, "
                                 "\"behavior\": \"Isolated\"}, "},
            "pattern.String: it is empty");
    refused(&(tn_words){.rest = ", \"post_processor\": {\"type\": \"BertProcessing\"}"},
            "post_processor.type: \"BertProcessing\" is not supported");
    refused(&(tn_words){.rest = ", \"added_tokens\": [" ADDED("300", "<a>", "") "]"},
            "is 300, where tokenizers counts 256");
    refused(&(tn_words){.words = ", \"\\n\\u001b[31m\": 1"}, "the id of \"??[31m\" is 1");
}

static void composing(void)
{
    const tn_words s = {.words = ", \"\\u00c3\\u00a9\": 256, \"\\u00ea\\u00b0\\u0122\": 257",
                        .model = ", \"ignore_merges\": true",
                        .rest = ", \"normalizer\": {\"type\": \"NFC\"}"};
    tn_tokenizer *t = load(&s);
    if (!t) return;
    IDS(t, "e\xcc\x81", "256");
    IDS(t, "\xe1\x84\x80\xe1\x85\xa1", "257"); /* Hangul */
    IDS(t, "ae\xcc\x81", "97 195 169");
    tn_tokenizer_close(t);
}

/* ------------------------------------------------------------ failures, files */

static tn_status all_of_it(void *arg)
{
    const tn_text *file = arg;
    tn_tokenizer *t = NULL;
    tn_encoder *e = NULL;
    tn_ids ids = {0};
    tn_text text = {0};
    char long_text[300];
    for (int i = 0; i < TN_COUNT(long_text); i++) long_text[i] = (char)('a' + i % 3);
    memcpy(long_text + 100, "e\xcc\x81 <a>\xff", 8);
    tn_status st = tn_tokenizer_parse("small", tn_text_str(file), file->n_bytes, &t);
    if (!st) st = tn_encoder_create(t, &e);
    if (!st) st = tn_encoder_encode(e, long_text, TN_COUNT(long_text), TN_ENCODE_TEMPLATE, &ids);
    if (!st) st = tn_tokenizer_decode(t, ids.items, ids.n, false, &text);
    tn_text_fini(&text);
    tn_ids_fini(&ids);
    tn_encoder_destroy(e);
    tn_tokenizer_close(t);
    return st;
}

static void failing_allocations(void)
{
    const tn_words s = {
        .words = ", \"ab\": 256, \"bc\": 257",
        .merges = "\"a b\", [\"b\", \"c\"]",
        .steps = "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}{1,2}+|[a-c]+\"}, "
                 "\"behavior\": \"Isolated\"}, {\"type\": \"Digits\"}, ",
        .rest = ", \"normalizer\": {\"type\": \"NFC\"}, \"added_tokens\": [" ADDED("258", "<a>",
                                                                                   "") "]"};
    tn_text file = tn_words_file(&s);
    TN_CHECK(tn_test_each_alloc(all_of_it, &file) > 300);
    tn_text_fini(&file);
}

/* A text as training sees it: every document encoded by itself. */
static void encoded_corpus(void)
{
    const tn_words s = {
        .words = ", \"ab\": 256",
        .merges = "\"a b\"",
        .rest = ", \"added_tokens\": [" ADDED(
            "257", "<s>", "") "], "
                              "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                              "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": "
                              "\"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [257]}}}"};
    static const int32_t want[] = {257, 256, 10, 257, 120, 10, 257, 256, 98};
    tn_text file = tn_words_file(&s);
    tn_windows *w = NULL;
    int32_t ids[TN_COUNT(want)] = {0};
    int64_t at[3] = {0}, next[5] = {0};
    char tokenizer[512];
    snprintf(tokenizer, sizeof tokenizer, "%s", tn_scratch_text("small.json", tn_text_str(&file)));
    tn_text_fini(&file);
    tn_data_path path = {.pattern = tn_scratch_text("text", "ab\nx\nabb")};
    tn_data_options o = {.section = "data",
                         .source = "text",
                         .tokenizer = tokenizer,
                         .cache_folder = tn_scratch_path("cache"),
                         .vocab_size = 257};
    TN_CHECK_FAILS(tn_data_built_open(&o, &path, 1, &w), TN_BAD_INPUT,
                   "has ids up to 257, and model.vocab_size is 257; set model.vocab_size = 258");
    o.vocab_size = 258;
    if (!TN_CHECK_OK(tn_data_built_open(&o, &path, 1, &w))) return;
    TN_CHECK(tn_windows_tokens(w) == TN_COUNT(want) && tn_windows_documents(w) == 3);
    TN_CHECK_OK(tn_windows_check(w, "data", 258));
    TN_CHECK_OK(tn_windows_copy(w, 0, TN_COUNT(want), ids));
    TN_CHECK(memcmp(ids, want, sizeof want) == 0);
    TN_CHECK_OK(tn_windows_copy(w, 4, 2, ids));
    TN_CHECK(ids[0] == 120 && ids[1] == 10);
    for (int64_t d = 1; d <= 3; d++) TN_CHECK_OK(tn_windows_tail(w, d, &at[d - 1]));
    TN_CHECK(at[0] == 6 && at[1] == 3 && at[2] == 0);
    const int64_t asked[5][2] = {{0, 9}, {2, 9}, {3, 9}, {3, 5}, {6, 9}};
    for (int i = 0; i < 5; i++) TN_CHECK_OK(tn_windows_next(w, asked[i][0], asked[i][1], &next[i]));
    TN_CHECK(next[0] == 3 && next[1] == 3 && next[2] == 6 && next[3] == 5 && next[4] == 9);
    tn_windows_forget(w, 0, 9);
    tn_windows_close(w);

    /* The end token of tokenizer_config.json, a given one, one that is not there, none. */
    tn_scratch_text("tokenizer_config.json", "{\"eos_token\": {\"content\": \"ab\"}}");
    const struct {
        const char *end_token;
        int64_t tokens, last;
    } ends[] = {{NULL, 12, 256}, {"<s>", 12, 257}, {"", 9, 98}};
    for (int i = 0; i < TN_COUNT(ends); i++) {
        o.end_token = ends[i].end_token;
        if (!TN_CHECK_OK(tn_data_built_open(&o, &path, 1, &w))) continue;
        int64_t n = tn_windows_tokens(w);
        TN_CHECK_OK(tn_windows_copy(w, n - 1, 1, ids));
        TN_CHECK_MSG(n == ends[i].tokens && ids[0] == ends[i].last, "%d: %lld tokens, the last %d",
                     i, (long long)n, ids[0]);
        tn_windows_close(w);
    }
    o.end_token = "<eot>";
    TN_CHECK_FAILS(tn_data_built_open(&o, &path, 1, &w), TN_BAD_INPUT, "data.end_token: '");
}

int main(void)
{
    merging();
    long_pieces();
    behaviours();
    regexes();
    refused_regexes();
    added_tokens();
    added_only();
    refused_parts();
    composing();
    failing_allocations();
    encoded_corpus();
    return tn_test_done("tokenizer");
}
