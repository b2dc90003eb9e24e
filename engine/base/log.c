#include "engine/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/file.h"

static tn_file *file;
static int rank;
static tn_log_level shown = TN_LOG_INFO;

static const char *const names[] = {"debug", "info", "warning", "error"};

tn_status tn_log_open(const char *path, int of_rank, tn_log_level show)
{
    tn_file *f = NULL;
    if (path) TN_TRY(tn_file_append(path, &f));
    tn_log_close();
    file = f;
    rank = of_rank;
    shown = show;
    return TN_OK;
}

void tn_log_close(void)
{
    tn_file_discard(file);
    file = NULL;
    shown = TN_LOG_INFO;
}

void tn_log(tn_log_level level, const char *fmt, ...)
{
    char text[4096], line[sizeof text + 64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (level >= shown) {
        bool bare = level == TN_LOG_INFO;
        int n = snprintf(line, sizeof line, "%s%s%s%s\n",
                         bare ? "" : "titan: ", bare ? "" : names[level], bare ? "" : ": ", text);
        ssize_t w = write(STDERR_FILENO, line, (size_t)n);
        (void)w; /* nobody is left to be told */
    }
    if (file) {
        int n = snprintf(line, sizeof line, "%s rank %d %s: %s\n", tn_clock_now().s, rank,
                         names[level], text);
        if (tn_file_put(file, line, (size_t)n) != TN_OK)
            tn_error_clear(); /* a full disk must not stop the run */
    }
}
