/* test.h - the whole test framework: count what was checked, say what failed, end with one line.
 *
 * A test program checks with TN_CHECK and friends (a failed check prints file, line and expression
 * to standard error and the program goes on), says what it had to leave out with tn_test_skip, and
 * ends with return tn_test_done("subject"); which prints "subject: N passed, N failed" (", N
 * skipped" where some were) and returns the exit status. tests/run.py reads that line. Programs run
 * from the top of the source tree.
 */
#ifndef TN_TESTS_TEST_H
#define TN_TESTS_TEST_H
#include "engine/base/base.h"
#include "engine/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int64_t tn_test_passed, tn_test_failed, tn_test_skipped;

/* Returns `ok`, so that a test can stop using what is broken: if (!TN_CHECK(p)) return; */
TN_UNUSED TN_PRINTF(4, 5) static bool tn_test_check(bool ok, const char *file, int line,
                                                    const char *fmt, ...)
{
    if (ok) {
        tn_test_passed++;
        return true;
    }
    if (++tn_test_failed > 50) return false; /* the first fifty tell the story */
    __builtin_va_list ap;
    __builtin_va_start(ap, fmt);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    __builtin_va_end(ap);
    return false;
}

#define TN_CHECK(cond) tn_test_check((cond), __FILE__, __LINE__, "failed: %s", #cond)
#define TN_CHECK_MSG(cond, ...) tn_test_check((cond), __FILE__, __LINE__, __VA_ARGS__)

/* The call succeeds; its error record is printed otherwise. */
#define TN_CHECK_OK(call) tn_test_ok((call), __FILE__, __LINE__, #call)
TN_UNUSED static bool tn_test_ok(tn_status st, const char *file, int line, const char *call)
{
    return tn_test_check(st == TN_OK, file, line, "%s: status %d: %s", call, (int)st,
                         tn_error_text());
}

/* The call fails with `code` and a record that contains `part`; the record is cleared. */
#define TN_CHECK_FAILS(call, code, part)                                                           \
    tn_test_fails((call), (code), (part), __FILE__, __LINE__, #call)
TN_UNUSED static bool tn_test_fails(tn_status st, tn_status code, const char *part,
                                    const char *file, int line, const char *call)
{
    bool ok = tn_test_check(st == code && strstr(tn_error_text(), part), file, line,
                            "%s: status %d and '%s', expected %d and '...%s...'", call, (int)st,
                            tn_error_text(), (int)code, part);
    tn_error_clear();
    return ok;
}

/* Two texts are equal; both are printed otherwise. */
#define TN_CHECK_TEXT(got, want) tn_test_text((got), (want), __FILE__, __LINE__)
TN_UNUSED static bool tn_test_text(const char *got, const char *want, const char *file, int line)
{
    bool ok = got && want && strcmp(got, want) == 0;
    return tn_test_check(ok, file, line, "got '%s', expected '%s'", got ? got : "(null)",
                         want ? want : "(null)");
}

/* Calls fn(arg) with the first, the second, ... allocation failing until it succeeds: each failure
 * must be TN_FAILED with a message (leaks are the address sanitizer's business). Returns how many
 * allocations were made to fail. */
TN_UNUSED static int64_t tn_test_each_alloc(tn_status (*fn)(void *arg), void *arg)
{
    for (int64_t n = 1; n < 100000; n++) {
        tn_mem_fail_at(n);
        tn_status st = fn(arg);
        tn_mem_fail_at(0);
        if (st == TN_OK) return n - 1;
        tn_test_check(st == TN_FAILED && tn_error_text()[0], __FILE__, __LINE__,
                      "allocation %lld failing: status %d, '%s'", (long long)n, (int)st,
                      tn_error_text());
        tn_error_clear();
    }
    tn_test_check(false, __FILE__, __LINE__, "100000 failing allocations and no success");
    return -1;
}

/* One thing that could not be tested here, and why. */
TN_UNUSED static void tn_test_skip(const char *what, const char *why)
{
    tn_test_skipped++;
    printf("skip: %s: %s\n", what, why);
}

/* "../shared/golden/NAME" (the complete set beside the repository) or "tests/golden/NAME"; when
 * neither exists the skip is counted and NULL returned. The text lives until the next call. */
TN_UNUSED static const char *tn_test_golden(const char *name)
{
    static const char *const places[] = {"../shared/golden", "tests/golden"};
    static char path[512];
    struct stat st;
    for (int i = 0; i < TN_COUNT(places); i++) {
        snprintf(path, sizeof path, "%s/%s", places[i], name);
        if (stat(path, &st) == 0) return path;
    }
    tn_test_skip(name, "not in tests/golden");
    return NULL;
}

TN_UNUSED static int tn_test_done(const char *subject)
{
    printf("%s: %lld passed, %lld failed", subject, (long long)tn_test_passed,
           (long long)tn_test_failed);
    if (tn_test_skipped) printf(", %lld skipped", (long long)tn_test_skipped);
    printf("\n");
    if (tn_test_passed + tn_test_failed == 0) fprintf(stderr, "%s: nothing was checked\n", subject);
    return tn_test_failed || tn_test_passed == 0;
}

#endif
