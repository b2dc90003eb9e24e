/* json.h - strict JSON, read-only. This is the door of the JSON library.
 *
 * Refused: duplicate keys, anything behind the value, trailing commas, comments, NaN, numbers that
 * do not fit an int64 or a double, bytes that are no UTF-8, NUL in strings, nesting or sizes above
 * the limits. So every string is a C string and a key means one thing. Errors: "WHERE: line 3,
 * column 7 (byte 41): what; ...", TN_BAD_INPUT.
 *
 * A tree is freed as a whole by its root. Asking a value for what it is not gives NULL, false, 0:
 * callers check and say what they expected.
 */
#ifndef TN_ENGINE_BASE_JSON_H
#define TN_ENGINE_BASE_JSON_H
#include "engine/base/base.h"

TN_C_BEGIN

enum { TN_JSON_MAX_DEPTH = 64 };
#define TN_JSON_MAX_BYTES ((int64_t)256 << 20)

typedef enum tn_json_kind {
    TN_JSON_NULL,
    TN_JSON_BOOL,
    TN_JSON_INT,
    TN_JSON_REAL,
    TN_JSON_STRING,
    TN_JSON_ARRAY,
    TN_JSON_OBJECT
} tn_json_kind;

typedef struct tn_json tn_json;

const char *tn_json_library(void); /* "jansson 2.14": what was built with */

/* text: n bytes, NUL not needed. `where` opens every message (a path, "FILE header"). */
tn_status tn_json_parse(const char *where, const char *text, int64_t n,
                        const tn_json **out) TN_MUST_USE;
tn_status tn_json_read(const char *path, const tn_json **out) TN_MUST_USE;

/* The same where strings are data: values may hold "\u0000". Ask tn_json_bytes for them. */
tn_status tn_json_parse_data(const char *where, const char *text, int64_t n,
                             const tn_json **out) TN_MUST_USE;
void tn_json_free(const tn_json *root); /* NULL is fine; roots only */

/* Every function takes NULL as "absent": tn_json_string(tn_json_find(o, "key")) is safe. */
tn_json_kind tn_json_kind_of(const tn_json *j);   /* TN_JSON_NULL for NULL */
const char *tn_json_kind_name(tn_json_kind kind); /* "a number", "an object": for messages */
int64_t tn_json_count(const tn_json *j);          /* elements or keys; 0 for the rest */
const tn_json *tn_json_find(const tn_json *object, const char *key);
const tn_json *tn_json_at(const tn_json *array, int64_t i);
const char *tn_json_string(const tn_json *j);            /* NULL if it is no string */
const char *tn_json_bytes(const tn_json *j, int64_t *n); /* with its length; NULL, 0 */
bool tn_json_int(const tn_json *j, int64_t *out);        /* written without point and exponent */
bool tn_json_number(const tn_json *j, double *out);      /* INT or REAL */
bool tn_json_bool(const tn_json *j, bool *out);

/* The pairs of an object in the order of the text:
 *     for (tn_json_pair p = tn_json_first(o); p.key; p = tn_json_next(p)) */
typedef struct tn_json_pair {
    const char *key; /* NULL: past the end */
    const tn_json *value;
    const void *object, *iter;
} tn_json_pair;
tn_json_pair tn_json_first(const tn_json *object);
tn_json_pair tn_json_next(tn_json_pair pair);

TN_C_END
#endif
