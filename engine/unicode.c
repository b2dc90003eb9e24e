#include "engine/unicode.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "engine/base/mem.h"

const char *tn_unicode_library(void)
{
    static _Thread_local char name[64];
    snprintf(name, sizeof name, "utf8proc %s (Unicode %s)", utf8proc_version(),
             utf8proc_unicode_version());
    return name;
}

/* ------------------------------------------------------------ UTF-8 */

/* Bytes of the well-formed character at p, at most `left`; otherwise 0, and *part is the length of
 * the maximal part that could have begun one (at least 1). Table 3-7 of the Unicode standard. */
static int64_t measure(const unsigned char *p, int64_t left, int64_t *part)
{
    unsigned char c = p[0], low = 0x80, high = 0xbf;
    int64_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    *part = 1;
    if (size < 2) return size;
    if (c == 0xe0) low = 0xa0;
    if (c == 0xed) high = 0x9f;
    if (c == 0xf0) low = 0x90;
    if (c == 0xf4) high = 0x8f;
    for (; *part < size; ++*part) {
        if (*part >= left || p[*part] < low || p[*part] > high) return 0;
        low = 0x80;
        high = 0xbf;
    }
    return size;
}

static int64_t skip_ascii(const char *text, int64_t at, int64_t n)
{
    uint64_t word;
    for (; at + 8 <= n; at += 8) {
        memcpy(&word, text + at, 8);
        if (word & 0x8080808080808080u) break;
    }
    while (at < n && (unsigned char)text[at] < 0x80) at++;
    return at;
}

int64_t tn_unicode_check(const char *text, int64_t n)
{
    for (int64_t at = 0, part;;) {
        at = skip_ascii(text, at, n);
        if (at >= n) return n;
        int64_t size = measure((const unsigned char *)text + at, n - at, &part);
        if (!size) return at;
        at += size;
    }
}

void tn_unicode_mend(const char *text, int64_t n, tn_text *out)
{
    for (int64_t at = 0, part = 1;;) {
        int64_t good = tn_unicode_check(text + at, n - at);
        tn_text_put(out, text + at, (size_t)good);
        at += good;
        if (at >= n) return;
        measure((const unsigned char *)text + at, n - at, &part);
        tn_text_put(out, "\xef\xbf\xbd", 3);
        at += part;
    }
}

int32_t tn_unicode_at(const char *text, int64_t at, int *bytes)
{
    const unsigned char *p = (const unsigned char *)text + at;
    if (p[0] < 0x80) {
        *bytes = 1;
        return p[0];
    }
    *bytes = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    int32_t c = p[0] & (0x7f >> *bytes);
    for (int i = 1; i < *bytes; i++) c = c << 6 | (p[i] & 0x3f);
    return c;
}

int32_t tn_unicode_before(const char *text, int64_t at, int *bytes)
{
    do at--;
    while (((unsigned char)text[at] & 0xc0) == 0x80);
    return tn_unicode_at(text, at, bytes);
}

/* ------------------------------------------------------------ classes */

bool tn_unicode_is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

bool tn_unicode_is_word(int32_t c)
{
    /* Alphabetic is L, Nl and Other_Alphabetic: marks, and these circled and squared letters */
    if ((c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
        (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189))
        return true;
    if (c == 0x200c || c == 0x200d) return true;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

/* ------------------------------------------------------------ NFC */

/* Characters in front of which a text may be cut: each is its own NFC and never composes with what
 * stands before it. Not all of them, but what texts are made of: what is left goes through compose.
 */
static bool is_cut(int32_t c)
{
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x2010 && c <= 0x2027) ||
           (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a1 && c <= 0x30fa) ||
           (c >= 0x3400 && c <= 0x9fff) || (c >= 0xac00 && c <= 0xd7a3);
}

/* NFC of text[0, n), a run between two cuts. */
static tn_status compose(const char *text, int64_t n, tn_text *out)
{
    void *mem;
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    utf8proc_ssize_t need = utf8proc_decompose(bytes, n, NULL, 0, options);
    if (need < 0) TN_FAIL(TN_FAILED, "normaliser: %s", utf8proc_errmsg(need));
    TN_TRY(tn_alloc((size_t)need * sizeof(utf8proc_int32_t) + 1, &mem));
    utf8proc_int32_t *chars = mem;
    need = utf8proc_decompose(bytes, n, chars, need, options);
    if (need >= 0) need = utf8proc_normalize_utf32(chars, need, options);
    for (utf8proc_ssize_t i = 0; i < need; i++) {
        utf8proc_uint8_t one[4];
        utf8proc_ssize_t size = utf8proc_encode_char(chars[i], one);
        tn_text_put(out, (const char *)one, (size_t)size);
    }
    tn_free(mem);
    if (need < 0) TN_FAIL(TN_FAILED, "normaliser: %s", utf8proc_errmsg(need));
    return TN_OK;
}

/* Moves over characters that are cuts; returns where the last of them starts, `at` if none is. */
static int64_t skip_cuts(const char *text, int64_t n, int64_t *at)
{
    int bytes = 0;
    int64_t last = *at, end = skip_ascii(text, *at, n);
    if (end > *at) last = end - 1;
    while (end < n && is_cut(tn_unicode_at(text, end, &bytes))) {
        last = end;
        end += bytes;
        int64_t more = skip_ascii(text, end, n);
        if (more > end) last = more - 1;
        end = more;
    }
    *at = end;
    return last;
}

tn_status tn_unicode_nfc(const char *text, int64_t n, tn_text *out)
{
    int64_t done = 0, at = 0;
    while (at < n) {
        int bytes = 0;
        int64_t cut = skip_cuts(text, n, &at);
        if (at >= n) break;
        tn_text_put(out, text + done, (size_t)(cut - done));
        while (at < n && !is_cut(tn_unicode_at(text, at, &bytes))) at += bytes;
        TN_TRY(compose(text + cut, at - cut, out));
        done = at;
    }
    tn_text_put(out, text + done, (size_t)(n - done));
    return tn_text_end(out);
}
