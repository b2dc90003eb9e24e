#include "engine/base/json.h"

#include <jansson.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/text.h"

/* The library's values are refcounted and mutable; here they are neither, so a tree is const from
 * its root on. */
static json_t *value(const tn_json *j)
{
    return (json_t *)(uintptr_t)j;
}

static const tn_json *tree(const json_t *j)
{
    return (const tn_json *)j;
}

const char *tn_json_library(void)
{
    return "jansson " JANSSON_VERSION;
}

/* The library takes some failed allocations for bad input, so they are remembered here. */
static _Thread_local bool starved;

static void *take(size_t bytes)
{
    void *p = NULL;
    if (tn_alloc(bytes, &p) == TN_OK) return p;
    tn_error_clear();
    starved = true;
    return NULL;
}

/* The library descends one C frame for each level, so the limit is enforced before it sees the
 * text. */
static tn_status check_depth(const char *where, const char *text, int64_t n)
{
    int depth = 0;
    bool quoted = false;
    for (int64_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted) {
            if (c == '\\') i++;
            else if (c == '"') quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++depth > TN_JSON_MAX_DEPTH)
                TN_FAIL(TN_BAD_INPUT, "%s: byte %lld: nested deeper than %d levels", where,
                        (long long)i, TN_JSON_MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return TN_OK;
}

/* The library quotes the text it stumbled over: line ends and terminal escapes must not reach a
 * one-line message. */
static const char *one_line(json_error_t *error)
{
    for (char *c = error->text; *c; c++) {
        bool c1 = (unsigned char)c[0] == 0xc2 && (unsigned char)c[1] >= 0x80 &&
                  (unsigned char)c[1] < 0xa0;
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
        if (c1) c[0] = c[1] = '?';
    }
    return error->text;
}

static tn_status parse(const char *where, const char *text, int64_t n, size_t flags,
                       const tn_json **out)
{
    json_error_t error;
    if (n > TN_JSON_MAX_BYTES)
        TN_FAIL(TN_BAD_INPUT, "%s: %s of JSON, at most %s", where, tn_text_bytes(n).s,
                tn_text_bytes(TN_JSON_MAX_BYTES).s);
    TN_TRY(check_depth(where, text, n));
    json_set_alloc_funcs(take, tn_free);
    starved = false;
    json_t *j =
        json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | flags, &error);
    if (starved) {
        json_decref(j);
        TN_FAIL(TN_FAILED, "%s: memory: cannot hold %s of JSON", where, tn_text_bytes(n).s);
    }
    if (!j)
        TN_FAIL(TN_BAD_INPUT, "%s: line %d, column %d (byte %d): %s; expected strict JSON", where,
                error.line, error.column, error.position, one_line(&error));
    *out = tree(j);
    return TN_OK;
}

tn_status tn_json_parse(const char *where, const char *text, int64_t n, const tn_json **out)
{
    return parse(where, text, n, 0, out);
}

tn_status tn_json_parse_data(const char *where, const char *text, int64_t n, const tn_json **out)
{
    return parse(where, text, n, JSON_ALLOW_NUL, out);
}

tn_status tn_json_read(const char *path, const tn_json **out)
{
    char *text = NULL;
    int64_t n = 0;
    TN_TRY(tn_file_read(path, TN_JSON_MAX_BYTES, &text, &n));
    tn_status st = tn_json_parse(path, text, n, out);
    tn_free(text);
    return st;
}

void tn_json_free(const tn_json *root)
{
    if (root) json_decref(value(root));
}

tn_json_kind tn_json_kind_of(const tn_json *j)
{
    if (!j) return TN_JSON_NULL;
    switch (json_typeof(value(j))) {
    case JSON_OBJECT:
        return TN_JSON_OBJECT;
    case JSON_ARRAY:
        return TN_JSON_ARRAY;
    case JSON_STRING:
        return TN_JSON_STRING;
    case JSON_INTEGER:
        return TN_JSON_INT;
    case JSON_REAL:
        return TN_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TN_JSON_BOOL;
    case JSON_NULL:
        break;
    }
    return TN_JSON_NULL;
}

const char *tn_json_kind_name(tn_json_kind kind)
{
    static const char *const names[] = {"null",     "true or false", "a whole number", "a number",
                                        "a string", "a list",        "an object"};
    return names[kind];
}

int64_t tn_json_count(const tn_json *j)
{
    /* both answer 0 for what they are not, and for NULL */
    return (int64_t)(json_array_size(value(j)) + json_object_size(value(j)));
}

const tn_json *tn_json_find(const tn_json *object, const char *key)
{
    return tree(json_object_get(value(object), key));
}

const tn_json *tn_json_at(const tn_json *array, int64_t i)
{
    return i < 0 ? NULL : tree(json_array_get(value(array), (size_t)i));
}

const char *tn_json_string(const tn_json *j)
{
    return json_string_value(value(j));
}

const char *tn_json_bytes(const tn_json *j, int64_t *n)
{
    *n = (int64_t)json_string_length(value(j));
    return json_string_value(value(j));
}

bool tn_json_int(const tn_json *j, int64_t *out)
{
    if (tn_json_kind_of(j) != TN_JSON_INT) return false;
    *out = json_integer_value(value(j));
    return true;
}

bool tn_json_number(const tn_json *j, double *out)
{
    tn_json_kind kind = tn_json_kind_of(j);
    if (kind != TN_JSON_INT && kind != TN_JSON_REAL) return false;
    *out = json_number_value(value(j));
    return true;
}

bool tn_json_bool(const tn_json *j, bool *out)
{
    if (tn_json_kind_of(j) != TN_JSON_BOOL) return false;
    *out = json_is_true(value(j));
    return true;
}

static tn_json_pair pair_at(json_t *object, void *iter)
{
    if (!iter) return (tn_json_pair){0};
    return (tn_json_pair){json_object_iter_key(iter), tree(json_object_iter_value(iter)), object,
                          iter};
}

tn_json_pair tn_json_first(const tn_json *object)
{
    json_t *o = value(object);
    return pair_at(o, json_object_iter(o));
}

tn_json_pair tn_json_next(tn_json_pair pair)
{
    json_t *o = (json_t *)(uintptr_t)pair.object;
    return pair_at(o, json_object_iter_next(o, (void *)(uintptr_t)pair.iter));
}
