#include "engine/jsonl.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

typedef struct reader {
    const char *where;
    const uint8_t *begin, *at, *end;
} reader;

static tn_status wrong(const reader *r, const uint8_t *at, const char *what)
{
    TN_FAIL(TN_BAD_INPUT, "%s: column %lld: %s; one JSON object per line is expected", r->where,
            (long long)(at - r->begin + 1), what);
}

static void blanks(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r' || *r->at == '\n'))
        r->at++;
}

/* ------------------------------------------------------------ strings */

/* Length of the UTF-8 sequence at p, 0 if it is none (RFC 3629: shortest form, no surrogates). */
static int utf8(const uint8_t *p, const uint8_t *end)
{
    int64_t left = end - p;
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4) return 0;
    int n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (left < n) return 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;
    if (p[0] == 0xed && p[1] > 0x9f) return 0;
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] > 0x8f) return 0;
    return n;
}

static int put_utf8(uint32_t c, char *to)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) to[i] = (char)(0x80 | (c & 0x3f));
    to[0] = (char)((0xf00 >> n & 0xff) | c);
    return n;
}

/* Four hexadecimal digits at r->at. */
static bool hex4(reader *r, uint32_t *out)
{
    uint32_t v = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        uint8_t c = r->at[i], low = c | 0x20;
        if (c >= '0' && c <= '9') v = v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f') v = v << 4 | (uint32_t)(low - 'a' + 10);
        else return false;
    }
    r->at += 4;
    *out = v;
    return true;
}

/* Behind a backslash; writes at most what the escape takes. */
static tn_status escape(reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const uint8_t *begin = r->at - 1;
    if (r->at == r->end) return wrong(r, begin, "a string that does not end");
    uint8_t c = *r->at++;
    const char *found = c ? strchr(names, c) : NULL;
    if (found) {
        if (*to) *(*to)++ = values[found - names];
        return TN_OK;
    }
    uint32_t high, low;
    if (c != 'u' || !hex4(r, &high)) return wrong(r, begin, "an escape that JSON does not have");
    if (high >= 0xdc00 && high < 0xe000) return wrong(r, begin, "half of a surrogate pair");
    if (high >= 0xd800 && high < 0xdc00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return wrong(r, begin, "half of a surrogate pair");
        r->at += 2;
        if (!hex4(r, &low) || low < 0xdc00 || low >= 0xe000)
            return wrong(r, begin, "half of a surrogate pair");
        high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
    }
    if (*to) *to += put_utf8(high, *to);
    return TN_OK;
}

/* Bytes that mean themselves, eight at a time where they are plain ASCII. */
static const uint8_t *plain(const uint8_t *p, const uint8_t *end)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t quote = w ^ ones * '"', slash = w ^ ones * '\\';
        uint64_t stop = (w | (w - ones * 0x20) | (quote - ones) | (slash - ones)) & tops;
        if (stop) break;
    }
    while (p < end && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') p++;
    return p;
}

/* A string from its opening quote; *to NULL: only passed over. */
static tn_status string(reader *r, char **to)
{
    const uint8_t *begin = r->at++;
    for (;;) {
        const uint8_t *run = plain(r->at, r->end);
        if (*to) {
            memcpy(*to, r->at, (size_t)(run - r->at));
            *to += run - r->at;
        }
        r->at = run;
        if (r->at == r->end) return wrong(r, begin, "a string that does not end");
        uint8_t c = *r->at;
        if (c == '"') break;
        if (c == '\\') {
            r->at++;
            TN_TRY(escape(r, to));
            continue;
        }
        if (c < 0x20) return wrong(r, r->at, "a control character in a string");
        int n = utf8(r->at, r->end);
        if (!n) return wrong(r, r->at, "bytes that are no UTF-8");
        if (*to) {
            memcpy(*to, r->at, (size_t)n);
            *to += n;
        }
        r->at += n;
    }
    r->at++;
    return TN_OK;
}

/* ------------------------------------------------------------ the rest */

static bool digits(reader *r)
{
    const uint8_t *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > begin;
}

static bool take(reader *r, const char *set)
{
    if (r->at == r->end || !*r->at || !strchr(set, *r->at)) return false;
    r->at++;
    return true;
}

static tn_status number(reader *r)
{
    const uint8_t *begin = r->at;
    take(r, "-");
    bool ok = take(r, "0") || digits(r);
    if (ok && take(r, ".")) ok = digits(r);
    if (ok && take(r, "eE")) {
        take(r, "+-");
        ok = digits(r);
    }
    return ok ? TN_OK : wrong(r, begin, "no JSON value");
}

static tn_status word(reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < TN_COUNT(words); i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i], n) != 0) continue;
        r->at += n;
        return TN_OK;
    }
    return wrong(r, r->at, r->at == r->end ? "the line ends too early" : "no JSON value");
}

static tn_status scalar(reader *r)
{
    char *none = NULL;
    if (r->at < r->end && *r->at == '"') return string(r, &none);
    if (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9'))) return number(r);
    return word(r);
}

/* "key" : of an object; what is open stands in `kind`. */
static tn_status key(reader *r)
{
    char *none = NULL;
    blanks(r);
    if (r->at == r->end || *r->at != '"') return wrong(r, r->at, "no key in quotes");
    TN_TRY(string(r, &none));
    blanks(r);
    return take(r, ":") ? TN_OK : wrong(r, r->at, "no ':' behind a key");
}

/* Any value; a stack instead of recursion, so that depth costs nothing. */
static tn_status skip(reader *r)
{
    char kind[MAX_DEPTH];
    int depth = 0;
    for (;;) {
        blanks(r);
        bool object = take(r, "{");
        if (object || take(r, "[")) {
            if (depth == MAX_DEPTH - 1) return wrong(r, r->at, "more than 64 levels");
            kind[depth++] = object ? '}' : ']';
            blanks(r);
            if (r->at == r->end || *r->at != (uint8_t)kind[depth - 1]) {
                if (object) TN_TRY(key(r));
                continue;
            }
        } else {
            TN_TRY(scalar(r));
        }
        for (;;) { /* a value has ended, or an empty list is about to */
            if (!depth) return TN_OK;
            blanks(r);
            if (take(r, ",")) {
                if (kind[depth - 1] == '}') TN_TRY(key(r));
                break;
            }
            if (r->at == r->end || *r->at != (uint8_t)kind[depth - 1])
                return wrong(r, r->at, "no ',' between values");
            r->at++;
            depth--;
        }
    }
}

/* ------------------------------------------------------------ the line */

static tn_status take_field(reader *r, const char *field, bool *found, char *text, int64_t *n_text)
{
    char *to = text;
    if (*found)
        TN_FAIL(TN_BAD_INPUT, "%s: column %lld: the field '%s' again; keep one", r->where,
                (long long)(r->at - r->begin + 1), field);
    if (r->at == r->end || *r->at != '"')
        TN_FAIL(TN_BAD_INPUT,
                "%s: column %lld: the field '%s' is no text; leave the line out, or set data.field",
                r->where, (long long)(r->at - r->begin + 1), field);
    TN_TRY(string(r, &to));
    *found = true;
    *n_text = to - text;
    return TN_OK;
}

static tn_status members(reader *r, const char *field, char *text, int64_t *n_text, bool *found)
{
    size_t n_field = strlen(field);
    do {
        char *name = text + *n_text,
             *to = name; /* there is room: the text took its part of the line */
        blanks(r);
        if (r->at == r->end || *r->at != '"') return wrong(r, r->at, "no key in quotes");
        TN_TRY(string(r, &to));
        bool mine = (size_t)(to - name) == n_field && !memcmp(name, field, n_field);
        blanks(r);
        if (!take(r, ":")) return wrong(r, r->at, "no ':' behind a key");
        blanks(r);
        TN_TRY(mine ? take_field(r, field, found, text, n_text) : skip(r));
        blanks(r);
    } while (take(r, ","));
    return TN_OK;
}

tn_status tn_jsonl_text(const char *where, const char *line, int64_t n, const char *field,
                        char *text, int64_t *n_text)
{
    const uint8_t *begin = (const uint8_t *)line;
    reader r = {where, begin, begin, begin + n};
    bool found = false;
    int64_t length = 0;
    blanks(&r);
    if (!take(&r, "{")) return wrong(&r, r.at, "no object");
    blanks(&r);
    if (!take(&r, "}")) {
        TN_TRY(members(&r, field, text, &length, &found));
        if (!take(&r, "}")) return wrong(&r, r.at, "no ',' or '}' behind a value");
    }
    blanks(&r);
    if (r.at < r.end) return wrong(&r, r.at, "something behind the object");
    if (!found)
        TN_FAIL(TN_BAD_INPUT,
                "%s: has no field '%s'; set data.field to the one that holds the text", where,
                field);
    *n_text = length;
    return TN_OK;
}

bool tn_jsonl_is_blank(const char *line, int64_t n)
{
    reader r = {"", (const uint8_t *)line, (const uint8_t *)line, (const uint8_t *)line + n};
    blanks(&r);
    return r.at == r.end;
}
