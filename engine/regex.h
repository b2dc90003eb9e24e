/* regex.h - the regular expressions of tokenizer files. This is the door of PCRE2.
 *
 * They are written for Oniguruma (Ruby's syntax) and mean here what they mean there: engine/
 * pattern.h rewrites what PCRE2 would read otherwise and refuses the rest by name. Patterns are
 * compiled to machine code where the system allows it.
 *
 * Texts must be UTF-8 (tn_unicode_check): nothing is checked here, since a check at every call
 * would make a pass over a text quadratic.
 */
#ifndef TN_ENGINE_REGEX_H
#define TN_ENGINE_REGEX_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_regex tn_regex;               /* may be shared by threads */
typedef struct tn_regex_search tn_regex_search; /* the scratch of one thread, for any regex */

const char *tn_regex_library(void); /* "PCRE2 10.42 (Unicode 14.0.0, JIT)": what runs */

/* TN_BAD_INPUT "WHERE: what, in the regex behind ...; correct it". */
tn_status tn_regex_compile(const char *where, const char *pattern, tn_regex **out) TN_MUST_USE;
void tn_regex_free(tn_regex *r); /* NULL is fine */

tn_status tn_regex_search_create(tn_regex_search **out) TN_MUST_USE;
void tn_regex_search_destroy(tn_regex_search *s); /* NULL is fine */

/* The leftmost match that starts in text[from, n]; *begin < 0 when there is none. TN_FAILED when
 * the pattern takes more steps than any sound one does on a text of this length. */
tn_status tn_regex_find(const tn_regex *r, tn_regex_search *s, const char *text, int64_t n,
                        int64_t from, int64_t *begin, int64_t *end) TN_MUST_USE;

TN_C_END
#endif
