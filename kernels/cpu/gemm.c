/* gemm.c - plans a GEMM: what is packed when, and which thread computes which tiles (contract in gemm.h, tiles in gemm_tile.h).
 *
 * The outputs form one grid of tiles: panels of A down, panels of B across; outputs that share A lie side by side, outputs that
 * share B below each other. One side is `own`: a thread packs a block of its panels into a buffer that stays in its second-level
 * cache, and multiplies it with every panel of the other side. That is `shared`: packed once by all threads, or, if it is a B
 * whose rows are contiguous, not packed at all. Either way it streams from the outer caches.
 *
 * NOTES
 * (1) Memory is bounded: what is packed and shared is cut into stretches of panels, and a long sum into segments of the program.
 *     With more than one segment every tile keeps its levels between them, so the grid is cut into rectangles whose levels fit.
 * (2) A rectangle is finished (all segments) before the next begins. Its phases are two parallel loops per segment: pack what is
 *     shared, then compute. No other synchronisation.
 * (3) Nothing here changes a bit: a tile's value is the program's, whoever computes it and wherever the segments end.
 */
#include "kernels/cpu/gemm_tile.h"

#include <assert.h>

#ifdef TN_HOSTILE /* everything in pieces */
enum { SHARED_BYTES = 20000, LEVEL_BYTES = 15000, LEVEL_PART = 5000, OWN_BYTES = 3000, OWN_PANELS = 3, K_WHOLE = 24, K_SEGMENT = 9 };
#else
enum {
    SHARED_BYTES = 7 << 20, /* with one segment, or for levels where nothing shared is packed */
    LEVEL_BYTES = 6 << 20,  /* with several, beside LEVEL_PART for what is packed */
    LEVEL_PART = 2 << 20,
    OWN_BYTES = 400 << 10,  /* of a second-level cache of 512 KiB to 2 MiB, beside the streams */
    OWN_PANELS = 8,
    K_WHOLE = 2048,
    K_SEGMENT = 512,
};
#endif

enum { ALIGN = 64 };
enum { A_SIDE, B_SIDE };

/* One side of the grid: panels of output o are first[o] .. first[o + 1]. */
typedef struct side {
    int n_seg;
    int64_t extent[TN_GEMM_MAX], first[TN_GEMM_MAX + 1];
    int64_t panels;
    int height, width; /* most rows of a panel; floats per k */
} side;

typedef struct plan {
    const tn_gemm *g;
    const tn_gemm_isa *isa;
    int threads, own, shared; /* the two sides */
    side side[2];
    int64_t k_segment; /* longest segment */
    int levels;        /* that a tile keeps between segments, or needs while it runs */
    bool whole;        /* one segment */
    bool direct;       /* B is shared and not packed, save the last panel of an output that is not full */
    int64_t own_block, own_rect, shared_rect; /* panels: of a thread's block, of a rectangle */
    size_t shared_bytes, level_bytes, own_bytes; /* own: per thread, with the levels of one tile */
} plan;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* ---- segments ---- */

typedef struct cursor {
    int64_t at, done; /* instruction, and k done of it */
    int depth;
    bool open, begun;
} cursor;

/* Which k of each source the segment covers. */
static void find_sources(tn_gemm_segment *s)
{
    for (int64_t i = 0; i < s->n; i++) {
        const tn_order_ins *in = &s->ins[i];
        int64_t k0 = in->k0 + (i == 0 ? s->skip : 0), k1 = i == s->n - 1 ? in->k0 + s->stop : in->k1;
        if (in->op != TN_ORDER_LEAF || k0 == k1) continue;
        assert(in->src < TN_GEMM_MAX && (s->begin[in->src] == s->end[in->src] || s->end[in->src] == k0));
        if (s->begin[in->src] == s->end[in->src]) s->begin[in->src] = k0;
        s->end[in->src] = k1;
    }
}

/* The next stretch of at most k_most k. It ends before a leaf: after the last one that fits, or inside the leaf when that would
 * leave more than half of it empty. False at the end of the run. */
static bool next_segment(const tn_order_run *run, int64_t k_most, cursor *c, tn_gemm_segment *s)
{
    if (c->begun && c->at == run->n) return false;
    *s = (tn_gemm_segment){.ins = run->ins + c->at, .skip = c->done, .open = c->open, .first = !c->begun};
    s->depth_in = c->begun ? c->depth : run->depth_in;
    c->begun = true;
    s->resume = c->open || run->n == 0 || s->ins[0].op == TN_ORDER_ADD;
    c->depth = s->depth_in;
    bool full = false;
    while (c->at < run->n && !full) {
        const tn_order_ins *in = &run->ins[c->at];
        if (in->op == TN_ORDER_ADD) {
            c->depth--;
        } else {
            int64_t rest = in->k1 - in->k0 - c->done;
            if (s->k + rest > k_most && s->k >= k_most / 2 && s->k > 0) break;
            if (!c->open) c->depth++;
            full = s->k + rest > k_most;
            if (full) rest = k_most - s->k;
            s->k += rest;
            s->stop = c->done + rest;
            c->done = full ? s->stop : 0;
            c->open = full || in->more;
        }
        s->n++;
        if (!full) c->at++;
    }
    s->depth_out = c->depth;
    s->last = c->at == run->n;
    find_sources(s);
    return true;
}

/* Levels that lie in memory while the run goes through its segments. */
static int count_levels(const tn_order_run *run, int64_t k_most)
{
    cursor c = {0};
    tn_gemm_segment s;
    int most = run->depth_in > run->depth_out ? run->depth_in : run->depth_out;
    while (next_segment(run, k_most, &c, &s)) {
        int depth = s.depth_in;
        bool open = s.open;
        if (depth > most) most = depth;
        for (int64_t i = 0; i < s.n; i++) {
            if (s.ins[i].op == TN_ORDER_ADD) {
                depth--;
            } else {
                if (!open) depth++;
                open = s.ins[i].more;
            }
            if (depth - 1 > most) most = depth - 1; /* the top level is in registers */
        }
    }
    return most > 1 ? most : 1;
}

/* ---- the plan ---- */

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

/* Panels of A are as high as each other, give or take a row, and their number is one that the threads can share evenly. */
static void count_panels(side *s, int threads, bool even)
{
    for (int i = 0; i < s->n_seg; i++) {
        int64_t n = ceil_div(s->extent[i], s->height);
        if (even && n >= 4 * threads) n = ceil_div(n, threads) * threads;
        s->first[i + 1] = s->first[i] + n;
    }
    s->panels = s->first[s->n_seg];
}

static void set_sides(plan *p)
{
    const tn_gemm *g = p->g;
    bool share_a = outputs_share_a(g);
    side *a = &p->side[A_SIDE], *b = &p->side[B_SIDE];
    *a = (side){.n_seg = share_a ? 1 : g->n_out, .height = p->isa->mr, .width = p->isa->a_width};
    *b = (side){.n_seg = share_a ? g->n_out : 1, .height = p->isa->nr, .width = p->isa->nr};
    for (int i = 0; i < a->n_seg; i++) a->extent[i] = g->out[i].m;
    for (int i = 0; i < b->n_seg; i++) b->extent[i] = g->out[i].n;
    count_panels(a, p->threads, true);
    count_panels(b, p->threads, false);
}

static size_t tile_floats(const plan *p)
{
    return (size_t)p->isa->mr * (size_t)p->isa->nr;
}

static int64_t panel_bytes(const plan *p, int which, int64_t k)
{
    return max64(k, 1) * p->side[which].width * (int64_t)sizeof(float);
}

/* Are the rows of this side contiguous in all operands? */
static bool contiguous_rows(const tn_gemm *g, int which)
{
    int n = g->n_out > g->n_src ? g->n_out : g->n_src;
    for (int i = 0; i < n; i++)
        if ((which == A_SIDE ? g->src[i].a_m : g->src[i].b_n) != 1) return false;
    return true;
}

/* Rows of B a multiple of 2 KiB apart fall into so few sets of the first-level cache that what is fetched ahead pushes itself out. */
static bool aliased_rows(const tn_gemm *g)
{
    int n = g->n_out > g->n_src ? g->n_out : g->n_src;
    for (int i = 0; i < n; i++)
        if (g->src[i].b_k % 512 == 0) return true;
    return false;
}

static int64_t packed_panels(const plan *p, int64_t shared_panels)
{
    return p->direct ? p->side[B_SIDE].n_seg : shared_panels;
}

/* Floats packed in all if `shared` is the shared side. Sets the rectangle. */
static double packed_floats(plan *p, int shared)
{
    int own = !shared;
    int64_t q = p->side[shared].panels, n = p->side[own].panels;
    int64_t shared_most = p->whole ? SHARED_BYTES : LEVEL_PART;
    int64_t tile_bytes = p->levels * (int64_t)(tile_floats(p) * sizeof(float));
    p->own = own;
    p->shared = shared;
    p->direct = shared == B_SIDE && p->g->n_src == 1 && contiguous_rows(p->g, B_SIDE) && !aliased_rows(p->g);
    p->shared_rect = p->direct ? q : ceil_div(q, ceil_div(q, max64(1, shared_most / panel_bytes(p, shared, p->k_segment))));
    p->own_rect = n;
    if (!p->whole) {
        int64_t tiles = (p->direct ? SHARED_BYTES : LEVEL_BYTES) / tile_bytes;
        p->shared_rect = min64(p->shared_rect, max64(1, tiles / min64(n, p->threads)));
        p->own_rect = ceil_div(n, ceil_div(n, max64(1, tiles / p->shared_rect)));
    }
    double of_own = (double)n * p->side[own].width, of_shared = p->direct ? 0 : (double)q * p->side[shared].width;
    return of_own * (double)ceil_div(q, p->shared_rect) + of_shared * (p->whole ? 1 : (double)ceil_div(n, p->own_rect));
}

static void make_plan(plan *p, const tn_gemm *g, const tn_gemm_isa *isa, int threads)
{
    *p = (plan){.g = g, .isa = isa, .threads = threads};
    set_sides(p);
    int64_t k = program_k(g->order);
    p->whole = k <= (contiguous_rows(g, A_SIDE) ? K_WHOLE : 2 * K_WHOLE);
    p->k_segment = p->whole ? k : K_SEGMENT;
    p->levels = count_levels(g->order, p->k_segment);
    if (p->side[A_SIDE].panels == 0 || p->side[B_SIDE].panels == 0) return;
    if (packed_floats(p, A_SIDE) >= packed_floats(p, B_SIDE))
        (void)0;
    else
        packed_floats(p, A_SIDE);
    int64_t most = min64(OWN_PANELS, max64(1, OWN_BYTES / panel_bytes(p, p->own, p->k_segment)));
    int64_t blocks = ceil_div(p->own_rect, most);
    if (p->own_rect >= threads) blocks = ceil_div(blocks, threads) * threads;
    p->own_block = ceil_div(p->own_rect, blocks);
    size_t tile_bytes = tile_floats(p) * sizeof(float) * (size_t)p->levels;
    p->shared_bytes = aligned((size_t)(packed_panels(p, p->shared_rect) * panel_bytes(p, p->shared, p->k_segment)));
    p->level_bytes = p->whole ? 0 : aligned((size_t)(p->own_rect * p->shared_rect) * tile_bytes);
    p->own_bytes = aligned((size_t)(p->own_block * panel_bytes(p, p->own, p->k_segment))) + aligned(2 * tile_bytes + tile_floats(p) * sizeof(float));
}

/* ---- packing ---- */

static int panel_seg(const side *s, int64_t panel)
{
    int i = 0;
    while (panel >= s->first[i + 1]) i++;
    return i;
}

/* First row of a panel within its output; panel + 1 gives its end. */
static int64_t panel_row(const plan *p, int which, int seg, int64_t panel)
{
    const side *s = &p->side[which];
    int64_t i = panel - s->first[seg], n = s->first[seg + 1] - s->first[seg];
    return which == A_SIDE ? i * s->extent[seg] / n : min64(i * s->height, s->extent[seg]);
}

static const tn_gemm_src *operand(const plan *p, int which, int seg, int src)
{
    return &p->g->src[p->g->n_out > 1 ? (p->side[which].n_seg > 1 ? seg : 0) : src];
}

/* A part of some panels in the making. */
typedef struct range {
    int which;
    int64_t panel, panel_end;
    int64_t begin, end;       /* k as they stand in the panels */
    float *to;                /* the first panel */
} range;

/* Packs the pieces of source src. */
static void pack_pieces(const plan *p, const tn_gemm_segment *s, const range *r, int src, tn_gemm_pack *job)
{
    const side *sd = &p->side[r->which];
    if (job->n_pieces == 0) return;
    for (int64_t i = r->panel, end; i < r->panel_end; i = end) {
        int seg = panel_seg(sd, i);
        const tn_gemm_src *x = operand(p, r->which, seg, src);
        end = min64(min64(sd->first[seg + 1], r->panel_end), i + TN_GEMM_PANELS);
        job->dst = r->to + (i - r->panel) * s->k * sd->width;
        job->width = sd->width;
        job->panel_stride = s->k * sd->width;
        job->src = r->which == A_SIDE ? x->a : x->b;
        job->r_stride = r->which == A_SIDE ? x->a_m : x->b_n;
        job->k_stride = r->which == A_SIDE ? x->a_k : x->b_k;
        job->extent = sd->extent[seg];
        job->n_panels = (int)(end - i);
        for (int64_t j = i; j <= end; j++) job->row[j - i] = panel_row(p, r->which, seg, j);
        p->isa->pack(job);
    }
    job->n_pieces = 0;
}

/* Leaves of a source that continue each other in the panels too are one piece. */
static void pack_range(const plan *p, const tn_gemm_segment *s, const range *r)
{
    tn_gemm_pack job;
    for (int src = 0; src < p->g->n_src; src++) {
        int64_t at = 0;
        job.n_pieces = 0;
        for (int64_t i = 0; i < s->n; i++) {
            const tn_order_ins *in = &s->ins[i];
            if (in->op != TN_ORDER_LEAF) continue;
            int64_t first = in->k0 + (i == 0 ? s->skip : 0), n = (i == s->n - 1 ? in->k0 + s->stop : in->k1) - first;
            int64_t lo = max64(r->begin, at), hi = min64(r->end, at + n);
            tn_gemm_piece *last = job.n_pieces ? &job.piece[job.n_pieces - 1] : NULL;
            if (in->src == src && lo < hi) {
                if (last && last->at + last->len == lo)
                    last->len += hi - lo;
                else
                    job.piece[job.n_pieces++] = (tn_gemm_piece){first + lo - at, hi - lo, lo};
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
static void add_regions(const plan *p, const tn_gemm_segment *s, const range *r, stream *to)
{
    const side *sd = &p->side[r->which];
    for (int seg = 0; seg < sd->n_seg; seg++) {
        int64_t panel = max64(r->panel, sd->first[seg]), end = min64(r->panel_end, sd->first[seg + 1]);
        if (panel >= end) continue;
        int64_t row0 = panel_row(p, r->which, seg, panel), row1 = panel_row(p, r->which, seg, end);
        for (int src = 0; src < p->g->n_src; src++) {
            if (s->begin[src] == s->end[src]) continue;
            const tn_gemm_src *x = operand(p, r->which, seg, src);
            int64_t stride = (r->which == A_SIDE ? x->a_m : x->b_n) * (int64_t)sizeof(float);
            const char *at = (const char *)((r->which == A_SIDE ? x->a : x->b) + s->begin[src]) + row0 * stride;
            int64_t bytes = (s->end[src] - s->begin[src]) * (int64_t)sizeof(float), rows = row1 - row0;
            to->region[to->n++] = bytes == stride ? (region){at, bytes * rows, 0, 1} : (region){at, bytes, stride, rows};
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
    t->stream_step = ceil_div(min64(s->chunk, r->bytes - s->byte), max64(k, 1));
    s->byte += s->chunk;
    if (s->byte < r->bytes) return;
    s->byte = 0;
    r->at += r->stride;
    if (--r->rows == 0) s->at++;
}

/* ---- the two phases of a segment ---- */

typedef struct phase {
    const plan *p;
    const tn_gemm_segment *segment, *next; /* next: NULL after the last of the rectangle */
    int64_t own0, own1, shared0, shared1; /* the rectangle */
    float *shared, *kept;
    char *own; /* buffers of the threads */
    int64_t pack_group, pack_k, pack_ks; /* panels, k of a packing tile; tiles along k */
    int64_t blocks;
    bool packing; /* own panels are packed by the first tile that uses them */
} phase;

static bool is_full(const plan *p, int64_t b_panel)
{
    int seg = panel_seg(&p->side[B_SIDE], b_panel);
    return panel_row(p, B_SIDE, seg, b_panel + 1) - panel_row(p, B_SIDE, seg, b_panel) == p->side[B_SIDE].height;
}

/* Where a shared panel is packed; NULL: it is not. */
static float *shared_panel(const phase *f, int64_t panel)
{
    const side *sd = &f->p->side[f->p->shared];
    if (f->p->direct && is_full(f->p, panel)) return NULL;
    int64_t slot = f->p->direct ? panel_seg(sd, panel) : panel - f->shared0;
    return f->shared + slot * f->segment->k * sd->width;
}

static void pack_shared(void *arg, int64_t tile, int thread)
{
    const phase *f = arg;
    (void)thread;
    range r = {.which = f->p->shared};
    r.panel = f->shared0 + tile / f->pack_ks * f->pack_group;
    r.begin = tile % f->pack_ks * f->pack_k;
    r.panel_end = min64(r.panel + f->pack_group, f->shared1);
    r.end = min64(r.begin + f->pack_k, f->segment->k);
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
    const plan *p = f->p;
    int64_t next = block + p->threads, bytes = 0;
    const tn_gemm_segment *s = f->segment;
    *to = (stream){.n = 0};
    if (next >= f->blocks) {
        next = next - f->blocks < f->blocks ? next - f->blocks : block;
        s = f->next;
    }
    if (!s || f->packing) return;
    range r = {.which = p->own, .panel = block_begin(f, next), .panel_end = block_begin(f, next + 1)};
    add_regions(p, s, &r, to);
    for (int i = 0; i < to->n; i++) bytes += to->region[i].bytes * to->region[i].rows;
    int64_t tiles = (block_begin(f, block + 1) - block_begin(f, block)) * (f->shared1 - f->shared0);
    to->chunk = max64(64, ceil_div(bytes, tiles));
}

typedef struct place {
    const tn_gemm_out *out;
    int64_t row, col;
    int rows, cols;
} place;

static place place_of(const plan *p, int64_t own, int64_t shared)
{
    int64_t pa = p->own == A_SIDE ? own : shared, pb = p->own == A_SIDE ? shared : own;
    int sa = panel_seg(&p->side[A_SIDE], pa), sb = panel_seg(&p->side[B_SIDE], pb);
    int64_t row = panel_row(p, A_SIDE, sa, pa), col = panel_row(p, B_SIDE, sb, pb);
    return (place){&p->g->out[sa > sb ? sa : sb], row, col, (int)(panel_row(p, A_SIDE, sa, pa + 1) - row),
                   (int)(panel_row(p, B_SIDE, sb, pb + 1) - col)};
}

/* The next tile's result, or its levels. */
static void set_next(tn_gemm_tile *t, const phase *f, const place *next, const float *kept)
{
    const tn_gemm_out *o = next->out;
    const float *c = o->c ? o->c : o->stack[0];
    if (f->segment->last || (f->segment->first && f->segment->depth_in)) {
        t->next_ld = (o->c ? o->ldc : o->n) * (int64_t)sizeof(float);
        t->next = (const char *)(c + next->col) + next->row * t->next_ld;
    } else {
        t->next_ld = f->p->isa->nr * (int64_t)sizeof(float);
        int level = f->segment->depth_in > 0 ? f->segment->depth_in - 1 : f->segment->depth_out - 1;
        t->next = (const char *)(kept + (size_t)level * tile_floats(f->p));
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
    size_t tile = tile_floats(f->p) * (size_t)f->p->levels;
    return f->kept ? f->kept + (size_t)((own - f->own0) * (f->shared1 - f->shared0) + shared - f->shared0) * tile : b->levels;
}

/* The panel is packed by its first tile if the rows of A are contiguous and a whole vector of them is there. */
static void packs(const block *b, const place *at, int64_t own, int64_t shared, tn_gemm_tile *t)
{
    const plan *p = b->f->p;
    const side *a = &p->side[A_SIDE];
    if (!b->f->packing || shared != b->f->shared0) return;
    int seg = panel_seg(a, own);
    if (at->row + a->width <= a->extent[seg]) {
        t->a_src = operand(p, A_SIDE, seg, 0);
    } else {
        range one = {A_SIDE, own, own + 1, 0, b->f->segment->k, t->a};
        pack_range(p, b->f->segment, &one);
    }
}

static void compute(void *arg, int64_t tile, int thread)
{
    const phase *f = arg;
    const plan *p = f->p;
    block b = {.f = f, .r = {p->own, block_begin(f, tile), block_begin(f, tile + 1), 0, f->segment->k, NULL}};
    int64_t panels = b.r.panel_end - b.r.panel, tiles = panels * (f->shared1 - f->shared0);
    size_t level_floats = tile_floats(p) * (size_t)p->levels;
    char *mine = f->own + (size_t)thread * p->own_bytes;
    b.r.to = (float *)(void *)mine;
    b.levels = (float *)(void *)(mine + p->own_bytes) - 2 * level_floats - tile_floats(p);
    if (!f->packing) pack_range(p, f->segment, &b.r);
    plan_stream(f, tile, &b.stream);
    int64_t own = b.r.panel, shared = f->shared0;
    place now = place_of(p, own, shared);
    for (int64_t i = 0; i < tiles; i++) {
        float *x = b.r.to + (own - b.r.panel) * f->segment->k * p->side[p->own].width, *y = shared_panel(f, shared);
        tn_gemm_tile t = {.segment = f->segment, .out = now.out, .row = now.row, .col = now.col, .rows = now.rows, .cols = now.cols};
        t.a = p->own == A_SIDE ? x : y;
        t.b = p->own == A_SIDE ? y : x;
        t.b_src = operand(p, B_SIDE, panel_seg(&p->side[B_SIDE], p->own == A_SIDE ? shared : own), 0);
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

static void run_rectangle(const tn_cpu *cpu, const plan *p, phase *f)
{
    cursor c = {0};
    tn_gemm_segment s[2];
    bool more = next_segment(p->g->order, p->k_segment, &c, &s[0]);
    for (int i = 0; more; i = !i) {
        int64_t q = f->shared1 - f->shared0;
        more = next_segment(p->g->order, p->k_segment, &c, &s[!i]);
        f->segment = &s[i];
        f->next = more ? &s[!i] : NULL;
        f->pack_group = p->direct ? 1 : 4;
        f->pack_k = 128;
        f->pack_ks = ceil_div(f->segment->k, f->pack_k);
        f->blocks = ceil_div(f->own1 - f->own0, p->own_block);
        f->packing = p->own == A_SIDE && contiguous_rows(p->g, A_SIDE);
        tn_pool_run(cpu->pool, ceil_div(q, f->pack_group) * f->pack_ks, pack_shared, f);
        tn_pool_run(cpu->pool, f->blocks, compute, f);
    }
}

static const tn_gemm_isa *tiles_of(tn_isa isa)
{
    switch (isa) {
#if defined TN_HAVE_AVX512
    case TN_ISA_AVX512: return &tn_gemm_isa_avx512;
#endif
#if defined TN_HAVE_AVX2
    case TN_ISA_AVX2: return &tn_gemm_isa_avx2;
#endif
    default: return &tn_gemm_isa_portable;
    }
}

static size_t scratch_bytes(const plan *p)
{
    return p->shared_bytes + p->level_bytes + p->own_bytes * (size_t)p->threads;
}

void tn_gemm_run(const tn_cpu *cpu, const tn_gemm *g)
{
    plan p;
    make_plan(&p, g, tiles_of(cpu->isa), tn_pool_threads(cpu->pool));
    const side *own = &p.side[p.own], *shared = &p.side[p.shared];
    if (p.side[A_SIDE].panels == 0 || p.side[B_SIDE].panels == 0 || (g->order->n == 0 && g->order->depth_in == 0)) return;
    assert(scratch_bytes(&p) <= cpu->scratch_bytes);
    char *mem = cpu->scratch;
    phase f = {.p = &p, .shared = (float *)(void *)mem, .own = mem + p.shared_bytes + p.level_bytes};
    if (p.level_bytes) f.kept = (float *)(void *)(mem + p.shared_bytes);
    for (f.own0 = 0; f.own0 < own->panels; f.own0 = f.own1) {
        f.own1 = min64(f.own0 + p.own_rect, own->panels);
        for (f.shared0 = 0; f.shared0 < shared->panels; f.shared0 = f.shared1) {
            f.shared1 = min64(f.shared0 + p.shared_rect, shared->panels);
            run_rectangle(cpu, &p, &f);
        }
    }
}

size_t tn_gemm_scratch(int n_threads, const tn_gemm *g)
{
    size_t most = 0;
    for (int i = 0; i < TN_N_ISA; i++) {
        plan p;
        if (!tn_isa_usable((tn_isa)i)) continue;
        make_plan(&p, g, tiles_of((tn_isa)i), n_threads);
        if (scratch_bytes(&p) > most) most = scratch_bytes(&p);
    }
    return most;
}
