/* exact.c - see exact.h. Portable integer code: nothing here depends on the instruction set.
 *
 * A thread gathers a tile in 64-bit bins (four sets, so that equal exponents in a row do not wait for each other): 2^15 values
 * of 24-bit mantissas, or of 48-bit squares, fit. Bins are emptied in ascending order of exponents, so the result is that
 * of the exact integer sums, whatever thread added what. */
#include "kernels/cpu/exact.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1 << 15, TILE = 1 << 18, SETS = 4 };

__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 i128;

typedef struct job {
    const float *x;
    int64_t n;
    bool squares;
    tn_exact *part; /* by thread */
} job;

static void add128(tn_exact *s, int e, i128 v)
{
    u128 sum = ((u128)s->hi[e] << 64 | s->lo[e]) + (u128)v;
    s->lo[e] = (uint64_t)sum;
    s->hi[e] = (uint64_t)(sum >> 64);
}

static void block_squares(tn_exact *s, const float *x, int64_t n)
{
    uint64_t bin[SETS][256];
    memset(bin, 0, sizeof bin);
    for (int64_t i = 0; i < n; i++) {
        uint32_t b, e;
        memcpy(&b, x + i, 4);
        e = b >> 23 & 255;
        uint64_t m = (b & 0x7fffff) | (uint32_t)(e != 0) << 23;
        bin[i & (SETS - 1)][e] += m * m;
    }
    for (int e = 0; e < 256; e++) {
        i128 v = 0;
        for (int k = 0; k < SETS; k++) v += (i128)bin[k][e];
        if (v) add128(s, e, v); /* also of e = 255: m is at least 2^23 there, and squares never cancel */
    }
}

static void block_values(tn_exact *s, const float *x, int64_t n)
{
    int64_t bin[SETS][256];
    memset(bin, 0, sizeof bin);
    for (int64_t i = 0; i < n; i++) {
        uint32_t b, e;
        memcpy(&b, x + i, 4);
        e = b >> 23 & 255;
        int64_t m = (int64_t)((b & 0x7fffff) | (uint32_t)(e != 0) << 23), sign = -(int64_t)(b >> 31);
        if (e == 255) add128(s, 255, 1); /* never cancels */
        else bin[i & (SETS - 1)][e] += (m ^ sign) - sign;
    }
    for (int e = 0; e < 255; e++) {
        i128 v = 0;
        for (int k = 0; k < SETS; k++) v += bin[k][e];
        if (v) add128(s, e, v);
    }
}

static void tile(void *arg, int64_t t, int thread)
{
    const job *j = arg;
    int64_t begin = t * TILE, end = begin + TILE < j->n ? begin + TILE : j->n;
    for (int64_t i = begin; i < end; i += BLOCK) {
        int64_t n = end - i < BLOCK ? end - i : BLOCK;
        if (j->squares) block_squares(&j->part[thread], j->x + i, n);
        else block_values(&j->part[thread], j->x + i, n);
    }
}

size_t tn_exact_scratch(int n_threads)
{
    return (size_t)n_threads * sizeof(tn_exact);
}

static void add(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n, bool squares)
{
    job j = {x, n, squares, cpu->scratch};
    int threads = tn_pool_threads(cpu->pool);
    memset(j.part, 0, (size_t)threads * sizeof(tn_exact));
    if (n <= TILE / 4) {
        for (int64_t t = 0; t * TILE < n; t++) tile(&j, t, 0);
    } else {
        tn_pool_run(cpu->pool, (n + TILE - 1) / TILE, tile, &j);
    }
    for (int t = 0; t < threads; t++) tn_exact_merge(sum, &j.part[t]);
}

void tn_exact_add(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n)
{
    add(cpu, sum, x, n, false);
}

void tn_exact_add_squares(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n)
{
    add(cpu, sum, x, n, true);
}

void tn_exact_merge(tn_exact *sum, const tn_exact *other)
{
    for (int e = 0; e < 256; e++) add128(sum, e, (i128)((u128)other->hi[e] << 64 | other->lo[e]));
}

/* Bin e of values counts units of 2^(max(e, 1) - 150); of squares, of 2^(2 (max(e, 1) - 150)). */
static double get(const tn_exact *s, int scale)
{
    double sum = 0;
    if (s->lo[255] || s->hi[255]) return NAN;
    for (int e = 0; e < 255; e++) {
        i128 v = (i128)((u128)s->hi[e] << 64 | s->lo[e]);
        if (v) sum += ldexp((double)v, scale * ((e ? e : 1) - 150));
    }
    return sum;
}

double tn_exact_get(const tn_exact *sum)
{
    return get(sum, 1);
}

double tn_exact_get_squares(const tn_exact *sum)
{
    return get(sum, 2);
}
