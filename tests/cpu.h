/* cpu.h - what the tests of the CPU kernels share: every instruction set with 1, 2 and 3 threads,
 * buffers between poison, random numbers.
 *
 *     for (int i = 0; tn_test_cpu(i, scratch, arg, &cpu); i++) { ... }
 * runs through the usable sets (portable first) and thread counts; results must be the same to the
 * last bit in all of them. scratch(threads, arg) says how many bytes the kernel asks for (NULL:
 * none).
 */
#ifndef TN_TESTS_CPU_H
#define TN_TESTS_CPU_H
#include "kernels/cpu/isa.h"
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>

enum { TN_TEST_THREADS = 3, TN_TEST_GUARD = 33 };

/* An operand of kernels that take several formats, in a test of fp32. */
TN_UNUSED static const float *tn_test_f32(const void *p)
{
    return p;
}

/* Fills in the i-th combination; false after the last, when pools and scratch are given back.
 * Scratch is poisoned. */
TN_UNUSED static bool tn_test_cpu(int i, size_t (*scratch)(int threads, const void *arg),
                                  const void *arg, tn_cpu *cpu)
{
    static tn_pool *pools[TN_TEST_THREADS];
    static void *mem;
    free(mem);
    mem = NULL;
    int n = 0;
    for (int isa = 0; isa < TN_N_ISA; isa++) {
        if (!tn_isa_usable((tn_isa)isa)) continue;
        for (int t = 0; t < TN_TEST_THREADS; t++) {
            if (n++ < i) continue;
            if (!pools[t] && !TN_CHECK_OK(tn_pool_create(t + 1, &pools[t]))) exit(1);
            size_t bytes = scratch ? scratch(t + 1, arg) : 0;
            if (bytes) {
                mem = aligned_alloc(64, (bytes + 63) / 64 * 64);
                if (!mem) exit(1);
                memset(mem, 0xa5, bytes);
            }
            *cpu = (tn_cpu){(tn_isa)isa, pools[t], mem, bytes};
            return true;
        }
    }
    for (int t = 0; t < TN_TEST_THREADS; t++) {
        tn_pool_destroy(pools[t]);
        pools[t] = NULL;
    }
    return false;
}

/* n floats between two guards of poison, themselves poison (a NaN nobody computes); odd alignment.
 */
static const uint32_t tn_test_poison = 0x7fe0dead;

TN_UNUSED static float *tn_test_floats(int64_t n)
{
    float *p = malloc(((size_t)n + 2 * TN_TEST_GUARD) * sizeof *p);
    if (!p) exit(1);
    for (int64_t i = 0; i < n + 2 * TN_TEST_GUARD; i++) memcpy(p + i, &tn_test_poison, sizeof *p);
    return p + TN_TEST_GUARD;
}

TN_UNUSED static void tn_test_free(const float *p)
{
    if (p) free((void *)((uintptr_t)p - TN_TEST_GUARD * sizeof *p));
}

TN_UNUSED static bool tn_test_is_poison(float x)
{
    return memcmp(&x, &tn_test_poison, sizeof x) == 0;
}

TN_UNUSED static double *tn_test_doubles(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    if (!p) exit(1);
    return p;
}

/* Both guards are whole, and every float between them was written. */
TN_UNUSED static bool tn_test_intact(const float *p, int64_t n)
{
    for (int64_t i = 0; i < TN_TEST_GUARD; i++)
        if (!tn_test_is_poison(p[-1 - i]) || !tn_test_is_poison(p[n + i])) return false;
    for (int64_t i = 0; i < n; i++)
        if (tn_test_is_poison(p[i])) return false;
    return true;
}

/* Random numbers: splitmix64. */
TN_UNUSED static uint64_t tn_test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

TN_UNUSED static int64_t tn_test_below(uint64_t *state, int64_t n)
{
    return (int64_t)(tn_test_random(state) % (uint64_t)n);
}

/* n floats in [-scale, scale) */
TN_UNUSED static float *tn_test_uniform(uint64_t *state, int64_t n, float scale)
{
    float *p = tn_test_floats(n);
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * ((float)(tn_test_random(state) >> 40) / 8388608.0f - 1.0f);
    return p;
}

TN_UNUSED static float *tn_test_copy(const float *x, int64_t n)
{
    float *p = tn_test_floats(n);
    memcpy(p, x, (size_t)n * sizeof *p);
    return p;
}

/* The first result is kept in *first (the caller frees it); later ones must be equal to it bit by
 * bit. */
TN_UNUSED static void tn_test_same(const char *what, const tn_cpu *cpu, const float *p, int64_t n,
                                   float **first)
{
    TN_CHECK_MSG(tn_test_intact(p, n), "%s, %s, %d threads: wrote outside, or not everything", what,
                 tn_isa_name(cpu->isa), tn_pool_threads(cpu->pool));
    if (!*first) {
        *first = tn_test_copy(p, n);
        return;
    }
    int64_t i = 0;
    while (i < n && memcmp(p + i, *first + i, sizeof *p) == 0) i++;
    TN_CHECK_MSG(i == n, "%s, %s, %d threads: element %lld is %a, was %a", what,
                 tn_isa_name(cpu->isa), tn_pool_threads(cpu->pool), (long long)i, (double)p[i],
                 (double)(*first)[i]);
}

/* |got - want| <= tolerance for all n (a NaN is never close). */
TN_UNUSED static void tn_test_close(const char *what, const float *got, const double *want,
                                    int64_t n, double tolerance)
{
    double worst = 0;
    int64_t at = -1;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - want[i]);
        if (!(error <= worst)) {
            worst = error;
            at = i;
        }
    }
    TN_CHECK_MSG(worst <= tolerance, "%s: element %lld is %.9g, expected %.9g (tolerance %.2g)",
                 what, (long long)at, at < 0 ? 0 : (double)got[at], at < 0 ? 0 : want[at],
                 tolerance);
}

#endif
