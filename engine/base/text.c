#include "engine/base/text.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* What one append writes without measuring first. */
#ifdef TN_HOSTILE
enum { SMALL_BYTES = 8 };
#else
enum { SMALL_BYTES = 256 };
#endif

/* Room for n more bytes and the closing NUL. */
static bool reserve(tn_text *t, size_t n)
{
    if (!t->failed && tn_grow(&t->items, &t->capacity, t->n_bytes + (int64_t)n + 1, 1) != TN_OK) {
        t->failed = true;
        tn_error_clear();
    }
    return !t->failed;
}

void tn_text_put(tn_text *t, const char *bytes, size_t n)
{
    if (!reserve(t, n)) return;
    char *s = t->items;
    if (n) memcpy(s + t->n_bytes, bytes, n);
    t->n_bytes += (int64_t)n;
    s[t->n_bytes] = 0;
}

void tn_text_add(tn_text *t, const char *fmt, ...)
{
    char small[SMALL_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        t->failed = true;
    } else if ((size_t)n < sizeof small) {
        tn_text_put(t, small, (size_t)n);
    } else if (reserve(t, (size_t)n)) {
        va_start(ap, fmt);
        vsnprintf((char *)t->items + t->n_bytes, (size_t)n + 1, fmt, ap);
        va_end(ap);
        t->n_bytes += n;
    }
}

int tn_text_sequence(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool beyond = (s[0] == 0xed && s[1] > 0x9f) ||
                  (s[0] == 0xf4 && s[1] > 0x8f); /* surrogates, above U+10FFFF */
    return overlong || beyond ? 0 : n;
}

/* How many bytes of a sequence that breaks off are one mistake (Unicode 3.9, maximal subparts). */
static size_t broken(const unsigned char *s)
{
    int n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    unsigned least = s[0] == 0xe0   ? 0xa0
                     : s[0] == 0xf0 ? 0x90
                                    : 0x80,
             most = s[0] == 0xed   ? 0x9f
                    : s[0] == 0xf4 ? 0x8f
                                   : 0xbf;
    if (s[0] < 0xc2 || s[0] > 0xf4 || s[1] < least || s[1] > most) return 1;
    return n == 4 && (s[2] & 0xc0) == 0x80 ? 3 : 2;
}

void tn_text_put_utf8(tn_text *t, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        char here[5] = {0}; /* so that nothing behind n is looked at */
        memcpy(here, bytes + i, n - i < 4 ? n - i : 4);
        int k = bytes[i] ? tn_text_sequence(here) : 1;
        if (k) tn_text_put(t, bytes + i, (size_t)k);
        else tn_text_put(t, "\xef\xbf\xbd", 3);
        i += k ? (size_t)k : broken((const unsigned char *)here);
    }
}

void tn_text_cut(tn_text *t, int64_t n_bytes)
{
    if (n_bytes >= t->n_bytes) return;
    t->n_bytes = n_bytes;
    ((char *)t->items)[n_bytes] = 0;
}

const char *tn_text_str(const tn_text *t)
{
    return t->items ? t->items : "";
}

tn_status tn_text_end(const tn_text *t)
{
    if (t->failed)
        TN_FAIL(TN_FAILED, "memory: a text of more than %lld bytes", (long long)t->n_bytes);
    return TN_OK;
}

void tn_text_fini(tn_text *t)
{
    tn_free(t->items);
    *t = (tn_text){0};
}

/* x with three significant figures and a unit. */
static tn_text_short figures(double x, const char *unit)
{
    tn_text_short r;
    int decimals = x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    snprintf(r.s, sizeof r.s, "%.*f%s", decimals, x, unit);
    return r;
}

tn_text_short tn_text_bytes(int64_t n)
{
    static const char *const units[] = {" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    tn_text_short r;
    if (n < 1024 && n > -1024) {
        snprintf(r.s, sizeof r.s, "%lld B", (long long)n);
        return r;
    }
    if (n < 0) {
        tn_text_short positive = tn_text_bytes(n == INT64_MIN ? INT64_MAX : -n);
        snprintf(r.s, sizeof r.s, "-%.30s", positive.s);
        return r;
    }
    double x = (double)n / 1024;
    int u = 0;
    while (x >= 1023.5 && u + 1 < TN_COUNT(units)) x /= 1024, u++;
    return figures(x, units[u]);
}

tn_text_short tn_text_count(double n)
{
    static const char *const units[] = {"K", "M", "B", "T", "Q"};
    tn_text_short r;
    if (n < 999.5 || isnan(n)) {
        snprintf(r.s, sizeof r.s, "%.10g", n < 999.5 ? floor(n * 100 + 0.5) / 100 : n);
        return r;
    }
    double x = n / 1000;
    int u = 0;
    while (x >= 999.5 && u + 1 < TN_COUNT(units)) x /= 1000, u++;
    return figures(x, units[u]);
}

tn_text_short tn_text_seconds(double s)
{
    tn_text_short r;
    if (s < 999.5e-6) return figures(s * 1e6, " us");
    if (s < 999.5e-3) return figures(s * 1e3, " ms");
    if (s < 59.95) return figures(s, " s");
    long long t = (long long)(s + 0.5);
    if (t < 3600) snprintf(r.s, sizeof r.s, "%lldm%02llds", t / 60, t % 60);
    else snprintf(r.s, sizeof r.s, "%lldh%02lldm", t / 3600, t % 3600 / 60);
    return r;
}

/* A number of 15 figures (6 for float) survives the way through binary, so if a text that short
 * reads back to x, %.15g writes it; among the subnormals fewer figures can do, and nobody minds a
 * longer text there. */
tn_text_short tn_text_double(double x)
{
    tn_text_short r;
    for (int places = DBL_DIG; places <= DBL_DECIMAL_DIG; places++) {
        snprintf(r.s, sizeof r.s, "%.*g", places, x);
        if (strtod(r.s, NULL) == x) break;
    }
    if (isnan(x)) strcpy(r.s, "nan");
    return r;
}

tn_text_short tn_text_float(float x)
{
    tn_text_short r;
    for (int places = FLT_DIG; places <= FLT_DECIMAL_DIG; places++) {
        snprintf(r.s, sizeof r.s, "%.*g", places, (double)x);
        if (strtof(r.s, NULL) == x) break;
    }
    if (isnan(x)) strcpy(r.s, "nan");
    return r;
}

enum { WORD_MAX = 64 };

/* Optimal string alignment: edits and swaps of neighbours (Damerau 1964; three rows of the usual
 * table). */
static int distance(const char *a, int na, const char *b, int nb)
{
    int rows[3][WORD_MAX + 1];
    for (int j = 0; j <= nb; j++) rows[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3], *before2 = rows[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before2[j - 2] + 1 < best) best = before2[j - 2] + 1;
            now[j] = best;
        }
    }
    return rows[na % 3][nb];
}

const char *tn_text_nearest(const char *word, const char *const *words, int n)
{
    const char *nearest = NULL;
    size_t len = strlen(word);
    int best = WORD_MAX;
    if (len > WORD_MAX) return NULL;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(words[i]), longer = len > other ? len : other;
        if (other > WORD_MAX) continue;
        int d = distance(word, (int)len, words[i], (int)other),
            most = longer < 6 ? 1 : (int)longer / 3;
        if (d <= most && d < (int)longer && d < best) best = d, nearest = words[i];
    }
    return nearest;
}

tn_text_short tn_text_hint(const char *word, const char *const *words, int n)
{
    tn_text_short r = {""};
    const char *near = tn_text_nearest(word, words, n);
    if (near) snprintf(r.s, sizeof r.s, "; did you mean '%s'?", near);
    return r;
}
