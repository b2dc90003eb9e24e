/* gemm_isa.c - packs panels and computes tiles of the GEMM (contract in gemm_tile.h).
 *
 * The accumulators of a tile are registers: 14 x 2 vectors on AVX-512 and 6 x 2 on AVX2, two loads
 * of B and one broadcast at a time beside them. Every accumulator is one chain: ascending k, one
 * fma each. A leaf that is added at once needs no + (+0), because what lies on the stack is never
 * -0. With TN_GEMM_PAIRS (gemm_avx512bf16.c) a lane of A and B is a pair of bf16, and the fma adds
 * both products.
 */
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/bf16.h"

#if defined __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- the set's own vector: VL lanes, NV of them across a tile ---- */

#if defined TN_ISA_avx512

typedef __m512 gv;
enum { VL = 16, NV = 2, MR = 14, A_WIDTH = 16 };
TN_VI gv g_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
TN_VI void g_store(float *p, gv x)
{
    _mm512_storeu_ps(p, x);
}
TN_VI gv g_set(float x)
{
    return _mm512_set1_ps(x);
}
TN_VI gv g_add(gv a, gv b)
{
    return _mm512_add_ps(a, b);
}
#if defined TN_GEMM_PAIRS
TN_VI gv g_fma(gv a, gv b, gv c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
TN_VI gv g_mul(gv a, gv b)
{
    return g_fma(a, b, _mm512_setzero_ps());
}
#else
TN_VI gv g_mul(gv a, gv b)
{
    return _mm512_mul_ps(a, b);
}
TN_VI gv g_fma(gv a, gv b, gv c)
{
    return _mm512_fmadd_ps(a, b, c);
}
#endif
TN_VI __mmask16 g_mask(int64_t n)
{
    return n >= VL ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}
TN_VI gv g_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(g_mask(n), p);
}
TN_VI gv g_widen(const uint16_t *p)
{
    return tn_v_widen(p);
}
TN_VI void g_store_n(float *p, int64_t n, gv x)
{
    _mm512_mask_storeu_ps(p, g_mask(n), x);
}

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
        gv a = _mm512_shuffle_f32x4(x[i], x[4 + i], 0x44),
           b = _mm512_shuffle_f32x4(x[i], x[4 + i], 0xee);
        gv c = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0x44),
           d = _mm512_shuffle_f32x4(x[8 + i], x[12 + i], 0xee);
        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    UNROLL for (int i = 0; i < VL; i++) x[i] = t[i];
}

#elif defined TN_ISA_avx2

typedef __m256 gv;
enum { VL = 8, NV = 2, MR = 6, A_WIDTH = 8 };
TN_VI gv g_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
TN_VI void g_store(float *p, gv x)
{
    _mm256_storeu_ps(p, x);
}
TN_VI gv g_set(float x)
{
    return _mm256_set1_ps(x);
}
TN_VI gv g_add(gv a, gv b)
{
    return _mm256_add_ps(a, b);
}
TN_VI gv g_mul(gv a, gv b)
{
    return _mm256_mul_ps(a, b);
}
TN_VI gv g_fma(gv a, gv b, gv c)
{
    return _mm256_fmadd_ps(a, b, c);
}
TN_VI __m256i g_mask(int64_t n)
{
    int k = n >= VL ? VL : n <= 0 ? 0 : (int)n;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(k), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TN_VI gv g_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, g_mask(n));
}
TN_VI gv g_widen(const uint16_t *p)
{
    return tn_v8_widen(p);
}
TN_VI void g_store_n(float *p, int64_t n, gv x)
{
    _mm256_maskstore_ps(p, g_mask(n), x);
}

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
enum { VL = TN_VL, NV = 1, MR = 4, A_WIDTH = TN_VL };
TN_VI gv g_load(const float *p)
{
    return tn_v_load(p);
}
TN_VI void g_store(float *p, gv x)
{
    tn_v_store(p, x);
}
TN_VI gv g_set(float x)
{
    return tn_v_set(x);
}
TN_VI gv g_add(gv a, gv b)
{
    return tn_v_add(a, b);
}
TN_VI gv g_mul(gv a, gv b)
{
    return tn_v_mul(a, b);
}
TN_VI gv g_fma(gv a, gv b, gv c)
{
    return tn_v_fma(a, b, c);
}
TN_VI gv g_load_n(const float *p, int64_t n)
{
    return tn_v_load_mask(p, tn_v_mask(n));
}
TN_VI gv g_widen(const uint16_t *p)
{
    return tn_v_widen(p);
}
TN_VI void g_store_n(float *p, int64_t n, gv x)
{
    tn_v_store_mask(p, tn_v_mask(n), x);
}

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

TN_VI gv get(const void *p, int64_t i, const bool bf16)
{
    return bf16 ? g_widen((const uint16_t *)p + i) : g_load((const float *)p + i);
}

/* The first n elements only, the others 0. */
TN_VI gv get_n(const void *p, int64_t i, int64_t n, const bool bf16)
{
    uint16_t t[VL] = {0};
    if (!bf16) return g_load_n((const float *)p + i, n);
    memcpy(t, (const uint16_t *)p + i, (size_t)n * sizeof *t);
    return g_widen(t);
}

TN_VI float get_one(const void *p, int64_t i, const bool bf16)
{
    float f;
    uint32_t u = 0;
    if (bf16) u = (uint32_t)((const uint16_t *)p)[i] << 16;
    else memcpy(&u, (const char *)p + 4 * i, sizeof u); /* words of pairs lie at even addresses */
    memcpy(&f, &u, sizeof f);
    return f;
}

/* k contiguous: VL x VL blocks are transposed on the way. Rows that are not there are copies of the
 * first. */
TN_VI void pack_rows(const bool bf16, const tn_gemm_pack *p, int panel)
{
    int64_t rows = p->row[panel + 1] - p->row[panel];
    for (int64_t v = 0; v < p->width; v += VL) {
        const void *row[VL];
        for (int i = 0; i < VL; i++)
            row[i] =
                tn_v_at(p->src, (p->row[panel] + (v + i < rows ? v + i : 0)) * p->r_stride, bf16);
        for (int q = 0; q < p->n_pieces; q++) {
            int64_t k = p->piece[q].k, end = k + p->piece[q].len;
            float *to = p->dst + panel * p->panel_stride + p->piece[q].at * p->width + v;
            for (; k + VL <= end; k += VL, to += VL * p->width) {
                gv x[VL];
                UNROLL for (int i = 0; i < VL; i++) x[i] = get(row[i], k, bf16);
                g_transpose(x);
                UNROLL for (int i = 0; i < VL; i++) g_store(to + i * p->width, x[i]);
            }
            for (; k < end; k++, to += p->width)
                for (int i = 0; i < VL; i++) to[i] = get_one(row[i], k, bf16);
        }
    }
}

/* Rows contiguous: a k is read through all panels, which lie side by side in the source. */
TN_VI void pack_columns(const bool bf16, const tn_gemm_pack *p, const tn_gemm_piece *piece)
{
    for (int64_t k = 0; k < piece->len; k++) {
        const void *from = tn_v_at(p->src, (piece->k + k) * p->k_stride, bf16);
        float *to = p->dst + (piece->at + k) * p->width;
        for (int i = 0; i < p->n_panels; i++, to += p->panel_stride)
            for (int64_t v = 0; v < p->width; v += VL) {
                int64_t row = p->row[i] + v, there = p->extent - row;
                g_store(to + v, there >= VL ? get(from, row, bf16)
                                            : get_n(from, row, there > 0 ? there : 0, bf16));
            }
    }
}

#if defined TN_GEMM_PAIRS
TN_VI gv get_pairs(const uint16_t *low, const uint16_t *high, int64_t n)
{
    __m512i a = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(g_mask(n), low)),
            b = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(g_mask(n), high));
    return _mm512_castsi512_ps(_mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
}

/* Rows contiguous: two k become one column of pairs. */
static void pack_pairs(const tn_gemm_pack *p, const tn_gemm_piece *piece)
{
    for (int64_t k = 0; k < piece->len; k++) {
        const uint16_t *from = (const uint16_t *)p->src + 2 * (piece->k + k) * p->k_stride;
        float *to = p->dst + (piece->at + k) * p->width;
        for (int i = 0; i < p->n_panels; i++, to += p->panel_stride)
            for (int64_t v = 0; v < p->width; v += VL) {
                const uint16_t *low = from + p->row[i] + v;
                g_store(to + v, get_pairs(low, low + p->k_stride, p->extent - p->row[i] - v));
            }
    }
}

static void pack(const tn_gemm_pack *p)
{
    for (int i = 0; i < p->n_pieces && p->pairs; i++) pack_pairs(p, &p->piece[i]);
    for (int i = 0; i < p->n_panels && !p->pairs; i++) pack_rows(false, p, i);
}
#else
TN_VI void pack_as(const bool bf16, const tn_gemm_pack *p)
{
    if (p->r_stride == 1)
        for (int i = 0; i < p->n_pieces; i++) pack_columns(bf16, p, &p->piece[i]);
    else
        for (int i = 0; i < p->n_panels; i++) pack_rows(bf16, p, i);
}

static void pack(const tn_gemm_pack *p)
{
    if (p->bf16) pack_as(true, p);
    else pack_as(false, p);
}
#endif

/* ---- tiles ---- */

/* One k. The first of a leaf multiplies: fma(a, b, +0) could differ from it in the sign of a zero
 * only, which the end of the leaf forgets. (Clearing 28 registers costs 40 cycles a leaf on Zen 4,
 * 4 % at 32 k.) */
TN_VI void step(const int H, const bool first, const float *a, const float *b, gv c[MR][NV])
{
    gv y[NV];
    UNROLL for (int j = 0; j < NV; j++) y[j] = g_load(b + j * VL);
    UNROLL for (int i = 0; i < H; i++)
    {
        gv x = g_set(a[i]);
        UNROLL for (int j = 0; j < NV; j++) c[i][j] =
            first ? g_mul(x, y[j]) : g_fma(x, y[j], c[i][j]);
    }
}

/* B may stand still in a matrix with long rows, where no hardware prefetcher follows: DISTANCE k
 * ahead by hand. */
TN_VI void fetch_b(const float *b, int64_t b_k)
{
    UNROLL for (int j = 0; j < NR; j += 16) __builtin_prefetch(b + DISTANCE * b_k + j, 0, 3);
}

/* Where the next k of both operands lie. A is packed, or (from not NULL) read where it is and
 * packed on the way: the copy costs nothing beside 28 multiplications. */
typedef struct operands {
    float *a;
    const float *from, *b;
    int64_t a_k, b_k;
    const char *stream;
    int64_t stream_step;
} operands;

TN_VI void one_k(const int H, const bool first, const bool packing, operands *x, gv c[MR][NV])
{
    fetch_b(x->b, x->b_k);
    __builtin_prefetch(x->stream, 0, 2);
    if (packing) {
        __builtin_prefetch(x->from + DISTANCE * x->a_k, 0, 3);
        __builtin_prefetch(x->from + DISTANCE * x->a_k + A_WIDTH, 0, 3);
        g_store(x->a, g_load(x->from));
    }
    step(H, first, packing ? x->from : x->a, x->b, c);
    x->stream += x->stream_step;
    x->a += A_WIDTH;
    x->b += x->b_k;
    if (packing) x->from += x->a_k;
}

TN_VI void chain(const int H, const bool packing, int64_t n, operands *x, gv c[MR][NV])
{
    for (; n > 0; n--) one_k(H, false, packing, x, c);
}

#define EACH UNROLL for (int i = 0; i < H; i++) UNROLL for (int j = 0; j < NV; j++)

TN_VI void push(const int H, float *level, gv c[MR][NV])
{
    EACH g_store(level + i * NR + j * VL, c[i][j]);
}
TN_VI void pop(const int H, const float *level, gv c[MR][NV])
{
    EACH c[i][j] = g_load(level + i * NR + j * VL);
}
TN_VI void add_to(const int H, const float *level, gv c[MR][NV])
{
    EACH c[i][j] = g_add(g_load(level + i * NR + j * VL), c[i][j]);
}

TN_VI float *level_of(const tn_gemm_tile *t, int level)
{
    int found = t->segment->depth_in;
    return level < found ? t->kept + level * TILE : t->hot + (level - found) * TILE;
}

/* What is not packed is found by the leaf; what is, goes on where it was. */
TN_VI void set_operands(const bool packing, const tn_gemm_tile *t, const tn_order_ins *in,
                        int64_t k0, operands *x)
{
    int64_t k = in->k0 + k0;
    if (!t->b) x->b = (const float *)t->b_src->b + k * x->b_k + t->col;
    if (packing) {
        x->a_k = t->a_src[in->src].a_k;
        x->from = (const float *)t->a_src[in->src].a + k * x->a_k + t->row;
    }
}

/* The rows of the next tile's result, one each k. */
TN_VI int64_t chain_fetching(const int H, const bool packing, int64_t n, const char *next,
                             int64_t ld, operands *x, gv c[MR][NV])
{
    for (int64_t i = 0; i < n; i++, next += ld) {
        UNROLL for (int j = 0; j < NR * 4; j += 64) __builtin_prefetch(next + j, 1, 3);
        one_k(H, false, packing, x, c);
    }
    return n;
}

/* C = sum + add, of a tile as wide as any; the others go through memory, and what is bf16. */
TN_VI void write_result(const int H, const tn_gemm_tile *t, gv c[MR][NV])
{
    const tn_gemm_out *o = t->out;
    if (t->cols < NR || !o->c || o->c_bf16) {
        push(H, t->edge, c);
        return;
    }
    float *to = (float *)o->c + t->row * o->ldc + t->col;
    const float *add = o->add;
    if (add) EACH c[i][j] = g_add(c[i][j], g_load(add + (t->row + i) * o->ldadd + t->col + j * VL));
    EACH g_store(to + i * o->ldc + j * VL, c[i][j]);
}

TN_VI void tile(const int H, const bool packing, const tn_gemm_tile *t)
{
    const tn_gemm_segment *s = t->segment;
    operands x = {t->a, NULL, t->b, 0, t->b ? NR : t->b_src->b_k, t->stream, t->stream_step};
    int depth = s->depth_in; /* levels in memory */
    int64_t at = 0, k0, k1, fetched = 0;
    bool open = s->open;
    gv c[MR][NV];
    if (!s->resume) { /* then the first instruction is a leaf */
        open = false;
        goto leaf;
    }
    pop(H, level_of(t, --depth), c);
    for (; at < s->n; at++) {
        if (s->ins[at].op == TN_ORDER_ADD) {
            add_to(H, level_of(t, --depth), c);
            continue;
        }
        if (!open) push(H, level_of(t, depth++), c);
    leaf:
        k0 = at == 0 ? s->skip : 0;
        k1 = at == s->n - 1 ? s->stop : s->ins[at].k1 - s->ins[at].k0;
        set_operands(packing, t, &s->ins[at], k0, &x);
        while (!packing && t->b && s->ins[at].more &&
               at + 1 < s->n) { /* the chain's next leaf follows in both panels */
            at++;
            k1 += at == s->n - 1 ? s->stop : s->ins[at].k1 - s->ins[at].k0;
        }
        if (!open && k0 < k1) {
            one_k(H, true, packing, &x, c);
            k0++;
        } else if (!open) {
            EACH c[i][j] = g_set(0);
        }
        if (fetched < t->next_rows) {
            int64_t n = t->next_rows - fetched < k1 - k0 ? t->next_rows - fetched : k1 - k0;
            k0 += chain_fetching(H, packing, n, t->next + fetched * t->next_ld, t->next_ld, &x, c);
            fetched += n;
        }
        chain(H, packing, k1 - k0, &x, c);
        open = s->ins[at].more || (at == s->n - 1 && s->stop < s->ins[at].k1 - s->ins[at].k0);
        if (!open && !(at + 1 < s->n && s->ins[at + 1].op == TN_ORDER_ADD))
            EACH c[i][j] = g_add(c[i][j], g_set(0));
    }
    if (s->last) write_result(H, t, c);
    else push(H, t->kept + (s->depth_out - 1) * TILE, c);
}

#define HEIGHT(H)                                                                                  \
    static void tile_##H(const tn_gemm_tile *t)                                                    \
    {                                                                                              \
        tile(H, false, t);                                                                         \
    }                                                                                              \
    static void packing_tile_##H(const tn_gemm_tile *t)                                            \
    {                                                                                              \
        tile(H, true, t);                                                                          \
    }
#define ROW(H)                                                                                     \
    {                                                                                              \
        tile_##H, packing_tile_##H                                                                 \
    }

#if defined TN_ISA_avx512
HEIGHT(1)
HEIGHT(2)
HEIGHT(3)
HEIGHT(4)
HEIGHT(5) HEIGHT(6) HEIGHT(7) HEIGHT(8) HEIGHT(9) HEIGHT(10) HEIGHT(11) HEIGHT(12) HEIGHT(13)
    HEIGHT(14)
#define ROWS                                                                                       \
    ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6), ROW(7), ROW(8), ROW(9), ROW(10), ROW(11),      \
        ROW(12), ROW(13), ROW(14)
#elif defined TN_ISA_avx2
HEIGHT(1)
HEIGHT(2)
HEIGHT(3)
HEIGHT(4)
HEIGHT(5) HEIGHT(6)
#define ROWS ROW(1), ROW(2), ROW(3), ROW(4), ROW(5), ROW(6)
#else
HEIGHT(1)
HEIGHT(2)
HEIGHT(3)
HEIGHT(4)
#define ROWS ROW(1), ROW(2), ROW(3), ROW(4)
#endif

        static void (*const tile_of[MR + 1][2])(const tn_gemm_tile *) = {{NULL, NULL}, ROWS};

/* Between the tile's own memory and the caller's, with a mask at the right edge. */
static void read_level(const tn_gemm_tile *t, const float *from, int64_t ld, float *level)
{
    from += t->row * ld + t->col;
    for (int i = 0; i < t->rows; i++, from += ld, level += NR)
        for (int j = 0; j < t->cols; j += VL)
            g_store(level + j,
                    t->cols - j >= VL ? g_load(from + j) : g_load_n(from + j, t->cols - j));
}

static void write_level(const tn_gemm_tile *t, const float *level, float *to, int64_t ld)
{
    to += t->row * ld + t->col;
    for (int i = 0; i < t->rows; i++, to += ld, level += NR)
        for (int j = 0; j < t->cols; j += VL) {
            if (t->cols - j >= VL) g_store(to + j, g_load(level + j));
            else g_store_n(to + j, t->cols - j, g_load(level + j));
        }
}

static void add_level(const tn_gemm_tile *t, const float *from, int64_t ld, float *level)
{
    from += t->row * ld + t->col;
    for (int i = 0; i < t->rows; i++, from += ld, level += NR)
        for (int j = 0; j < t->cols; j += VL)
            g_store(level + j, g_add(g_load(level + j), g_load_n(from + j, t->cols - j)));
}

/* C = bf16(sum), or bf16(bf16(sum) + add). */
static void write_bf16(const tn_gemm_tile *t, const float *level)
{
    const tn_gemm_out *o = t->out;
    for (int i = 0; i < t->rows; i++, level += NR) {
        void *to = tn_v_from(o->c, (t->row + i) * o->ldc + t->col, true);
        const void *add = o->add ? tn_v_at(o->add, (t->row + i) * o->ldadd + t->col, true) : NULL;
        for (int j = 0; j < t->cols; j += TN_VL) {
            tn_vmask m = tn_v_mask(t->cols - j);
            tn_v x = tn_v_load(level + j);
            if (add) x = tn_v_add(tn_v_round_bf16(x), tn_v_get_mask(add, j, m, true));
            if (t->cols - j >= TN_VL) tn_v_put(to, j, x, true);
            else tn_v_put_mask(to, j, m, x, true);
        }
    }
}

static void tile_any(const tn_gemm_tile *t)
{
    const tn_gemm_segment *s = t->segment;
    const tn_gemm_out *o = t->out;
    if (s->first)
        for (int l = 0; l < s->depth_in; l++) read_level(t, o->stack[l], o->n, t->kept + l * TILE);
    tile_of[t->rows][t->a_src != NULL](t);
    if (!s->last) {
        for (int l = s->depth_in; l < s->depth_out - 1; l++)
            memcpy(t->kept + l * TILE, level_of(t, l), sizeof(float) * TILE);
        return;
    }
    for (int l = 0; l < s->depth_out - 1; l++) write_level(t, level_of(t, l), o->stack[l], o->n);
    if (o->c && o->c_bf16) {
        write_bf16(t, t->edge);
        return;
    }
    if (t->cols == NR && o->c) return;
    if (o->c && o->add) add_level(t, o->add, o->ldadd, t->edge);
    write_level(t, t->edge, o->c ? o->c : o->stack[s->depth_out - 1], o->c ? o->ldc : o->n);
}

#if defined TN_GEMM_PAIRS
const tn_gemm_isa tn_gemm_isa_pairs =
#else
const tn_gemm_isa TN_ISA_NAME(tn_gemm_isa) =
#endif
    {MR, NR, A_WIDTH, tile_any, pack};
