/* dispatch.h - what the dispatcher files x.c of the CPU kernels share: picking the instruction
 * set's table, cutting work.
 *
 * x_isa.c exports one table of functions per instruction set (tn_x_fns_portable, ...); x.c lists
 * them with TN_BY_ISA and indexes by tn_cpu.isa. A set that the build lacks falls back to portable:
 * it is never chosen (tn_isa_usable).
 *
 * How work is cut into tiles never changes a bit: tiles are whole rows, or whole columns of a sum.
 */
#ifndef TN_KERNELS_CPU_DISPATCH_H
#define TN_KERNELS_CPU_DISPATCH_H
#include "kernels/cpu/isa.h"

#ifdef TN_HAVE_AVX2
#define TN_ONLY_AVX2(x) x##_avx2
#else
#define TN_ONLY_AVX2(x) x##_portable
#endif
#ifdef TN_HAVE_AVX512
#define TN_ONLY_AVX512(x) x##_avx512
#else
#define TN_ONLY_AVX512(x) x##_portable
#endif

/* Declares the tables of a subject, and lists them in the order of tn_isa. */
#define TN_ISA_TABLES(type, x) extern const type x##_portable, x##_avx2, x##_avx512
#define TN_BY_ISA(x)                                                                               \
    {                                                                                              \
        &x##_portable, &TN_ONLY_AVX2(x), &TN_ONLY_AVX512(x)                                        \
    }

/* Bytes that a tile should move at least (below, handing it over costs more than it saves) and at
 * most. */
enum { TN_TILE_MIN_BYTES = 32 << 10, TN_TILE_MAX_BYTES = 512 << 10, TN_TILES_PER_THREAD = 8 };

/* How many of n items of `bytes` each make one tile. */
static inline int64_t tn_tile_items(const tn_cpu *cpu, int64_t n, int64_t bytes)
{
    int64_t threads = tn_pool_threads(cpu->pool);
    if (threads == 1) return n > 0 ? n : 1;
    int64_t least = (TN_TILE_MIN_BYTES + bytes - 1) / bytes, most = TN_TILE_MAX_BYTES / bytes;
    int64_t items = (n + threads * TN_TILES_PER_THREAD - 1) / (threads * TN_TILES_PER_THREAD);
    if (items > most) items = most;
    if (items < least) items = least;
    return items;
}

static inline int64_t tn_tile_count(int64_t n, int64_t items)
{
    return (n + items - 1) / items;
}

static inline int64_t tn_tile_end(int64_t n, int64_t items, int64_t tile)
{
    return (tile + 1) * items < n ? (tile + 1) * items : n;
}

#endif
