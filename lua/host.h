/* host.h - a closed room for recipes: one Lua state that can compute, read Lua text of two folders,
 * and nothing else.
 *
 * What a recipe sees: the pure part of Lua's libraries (no os, io, debug, package, coroutine; text
 * chunks only), `require` for its own folder and for the shipped prelude and recipes, and strict
 * globals: reading or writing a name that does not exist is an error with its line. The same recipe
 * builds the same thing on every rank: pairs goes through a table in a fixed order and math.random
 * starts from a fixed seed.
 *
 * Limits: memory (what the allocator hands out) and processor time of one call. Both errors name
 * the line, and no pcall holds them up. A call into Lua's C libraries that never comes back to the
 * interpreter is answered through `overrun`.
 *
 * Errors (TN_BAD_INPUT) read "recipe.lua:LINE: WHAT; MEND", with the calls that led there as
 * context lines. TN_FAILED is the machine's memory, not the recipe's.
 */
#ifndef TN_LUA_HOST_H
#define TN_LUA_HOST_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef struct tn_host tn_host;

/* Zero-initialised is legal: the defaults. */
typedef struct tn_host_options {
    int64_t memory_bytes;              /* 0: 256 MiB */
    double seconds;                    /* processor time of one call; 0: 10 */
    const char *share;                 /* holds lua/prelude and recipes; NULL: tn_where_share */
    void (*print)(const char *line);   /* the recipe's print; NULL: dropped */
    void (*overrun)(const char *text); /* runs in a signal handler, with the error's text, and must
                                        * end the process; NULL: no watch over C code */
} tn_host_options;

/* folder: where `require` looks first, the recipe's own; NULL: only among what is shipped. */
tn_status tn_host_open(const tn_host_options *options, const char *folder,
                       tn_host **out) TN_MUST_USE;
void tn_host_close(tn_host *h); /* NULL is fine */

/* Runs Lua text; `name` is what errors call it. What it returns is dropped. */
tn_status tn_host_run(tn_host *h, const char *name, const char *text, size_t n_bytes) TN_MUST_USE;

/* Calls function `function` of module `module` with the texts args[0 .. n-1]; it must return one
 * text, which lives until the next call of this host. */
tn_status tn_host_ask(tn_host *h, const char *module, const char *function, int n,
                      const char *const *args, const char **out) TN_MUST_USE;

const char *tn_host_lua_version(void); /* of the library that runs: "5.4" */

TN_C_END
#endif
