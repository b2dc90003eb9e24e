#include "engine/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double tn_clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double tn_clock_since_start_s(void)
{
    char line[1024];
    struct timespec t;
    unsigned long long ticks = 0;
    FILE *f = fopen("/proc/self/stat", "r");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f) fclose(f);
    line[n] = 0;
    /* field 22, counted behind the program's name, which may hold blanks and brackets itself (man 5 proc) */
    const char *p = strrchr(line, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (!p || sscanf(p, " %llu", &ticks) != 1) return 0;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec - (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

tn_clock_text tn_clock_now(void)
{
    tn_clock_text r;
    struct timespec t;
    struct tm day;
    clock_gettime(CLOCK_REALTIME, &t);
    localtime_r(&t.tv_sec, &day);
    size_t n = strftime(r.s, sizeof r.s, "%Y-%m-%d %H:%M:%S", &day);
    snprintf(r.s + n, sizeof r.s - n, ".%03d", (int)(t.tv_nsec / 1000000));
    return r;
}
