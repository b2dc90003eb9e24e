/* jsonout.h - writes JSON into a tn_text: commas, quotes and indents in one place.
 *
 *     tn_jsonout w = {.text = &t, .indent = 2};
 *     tn_jsonout_open(&w, NULL, '{');
 *     tn_jsonout_int(&w, "step", 12);
 *     tn_jsonout_close(&w);
 *
 * A key inside objects, NULL inside lists and at the top. Bytes that are no UTF-8 become U+FFFD;
 * NaN and infinities, which JSON lacks, become null; other floats read back to the same bits. A
 * failed allocation is remembered by the text.
 */
#ifndef TN_ENGINE_BASE_JSONOUT_H
#define TN_ENGINE_BASE_JSONOUT_H
#include "engine/base/base.h"
#include "engine/base/text.h"

TN_C_BEGIN

enum { TN_JSONOUT_MAX_DEPTH = 64 };

typedef struct tn_jsonout {
    tn_text *text;
    int indent; /* blanks for each level; 0: everything on one line, ", " and ": " between */
    int depth;
    bool filled;                        /* the open list or object holds something */
    char closers[TN_JSONOUT_MAX_DEPTH]; /* what closes each open level */
} tn_jsonout;

void tn_jsonout_open(tn_jsonout *w, const char *key, char bracket); /* '{' or '[' */
void tn_jsonout_close(tn_jsonout *w);
void tn_jsonout_string(tn_jsonout *w, const char *key, const char *s);           /* NULL: null */
/* The same of n bytes and a NUL behind them; a NUL among them becomes \u0000. */
void tn_jsonout_bytes(tn_jsonout *w, const char *key, const char *s, int64_t n);
void tn_jsonout_int(tn_jsonout *w, const char *key, int64_t n);
void tn_jsonout_double(tn_jsonout *w, const char *key, double x);
void tn_jsonout_float(tn_jsonout *w, const char *key, float x);
void tn_jsonout_bool(tn_jsonout *w, const char *key, bool b);
void tn_jsonout_null(tn_jsonout *w, const char *key);

TN_C_END
#endif
