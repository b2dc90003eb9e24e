/* exact.c - the fixed-point number, and the cut of arrays into tiles; one sum per thread, merged at
 * the end. */
#include "kernels/cpu/exact.h"

#include "kernels/cpu/dispatch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

TN_ISA_TABLES(tn_exact_fns, tn_exact_fns);
static const tn_exact_fns *const by_isa[TN_N_ISA] = TN_BY_ISA(tn_exact_fns);

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 uwide;

enum { SLOT_BYTES = 256 }; /* a thread's sum, away from its neighbours' cache lines */
_Static_assert(sizeof(tn_exact) <= SLOT_BYTES, "a sum fits its slot");

void tn_exact_put(tn_exact *sum, int64_t m, int e)
{
    const int at = (e - TN_EXACT_UNIT) / 32;
    wide v = (wide)m * ((wide)1 << (e - TN_EXACT_UNIT) % 32);
    assert(e >= TN_EXACT_UNIT && at + 2 < TN_EXACT_LIMBS);
    sum->limb[at] += (int64_t)(uint32_t)v;
    sum->limb[at + 1] += (int64_t)(uint32_t)(v >> 32);
    sum->limb[at + 2] += (int64_t)(v >> 64);
}

void tn_exact_carry(tn_exact *sum)
{
    for (int i = 0; i + 1 < TN_EXACT_LIMBS; i++) {
        sum->limb[i + 1] += sum->limb[i] >> 32;
        sum->limb[i] &= 0xffffffff;
    }
}

void tn_exact_merge(tn_exact *sum, const tn_exact *other)
{
    for (int i = 0; i < TN_EXACT_LIMBS; i++) sum->limb[i] += other->limb[i];
    sum->special |= other->special;
    tn_exact_carry(sum);
}

double tn_exact_get(const tn_exact *sum)
{
    if (sum->special & 1 || (sum->special & 6) == 6) return NAN;
    if (sum->special) return sum->special & 2 ? INFINITY : -INFINITY;
    tn_exact s = *sum;
    const bool negative = s.limb[TN_EXACT_LIMBS - 1] < 0;
    for (int i = 0; negative && i < TN_EXACT_LIMBS; i++) s.limb[i] = -s.limb[i];
    tn_exact_carry(&s);
    int top = TN_EXACT_LIMBS - 1;
    while (top > 0 && s.limb[top] == 0) top--;
    /* 62 bits from the highest one on, the last of them set if anything below is: rounds to 53 as
     * the whole would */
    uwide high = 0;
    bool below = false;
    int shift = 0;
    for (int i = top; i > top - 4; i--) high = high << 32 | (i < 0 ? 0 : (uint64_t)s.limb[i]);
    for (int i = 0; i <= top - 4; i++) below = below || s.limb[i] != 0;
    while (high >> shift >> 62) shift++;
    below = below || (high & (((uwide)1 << shift) - 1)) != 0;
    const double m = (double)(int64_t)((uint64_t)(high >> shift) | below);
    return ldexp(negative ? -m : m, 32 * (top - 3) + TN_EXACT_UNIT + shift);
}

typedef struct job {
    void (*add)(tn_exact *sum, const float *x, int64_t n);
    const float *x;
    int64_t n, items;
    char *slots;
} job;

static void add_tile(void *arg, int64_t tile, int thread)
{
    const job *j = arg;
    const int64_t begin = tile * j->items;
    j->add((tn_exact *)(void *)(j->slots + thread * SLOT_BYTES), j->x + begin,
           tn_tile_end(j->n, j->items, tile) - begin);
}

size_t tn_exact_scratch(int n_threads)
{
    return (size_t)n_threads * SLOT_BYTES;
}

static void add(const tn_cpu *cpu, tn_exact *sum, job *j)
{
    const int threads = tn_pool_threads(cpu->pool);
    assert(cpu->scratch_bytes >= tn_exact_scratch(threads));
    j->items = tn_tile_items(cpu, j->n, sizeof(float));
    j->slots = cpu->scratch;
    memset(j->slots, 0, tn_exact_scratch(threads));
    tn_pool_run(cpu->pool, tn_tile_count(j->n, j->items), add_tile, j);
    for (int t = 0; t < threads; t++)
        tn_exact_merge(sum, (const tn_exact *)(const void *)(j->slots + t * SLOT_BYTES));
}

void tn_exact_add(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n)
{
    add(cpu, sum, &(job){.add = by_isa[cpu->isa]->values, .x = x, .n = n});
}

void tn_exact_add_squares(const tn_cpu *cpu, tn_exact *sum, const float *x, int64_t n)
{
    add(cpu, sum, &(job){.add = by_isa[cpu->isa]->squares, .x = x, .n = n});
}
