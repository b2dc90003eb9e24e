/* host.c - the life of a state, its limits, and how its errors become titan's.
 *
 * Memory: the allocator lets the state pass its limit by a margin and sets a hook on the next
 * instruction, which collects garbage and, if that did not help, raises the error where the recipe
 * stands. Only a block beyond the margin is refused on the spot. Time: a count hook reads the
 * thread's clock. Code in C that loops by itself (a pattern with many repetitions, table.move over
 * a huge range) is seen by no hook: a timer's signal ends it through options.overrun.
 *
 * Once a limit is passed (h->over) our pcall and xpcall (sandbox.c) let every error through, so the
 * error cannot be held up. There are no finalizers (setmetatable refuses __gc) and no coroutines:
 * both would run where the hook is not.
 */
#include "lua/host.h"
#include "engine/base/mem.h"
#include "engine/base/where.h"
#include "lua/state.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    HOOK_EVERY = 10000,   /* instructions, about 0.1 ms */
    BIG_BLOCK = 32 << 20, /* a block that grows and is larger than any Lua stack: the stack is not
                             what is being moved */
    MAX_FRAMES = 4,       /* context lines */
    MAX_LEVELS = 100,     /* calls looked at: lua_getstack counts from the top each time */
    GRACE_S = 2,          /* after the deadline, for C code */
};

/* ------------------------------------------------------------ where we are */

static bool is_user(const lua_Debug *ar)
{
    return ar->source[0] == '@';
}

/* The first level from `level` on that runs a recipe's or module's text, or -1. */
static int user_level(lua_State *L, int level, lua_Debug *ar)
{
    for (; level < MAX_LEVELS && lua_getstack(L, level, ar); level++) {
        lua_getinfo(L, "Sl", ar);
        if (is_user(ar)) return level;
    }
    return -1;
}

void tn_host_place(lua_State *L, char *out, size_t size)
{
    lua_Debug ar;
    out[0] = 0;
    if (user_level(L, 0, &ar) >= 0) snprintf(out, size, "%s:%d: ", ar.source + 1, ar.currentline);
}

/* ------------------------------------------------------------ limits */

static double thread_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_text(const tn_host *h, const char *place, char *out, size_t size)
{
    snprintf(out, size,
             "%sthe recipe ran longer than %g s; is there a loop without an end? (--lua-seconds "
             "allows more)",
             place, h->o.seconds);
}

static void memory_text(const tn_host *h, const char *place, char *out, size_t size)
{
    snprintf(out, size,
             "%sthe recipe needs more than %lld MiB of memory; keep less in tables and texts "
             "(--lua-memory allows more)",
             place, (long long)(h->o.memory_bytes >> 20));
}

static void hook(lua_State *L, lua_Debug *ar)
{
    tn_host *h = tn_host_of(L);
    char place[512];
    (void)ar;
    if (!h->over) {
        bool late = thread_clock_s() > h->deadline_s, stopped = h->interrupted;
        if (h->trapped && !late && !stopped) {
            lua_gc(L, LUA_GCCOLLECT);
            h->trapped = false;
            lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_EVERY);
            if (h->used_bytes <= h->o.memory_bytes) return;
        } else if (!late && !stopped) {
            return;
        }
        h->over = true;
        tn_host_place(L, place, sizeof place);
        if (stopped) snprintf(h->fail, sizeof h->fail, "%sinterrupted", place);
        else (late ? time_text : memory_text)(h, place, h->fail, sizeof h->fail);
        lua_sethook(L, hook, LUA_MASKCOUNT, 1000);
    }
    lua_pushliteral(L, "limit");
    lua_error(L);
}

static void *refuse(tn_host *h, bool fresh, size_t more)
{
    h->refused = true;
    h->refused_at[0] = 0;
    if (h->L && (fresh || more > BIG_BLOCK))
        tn_host_place(h->L, h->refused_at, sizeof h->refused_at);
    return NULL;
}

static void *allocate(void *ud, void *p, size_t osize, size_t nsize)
{
    tn_host *h = ud;
    void *q;
    if (!p) osize = 0; /* then it holds the kind of object */
    if (nsize == 0) {
        tn_free(p);
        h->used_bytes -= (int64_t)osize;
        return NULL;
    }
    if (nsize > osize) {
        size_t more = nsize - osize;
        int64_t room = h->o.memory_bytes + h->o.memory_bytes / 4 - h->used_bytes;
        if (room < 0 || more > (size_t)room) return refuse(h, !p, more);
    }
    if (tn_alloc(nsize, &q)) {
        tn_error_clear();
        if (nsize <= osize) return p; /* shrinking may not fail; accounted as before */
        h->starved = true;
        return NULL;
    }
    if (p) memcpy(q, p, osize < nsize ? osize : nsize);
    tn_free(p);
    h->used_bytes += (int64_t)nsize - (int64_t)osize;
    if (h->used_bytes > h->o.memory_bytes && h->L && !h->trapped && !h->over) {
        h->trapped = true;
        lua_sethook(h->L, hook, LUA_MASKCOUNT, 1);
    }
    return q;
}

/* In a signal handler, while the interpreter stands still in a C function. */
static void on_timer(int signal_number, siginfo_t *info, void *context)
{
    tn_host *h = info->si_value.sival_ptr;
    char place[512], text[TN_HOST_TEXT];
    (void)signal_number;
    (void)context;
    if (info->si_code != SI_TIMER || !h) return;
    tn_host_place(h->L, place, sizeof place);
    time_text(h, place, text, sizeof text);
    h->o.overrun(text);
}

static void watch(tn_host *h, double seconds)
{
    if (!h->timed) return;
    struct itimerspec t = {0};
    t.it_value.tv_sec = (time_t)seconds;
    t.it_value.tv_nsec = (long)((seconds - (double)t.it_value.tv_sec) * 1e9);
    timer_settime(h->timer, 0, &t, NULL);
}

/* A machine without such timers goes without the watch. */
static void start_timer(tn_host *h)
{
    struct sigaction act = {0};
    struct sigevent event = {0};
    timer_t timer;
    act.sa_sigaction = on_timer;
    act.sa_flags = SA_SIGINFO | SA_RESTART;
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGALRM;
    event.sigev_value.sival_ptr = h;
    if (!h->o.overrun || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer)) return;
    sigaction(SIGALRM, &act, &h->before);
    h->timer = timer;
    h->timed = true;
}

/* ------------------------------------------------------------ errors */

int tn_host_fail(lua_State *L, tn_status code, const char *fmt, ...)
{
    tn_host *h = tn_host_of(L);
    va_list ap;
    if (!h->over) {
        va_start(ap, fmt);
        vsnprintf(h->fail, sizeof h->fail, fmt, ap);
        va_end(ap);
        h->fail_status = code;
        h->fail_frames = false;
    }
    lua_pushstring(L, h->fail);
    return lua_error(L);
}

int tn_host_raise(lua_State *L, tn_status code)
{
    tn_host *h = tn_host_of(L);
    if (!h->over) {
        snprintf(h->fail, sizeof h->fail, "%s", tn_error_text());
        h->fail_status = code;
        h->fail_frames = true;
    }
    lua_pushstring(L, h->fail);
    return lua_error(L);
}

/* Where `text` says that it comes from: the frame whose "chunk:line: " it starts with; NULL if
 * none. */
static const char *strip_place(lua_State *L, const char *text, lua_Debug *ar, int *line)
{
    for (int level = 0; level < MAX_LEVELS && lua_getstack(L, level, ar); level++) {
        lua_getinfo(L, "Sl", ar);
        size_t n = strlen(ar->short_src);
        if (ar->currentline < 0 || strncmp(text, ar->short_src, n) || text[n] != ':') continue;
        char *end;
        long number = strtol(text + n + 1, &end, 10);
        if (end == text + n + 1 || end[0] != ':' || end[1] != ' ') continue;
        *line = (int)number;
        return end + 2;
    }
    return NULL;
}

/* One line: no control characters, no novel. */
static void clean(const char *text, char *out, size_t size)
{
    size_t n = 0;
    for (; *text && n + 4 < size; text++)
        out[n++] = (unsigned char)*text < 32 || *text == 127 ? ' ' : *text;
    snprintf(out + n, size - n, "%s", *text ? "..." : "");
}

static void add_frames(lua_State *L, tn_status code, const char *chunk, int line)
{
    lua_Debug ar;
    int n = 0;
    for (int level = 0; n < MAX_FRAMES && (level = user_level(L, level, &ar)) >= 0; level++) {
        bool told = chunk && ar.currentline == line && strcmp(ar.source + 1, chunk) == 0;
        if (told) continue;
        n++;
        (void)tn_error_while(code, "running %s:%d", ar.source + 1, ar.currentline);
    }
}

/* A Lua error becomes the thread's error record, while the calls that led to it are still there. */
static void record(lua_State *L, const char *text)
{
    char what[512];
    lua_Debug ar;
    int line = 0;
    const char *rest = strip_place(L, text, &ar, &line);
    bool inside =
        rest && !is_user(&ar); /* the prelude raised it, the recipe's line is what helps */
    clean(rest ? rest : text, what, sizeof what);
    const char *mend =
        strncmp(what, "stack overflow", 14) == 0 ? "; a function calls itself without end" : "";
    char deep[300] = "";
    if (inside) snprintf(deep, sizeof deep, "%s:%d", ar.short_src, line);
    if (!rest || inside) {
        if (user_level(L, 0, &ar) < 0) { /* behind a tail call */
            const char *chunk = tn_host_of(L)->main;
            (void)tn_error(TN_BAD_INPUT, "%s: %s%s", chunk ? chunk : "the recipe", what, mend);
            if (inside) (void)tn_error_while(TN_BAD_INPUT, "running %s", deep);
            return;
        }
        line = ar.currentline;
    }
    (void)tn_error(TN_BAD_INPUT, "%s:%d: %s%s", ar.source + 1, line, what, mend);
    if (inside) (void)tn_error_while(TN_BAD_INPUT, "running %s", deep);
    add_frames(L, TN_BAD_INPUT, ar.source + 1, line);
}

static int on_error(lua_State *L)
{
    tn_host *h = tn_host_of(L);
    char text[100];
    const char *said = text;
    if (h->over) return 1;
    if (lua_type(L, 1) == LUA_TSTRING ||
        (luaL_callmeta(L, 1, "__tostring") && lua_type(L, -1) == LUA_TSTRING))
        said = lua_tostring(L, -1);
    else snprintf(text, sizeof text, "an error that is no text but %s", luaL_typename(L, 1));
    if (strcmp(said, h->fail) == 0) {
        (void)tn_error(h->fail_status, "%s", said);
        if (h->fail_frames) add_frames(L, h->fail_status, NULL, 0);
    } else {
        h->fail_status = TN_BAD_INPUT;
        record(L, said);
    }
    return 1;
}

static tn_status status_of(tn_host *h, int lua_status)
{
    char text[TN_HOST_TEXT];
    if (lua_status == LUA_OK) return TN_OK;
    if (h->over) TN_FAIL(TN_BAD_INPUT, "%s", h->fail);
    if (lua_status == LUA_ERRRUN) return h->fail_status; /* on_error wrote the record */
    if (lua_status == LUA_ERRMEM && h->starved)
        TN_FAIL(TN_FAILED, "memory: the machine has none left for the recipe");
    if (lua_status == LUA_ERRMEM) {
        memory_text(h, h->refused_at, text, sizeof text);
        TN_FAIL(TN_BAD_INPUT, "%s", text);
    }
    TN_FAIL(TN_BAD_INPUT, "the recipe: an error inside the handling of an error");
}

tn_status tn_host_call(tn_host *h, lua_CFunction fn, void *arg)
{
    lua_State *L = h->L;
    if (h->over) TN_FAIL(TN_BAD_INPUT, "%s", h->fail);
    if (!lua_checkstack(L, 8)) TN_FAIL(TN_FAILED, "memory: no Lua stack left");
    int top = lua_gettop(L);
    lua_pushcfunction(L, on_error);
    lua_pushcfunction(L, fn);
    lua_pushlightuserdata(L, arg);
    if (h->depth++ == 0) {
        h->deadline_s = thread_clock_s() + h->o.seconds;
        lua_sethook(L, hook, LUA_MASKCOUNT, HOOK_EVERY);
        watch(h, h->o.seconds + GRACE_S);
    }
    h->starved = h->refused = false;
    int st = lua_pcall(L, 1, 0, top + 1);
    if (--h->depth == 0) watch(h, 0);
    lua_settop(L, top);
    return status_of(h, st);
}

void tn_host_again(tn_host *h)
{
    bool full = h->used_bytes > h->o.memory_bytes / 2;
    h->over = h->trapped = h->refused = false;
    h->interrupted = 0;
    if (full) lua_gc(h->L, LUA_GCCOLLECT); /* in a hook what calls have left on the stack counts */
    h->fail[0] = 0;
}

/* ------------------------------------------------------------ life */

static int open_in_lua(lua_State *L)
{
    (void)tn_sandbox_open(L);
    (void)tn_modules_open(L);
    return 0;
}

static tn_status set_up(tn_host *h, const char *folder)
{
    if (h->o.memory_bytes <= 0) h->o.memory_bytes = (int64_t)256 << 20;
    if (!(h->o.seconds > 0)) h->o.seconds = 10;
    if (!h->o.share) {
        TN_TRY(tn_where_share(h->share, sizeof h->share));
    } else if (!realpath(h->o.share, h->share)) {
        TN_FAIL(TN_BAD_INPUT, "%s: no such folder; it must hold lua/prelude and recipes",
                h->o.share);
    }
    h->o.share = h->share;
    snprintf(h->folder, sizeof h->folder, "%s", folder ? folder : "");
    lua_State *L = lua_newstate(allocate, h);
    if (!L) TN_FAIL(TN_FAILED, "memory: cannot open a Lua state");
    h->L = L;
    *(tn_host **)lua_getextraspace(L) = h;
    start_timer(h);
    return tn_host_call(h, open_in_lua, NULL);
}

tn_status tn_host_open(const tn_host_options *options, const char *folder, tn_host **out)
{
    void *mem;
    TN_TRY(tn_alloc(sizeof(tn_host), &mem));
    tn_host *h = mem;
    h->o = *options;
    tn_status st = set_up(h, folder);
    if (st) {
        tn_host_close(h);
        return st;
    }
    *out = h;
    return TN_OK;
}

void tn_host_close(tn_host *h)
{
    if (!h) return;
    if (h->timed) {
        timer_delete(h->timer);
        sigaction(SIGALRM, &h->before, NULL);
    }
    if (h->L) {
        lua_sethook(h->L, NULL, 0, 0);
        lua_close(h->L);
    }
    for (tn_host_source *s = h->sources; s; s = s->older) tn_free(s->text);
    tn_arena_fini(&h->arena);
    tn_free(h);
}

/* ------------------------------------------------------------ running */

typedef struct run_job {
    const tn_host_source *source;
} run_job;

static int run_in_lua(lua_State *L)
{
    run_job *job = lua_touserdata(L, 1);
    tn_host_compile(L, '@', job->source);
    lua_call(L, 0, 0);
    return 0;
}

tn_status tn_host_run(tn_host *h, const char *name, const char *text, size_t n_bytes)
{
    run_job job;
    void *copy;
    TN_TRY(tn_alloc(n_bytes + 1, &copy));
    memcpy(copy, text, n_bytes);
    TN_TRY(tn_host_keep(h, name, copy, n_bytes, &job.source));
    return tn_host_call(h, run_in_lua, &job);
}

typedef struct ask_job {
    const char *module, *function;
    int n;
    const char *const *args;
    const char *answer;
} ask_job;

static int ask_in_lua(lua_State *L)
{
    static const char key; /* its address: where the answer is kept alive */
    ask_job *job = lua_touserdata(L, 1);
    tn_host_require(L, job->module);
    lua_getfield(L, -1, job->function);
    luaL_checkstack(L, job->n, "arguments");
    for (int i = 0; i < job->n; i++) lua_pushstring(L, job->args[i]);
    lua_call(L, job->n, 1);
    job->answer = luaL_checkstring(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &key);
    return 0;
}

tn_status tn_host_ask(tn_host *h, const char *module, const char *function, int n,
                      const char *const *args, const char **out)
{
    ask_job job = {module, function, n, args, NULL};
    TN_TRY(tn_host_call(h, ask_in_lua, &job));
    *out = job.answer;
    return TN_OK;
}

const char *tn_host_lua_version(void)
{
    return &LUA_RELEASE[sizeof "Lua " - 1];
}
