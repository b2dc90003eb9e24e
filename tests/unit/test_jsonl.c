/* test_jsonl.c - the one field of a line, against the JSON library and by what JSON says; every
 * kind of wrong line. */
#include "engine/base/json.h"
#include "engine/jsonl.h"
#include "tests/test.h"

#include <stdlib.h>

static tn_status get(const char *line, int64_t n, char *text, int64_t *n_text)
{
    char *exact =
        malloc((size_t)n + 1); /* a block of its own size: the sanitizer sees one too far */
    memcpy(exact, line, (size_t)n);
    tn_status st = tn_jsonl_text("f: line 1", exact, n, "text", text, n_text);
    free(exact);
    return st;
}

static void good(const char *line, const char *want)
{
    char text[512];
    int64_t n = -1;
    if (!TN_CHECK_OK(get(line, (int64_t)strlen(line), text, &n))) return;
    text[n] = 0;
    TN_CHECK_TEXT(text, want);
    const tn_json *j = NULL;
    if (!TN_CHECK_OK(tn_json_parse("line", line, (int64_t)strlen(line), &j))) return;
    TN_CHECK_TEXT(tn_json_string(tn_json_find(j, "text")), want);
    tn_json_free(j);
}

static void bad(const char *line, const char *part)
{
    char text[512];
    int64_t n = -1;
    TN_CHECK_FAILS(get(line, (int64_t)strlen(line), text, &n), TN_BAD_INPUT, part);
    TN_CHECK(n == -1);
}

static void texts(void)
{
    good("{\"text\":\"\"}", "");
    good(" {\t\"text\" : \"abc\" , \"b\":[ ] } \r\n", "abc");
    good("{\"a\":{\"text\":\"inner\"},\"text\":\"outer\"}", "outer");
    good("{\"a\":[1,-2.5e+3,0,true,false,null,[[]],{},{\"x\":[{}]}],\"text\":\"t\"}", "t");
    good("{\"text\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "\"\\/\b\f\n\r\t");
    good("{\"text\":\"\\u0041\\u00e9\\u2603\\ud83d\\uDE00\"}",
         "A\xc3\xa9\xe2\x98\x83\xf0\x9f\x98\x80");
    good(
        "{\"text\":\"caf\xc3\xa9 \xe2\x98\x83 \xf0\x9f\x98\x80 and a long plain tail of letters\"}",
        "caf\xc3\xa9 \xe2\x98\x83 \xf0\x9f\x98\x80 and a long plain tail of letters");
    good("{\"te\\u0078t\":\"an escaped key\"}", "an escaped key");
    char text[64];
    int64_t n;
    static const char nul[] =
        "{\"text\":\"a\\u0000b\"}"; /* the library refuses it, JSON does not */
    TN_CHECK_OK(get(nul, (int64_t)strlen(nul), text, &n));
    TN_CHECK(n == 3 && !memcmp(text, "a\0b", 3));
    static const char big[] = "{\"id\":123456789012345678901234567890,\"x\":1e999,\"text\":\"t\"}";
    TN_CHECK_OK(get(big, (int64_t)strlen(big), text, &n));
    TN_CHECK(n == 1);
}

static void mistakes(void)
{
    bad("", "f: line 1: column 1: no object");
    bad("[]", "no object");
    bad("\"text\"", "no object");
    bad("{}", "has no field 'text'; set data.field");
    bad("{\"Text\":\"a\"}", "has no field 'text'");
    bad("{\"text\":1}", "column 9: the field 'text' is no text");
    bad("{\"text\":null}", "is no text");
    bad("{\"text\":[\"a\"]}", "is no text");
    bad("{\"text\":\"a\",\"text\":\"b\"}", "the field 'text' again");
    bad("{\"text\":\"a\",\"te\\u0078t\":\"b\"}", "the field 'text' again");
    bad("{\"text\":\"a\"", "no ',' or '}'");
    bad("{\"text\":\"a\",}", "no key");
    bad("{\"text\" \"a\"}", "no ':'");
    bad("{\"text\":\"a\"}x", "column 13: something behind the object");
    bad("{\"text\":\"a\"}{}", "something behind the object");
    bad("{text:\"a\"}", "no key");
    bad("{\"text\":\"a", "a string that does not end");
    bad("{\"text\":\"a\\", "a string that does not end");
    bad("{\"text\":\"\\x\"}", "an escape that JSON does not have");
    bad("{\"text\":\"\\u12g4\"}", "an escape that JSON does not have");
    bad("{\"text\":\"\\u12\"}", "an escape that JSON does not have");
    bad("{\"text\":\"\\ud83d\"}", "half of a surrogate pair");
    bad("{\"text\":\"\\ud83d\\u0041\"}", "half of a surrogate pair");
    bad("{\"text\":\"\\ude00\"}", "half of a surrogate pair");
    bad("{\"text\":\"a\tb\"}", "a control character");
    bad("{\"text\":\"a\x80\"}", "no UTF-8");
    bad("{\"text\":\"\xc0\x80\"}", "no UTF-8");
    bad("{\"text\":\"\xed\xa0\x80\"}", "no UTF-8");
    bad("{\"text\":\"\xf4\x90\x80\x80\"}", "no UTF-8");
    bad("{\"text\":\"\xe2\x98\"}", "no UTF-8");
    bad("{\"a\":01,\"text\":\"\"}", "no ',' or '}'");
    bad("{\"a\":1.,\"text\":\"\"}", "no JSON value");
    bad("{\"a\":-,\"text\":\"\"}", "no JSON value");
    bad("{\"a\":nul,\"text\":\"\"}", "no JSON value");
    bad("{\"a\":[1,],\"text\":\"\"}", "no JSON value");
    bad("{\"a\":[1 2],\"text\":\"\"}", "no ',' between values");
    bad("{\"a\":[1},\"text\":\"\"}", "no ',' between values");
    bad("{\"a\":NaN,\"text\":\"\"}", "no JSON value");
    char deep[300] = "{\"a\":";
    for (int i = 0; i < 64; i++) strcat(deep, "[");
    bad(deep, "more than 64 levels");
}

/* Lines drawn from pieces of JSON: what the library takes gives the same text here. */
static void random_lines(void)
{
    static const char *const words[] = {"{",
                                        "}",
                                        "\"text\"",
                                        ":",
                                        ",",
                                        "\"a\"",
                                        "[",
                                        "]",
                                        "1",
                                        "-0.5",
                                        "true",
                                        "null",
                                        " ",
                                        "\"t\\u00e9\"",
                                        "\"\\ud83d\\ude00\"",
                                        "{\"text\":",
                                        "\"\xc3\xa9\"",
                                        "\"\\\"\"",
                                        "\"text\":\"x\""};
    uint32_t x = 1;
    int64_t both = 0;
    for (int round = 0; round < 200000; round++) {
        char line[256], text[256];
        int64_t n = 0, n_text = -1;
        x = x * 1664525 + 1013904223;
        int k = 1 + (int)(x >> 16) % 9;
        n = snprintf(line, sizeof line, "%s", round % 2 ? "{" : "{\"text\":\"x\"");
        for (int i = 0; i < k; i++) {
            x = x * 1664525 + 1013904223;
            n += snprintf(line + n, sizeof line - (size_t)n, "%s",
                          words[(x >> 16) % TN_COUNT(words)]);
        }
        if (round % 3) n += snprintf(line + n, 2, "}");
        const tn_json *j = NULL;
        bool strict = tn_json_parse("line", line, n, &j) == TN_OK;
        const char *want = tn_json_string(tn_json_find(j, "text"));
        bool ours = get(line, n, text, &n_text) == TN_OK;
        tn_error_clear();
        if (strict && tn_json_kind_of(j) == TN_JSON_OBJECT)
            TN_CHECK_MSG(ours == (want != NULL) && (!ours || (n_text == (int64_t)strlen(want) &&
                                                              !memcmp(text, want, (size_t)n_text))),
                         "'%s'", line);
        both += ours && strict;
        tn_json_free(j);
    }
    TN_CHECK_MSG(both > 1000, "only %lld lines were good", (long long)both);
}

int main(void)
{
    texts();
    mistakes();
    random_lines();
    TN_CHECK(tn_jsonl_is_blank("", 0) && tn_jsonl_is_blank(" \t\r\n", 4) &&
             !tn_jsonl_is_blank(" x", 2));
    return tn_test_done("jsonl");
}
