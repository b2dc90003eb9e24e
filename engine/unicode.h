/* unicode.h - UTF-8 and what Unicode says of characters. This is the door of utf8proc.
 *
 * A text is UTF-8 when it holds no overlong form, no surrogate and nothing above U+10FFFF. What is
 * broken is mended as the WHATWG decoder does: one U+FFFD for each maximal part that could have
 * begun a character.
 */
#ifndef TN_ENGINE_UNICODE_H
#define TN_ENGINE_UNICODE_H
#include "engine/base/base.h"
#include "engine/base/text.h"

TN_C_BEGIN

const char *tn_unicode_library(void); /* "utf8proc 2.8.0 (Unicode 15.0.0)": what runs */

/* The offset of the first broken byte, n if there is none. */
int64_t tn_unicode_check(const char *text, int64_t n);

/* Appends the text with its broken parts mended. */
void tn_unicode_mend(const char *text, int64_t n, tn_text *out);

/* Appends the composed form (NFC) of a text that is UTF-8. Memory beside the text is that of its
 * longest run of characters that might compose. */
tn_status tn_unicode_nfc(const char *text, int64_t n, tn_text *out) TN_MUST_USE;

/* The character that starts at `at`, or ends before it; the text is UTF-8 there. */
int32_t tn_unicode_at(const char *text, int64_t at, int *bytes);
int32_t tn_unicode_before(const char *text, int64_t at, int *bytes);

/* The 25 characters of White_Space; what a regex means by \w: Alphabetic, marks, decimal digits,
 * connectors, joiners (UTS 18, Annex C). */
bool tn_unicode_is_space(int32_t c);
bool tn_unicode_is_word(int32_t c);

TN_C_END
#endif
