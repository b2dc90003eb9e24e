/* Any bytes: refused with one line, or a tree that can be walked and that reads back the same from
 * what is written of it. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/jsonout.h"
#include "engine/base/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok) abort();
}

static void write(tn_jsonout *w, const char *key, const tn_json *j)
{
    int64_t whole = 0, count = 0;
    double number = 0;
    bool truth = false;
    switch (tn_json_kind_of(j)) {
    case TN_JSON_NULL:
        tn_jsonout_null(w, key);
        return;
    case TN_JSON_BOOL:
        must(tn_json_bool(j, &truth));
        tn_jsonout_bool(w, key, truth);
        return;
    case TN_JSON_INT:
        must(tn_json_int(j, &whole));
        tn_jsonout_int(w, key, whole);
        return;
    case TN_JSON_REAL:
        must(tn_json_number(j, &number));
        tn_jsonout_double(w, key, number);
        return;
    case TN_JSON_STRING:
        must(tn_json_string(j));
        tn_jsonout_string(w, key, tn_json_string(j));
        return;
    case TN_JSON_ARRAY:
        tn_jsonout_open(w, key, '[');
        for (int64_t i = 0; tn_json_at(j, i); i++, count++) write(w, NULL, tn_json_at(j, i));
        break;
    case TN_JSON_OBJECT:
        tn_jsonout_open(w, key, '{');
        for (tn_json_pair p = tn_json_first(j); p.key; p = tn_json_next(p), count++) {
            must(tn_json_find(j, p.key) == p.value);
            write(w, p.key, p.value);
        }
        break;
    }
    must(count == tn_json_count(j));
    tn_jsonout_close(w);
}

static void again(const tn_json *j)
{
    tn_text first = {0}, second = {0};
    tn_jsonout w = {.text = &first, .indent = 1}, w2 = {.text = &second, .indent = 1};
    const tn_json *back = NULL;
    write(&w, NULL, j);
    must(tn_text_end(&first) == TN_OK);
    must(tn_json_parse("again", tn_text_str(&first), first.n_bytes, &back) == TN_OK);
    write(&w2, NULL, back);
    must(tn_text_end(&second) == TN_OK && strcmp(tn_text_str(&first), tn_text_str(&second)) == 0);
    tn_json_free(back);
    tn_text_fini(&first);
    tn_text_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tn_json *j = NULL;
    if (tn_json_parse("fuzz", (const char *)data, (int64_t)size, &j) == TN_OK) {
        must(j != NULL);
        again(j);
        tn_json_free(j);
    } else {
        const char *text = tn_error_text();
        must(!j && text[0] && !strchr(text, '\n'));
    }
    tn_error_clear();
    return 0;
}
