/* jsonl.h - the text of one line of a JSONL file: a strict reader that keeps nothing but one field.
 *
 * Written for speed beside a tokenizer (about 1 GB/s; a tree of every line would cost more than
 * tokenising it). What JSON allows is read, also what engine/base/json.h is too strict for: numbers
 * of any size, NUL in a text. Refused: anything behind the object, trailing commas, control
 * characters in strings, bytes that are no UTF-8, halves of surrogate pairs, the field twice, more
 * than 64 levels.
 */
#ifndef TN_ENGINE_JSONL_H
#define TN_ENGINE_JSONL_H
#include "engine/base/base.h"

TN_C_BEGIN

/* line: n bytes, an object with blanks around it. field: a name, UTF-8, compared with the keys of
 * the outermost object. Writes the field's text to `text`, which must hold n bytes (a text is never
 * longer than what it was written as).
 *
 * TN_BAD_INPUT "WHERE: column C: WHAT; MEND"; a missing field or one that is no string as well. */
tn_status tn_jsonl_text(const char *where, const char *line, int64_t n, const char *field,
                        char *text, int64_t *n_text) TN_MUST_USE;

/* True for a line of blanks, which JSONL files may hold. */
bool tn_jsonl_is_blank(const char *line, int64_t n);

TN_C_END
#endif
