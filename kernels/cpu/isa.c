/* isa.c - which instruction set the CPU kernels use (contract in isa.h).
 *
 * TN_HAVE_AVX2 and TN_HAVE_AVX512 say what the build compiled (configure.py gives them when the
 * target is x86-64). */
#include "kernels/cpu/isa.h"

#include <string.h>

static const char *const names[TN_N_ISA] = {"portable", "avx2", "avx512"};

#if defined TN_HAVE_AVX2
static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static bool has_avx2(void)
{
    return false;
}
#endif

#if defined TN_HAVE_AVX512
static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
static bool has_avx512(void)
{
    return false;
}
#endif

#if defined TN_HAVE_AVX512BF16
bool tn_isa_pairs(tn_isa isa)
{
    return isa == TN_ISA_AVX512 && has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#else
bool tn_isa_pairs(tn_isa isa)
{
    (void)isa;
    return false;
}
#endif

bool tn_isa_usable(tn_isa isa)
{
    switch (isa) {
    case TN_ISA_PORTABLE:
        return true;
    case TN_ISA_AVX2:
        return has_avx2();
    case TN_ISA_AVX512:
        return has_avx512();
    case TN_N_ISA:
        break;
    }
    return false;
}

tn_isa tn_isa_best(void)
{
    int isa = TN_N_ISA - 1;
    while (!tn_isa_usable((tn_isa)isa)) isa--;
    return (tn_isa)isa;
}

const char *tn_isa_name(tn_isa isa)
{
    return names[isa];
}

bool tn_isa_parse(const char *name, tn_isa *out)
{
    for (int i = 0; i < TN_N_ISA; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out = (tn_isa)i;
        return true;
    }
    return false;
}
