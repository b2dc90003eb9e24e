/* The closed room that recipes run in: what is absent, what is strict, where limits stop, how
 * errors read. */
#include "lua/host.h"
#include "tests/test.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char printed[256];

static void keep_print(const char *line)
{
    snprintf(printed, sizeof printed, "%s", line);
}

static tn_status run_in(const tn_host_options *o, const char *folder, const char *text, size_t n)
{
    tn_host *h = NULL;
    TN_TRY(tn_host_open(o, folder, &h));
    tn_status st = tn_host_run(h, "r.lua", text, n);
    tn_host_close(h);
    return st;
}

static tn_status run(const char *text)
{
    tn_host_options o = {.seconds = 5, .memory_bytes = 32 << 20, .print = keep_print};
    return run_in(&o, NULL, text, strlen(text));
}

static tn_status run_limited(const char *text)
{
    tn_host_options o = {.seconds = 0.05, .memory_bytes = 8 << 20};
    return run_in(&o, NULL, text, strlen(text));
}

static void test_absent(void)
{
    static const char *const texts[] = {
        "os.exit(1)",  "io.open('x')",     "debug.getregistry()",     "package.loadlib('x', 'y')",
        "dofile('x')", "loadfile('x')",    "coroutine.create(print)", "collectgarbage()",
        "_G.x = 1",    "local f = _ENV.os"};
    for (int i = 0; i < TN_COUNT(texts); i++)
        TN_CHECK_FAILS(run(texts[i]), TN_BAD_INPUT, "is not available in a recipe; ");
    TN_CHECK_FAILS(run("string.dump(print)"), TN_BAD_INPUT, "r.lua:1: there is no string.dump");
    TN_CHECK_FAILS(run("getmetatable('').__index.len = nil"), TN_BAD_INPUT,
                   "r.lua:1: there is no string.__index");
    TN_CHECK_FAILS(run("setmetatable({}, { __gc = print })"), TN_BAD_INPUT, "finalizers");
    TN_CHECK_OK(run("local ok = pcall(setmetatable, _ENV, nil); assert(not ok)"));
    TN_CHECK_OK(run("local ok = pcall(setmetatable, string, nil); assert(not ok)"));
    TN_CHECK_OK(run("assert(getmetatable(_ENV) == 'locked' and getmetatable(math) == 'locked')"));
}

static void test_strict(void)
{
    TN_CHECK_FAILS(run("\n\nlocal x = foo"), TN_BAD_INPUT, "r.lua:3: undefined name 'foo'");
    TN_CHECK_FAILS(run("local x = requir 'a'"), TN_BAD_INPUT,
                   "r.lua:1: undefined name 'requir'; did you mean 'require'?");
    TN_CHECK_FAILS(run("\nx = 1"), TN_BAD_INPUT,
                   "r.lua:2: 'x' would be a global; write 'local x = ...'");
    TN_CHECK_FAILS(run("print = nil"), TN_BAD_INPUT, "'print' would be a global");
    TN_CHECK_FAILS(run("string.rep = nil"), TN_BAD_INPUT, "r.lua:1: string cannot be changed");
    TN_CHECK_FAILS(run("return math.flor(1)"), TN_BAD_INPUT,
                   "there is no math.flor; did you mean 'floor'?");
    TN_CHECK_FAILS(run("return ('x'):uper()"), TN_BAD_INPUT,
                   "there is no string.uper; did you mean 'upper'?");
    TN_CHECK_FAILS(run("local function f() y = 1 end f()"), TN_BAD_INPUT, "'y' would be a global");
}

static void test_text_only(void)
{
    static const char code[] = "\x1bLuaT\x00\x19\x93\r\n\x1a\n";
    tn_host_options o = {0};
    TN_CHECK_FAILS(run_in(&o, NULL, code, sizeof code - 1), TN_BAD_INPUT,
                   "r.lua: this is precompiled Lua; titan reads text only");
    TN_CHECK_FAILS(run("load('\\27Lua')"), TN_BAD_INPUT, "load takes text");
    TN_CHECK_FAILS(run("load(function() return nil end)"), TN_BAD_INPUT, "text expected");
    TN_CHECK_OK(run("assert(load('return 1 + 1')() == 2)"));
    TN_CHECK_OK(run("assert(load('return x', 'n', 't', { x = 3 })() == 3)"));
    TN_CHECK_OK(
        run("local f, e = load('return +', '=n') assert(not f and e:find('n:1: ', 1, true))"));
    TN_CHECK_OK(run("#!/usr/bin/env titan\nassert(true)"));
    TN_CHECK_OK(run("\xEF\xBB\xBF"
                    "assert(true)"));
    TN_CHECK_FAILS(run("#!x\nfoo()"), TN_BAD_INPUT, "r.lua:2: undefined name 'foo'");
    TN_CHECK_FAILS(run("\nlocal = 3"), TN_BAD_INPUT, "r.lua:2: <name> expected near '='");
    TN_CHECK_FAILS(run("x = 'a\n"), TN_BAD_INPUT, "r.lua:1: unfinished string");
}

static void test_time(void)
{
    static const char *const loops[] = {
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) return f() end f()",
        "while true do xpcall(function() while true do end end, function() while true do end end) "
        "end",
        "local function h() while true do end end xpcall(function() error('x') end, h)",
        "repeat local x <close> = setmetatable({}, { __close = function() while true do end end }) "
        "until false",
        "local t = setmetatable({}, { __index = function(t, k) while true do end end }); return "
        "t.x",
        "table.sort({ 3, 2, 1 }, function(a, b) while true do end end)",
        "('x'):gsub('x', function() while true do end end)",
        "error(setmetatable({}, { __tostring = function() while true do end end }))",
        "for i = 1, math.huge do local t = { i } end",
        "while true do pcall(string.rep, 'x', 1 << 40) end",
        "local s = load('while true do end') while true do pcall(s) end",
        "goto a ::a:: goto a",
    };
    for (int i = 0; i < TN_COUNT(loops); i++) {
        tn_status st = run_limited(loops[i]);
        TN_CHECK_MSG(st == TN_BAD_INPUT &&
                         strstr(tn_error_text(), "r.lua:1: the recipe ran longer than 0.05 s;"),
                     "loop %d: status %d: %s", i, (int)st, tn_error_text());
        tn_error_clear();
    }
}

static void test_memory(void)
{
    static const char *const bombs[] = {
        "local t = {} while true do t[#t + 1] = {} end",
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local t = {} while true do pcall(function() while true do t[#t + 1] = { 1 } end end) end",
        "local t = {} for i = 1, 1e5 do t[i] = ('x'):rep(99) end return table.concat(t):rep(2)",
    };
    tn_host_options o = {.seconds = 20, .memory_bytes = 8 << 20};
    for (int i = 0; i < TN_COUNT(bombs); i++) {
        tn_status st = run_in(&o, NULL, bombs[i], strlen(bombs[i]));
        bool told = strstr(tn_error_text(), "the recipe needs more than 8 MiB of memory;") ||
                    strstr(tn_error_text(), "more than a recipe may hold");
        TN_CHECK_MSG(st == TN_BAD_INPUT && told, "bomb %d: status %d: %s", i, (int)st,
                     tn_error_text());
        tn_error_clear();
    }
    TN_CHECK_FAILS(run("\nlocal t = {} while true do t[#t + 1] = {} end"), TN_BAD_INPUT,
                   "r.lua:2: the recipe needs more than 32 MiB");
    TN_CHECK_FAILS(run("\nreturn ('x'):rep(1 << 40)"), TN_BAD_INPUT,
                   "r.lua:2: string.rep: a text of 1048576");
    TN_CHECK_OK(run("assert((''):rep(1 << 62) == '')"));
    TN_CHECK_OK(run("for i = 1, 200000 do local s = ('x'):rep(1000) end")); /* 200 MB of garbage is
                                                                               no 32 MiB of need */
    static const char deep[] = "local function f() return 1 + f() end f()";
    o = (tn_host_options){0};
    TN_CHECK_FAILS(run_in(&o, NULL, deep, strlen(deep)), TN_BAD_INPUT,
                   "r.lua:1: stack overflow; a function calls itself without end");
    TN_CHECK_FAILS(run("local function f() return pcall(f) end assert(f()) error('after')"),
                   TN_BAD_INPUT, "r.lua:1: ");
}

static void test_errors(void)
{
    TN_CHECK_FAILS(run("error('what')"), TN_BAD_INPUT, "r.lua:1: what");
    TN_CHECK_FAILS(run("\nerror('what', 0)"), TN_BAD_INPUT, "r.lua:2: what");
    TN_CHECK_FAILS(run("error({})"), TN_BAD_INPUT, "r.lua:1: an error that is no text but table");
    TN_CHECK_FAILS(run("error()"), TN_BAD_INPUT, "r.lua:1: an error that is no text but nil");
    TN_CHECK_FAILS(run("error('a\\nb\\27[31m')"), TN_BAD_INPUT, "r.lua:1: a b [31m");
    TN_CHECK_FAILS(run("local t\nreturn t.x"), TN_BAD_INPUT,
                   "r.lua:2: attempt to index a nil value (local 't')");
    TN_CHECK_FAILS(run("local function f()\n error('in')\nend\nf()"), TN_BAD_INPUT,
                   "r.lua:2: in\nwhile running r.lua:4");
    TN_CHECK_FAILS(run("error(setmetatable({}, { __tostring = function() return 'own' end }))"),
                   TN_BAD_INPUT, "r.lua:1: own");
    TN_CHECK_OK(run("local ok, e = pcall(error, 'x', 0) assert(not ok and e == 'x')"));
    TN_CHECK_OK(run("local ok, e = xpcall(function(a) error(a, 0) end, function(e) return e .. '!' "
                    "end, 'x') assert(e == 'x!')"));
    TN_CHECK_OK(
        run("assert(select('#', xpcall(function(...) return ... end, print, 1, nil, 3)) == 4)"));
    TN_CHECK_OK(run("assert(select('#', pcall(function(...) return ... end, 1, nil, 3)) == 4)"));
    char name[200];
    memset(name, 'd', sizeof name);
    memcpy(name + sizeof name - 7, "/r.lua", 7);
    tn_host *h = NULL;
    tn_host_options o = {0};
    TN_CHECK_OK(tn_host_open(&o, NULL, &h));
    TN_CHECK_FAILS(tn_host_run(h, name, "error 'x'", 9), TN_BAD_INPUT,
                   name); /* long names are not cut */
    TN_CHECK_FAILS(tn_host_run(h, name, "local =", 7), TN_BAD_INPUT, name);
    tn_host_close(h);
}

static void test_same_everywhere(void)
{
    TN_CHECK_OK(
        run("local s, t = '', { b = 1, a = 2, [3] = 1, [1] = 1, [2.5] = 1, aa = 1, [true] = 1 }\n"
            "for k in pairs(t) do s = s .. tostring(k) .. ' ' end\n"
            "assert(s == '1 2.5 3 a aa b true ', s)"));
    TN_CHECK_OK(run("local t, n = { 1, 2, 3, x = 1 }, 0 for k in pairs(t) do t[k] = nil n = n + 1 "
                    "end assert(n == 4 and next(t) == nil)"));
    TN_CHECK_OK(run("local t, n = { a = 1, b = 2 }, 0 for k in pairs(t) do t.b = nil n = n + 1 end "
                    "assert(n == 1)"));
    TN_CHECK_OK(
        run("local p = setmetatable({}, { __pairs = function() return next, { z = 1 } end })\n"
            "for k, v in pairs(p) do assert(k == 'z' and v == 1) end"));
    char first[256];
    for (int i = 0; i < 2; i++) {
        TN_CHECK_OK(run("print(math.random(1 << 40), math.random())"));
        if (i) TN_CHECK_TEXT(printed, first);
        memcpy(first, printed, sizeof first);
    }
    TN_CHECK_FAILS(run("math.randomseed()"), TN_BAD_INPUT, "value expected");
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    TN_CHECK(f && fputs(text, f) >= 0);
    if (f) fclose(f);
}

static void test_require(void)
{
    char top[] = "/tmp/titan-test-host-XXXXXX", folder[100], outside[120], link[120];
    if (!TN_CHECK(mkdtemp(top))) return;
    snprintf(folder, sizeof folder, "%s/own", top);
    snprintf(outside, sizeof outside, "%s/secret.lua", top);
    snprintf(link, sizeof link, "%s/sub", folder);
    TN_CHECK(mkdir(folder, 0777) == 0 && mkdir(link, 0777) == 0);
    write_file(folder, "m.lua", "return { one = 1 }");
    write_file(folder, "sub/deep.lua", "return 'deep'");
    write_file(folder, "none.lua", "");
    write_file(folder, "loop.lua", "return require 'loop'");
    write_file(folder, "bad.lua", "local x = \n= 3");
    write_file(folder, "fails.lua", "\nlocal function f() error 'deep inside' end\nf()");
    write_file(folder, "name.lua", "return (...)");
    write_file(folder, "binary.lua", "\x1bLua");
    write_file(top, "secret.lua", "return 'secret'");
    snprintf(link, sizeof link, "%s/link.lua", folder);
    TN_CHECK(symlink(outside, link) == 0);
    snprintf(link, sizeof link, "%s/pipe.lua", folder);
    TN_CHECK(mkfifo(link, 0600) == 0);
    tn_host_options o = {.seconds = 5};
#define RUN(text) run_in(&o, folder, (text), strlen(text))
    TN_CHECK_OK(RUN("assert(require('m').one == 1 and require('m') == require('m'))"));
    TN_CHECK_OK(RUN("assert(require 'sub.deep' == 'deep' and require 'none' == true and require "
                    "'name' == 'name')"));
    TN_CHECK_OK(RUN("assert(require 'titan.lines'.scan('recipe { a = 1 }').at.a == 1)"));
    TN_CHECK_FAILS(RUN("require '../secret'"), TN_BAD_INPUT,
                   "r.lua:1: '../secret' is no module name");
    TN_CHECK_FAILS(RUN("require '/etc/passwd'"), TN_BAD_INPUT, "is no module name");
    TN_CHECK_FAILS(RUN("require '..secret'"), TN_BAD_INPUT, "is no module name");
    TN_CHECK_FAILS(RUN("require ''"), TN_BAD_INPUT, "is no module name");
    TN_CHECK_FAILS(RUN("require 'secret'"), TN_BAD_INPUT,
                   "r.lua:1: no module 'secret'; looked in the recipe's folder");
    TN_CHECK_FAILS(RUN("require 'titan.nothing'"), TN_BAD_INPUT,
                   "r.lua:1: no module 'titan.nothing'; looked among");
    TN_CHECK_FAILS(RUN("require 'link'"), TN_BAD_INPUT,
                   "link.lua: a link that leads out of its folder; copy the file");
    TN_CHECK_FAILS(RUN("require 'pipe'"), TN_BAD_INPUT, "pipe.lua: not a regular file");
    TN_CHECK_FAILS(RUN("require 'loop'"), TN_BAD_INPUT, "module 'loop' requires itself");
    TN_CHECK_FAILS(RUN("require 'bad'"), TN_BAD_INPUT,
                   "/own/bad.lua:2: unexpected symbol near '='");
    TN_CHECK_FAILS(RUN("require 'binary'"), TN_BAD_INPUT,
                   "/own/binary.lua: this is precompiled Lua");
    TN_CHECK_FAILS(RUN("require 'fails'"), TN_BAD_INPUT,
                   "/own/fails.lua:2: deep inside\nwhile running ");
    TN_CHECK_FAILS(RUN("require 'fails'"), TN_BAD_INPUT, "\nwhile running r.lua:1");
    TN_CHECK_OK(RUN("assert(not pcall(require, 'fails') and not pcall(require, 'fails'))"));
#undef RUN
    char clear[200];
    snprintf(clear, sizeof clear, "rm -r '%s'", top);
    TN_CHECK(system(clear) == 0);
}

static const char *const alloc_text =
    "local t = {} for i = 1, 100 do t[i] = { tostring(i) } end assert(pcall(error) == false)";

static void test_allocations(void)
{
    int64_t n = tn_mem_count(), failed = 0;
    TN_CHECK_OK(run(alloc_text));
    n = tn_mem_count() - n;
    for (int64_t i = 1; i <= n; i++) {
        tn_mem_fail_at(i);
        tn_status st = run(alloc_text);
        tn_mem_fail_at(0);
        failed += st != TN_OK; /* Lua collects garbage and asks again: most are survived */
        TN_CHECK_MSG(st == TN_OK || (st == TN_FAILED && tn_error_text()[0]),
                     "allocation %lld: status %d: %s", (long long)i, (int)st, tn_error_text());
        tn_error_clear();
    }
    TN_CHECK(failed >= 2);
}

static void test_after_a_limit(void)
{
    tn_host *h = NULL;
    tn_host_options o = {.seconds = 0.02};
    TN_CHECK_OK(tn_host_open(&o, NULL, &h));
    TN_CHECK_FAILS(tn_host_run(h, "a.lua", "while true do end", 17), TN_BAD_INPUT,
                   "a.lua:1: the recipe ran longer");
    TN_CHECK_FAILS(tn_host_run(h, "b.lua", "return 1", 8), TN_BAD_INPUT,
                   "a.lua:1: the recipe ran longer");
    tn_host_close(h);
    tn_host_close(NULL);
    o.share = "/nowhere/at/all";
    TN_CHECK_FAILS(tn_host_open(&o, NULL, &h), TN_BAD_INPUT, "/nowhere/at/all: no such folder");
}

int main(void)
{
    test_absent();
    test_strict();
    test_text_only();
    test_time();
    test_memory();
    test_errors();
    test_same_everywhere();
    test_require();
    test_allocations();
    test_after_a_limit();
    return tn_test_done("host");
}
