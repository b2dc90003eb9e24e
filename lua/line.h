/* line.h - lines from whoever types them: editing, history and completion where libedit is there
 * and both ends are a terminal, plain reading otherwise. */
#ifndef TN_LUA_LINE_H
#define TN_LUA_LINE_H
#include "engine/base/text.h"

TN_C_BEGIN

typedef struct tn_line tn_line;

typedef struct tn_line_options {
    const char *history; /* a file that keeps the lines of earlier sessions; NULL: none */
    /* What the Tab key means behind the text `before`: the first line of *out is to be inserted,
     * the others are shown below. */
    void (*complete)(void *user, const char *before, tn_text *out);
    void *user;
} tn_line_options;

tn_status tn_line_open(const tn_line_options *o, tn_line **out) TN_MUST_USE;
void tn_line_close(tn_line *l); /* NULL is fine; writes the history */

typedef enum tn_line_what { TN_LINE_TEXT, TN_LINE_CANCELLED, TN_LINE_END } tn_line_what;

/* The next line without its newline, until the next call. TN_LINE_CANCELLED: Ctrl-C. The prompt is
 * shown on a terminal only. */
tn_status tn_line_read(tn_line *l, const char *prompt, const char **out,
                       tn_line_what *what) TN_MUST_USE;

bool tn_line_terminal(const tn_line *l); /* somebody types */
const char *tn_line_editor(void);        /* "libedit 2.11", or NULL: this build has none */

TN_C_END
#endif
