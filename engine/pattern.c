#include "engine/pattern.h"

#include <string.h>

#include "engine/base/mem.h"

#define SPACE                                                                                      \
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"  \
    "\\x{205f}\\x{3000}"
#define NO_SPACE                                                                                   \
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"      \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Oniguruma takes these six numbers of Latin-1 for letters, except in brackets. */
#define WORD_OUTSIDE WORD "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"

enum { MAX_GROUPS = 64, MAX_BYTES = 1 << 16 };

typedef struct rewriter {
    const char *where, *pattern; /* with a NUL behind it */
    int64_t at;
    tn_text *out;
    int64_t atom; /* where in `out` the last thing that can be repeated starts; -1: none */
    int64_t groups[MAX_GROUPS];
    int depth;
} rewriter;

static void copy(rewriter *r, int64_t n)
{
    tn_text_put(r->out, r->pattern + r->at, (size_t)n);
    r->at += n;
}

/* The n bytes at `at` are what is not supported. */
static tn_status refuse(const rewriter *r, int64_t n, const char *mend)
{
    TN_FAIL(TN_BAD_INPUT, "%s: byte %lld of the regex: '%.*s' is not supported; %s", r->where,
            (long long)r->at, (int)n, r->pattern + r->at, mend);
}

/* ------------------------------------------------------------ escapes */

static bool is_category(const char *name, int64_t n)
{
    return n <= 2 && memchr("LMNPSZC", name[0], 7);
}

/* \p{L}, \P{Lu}, \p{^L}, \p{Han}, \p{Alphabetic} */
static tn_status property(rewriter *r)
{
    const char *name = r->pattern + r->at + 3,
               *end = r->pattern[r->at + 2] == '{' ? strchr(name, '}') : NULL;
    if (!end) return refuse(r, 2, "write \\p{NAME}");
    bool negated = r->pattern[r->at + 1] == 'P';
    if (*name == '^') {
        negated = !negated;
        name++;
    }
    int64_t n = end - name;
    if (n < 1 || n > 40 ||
        (int64_t)strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_ 0123456789") <
            n)
        return refuse(r, end + 1 - (r->pattern + r->at), "give the name of a Unicode property");
    const char *kind =
        is_category(name, n) || (n == 10 && !strncmp(name, "Alphabetic", 10)) ? "" : "sc:";
    tn_text_add(r->out, "\\%c{%s%.*s}", negated ? 'P' : 'p', kind, (int)n, name);
    r->at = end + 1 - r->pattern;
    return TN_OK;
}

/* \x41, \x{1F600}, \u0041 */
static tn_status code_point(rewriter *r)
{
    const char *hex = "0123456789abcdefABCDEF", *p = r->pattern + r->at + 2;
    bool braces = *p == '{';
    if (braces) p++;
    int64_t n = (int64_t)strspn(p, hex);
    if (!braces && r->pattern[r->at + 1] == 'u' && n > 4) n = 4;
    if (!braces && r->pattern[r->at + 1] == 'x' && n > 2) n = 2;
    bool ok = braces                         ? n >= 1 && n <= 8 && p[n] == '}'
              : r->pattern[r->at + 1] == 'u' ? n == 4
                                             : n >= 1;
    if (ok && !braces && r->pattern[r->at + 1] == 'x' && n == 2 && *p > '7')
        return refuse(r, 4, "it is a byte, not a character; write \\u00.."); /* part of UTF-8 */
    if (!ok) return refuse(r, 2, "write \\x{HEX} or \\uHHHH");
    tn_text_add(r->out, "\\x{%.*s}", (int)n, p);
    r->at = p + n + braces - r->pattern;
    return TN_OK;
}

static tn_status put(rewriter *r, const char *text)
{
    tn_text_add(r->out, "%s", text);
    r->at += 2;
    return TN_OK;
}

static tn_status escape(rewriter *r, bool in_brackets)
{
    char c = r->pattern[r->at + 1];
    if (c == 'p' || c == 'P') return property(r);
    if (c == 'x' || c == 'u') return code_point(r);
    if (c == 's') return put(r, in_brackets ? SPACE : "[" SPACE "]");
    if (c == 'S') return put(r, in_brackets ? NO_SPACE : "[^" SPACE "]");
    if (c == 'w') return put(r, in_brackets ? WORD : "[" WORD_OUTSIDE "]");
    if (c == 'W' && !in_brackets) return put(r, "[^" WORD_OUTSIDE "]");
    if (c == 'v') return put(r, "\\x{0b}");
    if (c == 'b' && !in_brackets)
        return put(r, "(?:(?<=[" WORD_OUTSIDE "])(?![" WORD_OUTSIDE "])|(?<![" WORD_OUTSIDE
                      "])(?=[" WORD_OUTSIDE "]))");
    if (c == 0) return refuse(r, 1, "write \\\\ for a backslash");
    if (strchr("rntfaedD", c) || (strchr("Az", c) && !in_brackets)) {
        copy(r, 2);
        return TN_OK;
    }
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) return refuse(r, 2, "it means something else in PCRE2");
    if ((unsigned char)c >= 0x80) r->at++; /* the character itself */
    else copy(r, 2);
    return TN_OK;
}

/* ------------------------------------------------------------ brackets, groups, repeats */

static tn_status brackets(rewriter *r)
{
    int64_t open = r->at;
    copy(r, 1);
    if (r->pattern[r->at] == '^') copy(r, 1);
    if (r->pattern[r->at] == ']') return refuse(r, 1, "write \\] for a bracket in brackets");
    while (r->pattern[r->at] != ']') {
        const char *p = r->pattern + r->at;
        if (!*p)
            TN_FAIL(TN_BAD_INPUT, "%s: byte %lld of the regex: '[' has no ']'; close it", r->where,
                    (long long)open);
        if (*p == '[') return refuse(r, 1, "brackets in brackets; write \\[ for the character");
        if (p[0] == '&' && p[1] == '&') return refuse(r, 2, "write \\& for the character");
        if (*p == '\\') TN_TRY(escape(r, true));
        else copy(r, 1);
    }
    copy(r, 1);
    return TN_OK;
}

static tn_status open_group(rewriter *r)
{
    static const char *const kinds[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    const char *p = r->pattern + r->at;
    if (r->at == 0 && strncmp(p, "(?i)", 4) == 0) { /* elsewhere it ends at another place */
        copy(r, 4);
        return TN_OK;
    }
    if (r->depth == MAX_GROUPS) return refuse(r, 1, "groups are nested too deep");
    r->groups[r->depth++] = r->out->n_bytes;
    r->atom = -1;
    if (p[1] != '?') {
        copy(r, 1);
        return TN_OK;
    }
    for (int i = 0; i < TN_COUNT(kinds); i++) {
        size_t n = strlen(kinds[i]);
        if (strncmp(p, kinds[i], n)) continue;
        copy(r, (int64_t)n);
        return TN_OK;
    }
    return refuse(r, p[2] ? 3 : 2, "groups are (?: (?i: (?= (?! (?<= (?<! (?> and plain ones");
}

/* {3} {3,} {3,5} {,5}: its length, 0 if it is none. */
static int64_t measure_count(const char *p)
{
    const char *digits = "0123456789";
    size_t low = strspn(p + 1, digits), high = 0;
    const char *q = p + 1 + low;
    bool comma = *q == ',';
    if (comma) high = strspn(++q, digits);
    q += high;
    if (*q != '}' || low + high == 0 || low > 5 || high > 5) return 0;
    return q + 1 - p;
}

static void wrap(rewriter *r)
{
    tn_text tail = {0};
    const char *text = tn_text_str(r->out);
    tn_text_put(&tail, text + r->atom, (size_t)(r->out->n_bytes - r->atom));
    tn_text_cut(r->out, r->atom);
    tn_text_add(r->out, "(?:");
    tn_text_put(r->out, tn_text_str(&tail), (size_t)tail.n_bytes);
    tn_text_add(r->out, ")");
    if (tail.failed) r->out->failed = true;
    tn_text_fini(&tail);
}

/* {3}+ repeats what {3} gives, {3}? makes it optional; with {3,5} only the former, since {3,5}? is
 * reluctant in both. */
static void count(rewriter *r, int64_t n)
{
    bool comma = memchr(r->pattern + r->at, ',', (size_t)n) != NULL;
    if (r->pattern[r->at + 1] == ',') {
        tn_text_add(r->out, "{0");
        r->at++;
        copy(r, n - 1);
    } else {
        copy(r, n);
    }
    char next = r->pattern[r->at];
    if (next == '?' && comma) copy(r, 1);
    if ((next == '+' || (next == '?' && !comma)) && r->atom >= 0) {
        wrap(r);
        copy(r, 1);
    }
}

static tn_status one(rewriter *r)
{
    const char *p = r->pattern + r->at;
    int64_t n, start = r->out->n_bytes;
    if (*p == '*' || *p == '+' || *p == '?') {
        copy(r, 1);
        if (r->pattern[r->at] == '+' || r->pattern[r->at] == '?') copy(r, 1);
        return TN_OK;
    }
    if (*p == '{' && (n = measure_count(p)) > 0) {
        count(r, n);
        return TN_OK;
    }
    if (*p == '(') return open_group(r);
    if (*p == ')') {
        r->atom = r->depth ? r->groups[--r->depth] : -1;
        copy(r, 1);
        return TN_OK;
    }
    r->atom = *p == '|' ? -1 : start;
    if (*p == '\\') return escape(r, false);
    if (*p == '[') return brackets(r);
    if (*p == '^' || *p == '$') {
        tn_text_add(r->out, *p == '^' ? "(?:\\A|(?<=\\n)(?!\\z))" : "(?=\\n|\\z)");
        r->at++;
        return TN_OK;
    }
    if (*p == '{') tn_text_add(r->out, "\\");
    copy(r, 1);
    while (((unsigned char)r->pattern[r->at] & 0xc0) == 0x80) copy(r, 1);
    return TN_OK;
}

tn_status tn_pattern_rewrite(const char *where, const char *pattern, tn_text *out)
{
    rewriter r = {.where = where, .pattern = pattern, .out = out, .atom = -1};
    if (strlen(pattern) > MAX_BYTES)
        TN_FAIL(TN_BAD_INPUT, "%s: a regex of %lld bytes; at most %d", where,
                (long long)strlen(pattern), MAX_BYTES);
    while (pattern[r.at]) TN_TRY(one(&r));
    return tn_text_end(out);
}
