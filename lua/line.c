#include "lua/line.h"

#include "engine/base/file.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 4096 };

struct tn_line {
    tn_line_options o;
    bool terminal, cancelled;
    struct editor *editor; /* NULL: plain reading */
    const char *prompt;
    tn_text line, rest; /* what was returned last; what was read beyond it */
    int64_t at;         /* of rest */
    bool over;
};

static void show(const char *text, size_t n)
{
    ssize_t written = write(STDOUT_FILENO, text, n);
    (void)written; /* a terminal that has gone is noticed by the next read */
}

#ifdef TN_HAVE_LIBEDIT
#include <histedit.h>

enum { HISTORY_LINES = 2000 };

typedef struct editor {
    EditLine *el;
    History *history;
} editor;

static char *prompt_of(EditLine *el)
{
    tn_line *l = NULL;
    el_get(el, EL_CLIENTDATA, &l);
    return (char *)(uintptr_t)l->prompt;
}

static unsigned char on_tab(EditLine *el, int key)
{
    tn_line *l = NULL;
    tn_text answer = {0}, before = {0};
    const LineInfo *now = el_line(el);
    (void)key;
    el_get(el, EL_CLIENTDATA, &l);
    tn_text_put(&before, now->buffer, (size_t)(now->cursor - now->buffer));
    l->o.complete(l->o.user, tn_text_str(&before), &answer);
    const char *text = tn_text_str(&answer), *more = strchr(text, '\n');
    size_t n = more ? (size_t)(more - text) : strlen(text);
    tn_text insert = {0};
    tn_text_put(&insert, text, n);
    if (n) el_insertstr(el, tn_text_str(&insert));
    bool shown = more && more[1];
    if (shown) {
        show("\n", 1);
        show(more + 1, strlen(more + 1));
    }
    tn_text_fini(&insert);
    tn_text_fini(&before);
    tn_text_fini(&answer);
    return shown ? CC_REDISPLAY : n ? CC_REFRESH : CC_REFRESH_BEEP;
}

/* The line is given up; el_gets comes back. */
static unsigned char on_cancel(EditLine *el, int key)
{
    tn_line *l = NULL;
    (void)key;
    el_get(el, EL_CLIENTDATA, &l);
    l->cancelled = true;
    show("^C\n", 3);
    return CC_EOF;
}

/* Ctrl-C is a key here: it comes as a character while a line is edited, as a signal while something
 * is evaluated. */
static void bind_keys(EditLine *el)
{
    el_set(el, EL_ADDFN, "titan-complete", "complete the word", on_tab);
    el_set(el, EL_ADDFN, "titan-cancel", "give the line up", on_cancel);
    el_set(el, EL_BIND, "\t", "titan-complete", NULL);
    el_set(el, EL_SETTY, "-d", "-isig", NULL);
    el_set(el, EL_BIND, "\x03", "titan-cancel", NULL);
    el_set(el, EL_BIND, "^R", "em-inc-search-prev", NULL);
}

static tn_status open_editor(tn_line *l)
{
    void *mem;
    HistEvent event;
    TN_TRY(tn_alloc(sizeof(editor), &mem));
    editor *e = mem;
    l->editor = mem;
    e->el = el_init("titan", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->el || !e->history) TN_FAIL(TN_FAILED, "memory: none left for the line editor");
    el_set(e->el, EL_CLIENTDATA, l);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_HIST, history, e->history);
    bind_keys(e->el);
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    if (l->o.history) history(e->history, &event, H_LOAD, l->o.history);
    return TN_OK;
}

static void close_editor(tn_line *l)
{
    editor *e = l->editor;
    HistEvent event;
    if (!e) return;
    if (e->history && l->o.history) history(e->history, &event, H_SAVE, l->o.history);
    if (e->el) el_end(e->el);
    if (e->history) history_end(e->history);
    tn_free(e);
}

static tn_status edit_line(tn_line *l, tn_line_what *what)
{
    editor *e = l->editor;
    HistEvent event;
    int n = 0;
    l->cancelled = false;
    const char *text = el_gets(e->el, &n);
    *what = l->cancelled ? TN_LINE_CANCELLED : !text || n <= 0 ? TN_LINE_END : TN_LINE_TEXT;
    if (*what == TN_LINE_CANCELLED) {
        el_reset(e->el);
        return TN_OK;
    }
    if (*what == TN_LINE_END) return TN_OK;
    size_t len = strcspn(text, "\n");
    tn_text_put(&l->line, text, len);
    if (len) history(e->history, &event, H_ENTER, tn_text_str(&l->line));
    return tn_text_end(&l->line);
}

const char *tn_line_editor(void)
{
    static char text[32];
    snprintf(text, sizeof text, "libedit %d.%d", LIBEDIT_MAJOR, LIBEDIT_MINOR);
    return text;
}
#else
static tn_status open_editor(tn_line *l)
{
    (void)l;
    return TN_OK;
}

static void close_editor(tn_line *l)
{
    (void)l;
}

static tn_status edit_line(tn_line *l, tn_line_what *what)
{
    (void)l;
    *what = TN_LINE_END;
    return TN_OK;
}

const char *tn_line_editor(void)
{
    return NULL;
}
#endif

/* ------------------------------------------------------------ plain */

/* Up to the next newline of what has been read; false: there is none yet. */
static bool take_line(tn_line *l)
{
    const char *text = tn_text_str(&l->rest) + l->at;
    int64_t left = l->rest.n_bytes - l->at;
    const char *end = left ? memchr(text, '\n', (size_t)left) : NULL;
    if (!end && !(l->over && left)) return false;
    int64_t n = end ? end - text : left;
    tn_text_put(&l->line, text, (size_t)n);
    l->at += n + (end != NULL);
    if (l->at == l->rest.n_bytes) {
        tn_text_cut(&l->rest, 0);
        l->at = 0;
    }
    return true;
}

static tn_status read_line(tn_line *l, tn_line_what *what)
{
    char piece[READ_BYTES];
    *what = TN_LINE_TEXT;
    if (l->terminal) show(l->prompt, strlen(l->prompt));
    while (!take_line(l)) {
        if (l->over) {
            *what = TN_LINE_END;
            return TN_OK;
        }
        ssize_t n = read(STDIN_FILENO, piece, sizeof piece);
        if (n < 0 && errno == EINTR) {
            show("\n", 1);
            *what = TN_LINE_CANCELLED;
            return TN_OK;
        }
        if (n < 0) return tn_file_error("standard input", "read");
        if (n == 0) l->over = true;
        else tn_text_put(&l->rest, piece, (size_t)n);
        TN_TRY(tn_text_end(&l->rest));
    }
    return tn_text_end(&l->line);
}

/* ------------------------------------------------------------ both */

tn_status tn_line_open(const tn_line_options *o, tn_line **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_line), &mem));
    tn_line *l = mem;
    l->o = *o;
    l->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    tn_status st = l->terminal ? open_editor(l) : TN_OK;
    if (st) {
        tn_line_close(l);
        return st;
    }
    *out = l;
    return TN_OK;
}

void tn_line_close(tn_line *l)
{
    if (!l) return;
    close_editor(l);
    tn_text_fini(&l->line);
    tn_text_fini(&l->rest);
    tn_free(l);
}

tn_status tn_line_read(tn_line *l, const char *prompt, const char **out, tn_line_what *what)
{
    l->prompt = prompt;
    tn_text_cut(&l->line, 0);
    TN_TRY(l->editor ? edit_line(l, what) : read_line(l, what));
    *out = tn_text_str(&l->line);
    return TN_OK;
}

bool tn_line_terminal(const tn_line *l)
{
    return l->terminal;
}
