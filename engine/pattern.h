/* pattern.h - a regular expression in Oniguruma's syntax (Ruby's) as one that means the same in
 * PCRE2 with UTF and UCP.
 *
 *   \s       25 code points; PCRE2's has U+180E too           -> the list
 *   \w       Alphabetic, M, Nd, Pc, six of Latin-1; PCRE2's is L, N and _  -> these
 *   \p{Han}  a script; PCRE2 means script extensions          -> \p{sc:Han}
 *   X{1,3}+  is (?:X{1,3})+; PCRE2 reads it as possessive     -> the former
 *   X{3}?    is (?:X{3})?; PCRE2 reads it as reluctant        -> the former
 *   ^ $      are of lines                                     -> look-arounds
 *   X{,3}    from 0 on; text in PCRE2                         -> X{0,3}
 * What neither means the same nor is rewritten is refused by name: nested brackets and && inside
 * of brackets, back references, named groups, \h \R \X \G \K \Z, flags other than i. What is left
 * is copied.
 */
#ifndef TN_ENGINE_PATTERN_H
#define TN_ENGINE_PATTERN_H
#include "engine/base/base.h"
#include "engine/base/text.h"

TN_C_BEGIN

/* TN_BAD_INPUT "WHERE: byte 5 of the regex: what; mend". Appends to `out`. */
tn_status tn_pattern_rewrite(const char *where, const char *pattern, tn_text *out) TN_MUST_USE;

TN_C_END
#endif
