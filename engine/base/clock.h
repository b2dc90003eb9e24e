/* clock.h - seconds for measuring and for logs. */
#ifndef TN_ENGINE_BASE_CLOCK_H
#define TN_ENGINE_BASE_CLOCK_H
#include "engine/base/base.h"

TN_C_BEGIN

/* Monotonic, from an arbitrary start; nanosecond resolution. */
double tn_clock_s(void);

/* Since this process was started, loader and all: exact while its first thread has not slept, later
 * up to 10 ms too much (the kernel counts a process's start in ticks). */
double tn_clock_since_start_s(void);

/* "2025-01-31 23:59:58.123", local time. */
typedef struct tn_clock_text {
    char s[32];
} tn_clock_text;
tn_clock_text tn_clock_now(void);

TN_C_END
#endif
