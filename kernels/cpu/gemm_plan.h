/* gemm_plan.h - between gemm_segment.c (cuts a sum into stretches), gemm_plan.c (what is packed
 * when, how large the pieces are) and gemm.c (packs and computes).
 */
#ifndef TN_KERNELS_CPU_GEMM_PLAN_H
#define TN_KERNELS_CPU_GEMM_PLAN_H
#include "kernels/cpu/gemm_tile.h"

TN_C_BEGIN

static inline int64_t tn_gemm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t tn_gemm_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t tn_gemm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* ---- segments ---- */

/* Where the walk through the program stands. */
typedef struct tn_gemm_cursor {
    int64_t at, done; /* instruction, and k done of it */
    int depth;
    bool open, begun;
} tn_gemm_cursor;

/* The next stretch of at most k_most k. It ends before a leaf: after the last one that fits, or
 * inside the leaf when that would leave more than half of it empty. False at the end of the run. */
bool tn_gemm_segment_next(const tn_order_run *run, int64_t k_most, tn_gemm_cursor *c,
                          tn_gemm_segment *s);

/* Levels that lie in memory while the run goes through its segments. */
int tn_gemm_segment_levels(const tn_order_run *run, int64_t k_most);

/* ---- the plan ---- */

enum { TN_GEMM_A, TN_GEMM_B };

/* One side of the grid: panels of output o are first[o] .. first[o + 1]. */
typedef struct tn_gemm_side {
    int n_seg;
    int64_t extent[TN_GEMM_MAX], first[TN_GEMM_MAX + 1];
    int64_t panels;
    int height, width; /* most rows of a panel; floats per k */
} tn_gemm_side;

typedef struct tn_gemm_plan {
    const tn_gemm *g;
    const tn_gemm_isa *isa;
    int threads, own, shared; /* the two sides */
    tn_gemm_side side[2];
    int64_t k_segment; /* longest segment */
    int levels;        /* that a tile keeps between segments, or needs while it runs */
    bool whole;        /* one segment */
    bool direct; /* B is shared and not packed, save the last panel of an output that is not full */
    int64_t own_block, own_rect, shared_rect;    /* panels: of a thread's block, of a rectangle */
    size_t shared_bytes, level_bytes, own_bytes; /* own: per thread, with the levels of one tile */
} tn_gemm_plan;

void tn_gemm_plan_make(tn_gemm_plan *p, const tn_gemm *g, const tn_gemm_isa *isa, int threads);

/* Bytes of scratch that it needs. */
static inline size_t tn_gemm_plan_bytes(const tn_gemm_plan *p)
{
    return p->shared_bytes + p->level_bytes + p->own_bytes * (size_t)p->threads;
}

static inline size_t tn_gemm_plan_tile_floats(const tn_gemm_plan *p)
{
    return (size_t)p->isa->mr * (size_t)p->isa->nr;
}

/* Are the rows of this side contiguous, and fp32, in all operands? Then they can be read where they
 * are. */
bool tn_gemm_plan_rows(const tn_gemm *g, int which);

/* The output (of this side) of a panel. */
int tn_gemm_plan_seg(const tn_gemm_side *s, int64_t panel);

/* First row of a panel within its output; panel + 1 gives its end. */
int64_t tn_gemm_plan_row(const tn_gemm_plan *p, int which, int seg, int64_t panel);

TN_C_END
#endif
