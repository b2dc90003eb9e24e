/* text.h - growing text, short texts by value, numbers that read back to the same bits, and the
 * nearest word.
 *
 * Appending never returns a status: a failed allocation is remembered in the text and answered once
 * by tn_text_end, so that a writer of many small pieces reads as what it writes. A zero-initialised
 * tn_text is empty and legal.
 */
#ifndef TN_ENGINE_BASE_TEXT_H
#define TN_ENGINE_BASE_TEXT_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_text {
    void *items;               /* use tn_text_str */
    int64_t n_bytes, capacity; /* without and with the closing NUL */
    bool failed;
} tn_text;

void tn_text_add(tn_text *t, const char *fmt, ...) TN_PRINTF(2, 3);
void tn_text_put(tn_text *t, const char *bytes, size_t n);
void tn_text_put_utf8(tn_text *t, const char *bytes, size_t n); /* what is none becomes U+FFFD */
void tn_text_cut(tn_text *t, int64_t n_bytes);                  /* keep the first n_bytes */
const char *
tn_text_str(const tn_text *t); /* "" when nothing was added; lives until the next append */
tn_status tn_text_end(const tn_text *t) TN_MUST_USE; /* TN_FAILED if any append found no memory */
void tn_text_fini(tn_text *t);

/* Length of the UTF-8 sequence at s (RFC 3629), 0 if it is none. Never looks behind a NUL. */
int tn_text_sequence(const char *s);

/* Results by value: tn_text_bytes(n).s is good inside the full expression that calls it, as a
 * printf argument. */
typedef struct tn_text_short {
    char s[96];
} tn_text_short;

tn_text_short tn_text_bytes(
    int64_t n); /* "512 B", "1.50 KiB", "613 MiB", "3.08 GiB": three figures, binary units */
tn_text_short tn_text_count(
    double n); /* "970", "1.23K", "8.03B": three figures, decimal, for parameters and tokens */
tn_text_short tn_text_seconds(double s); /* "312 us", "8.70 ms", "1.29 s", "3m12s", "2h05m" */

/* The shortest of %.15g to %.17g (float: %.6g to %.9g) that reads back to the same bits; "nan",
 * "inf", "-inf". */
tn_text_short tn_text_double(double x);
tn_text_short tn_text_float(float x);

/* The word that `word` was probably meant to be: fewest insertions, deletions, changes and swaps of
 * neighbours, at most a third of the longer one's length (at least one); ties go to the earlier
 * word. NULL when none is near. */
const char *tn_text_nearest(const char *word, const char *const *words, int n);

/* "; did you mean 'x'?" or "": what error messages end with. */
tn_text_short tn_text_hint(const char *word, const char *const *words, int n);

TN_C_END
#endif
