/* log.h - what the program tells: lines to standard error and to the rank's file. Used by the
 * program only; library code returns a status and writes the error record.
 *
 * Lines are whole even when several threads or ranks write: each is one write. Before tn_log_open,
 * and without a path, lines go to standard error alone.
 */
#ifndef TN_ENGINE_BASE_LOG_H
#define TN_ENGINE_BASE_LOG_H
#include "engine/base/base.h"

TN_C_BEGIN

typedef enum tn_log_level {
    TN_LOG_DEBUG,
    TN_LOG_INFO,
    TN_LOG_WARN,
    TN_LOG_ERROR,
    TN_LOG_NONE
} tn_log_level;

/* path: the rank's file, appended to (NULL: none). Standard error shows lines of at least `shown`,
 * the file takes all. */
tn_status tn_log_open(const char *path, int rank, tn_log_level shown) TN_MUST_USE;
void tn_log_close(void);

/* "titan: LEVEL: text" on standard error (nothing but the text at TN_LOG_INFO); time, rank and
 * level in the file. */
void tn_log(tn_log_level level, const char *fmt, ...) TN_PRINTF(2, 3);

TN_C_END
#endif
