/* cmd_doctor.c - `titan doctor`: what this build and this machine offer, what is used, and why the
 * rest is not. */
#include "lua/commands.h"

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/pool.h"
#include "engine/base/text.h"
#include "engine/base/where.h"
#include "engine/regex.h"
#include "engine/unicode.h"
#include "kernels/cpu/isa.h"
#include "lua/line.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined __clang__
#define COMPILER "clang " __clang_version__
#elif defined __GNUC__
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "an unknown compiler"
#endif

#if defined __x86_64__
static bool machine_has(tn_isa isa)
{
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    return isa == TN_ISA_AVX2 ? avx2 : isa == TN_ISA_AVX512 ? avx2 && avx512 : true;
}
#else
static bool machine_has(tn_isa isa)
{
    return isa == TN_ISA_PORTABLE;
}
#endif

static void say(const char *subject, const char *text)
{
    printf("%-14s %s\n", subject, text);
}

/* The value of the first "key : value" line of a file of /proc, "" if there is none. */
static void proc_value(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    out[0] = 0;
    FILE *f = fopen(path, "r");
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, key, strlen(key)) || !colon) continue;
        colon += 1 + strspn(colon + 1, " \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon);
    }
    if (f) fclose(f);
}

static void tell_program(void)
{
    char exe[PATH_MAX], share[PATH_MAX];
    struct utsname system_name;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    printf("%-14s titan %s, built with %s\n", "program", TN_VERSION, COMPILER);
    say("", exe);
    if (tn_where_share(share, sizeof share) == TN_OK)
        printf("%-14s %s (lua/prelude, recipes)\n", "share", share);
    else printf("%-14s not found: %s\n", "share", tn_error_text());
    tn_error_clear();
    if (uname(&system_name) == 0)
        printf("%-14s %s %s %s\n", "system", system_name.sysname, system_name.release,
               system_name.machine);
}

static void tell_cpu(void)
{
    char model[256];
    tn_isa best = tn_isa_best();
    proc_value("/proc/cpuinfo", "model name", model, sizeof model);
    say("cpu", model[0] ? model : "unknown");
    for (int i = TN_N_ISA - 1; i >= 0; i--) {
        tn_isa isa = (tn_isa)i;
        const char *state = isa == best          ? "used (device.isa = \"auto\")"
                            : tn_isa_usable(isa) ? "works, same bits, slower"
                            : machine_has(isa)
                                ? "not used: not in this build (the compiler has no such kernels)"
                                : "not used: this machine does not have it";
        printf("  %-12s %s\n", tn_isa_name(isa), state);
    }
    printf("%-14s %d (the cores this process may use; device.threads)\n", "threads",
           tn_pool_cores());
}

static void tell_memory(void)
{
    struct sysinfo info;
    char available[64], limit[64];
    proc_value("/proc/meminfo", "MemAvailable", available, sizeof available);
    int64_t bytes = (int64_t)strtoll(available, NULL, 10) * 1024;
    if (sysinfo(&info)) return;
    snprintf(limit, sizeof limit, "%s",
             tn_text_bytes((int64_t)info.totalram * (int64_t)info.mem_unit).s);
    printf("%-14s %s, %s available\n", "memory", limit, bytes ? tn_text_bytes(bytes).s : "unknown");
}

static void tell_libraries(void)
{
    printf("%-14s Lua %s, %s, %s, %s, %s\n", "libraries", tn_host_lua_version(), tn_json_library(),
           tn_hash_library(), tn_regex_library(), tn_unicode_library());
    printf("%-14s %s\n", "line editor",
           tn_line_editor() ? tn_line_editor()
                            : "none (libedit was not there when this was built)");
    say("  BLAS", "not used: titan's own kernels keep the order of sums (`ninja bench` compares "
                  "with OpenBLAS, BLIS, oneDNN)");
    say("  HDF5", "not used: checkpoints are not in this build yet");
    say("ranks", "local processes over shared memory (titan -n N)");
    say("  MPI", "not used: one rank");
    say("  NCCL", "not used: one rank, no CUDA");
}

static void tell_cuda(void)
{
    char driver[256], exe[PATH_MAX], plugin[PATH_MAX + 64];
    FILE *f = fopen("/proc/driver/nvidia/version", "r");
    driver[0] = 0;
    if (f && fgets(driver, sizeof driver, f)) driver[strcspn(driver, "\n")] = 0;
    if (f) fclose(f);
    printf("%-14s %s\n", "cuda driver",
           driver[0] ? driver : "none (no /proc/driver/nvidia/version)");
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    if (slash) *slash = 0;
    snprintf(plugin, sizeof plugin, "%s/libtitan_cuda.so", exe);
    printf("%-14s not used: %s\n", "cuda plugin",
           tn_file_exists(plugin)
               ? "this build cannot load one yet"
               : "libtitan_cuda.so is not in this build yet; `titan plan` plans for GPUs");
}

tn_status tn_command_doctor(const tn_args *a)
{
    (void)a;
    tell_program();
    tell_cpu();
    tell_memory();
    tell_libraries();
    tell_cuda();
    return TN_OK;
}
