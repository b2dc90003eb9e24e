/* gemm_plan.c - plans a GEMM: the grid of tiles, which side is packed by whom, how large the pieces
 * are (gemm_plan.h).
 */
#include "kernels/cpu/gemm_plan.h"

#ifdef TN_HOSTILE /* everything in pieces */
enum {
    SHARED_BYTES = 20000,
    LEVEL_BYTES = 15000,
    LEVEL_PART = 5000,
    OWN_BYTES = 3000,
    OWN_PANELS = 3,
    K_WHOLE = 24,
    K_SEGMENT = 9
};
#else
enum {
    SHARED_BYTES = 7 << 20, /* with one segment, or for levels where nothing shared is packed */
    LEVEL_BYTES = 6 << 20,  /* with several, beside LEVEL_PART for what is packed */
    LEVEL_PART = 2 << 20,
    OWN_BYTES = 400 << 10, /* of a second-level cache of 512 KiB to 2 MiB, beside the streams */
    OWN_PANELS = 8,
    K_WHOLE = 2048,
    K_SEGMENT = 512,
};
#endif

enum { ALIGN = 64 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t program_k(const tn_order_run *run)
{
    int64_t k = 0;
    for (int64_t i = 0; i < run->n; i++)
        if (run->ins[i].op == TN_ORDER_LEAF) k += run->ins[i].k1 - run->ins[i].k0;
    return k;
}

static bool outputs_share_a(const tn_gemm *g)
{
    for (int o = 1; o < g->n_out; o++)
        if (g->src[o].a != g->src[0].a || g->out[o].m != g->out[0].m) return false;
    return true;
}

/* Panels of A are as high as each other, give or take a row, and their number is one that the
 * threads can share evenly. */
static void count_panels(tn_gemm_side *s, int threads, bool even)
{
    for (int i = 0; i < s->n_seg; i++) {
        int64_t n = tn_gemm_ceil_div(s->extent[i], s->height);
        if (even && n >= 4 * threads) n = tn_gemm_ceil_div(n, threads) * threads;
        s->first[i + 1] = s->first[i] + n;
    }
    s->panels = s->first[s->n_seg];
}

static void set_sides(tn_gemm_plan *p)
{
    const tn_gemm *g = p->g;
    bool share_a = outputs_share_a(g);
    tn_gemm_side *a = &p->side[TN_GEMM_A], *b = &p->side[TN_GEMM_B];
    *a = (tn_gemm_side){
        .n_seg = share_a ? 1 : g->n_out, .height = p->isa->mr, .width = p->isa->a_width};
    *b = (tn_gemm_side){.n_seg = share_a ? g->n_out : 1, .height = p->isa->nr, .width = p->isa->nr};
    for (int i = 0; i < a->n_seg; i++) a->extent[i] = g->out[i].m;
    for (int i = 0; i < b->n_seg; i++) b->extent[i] = g->out[i].n;
    count_panels(a, p->threads, true);
    count_panels(b, p->threads, false);
}

static int64_t panel_bytes(const tn_gemm_plan *p, int which, int64_t k)
{
    return tn_gemm_max(k, 1) * p->side[which].width * (int64_t)sizeof(float);
}

static bool unit_rows(const tn_gemm *g, int which)
{
    int n = g->n_out > g->n_src ? g->n_out : g->n_src;
    for (int i = 0; i < n; i++)
        if ((which == TN_GEMM_A ? g->src[i].a_m : g->src[i].b_n) != 1) return false;
    return true;
}

bool tn_gemm_plan_rows(const tn_gemm *g, int which)
{
    int n = g->n_out > g->n_src ? g->n_out : g->n_src;
    for (int i = 0; i < n; i++)
        if (which == TN_GEMM_A ? g->src[i].a_bf16 : g->src[i].b_bf16) return false;
    return unit_rows(g, which);
}

/* Rows of B a multiple of 2 KiB apart fall into so few sets of the first-level cache that what is
 * fetched ahead pushes itself out. */
static bool aliased_rows(const tn_gemm *g)
{
    int n = g->n_out > g->n_src ? g->n_out : g->n_src;
    for (int i = 0; i < n; i++)
        if (g->src[i].b_k % 512 == 0) return true;
    return false;
}

static int64_t packed_panels(const tn_gemm_plan *p, int64_t shared_panels)
{
    return p->direct ? p->side[TN_GEMM_B].n_seg : shared_panels;
}

/* Floats packed in all if `shared` is the shared side. Sets the rectangle. */
static double packed_floats(tn_gemm_plan *p, int shared)
{
    int own = !shared;
    int64_t q = p->side[shared].panels, n = p->side[own].panels;
    int64_t shared_most = p->whole ? SHARED_BYTES : LEVEL_PART;
    int64_t tile_bytes = p->levels * (int64_t)(tn_gemm_plan_tile_floats(p) * sizeof(float));
    p->own = own;
    p->shared = shared;
    p->direct = shared == TN_GEMM_B && p->g->n_src == 1 && tn_gemm_plan_rows(p->g, TN_GEMM_B) &&
                !aliased_rows(p->g);
    p->shared_rect =
        p->direct
            ? q
            : tn_gemm_ceil_div(
                  q, tn_gemm_ceil_div(
                         q, tn_gemm_max(1, shared_most / panel_bytes(p, shared, p->k_segment))));
    p->own_rect = n;
    if (!p->whole) {
        int64_t tiles = (p->direct ? SHARED_BYTES : LEVEL_BYTES) / tile_bytes;
        p->shared_rect =
            tn_gemm_min(p->shared_rect, tn_gemm_max(1, tiles / tn_gemm_min(n, p->threads)));
        p->own_rect =
            tn_gemm_ceil_div(n, tn_gemm_ceil_div(n, tn_gemm_max(1, tiles / p->shared_rect)));
    }
    double of_own = (double)n * p->side[own].width,
           of_shared = p->direct ? 0 : (double)q * p->side[shared].width;
    return of_own * (double)tn_gemm_ceil_div(q, p->shared_rect) +
           of_shared * (p->whole ? 1 : (double)tn_gemm_ceil_div(n, p->own_rect));
}

void tn_gemm_plan_make(tn_gemm_plan *p, const tn_gemm *g, const tn_gemm_isa *isa, int threads)
{
    *p = (tn_gemm_plan){.g = g, .isa = isa, .threads = threads};
    set_sides(p);
    int64_t k = program_k(g->order);
    p->whole = k <= (unit_rows(g, TN_GEMM_A) ? K_WHOLE : 2 * K_WHOLE);
    p->k_segment = p->whole ? k : K_SEGMENT;
    p->levels = tn_gemm_segment_levels(g->order, p->k_segment);
    if (p->side[TN_GEMM_A].panels == 0 || p->side[TN_GEMM_B].panels == 0) return;
    if (packed_floats(p, TN_GEMM_A) >= packed_floats(p, TN_GEMM_B)) (void)0;
    else packed_floats(p, TN_GEMM_A);
    int64_t most =
        tn_gemm_min(OWN_PANELS, tn_gemm_max(1, OWN_BYTES / panel_bytes(p, p->own, p->k_segment)));
    int64_t blocks = tn_gemm_ceil_div(p->own_rect, most);
    if (p->own_rect >= threads) blocks = tn_gemm_ceil_div(blocks, threads) * threads;
    p->own_block = tn_gemm_ceil_div(p->own_rect, blocks);
    size_t tile_bytes = tn_gemm_plan_tile_floats(p) * sizeof(float) * (size_t)p->levels;
    p->shared_bytes = aligned(
        (size_t)(packed_panels(p, p->shared_rect) * panel_bytes(p, p->shared, p->k_segment)));
    p->level_bytes = p->whole ? 0 : aligned((size_t)(p->own_rect * p->shared_rect) * tile_bytes);
    p->own_bytes = aligned((size_t)(p->own_block * panel_bytes(p, p->own, p->k_segment))) +
                   aligned(2 * tile_bytes + tn_gemm_plan_tile_floats(p) * sizeof(float));
}

int tn_gemm_plan_seg(const tn_gemm_side *s, int64_t panel)
{
    int i = 0;
    while (panel >= s->first[i + 1]) i++;
    return i;
}

int64_t tn_gemm_plan_row(const tn_gemm_plan *p, int which, int seg, int64_t panel)
{
    const tn_gemm_side *s = &p->side[which];
    int64_t i = panel - s->first[seg], n = s->first[seg + 1] - s->first[seg];
    return which == TN_GEMM_A ? i * s->extent[seg] / n : tn_gemm_min(i * s->height, s->extent[seg]);
}
