/* repl.c - `titan -i [RECIPE]`: lines are read until they make a whole piece of Lua, which is run
 * in a host of its own (lua/prelude/repl.lua); what it returns is shown. No error ends it: it is
 * printed, and the next line is read. Without a terminal the lines are a script, and the exit
 * status says whether one of them failed. */
#include "engine/base/file.h"
#include "lua/line.h"
#include "lua/state.h"
#include "lua/trace.h"
#include "lua/view.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { FOREVER_S = 1000000000 };

typedef struct repl {
    tn_host *host;
    tn_line *line;
    tn_view view;
    tn_text piece;         /* lines that are not yet a whole piece */
    int64_t n_lines, from; /* read so far; the piece's first */
    int64_t failed;
    char history[4200]; /* a path, or "": read when the line editor opens and written when it closes
                         */
} repl;

/* ------------------------------------------------------------ Ctrl-C */

static tn_host *volatile interruptible;

static void on_interrupt(int number)
{
    (void)number;
    if (interruptible) interruptible->interrupted = 1;
}

static void watch_interrupts(tn_host *h)
{
    struct sigaction act = {0};
    act.sa_handler = on_interrupt; /* no SA_RESTART: a read comes back */
    interruptible = h;
    sigaction(SIGINT, &act, NULL);
}

/* ------------------------------------------------------------ evaluating */

static void print_error(repl *q)
{
    char text[4096];
    const char *at = text, *mark = "error: ";
    tn_error_take(text, sizeof text);
    fflush(stdout);
    while (*at) {
        size_t n = strcspn(at, "\n");
        fprintf(stderr, "%s%.*s\n", mark, (int)n, at);
        at += n + (at[n] == '\n');
        mark = "    ";
    }
    tn_error_clear();
    q->failed++;
}

static tn_status ask(repl *q, const char *function, int n, const char *const *args,
                     const char **out)
{
    q->host->interrupted = 0;
    tn_status st = tn_host_ask(q->host, "titan.repl", function, n, args, out);
    tn_host_again(q->host);
    return st;
}

/* true: it was a whole piece of Lua, right or wrong. */
static bool evaluate(repl *q, bool last)
{
    char number[24];
    const char *answer, *args[3] = {tn_text_str(&q->piece), number, last ? "last" : ""};
    snprintf(number, sizeof number, "%lld", (long long)q->from);
    if (ask(q, "eval", 3, args, &answer)) {
        print_error(q);
        return true;
    }
    if (!strcmp(answer, "more")) return false;
    fputs(answer + 1, stdout); /* behind '=' */
    fflush(stdout);
    return true;
}

static void complete(void *user, const char *before, tn_text *out)
{
    repl *q = user;
    const char *answer, *args[1] = {before};
    if (ask(q, "complete", 1, args, &answer)) tn_error_clear();
    else tn_text_add(out, "%s", answer);
}

/* One line; false: there are no more. */
static tn_status one_line(repl *q, bool *more)
{
    const char *text;
    tn_line_what what;
    TN_TRY(tn_line_read(q->line, q->piece.n_bytes ? "    .. " : "titan> ", &text, &what));
    *more = what != TN_LINE_END;
    if (what == TN_LINE_CANCELLED) {
        tn_text_cut(&q->piece, 0);
        return TN_OK;
    }
    if (what == TN_LINE_END) {
        if (q->piece.n_bytes) (void)evaluate(q, true);
        return TN_OK;
    }
    q->n_lines++;
    if (!q->piece.n_bytes) q->from = q->n_lines;
    tn_text_add(&q->piece, "%s\n", text);
    TN_TRY(tn_text_end(&q->piece));
    if (evaluate(q, false)) tn_text_cut(&q->piece, 0);
    return TN_OK;
}

/* ------------------------------------------------------------ opening */

static void print_line(const char *line)
{
    printf("%s\n", line);
}

static int open_view(lua_State *L)
{
    tn_host_preload(L, "titan.trace", tn_trace_open);
    tn_view_open(L, lua_touserdata(L, 1));
    return 0;
}

/* The folder of state files, made when it is not there; "" where there is none. */
static void history_path(const tn_args *a, char *out, size_t size)
{
    char folder[4096];
    out[0] = 0;
    if (a->state_home && a->state_home[0] == '/')
        snprintf(folder, sizeof folder, "%s/titan", a->state_home);
    else if (a->home && a->home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.local/state/titan", a->home);
    else return;
    if (tn_file_mkdirs(folder)) tn_error_clear(); /* then the session has a history, and no file */
    else snprintf(out, size, "%s/history", folder);
}

static tn_status open_host(repl *q, const tn_args *a)
{
    tn_host_options o = a->host;
    char folder[4096] = ".";
    const char *slash = a->n_paths ? strrchr(a->paths[0], '/') : NULL;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - a->paths[0] + (slash == a->paths[0])),
                 a->paths[0]);
    if (!(o.seconds > 0)) o.seconds = FOREVER_S; /* Ctrl-C ends what takes too long */
    o.overrun = NULL;
    o.print = print_line;
    TN_TRY(tn_host_open(&o, folder, &q->host));
    q->host->main = "input";
    return tn_host_call(q->host, open_view, &q->view);
}

static tn_status open_repl(repl *q, const tn_args *a)
{
    const char *text, *args[2];
    q->view = (tn_view){.a = a, .world = a->world, .path = a->n_paths ? a->paths[0] : NULL};
    if (a->n_paths && !strcmp(a->paths[0], "-"))
        TN_FAIL(TN_BAD_INPUT,
                "command line: -i -: standard input holds what is to be run; name the "
                "recipe's file");
    if (a->n_overrides && !a->n_paths)
        TN_FAIL(TN_BAD_INPUT,
                "command line: %s: settings belong to a recipe; write titan -i RECIPE %s",
                a->overrides[0], a->overrides[0]);
    if (a->n_overrides > TN_VIEW_SETTINGS)
        TN_FAIL(TN_BAD_INPUT, "command line: more than %d settings", TN_VIEW_SETTINGS);
    for (int i = 0; i < a->n_overrides; i++)
        q->view.settings[q->view.n_settings++] = a->overrides[i];
    TN_TRY(open_host(q, a));
    tn_line_options o = {
        .history = q->history[0] ? q->history : NULL, .complete = complete, .user = q};
    TN_TRY(tn_line_open(&o, &q->line));
    args[0] = a->n_paths ? "recipe" : "";
    args[1] = tn_line_terminal(q->line) ? "terminal" : "";
    tn_status st = ask(q, "greet", 2, args, &text);
    if (!st || !args[1][0]) return st;
    print_error(q); /* open(path) is there to try again */
    return TN_OK;
}

static tn_status run(repl *q, const tn_args *a)
{
    bool more = true;
    history_path(a, q->history, sizeof q->history);
    TN_TRY(open_repl(q, a));
    watch_interrupts(q->host);
    while (more) TN_TRY(one_line(q, &more));
    if (tn_line_terminal(q->line)) printf("\n");
    else if (q->failed)
        TN_FAIL(TN_FAILED, "standard input: %lld of its pieces failed", (long long)q->failed);
    return TN_OK;
}

tn_status tn_command_repl(const tn_args *a)
{
    repl q = {0};
    tn_status st = run(&q, a);
    interruptible = NULL;
    tn_line_close(q.line);
    tn_host_close(q.host);
    tn_view_close(&q.view);
    tn_text_fini(&q.piece);
    return st;
}
