/* base.h - what every file of titan may use: status codes, the error record, small compiler
 * helpers.
 *
 * A function that can fail returns tn_status (ignoring it is a compile error) and writes its
 * results, which come last, only on success. The first function that knows the cause writes the
 * message with TN_FAIL; callers may add lines with TN_TRY_WHILE; nobody prints on the way:
 * lua/titan.c prints the record once. The record is per thread.
 *
 * The message of TN_FAIL reads "WHERE: WHAT; MEND" (recipe key, file and offset, or module path
 * first; the nearest legal value last).
 */
#ifndef TN_ENGINE_BASE_BASE_H
#define TN_ENGINE_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TN_C_BEGIN extern "C" {
#define TN_C_END }
#else
#define TN_C_BEGIN
#define TN_C_END
#endif

#define TN_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define TN_MUST_USE __attribute__((warn_unused_result))
#define TN_UNUSED __attribute__((unused))
#define TN_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

TN_C_BEGIN

/* The values are exit statuses (reference: docs/recipes.md): 1 failed while running, 2 the user's
 * input cannot work. */
typedef enum tn_status {
    TN_OK = 0,
    TN_FAILED = 1, /* while running: disk, memory, NaN policy, parity missed */
    TN_BAD_INPUT =
        2, /* command line, recipe, model, layout, data, file: nothing on disk has changed */
    TN_STOPPED = 3, /* by a signal, after a clean stop */
} tn_status;

/* Start the thread's error record; returns `code`, so that `return tn_error(...)` works. */
tn_status tn_error(tn_status code, const char *fmt, ...) TN_PRINTF(2, 3);

/* Add one line of context to the record ("while reading 'x'"); returns `code`. */
tn_status tn_error_while(tn_status code, const char *fmt, ...) TN_PRINTF(2, 3);

/* The same without "while": a row of a table that belongs to the error. */
tn_status tn_error_note(tn_status code, const char *fmt, ...) TN_PRINTF(2, 3);

/* The record of this thread: the first line, then context lines, separated by newlines. "" if there
 * is none. */
const char *tn_error_text(void);

/* Forget the record (a caller that handles the failure itself). */
void tn_error_clear(void);

/* Hand a worker's record over: copy it out on the worker (size bytes), set it on the caller. */
void tn_error_take(char *out, size_t size);
tn_status tn_error_give(tn_status code, const char *text);

#define TN_FAIL(code, ...) return tn_error((code), __VA_ARGS__)
#define TN_TRY(expr)                                                                               \
    do {                                                                                           \
        tn_status tn_try_ = (expr);                                                                \
        if (tn_try_ != TN_OK) return tn_try_;                                                      \
    } while (0)
#define TN_TRY_WHILE(expr, ...)                                                                    \
    do {                                                                                           \
        tn_status tn_try_ = (expr);                                                                \
        if (tn_try_ != TN_OK) return tn_error_while(tn_try_, __VA_ARGS__);                         \
    } while (0)

TN_C_END
#endif
