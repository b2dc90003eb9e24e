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

static void read_line(const char *path, char *line, size_t size)
{
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(line, 1, size - 1, f) : 0;
    if (f) fclose(f);
    line[n] = 0;
}

/* Seconds that this thread has run or stood in the queue for a core: its age, as long as it has
 * never slept. */
static double awake_s(void)
{
    char line[256];
    struct timespec ran;
    unsigned long long queued_ns =
        0; /* the second number; the first, of what ran, is renewed with the kernel's ticks only */
    read_line("/proc/thread-self/schedstat", line, sizeof line);
    sscanf(line, "%*s %llu", &queued_ns);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
    return (double)ran.tv_sec + 1e-9 * (double)ran.tv_nsec + 1e-9 * (double)queued_ns;
}

double tn_clock_since_start_s(void)
{
    char line[1024];
    struct timespec t;
    unsigned long long ticks = 0;
    double awake = awake_s(), tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    read_line("/proc/self/stat", line, sizeof line);
    /* field 22, counted behind the program's name, which may hold blanks and brackets itself (man 5
     * proc) */
    const char *p = strrchr(line, ')');
    for (int field = 2; p && field < 22; field++) p = strchr(p + 1, ' ');
    if (!p || sscanf(p, " %llu", &ticks) != 1) return 0;
    clock_gettime(CLOCK_BOOTTIME, &t);
    double age = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec -
                 (double)ticks * tick; /* at most one tick too much */
    return awake > age - tick && awake < age ? awake : age;
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
