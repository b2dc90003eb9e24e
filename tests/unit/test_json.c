/* JSON: what is accepted is what was written, what is refused says where; what is written reads
 * back. */
#include "engine/base/json.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/file.h"
#include "engine/base/jsonout.h"
#include "engine/base/text.h"
#include "tests/test.h"

static const char sample[] = "{\"z\": 1, \"a\": [true, false, null, \"t\\u00e4\\n\", -2.5e3, "
                             "9223372036854775807], \"m\": {\"\": {}}}";

static tn_status parse_sample(void *arg)
{
    const tn_json *j = NULL;
    tn_status st = tn_json_parse("sample", sample, (int64_t)strlen(sample), &j);
    if (st == TN_OK) *(int64_t *)arg = tn_json_count(j);
    tn_json_free(j);
    return st;
}

static void reading(void)
{
    const tn_json *j = NULL;
    int64_t n = 0;
    double x = 0;
    bool b = false;
    TN_CHECK_OK(tn_json_parse("sample", sample, (int64_t)strlen(sample), &j));
    const tn_json *a = tn_json_find(j, "a");
    TN_CHECK(tn_json_kind_of(j) == TN_JSON_OBJECT && tn_json_count(j) == 3);
    TN_CHECK(tn_json_kind_of(a) == TN_JSON_ARRAY && tn_json_count(a) == 6);
    TN_CHECK(tn_json_bool(tn_json_at(a, 0), &b) && b);
    TN_CHECK(tn_json_bool(tn_json_at(a, 1), &b) && !b);
    TN_CHECK(tn_json_at(a, 2) && tn_json_kind_of(tn_json_at(a, 2)) == TN_JSON_NULL);
    TN_CHECK_TEXT(tn_json_string(tn_json_at(a, 3)), "t\xc3\xa4\n");
    TN_CHECK(tn_json_number(tn_json_at(a, 4), &x) && x == -2500 &&
             !tn_json_int(tn_json_at(a, 4), &n));
    TN_CHECK(tn_json_int(tn_json_at(a, 5), &n) && n == INT64_MAX);
    TN_CHECK(tn_json_number(tn_json_find(j, "z"), &x) && x == 1);
    TN_CHECK(tn_json_kind_of(tn_json_find(tn_json_find(j, "m"), "")) == TN_JSON_OBJECT);

    /* asked for what is not there */
    TN_CHECK(!tn_json_find(j, "q") && !tn_json_find(a, "z") && !tn_json_find(NULL, "z"));
    TN_CHECK(!tn_json_at(a, 6) && !tn_json_at(a, -1) && !tn_json_at(j, 0) && !tn_json_string(NULL));
    TN_CHECK(!tn_json_int(NULL, &n) && !tn_json_bool(NULL, &b) && !tn_json_number(NULL, &x) &&
             tn_json_count(NULL) == 0);
    TN_CHECK_TEXT(tn_json_kind_name(tn_json_kind_of(a)), "a list");

    char order[16] = "";
    for (tn_json_pair p = tn_json_first(j); p.key; p = tn_json_next(p)) strcat(order, p.key);
    TN_CHECK_TEXT(order, "zam");
    TN_CHECK(tn_json_first(a).key == NULL &&
             tn_json_first(tn_json_find(tn_json_find(j, "m"), "")).key == NULL);
    tn_json_free(j);
    TN_CHECK(tn_test_each_alloc(parse_sample, &n) > 3 && n == 3);
}

/* Many keys, so that order does not come from a small table by chance. */
static void key_order(void)
{
    tn_text t = {0};
    const tn_json *j = NULL;
    tn_text_add(&t, "{");
    for (int i = 0; i < 500; i++) tn_text_add(&t, "%s\"k%d\": %d", i ? "," : "", i * 7919 % 500, i);
    tn_text_add(&t, "}");
    TN_CHECK_OK(tn_text_end(&t));
    TN_CHECK_OK(tn_json_parse("keys", tn_text_str(&t), t.n_bytes, &j));
    int64_t i = 0, n = -1;
    bool same = true;
    for (tn_json_pair p = tn_json_first(j); p.key; p = tn_json_next(p), i++)
        same =
            same && tn_json_int(p.value, &n) && n == i && atoi(p.key + 1) == (int)(i * 7919 % 500);
    TN_CHECK(same && i == 500);
    tn_json_free(j);
    tn_text_fini(&t);
}

static void refusals(void)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "line 1"},
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", "duplicate"},
        {"{\"a\": 1,}", "string or '}' expected"},
        {"[1, 2", "']' expected"},
        {"{\n  \"a\": 1\n} x", "line 3, column 3"},
        {"[1] [2]", "end of file expected"},
        {"[NaN]", "invalid token"},
        {"[01]", "expected strict JSON"},
        {"[+1]", "invalid token"},
        {"[1e999]", "real number overflow"},
        {"[9223372036854775808]", "too big integer"},
        {"[\"\\u0000\"]", "\\u0000"},
        {"[\"\xff\"]", "byte"},
        {"[\"\xed\xa0\x80\"]", "byte"},
        {"[\"a\nb\"]", "unexpected newline"},
        {"[\"a\tb\"]", "control character"},
        {"// x\n[]", "invalid token"},
        {"['a']", "invalid token"},
        {"{1: 2}", "string or '}' expected"},
        {"\xef\xbb\xbf[]", "invalid token"},
        {"[\"a\\\n\"]", "near '\"a\\?'"}, /* what is quoted stays on one line */
    };
    for (int i = 0; i < TN_COUNT(cases); i++) {
        const tn_json *j = NULL;
        TN_CHECK_FAILS(tn_json_parse("in", cases[i].text, (int64_t)strlen(cases[i].text), &j),
                       TN_BAD_INPUT, cases[i].part);
        TN_CHECK(j == NULL);
    }
    const tn_json *j = NULL;
    TN_CHECK_FAILS(tn_json_parse("in", "[1]\0", 4, &j), TN_BAD_INPUT, "in: line 1");
    char deep[2 * TN_JSON_MAX_DEPTH + 3];
    for (int depth = TN_JSON_MAX_DEPTH; depth <= TN_JSON_MAX_DEPTH + 1; depth++) {
        memset(deep, '[', (size_t)depth);
        memset(deep + depth, ']', (size_t)depth);
        tn_status st = tn_json_parse("deep", deep, 2 * depth, &j);
        TN_CHECK(st == (depth > TN_JSON_MAX_DEPTH ? TN_BAD_INPUT : TN_OK));
        if (st == TN_OK) tn_json_free(j);
    }
    TN_CHECK_FAILS(tn_json_read("no/such.json", &j), TN_BAD_INPUT, "no/such.json");
}

static void write_all(tn_jsonout *w)
{
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_int(w, "i", INT64_MIN);
    tn_jsonout_double(w, "d", 1e22);
    tn_jsonout_double(w, "whole", 3);
    tn_jsonout_float(w, "f", 0.1f);
    tn_jsonout_double(w, "n", (double)NAN);
    tn_jsonout_open(w, "list", '[');
    tn_jsonout_string(w, NULL, "q\"\\\n\x01\xc3\xa4\xff");
    tn_jsonout_string(w, NULL, NULL);
    tn_jsonout_open(w, NULL, '{');
    tn_jsonout_close(w);
    tn_jsonout_bool(w, NULL, true);
    tn_jsonout_close(w);
    tn_jsonout_null(w, "none");
    tn_jsonout_close(w);
}

static void writing(void)
{
    tn_text t = {0};
    tn_jsonout w = {.text = &t};
    write_all(&w);
    TN_CHECK_TEXT(
        tn_text_str(&t),
        "{\"i\": -9223372036854775808, \"d\": 1e+22, \"whole\": 3.0, \"f\": 0.1, \"n\": null, "
        "\"list\": [\"q\\\"\\\\\\n\\u0001\xc3\xa4\xef\xbf\xbd\", null, {}, true], \"none\": null}");
    const tn_json *j = NULL;
    double x = 0;
    int64_t n = 0;
    TN_CHECK_OK(tn_json_parse("out", tn_text_str(&t), t.n_bytes, &j));
    TN_CHECK(tn_json_int(tn_json_find(j, "i"), &n) && n == INT64_MIN);
    TN_CHECK(tn_json_number(tn_json_find(j, "d"), &x) && x == 1e22);
    TN_CHECK(tn_json_kind_of(tn_json_find(j, "whole")) == TN_JSON_REAL);
    TN_CHECK_TEXT(tn_json_string(tn_json_at(tn_json_find(j, "list"), 0)),
                  "q\"\\\n\x01\xc3\xa4\xef\xbf\xbd");
    tn_json_free(j);

    tn_text_cut(&t, 0);
    w = (tn_jsonout){.text = &t, .indent = 2};
    tn_jsonout_open(&w, NULL, '[');
    tn_jsonout_int(&w, NULL, 1);
    tn_jsonout_open(&w, NULL, '[');
    tn_jsonout_close(&w);
    tn_jsonout_close(&w);
    TN_CHECK_TEXT(tn_text_str(&t), "[\n  1,\n  []\n]");
    tn_text_fini(&t);
}

int main(void)
{
    reading();
    key_order();
    refusals();
    writing();
    return tn_test_done("json");
}
