#include "engine/base/jsonout.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static void quote(tn_text *t, const char *text, int64_t left)
{
    const char *s = text, *end = text + left;
    tn_text_put(t, "\"", 1);
    while (s < end) {
        int n = tn_text_sequence(s);
        if (n == 0) tn_text_put(t, "\xef\xbf\xbd", 3);
        else if (*s == '"' || *s == '\\') tn_text_add(t, "\\%c", *s);
        else if (*s == '\n') tn_text_put(t, "\\n", 2);
        else if ((unsigned char)*s < 0x20) tn_text_add(t, "\\u%04x", *s);
        else tn_text_put(t, s, (size_t)n);
        s += n ? n : 1;
    }
    tn_text_put(t, "\"", 1);
}

static void new_line(tn_jsonout *w)
{
    if (w->indent) tn_text_add(w->text, "\n%*s", w->indent * w->depth, "");
}

/* Everything before a value. */
static void before(tn_jsonout *w, const char *key)
{
    assert(w->depth == 0 ? !key : (key != NULL) == (w->closers[w->depth - 1] == '}'));
    if (w->filled) tn_text_put(w->text, w->indent ? "," : ", ", w->indent ? 1 : 2);
    if (w->depth) new_line(w);
    if (key) {
        quote(w->text, key, (int64_t)strlen(key));
        tn_text_put(w->text, ": ", 2);
    }
    w->filled = true;
}

void tn_jsonout_open(tn_jsonout *w, const char *key, char bracket)
{
    assert((bracket == '{' || bracket == '[') && w->depth < TN_JSONOUT_MAX_DEPTH);
    before(w, key);
    tn_text_put(w->text, &bracket, 1);
    w->closers[w->depth++] = bracket == '{' ? '}' : ']';
    w->filled = false;
}

void tn_jsonout_close(tn_jsonout *w)
{
    assert(w->depth > 0);
    w->depth--;
    if (w->filled) new_line(w);
    tn_text_put(w->text, &w->closers[w->depth], 1);
    w->filled = true;
}

void tn_jsonout_string(tn_jsonout *w, const char *key, const char *s)
{
    before(w, key);
    if (s) quote(w->text, s, (int64_t)strlen(s));
    else tn_text_put(w->text, "null", 4);
}

void tn_jsonout_bytes(tn_jsonout *w, const char *key, const char *s, int64_t n)
{
    before(w, key);
    quote(w->text, s, n);
}

void tn_jsonout_int(tn_jsonout *w, const char *key, int64_t n)
{
    before(w, key);
    tn_text_add(w->text, "%lld", (long long)n);
}

/* A reader tells reals from integers by the point. */
static void real(tn_text *t, double x, const char *digits)
{
    if (!isfinite(x)) tn_text_put(t, "null", 4);
    else tn_text_add(t, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

void tn_jsonout_double(tn_jsonout *w, const char *key, double x)
{
    before(w, key);
    real(w->text, x, tn_text_double(x).s);
}

void tn_jsonout_float(tn_jsonout *w, const char *key, float x)
{
    before(w, key);
    real(w->text, (double)x, tn_text_float(x).s);
}

void tn_jsonout_bool(tn_jsonout *w, const char *key, bool b)
{
    before(w, key);
    tn_text_add(w->text, "%s", b ? "true" : "false");
}

void tn_jsonout_null(tn_jsonout *w, const char *key)
{
    before(w, key);
    tn_text_put(w->text, "null", 4);
}
