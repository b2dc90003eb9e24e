/* The log, the clock, and where the program's files are. */
#include "engine/base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/file.h"
#include "engine/base/mem.h"
#include "engine/base/where.h"
#include "tests/scratch.h"
#include "tests/test.h"

static char folder[256];

/* What tn_log writes to standard error, caught in a file. */
static char *caught(tn_log_level level, const char *text)
{
    char path[300], *out = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%sstderr", folder);
    fflush(stderr);
    int saved = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    dup2(fd, STDERR_FILENO);
    tn_log(level, "%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    return TN_CHECK_OK(tn_file_read(path, 10000, &out, &n)) ? out : NULL;
}

static void expect(tn_log_level level, const char *text, const char *want)
{
    char *got = caught(level, text);
    TN_CHECK_TEXT(got, want);
    tn_free(got);
}

static void logs(void)
{
    char path[300], *text = NULL;
    int64_t n = 0;
    snprintf(path, sizeof path, "%srank_3.log", folder);
    expect(TN_LOG_DEBUG, "hidden", "");
    expect(TN_LOG_INFO, "plain", "plain\n");
    expect(TN_LOG_WARN, "careful", "titan: warning: careful\n");
    TN_CHECK_OK(tn_log_open(path, 3, TN_LOG_ERROR));
    expect(TN_LOG_WARN, "only in the file", "");
    expect(TN_LOG_ERROR, "both", "titan: error: both\n");
    tn_log(TN_LOG_DEBUG, "detail %d", 7);
    tn_fault_arm(TN_FAULT_FILE_WRITE, 1);
    tn_log(TN_LOG_DEBUG, "lost to a full disk");
    TN_CHECK_TEXT(tn_error_text(), "");
    tn_log_close();
    TN_CHECK_OK(tn_file_read(path, 10000, &text, &n));
    TN_CHECK(text && strstr(text, " rank 3 warning: only in the file\n") &&
             strstr(text, " rank 3 error: both\n") && strstr(text, " rank 3 debug: detail 7\n") &&
             !strstr(text, "lost"));
    tn_free(text);
    TN_CHECK_FAILS(tn_log_open("no/such/folder/x.log", 0, TN_LOG_INFO), TN_BAD_INPUT,
                   "no/such/folder/x.log");
}

static void clocks(void)
{
    double a = tn_clock_s(), since = tn_clock_since_start_s();
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    double b = tn_clock_s();
    TN_CHECK_MSG(b - a >= 0.02 && b - a < 5, "20 ms took %g s", b - a);
    TN_CHECK_MSG(since > -0.02 && since < 60, "started %g s ago", since);
    TN_CHECK(tn_clock_since_start_s() - since > 0.015);
    TN_CHECK(strlen(tn_clock_now().s) == strlen("2025-01-31 23:59:58.123"));
}

static void places(void)
{
    char top[512], path[600], got[512], *real = realpath(".", NULL);
    TN_CHECK_OK(tn_where_share(got, sizeof got)); /* this program stands in build/VARIANT/tests */
    TN_CHECK_TEXT(got, real);
    free(real);
    snprintf(top, sizeof top, "%sprefix", folder);
    snprintf(path, sizeof path, "%s/share/titan/lua/prelude", top);
    TN_CHECK_OK(tn_file_mkdirs(path));
    snprintf(path, sizeof path, "%s/bin/titan", top);
    TN_CHECK_OK(tn_where_share_of(path, got, sizeof got));
    snprintf(path, sizeof path, "%s/share/titan", top);
    TN_CHECK_TEXT(got, path);
    TN_CHECK_FAILS(tn_where_share_of("/no/such/bin/titan", got, sizeof got), TN_FAILED,
                   "/no/such/bin/titan");
    snprintf(path, sizeof path, "%s/bin/titan", top);
    TN_CHECK_FAILS(tn_where_share_of(path, got, 4), TN_FAILED, "too long");
}

int main(void)
{
    snprintf(folder, sizeof folder, "%s", tn_scratch_path(""));
    logs();
    clocks();
    places();
    return tn_test_done("log");
}
