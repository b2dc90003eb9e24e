/* error.c - the per-thread error record (contract in base.h).
 *
 * The record is a fixed buffer: writing an error must work when memory is what ran out. */
#include "engine/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char record[4096];

static void append(const char *fmt, va_list ap)
{
    size_t n = strlen(record);
    if (n + 2 >= sizeof record) return;
    vsnprintf(record + n, sizeof record - n, fmt, ap);
}

tn_status tn_error(tn_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    record[0] = 0;
    append(fmt, ap);
    va_end(ap);
    return code;
}

tn_status tn_error_while(tn_status code, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(record);
    snprintf(record + n, sizeof record - n, "\nwhile ");
    va_start(ap, fmt);
    append(fmt, ap);
    va_end(ap);
    return code;
}

tn_status tn_error_note(tn_status code, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(record);
    snprintf(record + n, sizeof record - n, "\n");
    va_start(ap, fmt);
    append(fmt, ap);
    va_end(ap);
    return code;
}

const char *tn_error_text(void)
{
    return record;
}

void tn_error_clear(void)
{
    record[0] = 0;
}

void tn_error_take(char *out, size_t size)
{
    snprintf(out, size, "%s", record);
    record[0] = 0;
}

tn_status tn_error_give(tn_status code, const char *text)
{
    snprintf(record, sizeof record, "%s", text);
    return code;
}
