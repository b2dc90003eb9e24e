/* gemm_isa.c - packs panels and computes tiles of the GEMM (contract in gemm_tile.h).
 *
 * The accumulators of a tile are registers: 14 x 2 vectors on AVX-512 and 6 x 2 on AVX2, two loads of B and one broadcast at a
 * time beside them. Every accumulator is one chain: ascending k, one fma each. A leaf that is added at once needs no + (+0),
 * because what lies on the stack is never -0.
 */
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/vec.h"

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- the set's own vector: VL lanes, NV of them across a tile ---- */

#if defined TN_ISA_avx512

typedef __m512 gv;
enum { VL = 16, NV = 2, MR = 14, A_WIDTH = 16, K_UNROLL = 2 };
TN_VI gv g_load(const float *p) { return _mm512_loadu_ps(p); }
TN_VI void g_store(float *p, gv x) { _mm512_storeu_ps(p, x); }
TN_VI gv g_set(float x) { return _mm512_set1_ps(x); }
TN_VI gv g_add(gv a, gv b) { return _mm512_add_ps(a, b); }
TN_VI gv g_fma(gv a, gv b, gv c) { return _mm512_fmadd_ps(a, b, c); }
TN_VI __mmask16 g_mask(int64_t n) { return n >= VL ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1); }
TN_VI gv g_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(g_mask(n), p); }
TN_VI void g_store_n(float *p, int64_t n, gv x) { _mm512_mask_storeu_ps(p, g_mask(n), x); }

/* Within the lanes of 128 bits: 4 x 4. */
TN_VI void g_transpose4(gv *x)
{
    gv a = _mm512_unpacklo_ps(x[0], x[1]), b = _mm512_unpackhi_ps(x[0], x[1]);
    gv c = _mm512_unpacklo_ps(x[2], x[3]), d = _mm512_unpackhi_ps(x[2], x[3]);
    x[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(c)));
    x[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(c)));
    x[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(b), _mm512_castps_pd(d)));
    x[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(b), _mm512_castps_pd(d)));
}

TN_VI void g_transpose(gv x[VL])
{
    gv t[VL];
    UNROLL for (int i = 0; i < VL; i += 4) g_transpose4(x + i);
    UNROLL for (int i = 0; i < 4; i++)
    {
        gv a = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x44), b = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xee);
        gv c = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x44), d = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xee);
        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    UNROLL for (int i = 0; i < VL; i++) x[i] = t[i];
}

#elif defined TN_ISA_avx2

typedef __m256 gv;
enum { VL = 8, NV = 2, MR = 6, A_WIDTH = 8, K_UNROLL = 4 };
TN_VI gv g_load(const float *p) { return _mm256_loadu_ps(p); }
TN_VI void g_store(float *p, gv x) { _mm256_storeu_ps(p, x); }
TN_VI gv g_set(float x) { return _mm256_set1_ps(x); }
TN_VI gv g_add(gv a, gv b) { return _mm256_add_ps(a, b); }
TN_VI gv g_fma(gv a, gv b, gv c) { return _mm256_fmadd_ps(a, b, c); }
TN_VI __m256i g_mask(int64_t n)
{
    int k = n >= VL ? VL : n <= 0 ? 0 : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(k), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TN_VI gv g_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, g_mask(n)); }
TN_VI void g_store_n(float *p, int64_t n, gv x) { _mm256_maskstore_ps(p, g_mask(n), x); }

TN_VI void g_transpose4(gv *x)
{
    gv a = _mm256_unpacklo_ps(x[0], x[1]), b = _mm256_unpackhi_ps(x[0], x[1]);
    gv c = _mm256_unpacklo_ps(x[2], x[3]), d = _mm256_unpackhi_ps(x[2], x[3]);
    x[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    x[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(c)));
    x[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
    x[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(b), _mm256_castps_pd(d)));
}

TN_VI void g_transpose(gv x[VL])
{
    g_transpose4(x);
    g_transpose4(x + 4);
    UNROLL for (int i = 0; i < 4; i++)
    {
        gv a = x[i], b = x[4 + i];
        x[i] = _mm256_permute2f128_ps(a, b, 0x20);
        x[4 + i] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}

#else

typedef tn_v gv;
enum { VL = TN_VL, NV = 1, MR = 4, A_WIDTH = TN_VL, K_UNROLL = 1 };
TN_VI gv g_load(const float *p) { return tn_v_load(p); }
TN_VI void g_store(float *p, gv x) { tn_v_store(p, x); }
TN_VI gv g_set(float x) { return tn_v_set(x); }
TN_VI gv g_add(gv a, gv b) { return tn_v_add(a, b); }
TN_VI gv g_fma(gv a, gv b, gv c) { return tn_v_fma(a, b, c); }
TN_VI gv g_load_n(const float *p, int64_t n) { return tn_v_load_mask(p, tn_v_mask(n)); }
TN_VI void g_store_n(float *p, int64_t n, gv x) { tn_v_store_mask(p, tn_v_mask(n), x); }

TN_VI void g_transpose(gv x[VL])
{
    for (int i = 0; i < VL; i++)
        for (int j = 0; j < i; j++) {
            float t = x[i][j];
            x[i][j] = x[j][i];
            x[j][i] = t;
        }
}

#endif

enum { NR = NV * VL, TILE = MR * NR, DISTANCE = 16 };

/* ---- panels ---- */

/* k contiguous: VL x VL blocks are transposed on the way. Rows that are not there are copies of the first. */
static void pack_rows(const tn_gemm_pack *p, int panel)
{
    int64_t rows = p->row[panel + 1] - p->row[panel];
    for (int64_t v = 0; v < p->width; v += VL) {
        const float *row[VL];
        float *to = p->dst + panel * p->panel_stride + v;
        for (int i = 0; i < VL; i++) row[i] = p->src + (p->row[panel] + (v + i < rows ? v + i : 0)) * p->r_stride;
        int64_t k = 0;
        for (; k + VL <= p->len; k += VL, to += VL * p->width) {
            gv x[VL];
            UNROLL for (int i = 0; i < VL; i++) x[i] = g_load(row[i] + k);
            g_transpose(x);
            UNROLL for (int i = 0; i < VL; i++) g_store(to + i * p->width, x[i]);
        }
        for (; k < p->len; k++, to += p->width)
            for (int i = 0; i < VL; i++) to[i] = row[i][k];
    }
}

/* Rows contiguous: a k is read through all panels, which lie side by side in the source. */
static void pack_columns(const tn_gemm_pack *p)
{
    for (int64_t k = 0; k < p->len; k++) {
        const float *from = p->src + k * p->k_stride;
        float *to = p->dst + k * p->width;
        for (int i = 0; i < p->n_panels; i++, to += p->panel_stride)
            for (int64_t v = 0; v < p->width; v += VL) {
                int64_t row = p->row[i] + v, there = p->extent - row;
                g_store(to + v, there >= VL ? g_load(from + row) : g_load_n(from + row, there));
            }
    }
}

static void pack(const tn_gemm_pack *p)
{
    if (p->r_stride == 1)
        pack_columns(p);
    else
        for (int i = 0; i < p->n_panels; i++) pack_rows(p, i);
}

/* ---- tiles ---- */

TN_VI void step(const int H, const float *a, const float *b, gv c[MR][NV])
{
    gv y[NV];
    UNROLL for (int j = 0; j < NV; j++) y[j] = g_load(b + j * VL);
    UNROLL for (int i = 0; i < H; i++)
    {
        gv x = g_set(a[i]);
        UNROLL for (int j = 0; j < NV; j++) c[i][j] = g_fma(x, y[j], c[i][j]);
    }
}

/* B may stand still in a matrix with long rows, where no hardware prefetcher follows: DISTANCE k ahead by hand. */
TN_VI void fetch_b(const float *b, int64_t b_k)
{
    UNROLL for (int j = 0; j < NR; j += 16) __builtin_prefetch(b + DISTANCE * b_k + j, 0, 3);
}

TN_VI void chain(const int H, int64_t n, const float *a, const float *b, int64_t b_k, gv c[MR][NV])
{
    for (; n >= K_UNROLL; n -= K_UNROLL) {
        UNROLL for (int u = 0; u < K_UNROLL; u++)
        {
            fetch_b(b, b_k);
            step(H, a + u * A_WIDTH, b, c);
            b += b_k;
        }
        a += K_UNROLL * A_WIDTH;
    }
    if (K_UNROLL == 1) return;
    for (; n > 0; n--) {
        step(H, a, b, c);
        a += A_WIDTH;
        b += b_k;
    }
}

/* The same from A itself, which is packed on the way: the copy costs nothing beside 28 multiplications. */
TN_VI void chain_packing(const int H, int64_t n, const float *a, int64_t a_k, float *to, const float *b, int64_t b_k, gv c[MR][NV])
{
    for (; n > 0; n--) {
        fetch_b(b, b_k);
        __builtin_prefetch(a + DISTANCE * a_k, 0, 3);
        __builtin_prefetch(a + DISTANCE * a_k + A_WIDTH, 0, 3);
        g_store(to, g_load(a));
        step(H, a, b, c);
        a += a_k;
        b += b_k;
        to += A_WIDTH;
    }
}

#define EACH UNROLL for (int i = 0; i < H; i++) UNROLL for (int j = 0; j < NV; j++)

TN_VI void push(const int H, float *level, gv c[MR][NV]) { EACH g_store(level + i * NR + j * VL, c[i][j]); }
TN_VI void pop(const int H, const float *level, gv c[MR][NV]) { EACH c[i][j] = g_load(level + i * NR + j * VL); }
TN_VI void add_to(const int H, const float *level, gv c[MR][NV])
{
    EACH c[i][j] = g_add(g_load(level + i * NR + j * VL), c[i][j]);
}

static void read_level(const tn_gemm_tile *t, const float *from, int64_t ld, float *level)
{
    from += t->row * ld + t->col;
    for (int i = 0; i < t->rows; i++)
        for (int j = 0; j < NV; j++) {
            const float *x = from + i * ld + j * VL;
            int64_t n = t->cols - j * VL;
            g_store(level + i * NR + j * VL, n >= VL ? g_load(x) : g_load_n(x, n));
        }
}

static void write_level(const tn_gemm_tile *t, const float *level, float *to, int64_t ld)
{
    to += t->row * ld + t->col;
    for (int i = 0; i < t->rows; i++)
        for (int j = 0; j < NV; j++) {
            gv x = g_load(level + i * NR + j * VL);
            int64_t n = t->cols - j * VL;
            if (n >= VL)
                g_store(to + i * ld + j * VL, x);
            else
                g_store_n(to + i * ld + j * VL, n, x);
        }
}

TN_VI void write_result(const int H, const tn_gemm_tile *t, gv c[MR][NV])
{
    const tn_gemm_out *o = t->out;
    float *to = o->c ? o->c : o->stack[t->segment->depth_out - 1];
    int64_t ld = o->c ? o->ldc : o->n;
    to += t->row * ld + t->col;
    const float *add = o->c && o->add ? o->add + t->row * o->ldadd + t->col : NULL;
    if (t->cols == NR) {
        if (add) EACH c[i][j] = g_add(c[i][j], g_load(add + i * o->ldadd + j * VL));
        EACH g_store(to + i * ld + j * VL, c[i][j]);
    } else {
        if (add) EACH c[i][j] = g_add(c[i][j], g_load_n(add + i * o->ldadd + j * VL, t->cols - j * VL));
        EACH g_store_n(to + i * ld + j * VL, t->cols - j * VL, c[i][j]);
    }
}

/* ---- what will be needed soon ---- */

static void next_row(tn_gemm_stream *s)
{
    tn_gemm_region *r = &s->region[s->at];
    s->byte = 0;
    r->at += r->stride;
    if (--r->rows == 0) s->at++;
}

TN_VI void fetch(tn_gemm_stream *s)
{
    for (int i = 0; i < s->lines && s->at < s->n; i++) {
        tn_gemm_region *r = &s->region[s->at];
        __builtin_prefetch(r->at + s->byte, 0, 2);
        s->byte += 64;
        if (s->byte >= r->bytes) next_row(s);
    }
}

/* The rows of the next tile's result, spread over the beats of this one. */
typedef struct results {
    const char *at;
    int64_t ld;
    int rows, per_beat;
} results;

TN_VI void fetch_results(results *r)
{
    for (int i = 0; i < r->per_beat && r->rows > 0; i++, r->rows--) {
        for (int j = 0; j < NR * 4; j += 64) __builtin_prefetch(r->at + j, 1, 3);
        r->at += r->ld;
    }
}

/* ---- a tile ---- */

TN_VI float *level_of(const tn_gemm_tile *t, int level)
{
    int found = t->segment->depth_in;
    return level < found ? t->kept + level * TILE : t->hot + (level - found) * TILE;
}

/* n k of a leaf, from k of its source on. */
TN_VI void beat(const int H, const bool packing, const tn_gemm_tile *t, int src, int64_t k, int64_t n, float *a, const float *b,
                int64_t b_k, gv c[MR][NV])
{
    fetch(t->stream);
    if (packing)
        chain_packing(H, n, t->a_src[src].a + k * t->a_src[src].a_k + t->row, t->a_src[src].a_k, a, b, b_k, c);
    else
        chain(H, n, a, b, b_k, c);
}

TN_VI void tile(const int H, const bool packing, const tn_gemm_tile *t)
{
    const tn_gemm_segment *s = t->segment;
    float *a = t->a;
    const float *b = t->b;
    int depth = s->depth_in; /* levels in memory */
    gv c[MR][NV];
    bool live = s->resume, open = s->open;
    results ahead = {t->next, t->next_ld, t->next ? t->next_rows : 0, 1 + (int)(t->next_rows * TN_GEMM_BEAT / (s->k + 1))};
    EACH c[i][j] = g_set(0);
    if (live) pop(H, level_of(t, --depth), c);
    for (int64_t at = 0; at < s->n; at++) {
        const tn_order_ins *in = &s->ins[at];
        if (in->op == TN_ORDER_ADD) {
            add_to(H, level_of(t, --depth), c);
            continue;
        }
        int64_t k0 = at == 0 ? s->skip : 0, k1 = at == s->n - 1 ? s->stop : in->k1 - in->k0, b_k = NR;
        if (!t->b) {
            b_k = t->b_src[in->src].b_k;
            b = t->b_src[in->src].b + (in->k0 + k0) * b_k + t->col;
        }
        if (!open) {
            if (live) push(H, level_of(t, depth++), c);
            EACH c[i][j] = g_set(0);
            live = true;
        }
        for (; k0 < k1; k0 += TN_GEMM_BEAT) {
            int64_t n = k1 - k0 < TN_GEMM_BEAT ? k1 - k0 : TN_GEMM_BEAT;
            fetch_results(&ahead);
            beat(H, packing, t, in->src, in->k0 + k0, n, a, b, b_k, c);
            a += n * A_WIDTH;
            b += n * b_k;
        }
        open = in->more || k1 < in->k1 - in->k0;
        if (!open && !(at + 1 < s->n && in[1].op == TN_ORDER_ADD)) {
            EACH c[i][j] = g_add(c[i][j], g_set(0));
        }
    }
    if (s->last)
        write_result(H, t, c);
    else
        push(H, t->kept + (s->depth_out - 1) * TILE, c);
}

#define HEIGHT(H)                                                                                                                  \
    static void tile_##H(const tn_gemm_tile *t) { tile(H, false, t); }                                                             \
    static void packing_tile_##H(const tn_gemm_tile *t) { tile(H, true, t); }
#define ROW(H) {tile_##H, packing_tile_##H}

#if defined TN_ISA_avx512
HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5) HEIGHT(6) HEIGHT(7)
HEIGHT(8) HEIGHT(9) HEIGHT(10) HEIGHT(11) HEIGHT(12) HEIGHT(13) HEIGHT(14)
#define ROWS ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8), ROW(9), ROW(10), ROW(11), ROW(12), ROW(13), ROW(14)
#elif defined TN_ISA_avx2
HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4) HEIGHT(5) HEIGHT(6)
#define ROWS ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6)
#else
HEIGHT(1) HEIGHT(2) HEIGHT(3) HEIGHT(4)
#define ROWS ROW(1), ROW(2), ROW(3), ROW(4)
#endif

static void (*const tile_of[MR + 1][2])(const tn_gemm_tile *) = {{NULL, NULL}, ROWS};

static void tile_any(const tn_gemm_tile *t)
{
    const tn_gemm_segment *s = t->segment;
    const tn_gemm_out *o = t->out;
    if (s->first)
        for (int l = 0; l < s->depth_in; l++) read_level(t, o->stack[l], o->n, t->kept + l * TILE);
    tile_of[t->rows][t->a_src != NULL](t);
    for (int l = s->depth_in; l < s->depth_out - 1 && !s->last; l++)
        memcpy(t->kept + l * TILE, level_of(t, l), sizeof(float) * TILE);
    if (s->last)
        for (int l = 0; l < s->depth_out - 1; l++) write_level(t, level_of(t, l), o->stack[l], o->n);
}

const tn_gemm_isa TN_ISA_NAME(tn_gemm_isa) = {MR, NR, A_WIDTH, tile_any, pack};
