/* gemm.c - runs a GEMM: packs, and has the threads compute tiles (contract in gemm.h, the plan in
 * gemm_plan.h, tiles in gemm_tile.h).
 *
 * The outputs form one grid of tiles: panels of A down, panels of B across; outputs that share A
 * lie side by side, outputs that share B below each other. One side is `own`: a thread packs a
 * block of its panels into a buffer that stays in its second-level cache, and multiplies it with
 * every panel of the other side. That is `shared`: packed once by all threads, or, if it is a B
 * whose rows are contiguous, not packed at all (a matrix of bf16 always is: packing widens it).
 * Either way it streams from the outer caches.
 *
 * NOTES
 * (1) Memory is bounded: what is packed and shared is cut into stretches of panels, and a long sum
 * into segments of the program. With more than one segment every tile keeps its levels between
 * them, so the grid is cut into rectangles whose levels fit. (2) A rectangle is finished (all
 * segments) before the next begins. Its phases are two parallel loops per segment: pack what is
 *     shared, then compute. No other synchronisation.
 * (3) Nothing here changes a bit: a tile's value is the program's, whoever computes it and wherever
 * the segments end.
 */
#include "kernels/cpu/gemm_plan.h"

#include <assert.h>

/* ---- packing ---- */

static const tn_gemm_src *operand(const tn_gemm_plan *p, int which, int seg, int src)
{
    return &p->g->src[p->g->n_out > 1 ? (p->side[which].n_seg > 1 ? seg : 0) : src];
}

/* A part of some panels in the making. */
typedef struct range {
    int which;
    int64_t panel, panel_end;
    int64_t begin, end; /* k as they stand in the panels */
    float *to;          /* the first panel */
} range;

static int64_t bytes_of(const tn_gemm_src *x, int which)
{
    return (which == TN_GEMM_A ? x->a_bf16 : x->b_bf16) ? 2 : 4;
}

/* Two bf16 that follow each other are a pair already: a word. */
static void as_pairs(tn_gemm_pack *job)
{
    job->bf16 = false;
    if (job->k_stride == 1) job->r_stride /= 2;
    else job->pairs = true;
}

/* Packs the pieces of source src. */
static void pack_pieces(const tn_gemm_plan *p, const tn_gemm_segment *s, const range *r, int src,
                        tn_gemm_pack *job)
{
    const tn_gemm_side *sd = &p->side[r->which];
    if (job->n_pieces == 0) return;
    for (int64_t i = r->panel, end; i < r->panel_end; i = end) {
        int seg = tn_gemm_plan_seg(sd, i);
        const tn_gemm_src *x = operand(p, r->which, seg, src);
        end = tn_gemm_min(tn_gemm_min(sd->first[seg + 1], r->panel_end), i + TN_GEMM_PANELS);
        job->dst = r->to + (i - r->panel) * s->k * sd->width;
        job->width = sd->width;
        job->panel_stride = s->k * sd->width;
        job->src = r->which == TN_GEMM_A ? x->a : x->b;
        job->bf16 = bytes_of(x, r->which) == 2;
        job->pairs = false;
        job->r_stride = r->which == TN_GEMM_A ? x->a_m : x->b_n;
        job->k_stride = r->which == TN_GEMM_A ? x->a_k : x->b_k;
        if (p->g->pairs) as_pairs(job);
        job->extent = sd->extent[seg];
        job->n_panels = (int)(end - i);
        for (int64_t j = i; j <= end; j++) job->row[j - i] = tn_gemm_plan_row(p, r->which, seg, j);
        p->isa->pack(job);
    }
    job->n_pieces = 0;
}

/* Leaves of a source that continue each other in the panels too are one piece. */
static void pack_range(const tn_gemm_plan *p, const tn_gemm_segment *s, const range *r)
{
    tn_gemm_pack job;
    for (int src = 0; src < p->g->n_src; src++) {
        int64_t at = 0;
        job.n_pieces = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const tn_order_ins *in = &s->ins[i];
            if (in->op != TN_ORDER_LEAF) continue;
            int64_t first = in->k0 + (i == 0 ? s->skip : 0),
                    n = (i == s->n - 1 ? in->k0 + s->stop : in->k1) - first;
            int64_t lo = tn_gemm_max(r->begin, at), hi = tn_gemm_min(r->end, at + n);
            tn_gemm_piece *last = job.n_pieces ? &job.piece[job.n_pieces - 1] : NULL;
            if (in->src == src && lo < hi) {
                if (last && last->at + last->len == lo) last->len += hi - lo;
                else job.piece[job.n_pieces++] = (tn_gemm_piece){first + lo - at, hi - lo, lo};
                if (job.n_pieces == TN_GEMM_PIECES) pack_pieces(p, s, r, src, &job);
            }
            at += n;
        }
        pack_pieces(p, s, r, src, &job);
    }
}

/* ---- what is fetched ahead ---- */

/* Rows of bytes that will be packed soon; a tile fetches `chunk` of them. */
typedef struct region {
    const char *at;
    int64_t bytes, stride, rows;
} region;

typedef struct stream {
    region region[TN_GEMM_MAX];
    int n, at;
    int64_t byte, chunk; /* within the row; of a tile */
} stream;

/* What packing these panels for a segment will read: one region per source and output. */
static void add_regions(const tn_gemm_plan *p, const tn_gemm_segment *s, const range *r, stream *to)
{
    const tn_gemm_side *sd = &p->side[r->which];
    for (int seg = 0; seg < sd->n_seg; seg++) {
        int64_t panel = tn_gemm_max(r->panel, sd->first[seg]),
                end = tn_gemm_min(r->panel_end, sd->first[seg + 1]);
        if (panel >= end) continue;
        int64_t row0 = tn_gemm_plan_row(p, r->which, seg, panel),
                row1 = tn_gemm_plan_row(p, r->which, seg, end);
        for (int src = 0; src < p->g->n_src; src++) {
            if (s->begin[src] == s->end[src]) continue;
            const tn_gemm_src *x = operand(p, r->which, seg, src);
            const int64_t one = bytes_of(x, r->which),
                          each = p->g->pairs ? 2 * one : one; /* row; k */
            int64_t stride = (r->which == TN_GEMM_A ? x->a_m : x->b_n) * one;
            if (stride == 2) continue; /* its rows are read k by k, and near */
            const char *at = (const char *)(r->which == TN_GEMM_A ? x->a : x->b) +
                             s->begin[src] * each + row0 * stride;
            int64_t bytes = (s->end[src] - s->begin[src]) * each, rows = row1 - row0;
            to->region[to->n++] = bytes == stride ? (region){at, bytes * rows, 0, 1}
                                                  : (region){at, bytes, stride, rows};
        }
    }
}

/* The next chunk, for a tile of k steps. */
static void take_chunk(stream *s, int64_t k, tn_gemm_tile *t)
{
    t->stream = (const char *)t->segment; /* something that is there anyway */
    if (s->at == s->n) return;
    region *r = &s->region[s->at];
    t->stream = r->at + s->byte;
    t->stream_step = tn_gemm_ceil_div(tn_gemm_min(s->chunk, r->bytes - s->byte), tn_gemm_max(k, 1));
    s->byte += s->chunk;
    if (s->byte < r->bytes) return;
    s->byte = 0;
    r->at += r->stride;
    if (--r->rows == 0) s->at++;
}

/* ---- the two phases of a segment ---- */

typedef struct phase {
    const tn_gemm_plan *p;
    const tn_gemm_segment *segment, *next; /* next: NULL after the last of the rectangle */
    int64_t own0, own1, shared0, shared1;  /* the rectangle */
    float *shared, *kept;
    char *own;                           /* buffers of the threads */
    int64_t pack_group, pack_k, pack_ks; /* panels, k of a packing tile; tiles along k */
    int64_t blocks;
    bool packing; /* own panels are packed by the first tile that uses them */
} phase;

static bool is_full(const tn_gemm_plan *p, int64_t b_panel)
{
    int seg = tn_gemm_plan_seg(&p->side[TN_GEMM_B], b_panel);
    return tn_gemm_plan_row(p, TN_GEMM_B, seg, b_panel + 1) -
               tn_gemm_plan_row(p, TN_GEMM_B, seg, b_panel) ==
           p->side[TN_GEMM_B].height;
}

/* Where a shared panel is packed; NULL: it is not. */
static float *shared_panel(const phase *f, int64_t panel)
{
    const tn_gemm_side *sd = &f->p->side[f->p->shared];
    if (f->p->direct && is_full(f->p, panel)) return NULL;
    int64_t slot = f->p->direct ? tn_gemm_plan_seg(sd, panel) : panel - f->shared0;
    return f->shared + slot * f->segment->k * sd->width;
}

static void pack_shared(void *arg, int64_t tile, int thread)
{
    const phase *f = arg;
    (void)thread;
    range r = {.which = f->p->shared};
    r.panel = f->shared0 + tile / f->pack_ks * f->pack_group;
    r.begin = tile % f->pack_ks * f->pack_k;
    r.panel_end = tn_gemm_min(r.panel + f->pack_group, f->shared1);
    r.end = tn_gemm_min(r.begin + f->pack_k, f->segment->k);
    r.to = shared_panel(f, r.panel);
    if (r.to) pack_range(f->p, f->segment, &r);
}

static int64_t block_begin(const phase *f, int64_t block)
{
    return f->own0 + block * (f->own1 - f->own0) / f->blocks;
}

/* What this thread will pack next: the block after the others' blocks. */
static void plan_stream(const phase *f, int64_t block, stream *to)
{
    const tn_gemm_plan *p = f->p;
    int64_t next = block + p->threads, bytes = 0;
    const tn_gemm_segment *s = f->segment;
    *to = (stream){.n = 0};
    if (next >= f->blocks) {
        next = next - f->blocks < f->blocks ? next - f->blocks : block;
        s = f->next;
    }
    if (!s || f->packing) return;
    range r = {
        .which = p->own, .panel = block_begin(f, next), .panel_end = block_begin(f, next + 1)};
    add_regions(p, s, &r, to);
    for (int i = 0; i < to->n; i++) bytes += to->region[i].bytes * to->region[i].rows;
    int64_t tiles = (block_begin(f, block + 1) - block_begin(f, block)) * (f->shared1 - f->shared0);
    to->chunk = tn_gemm_max(64, tn_gemm_ceil_div(bytes, tiles));
}

typedef struct place {
    const tn_gemm_out *out;
    int64_t row, col;
    int rows, cols;
} place;

static place place_of(const tn_gemm_plan *p, int64_t own, int64_t shared)
{
    int64_t pa = p->own == TN_GEMM_A ? own : shared, pb = p->own == TN_GEMM_A ? shared : own;
    int sa = tn_gemm_plan_seg(&p->side[TN_GEMM_A], pa),
        sb = tn_gemm_plan_seg(&p->side[TN_GEMM_B], pb);
    int64_t row = tn_gemm_plan_row(p, TN_GEMM_A, sa, pa),
            col = tn_gemm_plan_row(p, TN_GEMM_B, sb, pb);
    return (place){&p->g->out[sa > sb ? sa : sb], row, col,
                   (int)(tn_gemm_plan_row(p, TN_GEMM_A, sa, pa + 1) - row),
                   (int)(tn_gemm_plan_row(p, TN_GEMM_B, sb, pb + 1) - col)};
}

/* The next tile's result, or its levels. */
static void set_next(tn_gemm_tile *t, const phase *f, const place *next, const float *kept)
{
    const tn_gemm_out *o = next->out;
    const char *c = o->c ? o->c : (const void *)o->stack[0];
    if (f->segment->last || (f->segment->first && f->segment->depth_in)) {
        const int64_t each = o->c && o->c_bf16 ? 2 : 4;
        t->next_ld = (o->c ? o->ldc : o->n) * each;
        t->next = c + next->col * each + next->row * t->next_ld;
    } else {
        t->next_ld = f->p->isa->nr * (int64_t)sizeof(float);
        int level = f->segment->depth_in > 0 ? f->segment->depth_in - 1 : f->segment->depth_out - 1;
        t->next = (const char *)(kept + (size_t)level * tn_gemm_plan_tile_floats(f->p));
    }
    t->next_rows = next->rows;
}

/* One thread's block: its panels against all shared ones of the rectangle. */
typedef struct block {
    const phase *f;
    range r;
    float *levels;
    stream stream;
} block;

static float *kept_of(const block *b, int64_t own, int64_t shared)
{
    const phase *f = b->f;
    size_t tile = tn_gemm_plan_tile_floats(f->p) * (size_t)f->p->levels;
    return f->kept ? f->kept + (size_t)((own - f->own0) * (f->shared1 - f->shared0) + shared -
                                        f->shared0) *
                                   tile
                   : b->levels;
}

/* The panel is packed by its first tile if the rows of A are contiguous and a whole vector of them
 * is there. */
static void packs(const block *b, const place *at, int64_t own, int64_t shared, tn_gemm_tile *t)
{
    const tn_gemm_plan *p = b->f->p;
    const tn_gemm_side *a = &p->side[TN_GEMM_A];
    if (!b->f->packing || shared != b->f->shared0) return;
    int seg = tn_gemm_plan_seg(a, own);
    if (at->row + a->width <= a->extent[seg]) {
        t->a_src = operand(p, TN_GEMM_A, seg, 0);
    } else {
        range one = {TN_GEMM_A, own, own + 1, 0, b->f->segment->k, t->a};
        pack_range(p, b->f->segment, &one);
    }
}

static void compute(void *arg, int64_t tile, int thread)
{
    const phase *f = arg;
    const tn_gemm_plan *p = f->p;
    block b = {
        .f = f,
        .r = {p->own, block_begin(f, tile), block_begin(f, tile + 1), 0, f->segment->k, NULL}};
    int64_t panels = b.r.panel_end - b.r.panel, tiles = panels * (f->shared1 - f->shared0);
    size_t level_floats = tn_gemm_plan_tile_floats(p) * (size_t)p->levels;
    char *mine = f->own + (size_t)thread * p->own_bytes;
    b.r.to = (float *)(void *)mine;
    b.levels =
        (float *)(void *)(mine + p->own_bytes) - 2 * level_floats - tn_gemm_plan_tile_floats(p);
    if (!f->packing) pack_range(p, f->segment, &b.r);
    plan_stream(f, tile, &b.stream);
    int64_t own = b.r.panel, shared = f->shared0;
    place now = place_of(p, own, shared);
    for (int64_t i = 0; i < tiles; i++) {
        float *x = b.r.to + (own - b.r.panel) * f->segment->k * p->side[p->own].width,
              *y = shared_panel(f, shared);
        tn_gemm_tile t = {.segment = f->segment,
                          .out = now.out,
                          .row = now.row,
                          .col = now.col,
                          .rows = now.rows,
                          .cols = now.cols};
        t.a = p->own == TN_GEMM_A ? x : y;
        t.b = p->own == TN_GEMM_A ? y : x;
        t.b_src =
            operand(p, TN_GEMM_B,
                    tn_gemm_plan_seg(&p->side[TN_GEMM_B], p->own == TN_GEMM_A ? shared : own), 0);
        t.kept = kept_of(&b, own, shared);
        t.hot = b.levels + level_floats;
        t.edge = t.hot + level_floats;
        take_chunk(&b.stream, f->segment->k, &t);
        packs(&b, &now, own, shared, &t);
        if (i + 1 < tiles) {
            own = b.r.panel + (i + 1) % panels;
            shared = f->shared0 + (i + 1) / panels;
            now = place_of(p, own, shared);
            set_next(&t, f, &now, kept_of(&b, own, shared));
        }
        p->isa->tile(&t);
    }
}

static void run_rectangle(const tn_cpu *cpu, const tn_gemm_plan *p, phase *f)
{
    tn_gemm_cursor c = {0};
    tn_gemm_segment s[2];
    bool more = tn_gemm_segment_next(p->g->order, p->k_segment, &c, &s[0]);
    for (int i = 0; more; i = !i) {
        int64_t q = f->shared1 - f->shared0;
        more = tn_gemm_segment_next(p->g->order, p->k_segment, &c, &s[!i]);
        f->segment = &s[i];
        f->next = more ? &s[!i] : NULL;
        f->pack_group = p->direct ? 1 : 4;
        f->pack_k = 128;
        f->pack_ks = tn_gemm_ceil_div(f->segment->k, f->pack_k);
        f->blocks = tn_gemm_ceil_div(f->own1 - f->own0, p->own_block);
        f->packing = p->own == TN_GEMM_A && tn_gemm_plan_rows(p->g, TN_GEMM_A);
        tn_pool_run(cpu->pool, tn_gemm_ceil_div(q, f->pack_group) * f->pack_ks, pack_shared, f);
        tn_pool_run(cpu->pool, f->blocks, compute, f);
    }
}

static const tn_gemm_isa *tiles_of(const tn_gemm *g, tn_isa isa)
{
    if (g->pairs) return &tn_gemm_isa_pairs;
    switch (isa) {
#if defined TN_HAVE_AVX512
    case TN_ISA_AVX512:
        return &tn_gemm_isa_avx512;
#endif
#if defined TN_HAVE_AVX2
    case TN_ISA_AVX2:
        return &tn_gemm_isa_avx2;
#endif
    default:
        return &tn_gemm_isa_portable;
    }
}

void tn_gemm_run(const tn_cpu *cpu, const tn_gemm *g)
{
    tn_gemm_plan p;
    tn_gemm_plan_make(&p, g, tiles_of(g, cpu->isa), tn_pool_threads(cpu->pool));
    const tn_gemm_side *own = &p.side[p.own], *shared = &p.side[p.shared];
    if (p.side[TN_GEMM_A].panels == 0 || p.side[TN_GEMM_B].panels == 0 ||
        (g->order->n == 0 && g->order->depth_in == 0))
        return;
    assert(tn_gemm_plan_bytes(&p) <= cpu->scratch_bytes);
    char *mem = cpu->scratch;
    phase f = {
        .p = &p, .shared = (float *)(void *)mem, .own = mem + p.shared_bytes + p.level_bytes};
    if (p.level_bytes) f.kept = (float *)(void *)(mem + p.shared_bytes);
    for (f.own0 = 0; f.own0 < own->panels; f.own0 = f.own1) {
        f.own1 = tn_gemm_min(f.own0 + p.own_rect, own->panels);
        for (f.shared0 = 0; f.shared0 < shared->panels; f.shared0 = f.shared1) {
            f.shared1 = tn_gemm_min(f.shared0 + p.shared_rect, shared->panels);
            run_rectangle(cpu, &p, &f);
        }
    }
}

size_t tn_gemm_scratch(int n_threads, const tn_gemm *g)
{
    size_t most = 0;
    for (int i = 0; i < TN_N_ISA; i++) {
        tn_gemm_plan p;
        if (g->pairs ? !tn_isa_pairs((tn_isa)i) : !tn_isa_usable((tn_isa)i)) continue;
        tn_gemm_plan_make(&p, g, tiles_of(g, (tn_isa)i), n_threads);
        if (tn_gemm_plan_bytes(&p) > most) most = tn_gemm_plan_bytes(&p);
    }
    return most;
}
