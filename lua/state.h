/* state.h - the Lua state behind a host or a recipe, for the files of lua/ that bind C to it.
 *
 * Lua raises errors by longjmp, so a C function called from Lua checks its arguments, calls, and
 * pushes: nothing loose may be owned while the Lua API can raise. Whatever must survive belongs to
 * the host, to an arena that someone else frees, or to a userdata.
 */
#ifndef TN_LUA_STATE_H
#define TN_LUA_STATE_H
#include "engine/base/mem.h"
#include "lua/door.h"
#include "lua/host.h"
#include "lua/recipe.h"

#include <limits.h>
#include <signal.h>

TN_C_BEGIN

enum { TN_HOST_TEXT = 2048 }; /* bytes of an error's text */

typedef struct tn_host_source {
    const char *chunk; /* as errors name it, without Lua's mark */
    char *text;
    size_t n_bytes;
    struct tn_host_source *older;
} tn_host_source;

struct tn_host {
    lua_State *L;
    tn_host_options o;
    int64_t used_bytes;
    bool trapped; /* over the limit: the hook looks at the next instruction */
    bool starved; /* the machine had no memory */
    bool refused; /* a block was refused because of the limit */
    bool over;    /* a limit was passed: `fail` says where, every call fails from now on */
    volatile sig_atomic_t interrupted; /* set by a signal: the hook ends the evaluation */
    int depth;    /* of tn_host_call */
    double deadline_s;
    tn_status fail_status;         /* of the final error in `fail` */
    bool fail_frames;              /* add the calls that led there */
    char fail[TN_HOST_TEXT];       /* the last final error: its text needs no place in front */
    char refused_at[TN_HOST_TEXT]; /* "recipe.lua:3: " or "" */
    char share[PATH_MAX], folder[PATH_MAX];
    const char *main; /* the first chunk compiled for a user: what a tail call leaves without a
                         place is in it */
    tn_host_source
        *sources; /* in the arena, the newest first; their texts are blocks of their own */
    tn_arena arena;
    void *timer; /* timer_t */
    bool timed;
    struct sigaction before; /* of SIGALRM */
};

static inline tn_host *tn_host_of(lua_State *L)
{
    return *(tn_host **)lua_getextraspace(L);
}

/* Runs fn(L), under the limits, with `arg` as light userdata at index 1. Nothing of the Lua API
 * that may raise is to be called outside of such a function. */
tn_status tn_host_call(tn_host *h, lua_CFunction fn, void *arg) TN_MUST_USE;

/* After a limit was passed, or an interruption: the state is good for further calls. */
void tn_host_again(tn_host *h);

/* From a C function called by Lua: raise an error whose text is complete as it stands ("WHERE:
 * WHAT; MEND"). */
int tn_host_fail(lua_State *L, tn_status code, const char *fmt, ...) TN_PRINTF(3, 4);

/* The same with the thread's error record, after a call of titan's C code that returned `code`; the
 * calls in the recipe that led there become its context. Use: if ((st = tn_graph_add(...))) return
 * tn_host_raise(L, st); */
int tn_host_raise(lua_State *L, tn_status code);

/* "recipe.lua:12: " of the nearest caller outside the prelude, or "". */
void tn_host_place(lua_State *L, char *out, size_t size);

/* Pushes module `name`, loading it when needed (raises). */
void tn_host_require(lua_State *L, const char *name);

/* Makes `require(name)` call `open` (for modules written in C). */
void tn_host_preload(lua_State *L, const char *name, lua_CFunction open);

/* Keeps `text` (from tn_alloc, now the host's, also on failure) as the source of `chunk`. */
tn_status tn_host_keep(tn_host *h, const char *chunk, char *text, size_t n_bytes,
                       const tn_host_source **out) TN_MUST_USE;

/* Pushes the compiled source as a function; raises for bytecode and syntax errors. mark: '@' a
 * file, '=' the prelude. */
void tn_host_compile(lua_State *L, char mark, const tn_host_source *source);

/* Used by tn_host_open. */
int tn_sandbox_open(lua_State *L);
int tn_modules_open(lua_State *L);

/* The recipe's state, host and model description (pushed by the second; inside tn_host_call). */
tn_host *tn_recipe_host(tn_recipe *r);
void tn_recipe_push_model(lua_State *L, const tn_recipe *r);

static inline lua_State *tn_recipe_state(tn_recipe *r)
{
    return tn_recipe_host(r)->L;
}

TN_C_END
#endif
