/* attention_tile.h - what attention_isa.c and attention_bwd_isa.c share: lanes of integers, 16x16
 * transpose, 2^x, the chains of a register tile, packing, and which keys the queries of a block
 * see. */
#ifndef TN_KERNELS_CPU_ATTENTION_TILE_H
#define TN_KERNELS_CPU_ATTENTION_TILE_H
#include "kernels/cpu/attention_parts.h"

#include "kernels/cpu/bf16.h"

#if defined __clang__
#define TN_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TN_UNROLL _Pragma("GCC unroll 16")
#endif

/* The phases of an item are functions of their own: inlined into one, AVX2's sixteen registers no
 * longer hold the tiles (backward 62 instead of 73 GF/s). */
#define TN_PHASE __attribute__((noinline, unused)) static

#if defined TN_ISA_avx512

typedef __m512i tn_vi;
TN_VI tn_vi tn_vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
TN_VI tn_vi tn_vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}
/* a == b and lo < c <= hi */
TN_VI tn_vmask tn_vi_seen(tn_vi a, tn_vi b, tn_vi lo, tn_vi c, tn_vi hi)
{
    tn_vmask m = _mm512_cmpeq_epi32_mask(a, b);
    m = _mm512_mask_cmpgt_epi32_mask(m, c, lo);
    return _mm512_mask_cmple_epi32_mask(m, c, hi);
}

/* x[i] lane j <-> x[j] lane i */
TN_VI void tn_v_transpose(tn_v x[16])
{
    tn_v y[16];
    TN_UNROLL for (int i = 0; i < 16; i += 2)
    {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    TN_UNROLL for (int i = 0; i < 16; i += 4)
    {
        __m512d a = _mm512_castps_pd(y[i]), b = _mm512_castps_pd(y[i + 1]);
        __m512d c = _mm512_castps_pd(y[i + 2]), d = _mm512_castps_pd(y[i + 3]);
        x[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        x[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        x[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        x[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    TN_UNROLL for (int i = 0; i < 4; i++)
    {
        y[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
    }
    TN_UNROLL for (int i = 0; i < 8; i++)
    {
        x[i] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(y[i], y[i + 8], 0xdd);
    }
}

TN_VI tn_v tn_v_exp2_begin(tn_v x)
{
    return x;
}
/* p 2^n, or +0 where x < -126.5; 1.2 cycles less than what AVX2 does */
TN_VI tn_v tn_v_exp2_end(tn_v x, tn_v n, tn_v p)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.5f), _CMP_NLT_UQ), p,
                                  n);
}

/* Rows of a register tile, one vector wide: eight sums hide the latency, more only make its begin
 * and end longer (at 32 products a sum, Zen 4: 8x1 117 GF/s, 8x2 110, 14x2 95). */
enum { TN_TILE = 8 };

#elif defined TN_ISA_avx2

typedef struct {
    __m256i l, h;
} tn_vi;
TN_VI tn_vi tn_vi_load(const int32_t *p)
{
    return (tn_vi){_mm256_loadu_si256((const __m256i *)(const void *)p),
                   _mm256_loadu_si256((const __m256i *)(const void *)(p + 8))};
}
TN_VI tn_vi tn_vi_set(int32_t x)
{
    return (tn_vi){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
TN_VI __m256i tn_vi8_seen(__m256i a, __m256i b, __m256i lo, __m256i c, __m256i hi)
{
    __m256i m = _mm256_and_si256(_mm256_cmpeq_epi32(a, b), _mm256_cmpgt_epi32(c, lo));
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(c, hi), m);
}
TN_VI tn_vmask tn_vi_seen(tn_vi a, tn_vi b, tn_vi lo, tn_vi c, tn_vi hi)
{
    return (tn_vmask){tn_vi8_seen(a.l, b.l, lo.l, c.l, hi.l),
                      tn_vi8_seen(a.h, b.h, lo.h, c.h, hi.h)};
}

TN_VI void tn_v8_transpose(__m256 x[8])
{
    __m256 y[8];
    TN_UNROLL for (int i = 0; i < 8; i += 2)
    {
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    TN_UNROLL for (int i = 0; i < 8; i += 4)
    {
        x[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
        x[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xee);
        x[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
        x[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xee);
    }
    TN_UNROLL for (int i = 0; i < 4; i++)
    {
        y[i] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x20);
        y[i + 4] = _mm256_permute2f128_ps(x[i], x[i + 4], 0x31);
    }
    TN_UNROLL for (int i = 0; i < 8; i++) x[i] = y[i];
}
TN_VI void tn_v_transpose(tn_v x[16])
{
    __m256 ll[8], lh[8], hl[8], hh[8];
    TN_UNROLL for (int i = 0; i < 8; i++) ll[i] = x[i].l;
    tn_v8_transpose(ll);
    TN_UNROLL for (int i = 0; i < 8; i++) lh[i] = x[i].h;
    tn_v8_transpose(lh);
    TN_UNROLL for (int i = 0; i < 8; i++) hl[i] = x[i + 8].l;
    tn_v8_transpose(hl);
    TN_UNROLL for (int i = 0; i < 8; i++) hh[i] = x[i + 8].h;
    tn_v8_transpose(hh);
    TN_UNROLL for (int i = 0; i < 8; i++)
    {
        x[i] = (tn_v){ll[i], hl[i]};
        x[i + 8] = (tn_v){lh[i], hh[i]};
    }
}

enum { TN_TILE = 6 };

#else

typedef tn_vmask tn_vi;
TN_VI tn_vi tn_vi_load(const int32_t *p)
{
    tn_vi r;
    memcpy(&r, p, sizeof r);
    return r;
}
TN_VI tn_vi tn_vi_set(int32_t x)
{
    return (tn_vi){0} + x;
}
TN_VI tn_vmask tn_vi_seen(tn_vi a, tn_vi b, tn_vi lo, tn_vi c, tn_vi hi)
{
    return (a == b) & (c > lo) & (c <= hi);
}
TN_VI void tn_v_transpose(tn_v x[16])
{
    float t[16][16];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) t[j][i] = x[i][j];
    memcpy(x, t, sizeof t);
}

enum { TN_TILE = 4 };

#endif

/* Rows of the next tile of a round of 16, of which `left` are left: 8 8, 6 6 4 or 4 4 4 4. No tile
 * crosses a round. */
TN_VI int tn_tile_rows(int64_t left)
{
    return left >= TN_TILE ? TN_TILE : 4;
}

/* The tree of vec.h's tn_v_sum, for 16 sums at once: lane q of the result is the sum over i of x[i]
 * lane q. */
TN_VI tn_v tn_v_sum_rows(tn_v x[16])
{
    TN_UNROLL for (int h = 8; h; h /= 2)
    {
        TN_UNROLL for (int i = 0; i < h; i++) x[i] = tn_v_add(x[i], x[i + h]);
    }
    return x[0];
}

#if !defined TN_ISA_avx512
TN_VI tn_v tn_v_exp2_begin(tn_v x)
{
    return tn_v_max(tn_v_set(-127.0f), x);
}
TN_VI tn_v tn_v_exp2_end(tn_v x, tn_v n, tn_v p)
{
    (void)x;
    return tn_v_mul(p, tn_v_pow2(n)); /* 2^-127 is +0 there */
}
#endif

/* 2^x for x <= 127: at most 8.3e-8 off, relatively; +0 for x < -126.5, 1 for 0. NaN stays NaN. The
 * polynomial (Remez, p(0) = 1) is 2.6e-9 off on [-1/2, 1/2]. */
TN_VI tn_v tn_v_exp2(tn_v x)
{
    x = tn_v_exp2_begin(x);
    tn_v n = tn_v_round(x), r = tn_v_sub(x, n);
    tn_v p = tn_v_set(1.55946781613e-4f);
    p = tn_v_fma(p, r, tn_v_set(1.34066439024e-3f));
    p = tn_v_fma(p, r, tn_v_set(9.61769297299e-3f));
    p = tn_v_fma(p, r, tn_v_set(5.55031055101e-2f));
    p = tn_v_fma(p, r, tn_v_set(2.40226527829e-1f));
    p = tn_v_fma(p, r, tn_v_set(6.93147214968e-1f));
    p = tn_v_fma(p, r, tn_v_set(1.0f));
    return tn_v_exp2_end(x, n, p);
}

/* acc[i] += a[16 i + k] x[k] for k = 0 .. n-1, ascending: x and a are panels, a is broadcast along
 * its rows. */
TN_VI void tn_chain_rows(const int m, int64_t n, const float *a, const float *x, tn_v *acc)
{
    for (int64_t k = 0; k < n; k++) {
        tn_v v = tn_v_load(x + 16 * k);
        TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_fma(tn_v_set(a[16 * i + k]), v, acc[i]);
    }
}

/* acc[i] += a[16 k + i] x[k]: a is broadcast along its columns. */
TN_VI void tn_chain_cols(const int m, int64_t n, const float *a, const float *x, tn_v *acc)
{
    for (int64_t k = 0; k < n; k++) {
        tn_v v = tn_v_load(x + 16 * k);
        TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_fma(tn_v_set(a[16 * k + i]), v, acc[i]);
    }
}

/* The dot products of m rows of a block's panels with the 16 queries of a strip: from +0, over d.
 */
TN_VI void tn_chain_dots(const int m, int64_t d, const float *rows, const float *strip, tn_v *acc)
{
    TN_UNROLL for (int i = 0; i < m; i++) acc[i] = tn_v_zero();
    for (; d >= 16; d -= 16, rows += TN_ATT_PANEL, strip += 256)
        tn_chain_rows(m, 16, rows, strip, acc);
    if (d) tn_chain_rows(m, d, rows, strip, acc);
}

TN_VI void tn_att_pack_as(const bool bf16, const void *src, int64_t stride, int64_t n, int64_t d,
                          float *out)
{
    const int64_t whole = d / 16 * 16;
    const tn_vmask m = tn_v_mask(d - whole);
    for (int64_t i = 0; i < n; i++) {
        const void *row = tn_v_at(src, i * stride, bf16);
        float *to = out + 16 * i;
        for (int64_t c = 0; c < whole; c += 16, to += TN_ATT_PANEL)
            tn_v_store(to, tn_v_get(row, c, bf16));
        if (whole < d) tn_v_store(to, tn_v_get_mask(row, whole, m, bf16));
    }
    for (int64_t c = 0; c < d; c += 16, out += TN_ATT_PANEL)
        for (int64_t i = n; i < TN_ATT_BLOCK; i++) tn_v_store(out + 16 * i, tn_v_zero());
}

/* n <= 64 rows of d elements, `stride` apart, to panels. */
TN_PHASE void tn_att_pack(bool bf16, const void *src, int64_t stride, int64_t n, int64_t d,
                          float *out)
{
    if (bf16) tn_att_pack_as(true, src, stride, n, d, out);
    else tn_att_pack_as(false, src, stride, n, d, out);
}

/* A chunk of 16 columns of a row: plain stores where all exist (masked ones are slow on AVX2). */
TN_VI void tn_att_store(const bool bf16, void *row, int64_t c, int64_t d, tn_v x)
{
    if (c + 16 <= d) tn_v_put(row, c, x, bf16);
    else tn_v_put_mask(row, c, tn_v_mask(d - c), x, bf16);
}

TN_VI void tn_att_unpack_as(const bool bf16, const float *panels, int64_t n, int64_t d, void *dst,
                            int64_t stride)
{
    for (int64_t i = 0; i < n; i++) {
        void *row = tn_v_from(dst, i * stride, bf16);
        for (int64_t c = 0; c < d; c += 16)
            tn_att_store(bf16, row, c, d,
                         tn_v_add(tn_v_load(panels + c * TN_ATT_BLOCK + 16 * i), tn_v_zero()));
    }
}

/* Panels + 0 to rows, the columns that exist. */
TN_PHASE void tn_att_unpack(bool bf16, const float *panels, int64_t n, int64_t d, void *dst,
                            int64_t stride)
{
    if (bf16) tn_att_unpack_as(true, panels, n, d, dst, stride);
    else tn_att_unpack_as(false, panels, n, d, dst, stride);
}

TN_VI void tn_att_turn_as(const bool bf16, const void *src, int64_t stride, int64_t chunk,
                          int64_t n, int64_t d, float *out)
{
    for (int64_t q = 0; q < n; q += 16) {
        const void *from = tn_v_at(src, q * stride, bf16);
        for (int64_t c = 0; c < d; c += 16, from = tn_v_at(from, chunk, bf16), out += 256) {
            const tn_vmask m = tn_v_mask(d - c);
            tn_v x[16];
            if (c + 16 <= d && q + 16 <= n) {
                TN_UNROLL for (int64_t i = 0; i < 16; i++) x[i] = tn_v_get(from, i * stride, bf16);
            } else {
                for (int64_t i = 0; i < 16; i++)
                    x[i] = q + i < n ? tn_v_get_mask(from, i * stride, m, bf16) : tn_v_zero();
            }
            tn_v_transpose(x);
            TN_UNROLL for (int64_t i = 0; i < 16; i++) tn_v_store(out + 16 * i, x[i]);
        }
    }
}

/* n rows of d elements to [strip][d][16], the strips that exist. Column c of row i lies at src[i *
 * stride + c / 16 * chunk + c % 16]: rows as they are have chunk 16, panels stride 16 and chunk
 * TN_ATT_PANEL. */
TN_PHASE void tn_att_turn(bool bf16, const void *src, int64_t stride, int64_t chunk, int64_t n,
                          int64_t d, float *out)
{
    if (bf16) tn_att_turn_as(true, src, stride, chunk, n, d, out);
    else tn_att_turn_as(false, src, stride, chunk, n, d, out);
}

/* Rows that will be wanted soon: fetched a few lines at a time, spread over the work before,
 * because a core has room for few misses at once (s 512, d 64, heads 12, tokens 3 KiB apart: 93
 * GF/s forward, 79 without). */
typedef struct tn_att_rows {
    const char *p;
    int64_t stride, n, bytes;
} tn_att_rows;

enum { TN_ATT_STREAMS = 12, TN_ATT_FETCH_LINES = 32 };

typedef struct tn_att_fetch {
    int n, at; /* streams, the one that is being fetched */
    int64_t row;
    tn_att_rows rows[TN_ATT_STREAMS];
} tn_att_fetch;

/* n rows of d elements, `stride` apart, of which the first 64 count. */
static inline void tn_att_fetch_add(tn_att_fetch *f, bool bf16, const void *p, int64_t stride,
                                    int64_t n, int64_t d)
{
    const int64_t each = bf16 ? 2 : 4;
    if (f->n == TN_ATT_STREAMS || n <= 0) return;
    f->rows[f->n++] =
        (tn_att_rows){p, stride * each, n < TN_ATT_BLOCK ? n : TN_ATT_BLOCK, d * each};
}

TN_PHASE void tn_att_fetch_lines(tn_att_fetch *f)
{
    const tn_att_rows *r = &f->rows[f->at];
    int64_t i = f->row, last = i + TN_ATT_FETCH_LINES * 64 / (r->bytes < 2048 ? r->bytes : 2048);
    for (last = last < r->n ? last : r->n; i < last; i++)
        for (int64_t c = 0; c < r->bytes; c += 64)
            __builtin_prefetch(r->p + i * r->stride + c, 0, 2);
    f->row = i < r->n ? i : 0;
    f->at += i == r->n;
}

TN_VI void tn_att_fetch_step(tn_att_fetch *f)
{
    if (f->at < f->n) tn_att_fetch_lines(f);
}

/* Which keys of a block the queries of a block see. Ranges are what is computed: what lies outside
 * is invisible, what is invisible inside has weight +0, which changes no sum. */
typedef struct tn_att_pair {
    int32_t lo[TN_ATT_GROUPS],
        hi[TN_ATT_GROUPS]; /* per group of queries: keys [lo, hi), multiples of 8 */
    int32_t strip_lo[TN_ATT_STRIPS],
        strip_hi[TN_ATT_STRIPS]; /* per strip: of both its groups, multiples of 16 */
    uint32_t
        masked[TN_ATT_STRIPS]; /* bit j: some query of the strip does not see some key of group j */
    uint32_t
        groups[TN_ATT_GROUPS]; /* per group of keys: bit i: it lies in [lo, hi) of query group i */
} tn_att_pair;

static inline void tn_att_pair_ranges(const uint32_t *seen, const uint32_t *whole, tn_att_pair *out)
{
    for (int j = 0; j < TN_ATT_GROUPS; j++) out->groups[j] = 0;
    for (int i = 0; i < TN_ATT_GROUPS; i++) {
        int lo = seen[i] ? __builtin_ctz(seen[i]) : 0,
            hi = seen[i] ? 32 - __builtin_clz(seen[i]) : 0;
        out->lo[i] = lo * TN_ATT_GROUP;
        out->hi[i] = hi * TN_ATT_GROUP;
        for (int j = lo; j < hi; j++) out->groups[j] |= 1u << i;
    }
    for (int s = 0; s < TN_ATT_STRIPS; s++) {
        uint32_t both = seen[2 * s] | seen[2 * s + 1];
        out->strip_lo[s] = both ? __builtin_ctz(both) / 2 * 16 : 0;
        out->strip_hi[s] = both ? (33 - __builtin_clz(both)) / 2 * 16 : 0;
        out->masked[s] = ~(whole[2 * s] & whole[2 * s + 1]);
    }
}

/* Per group i of queries: seen bit j: group j of keys may hold a visible key; whole bit j: all
 * pairs are visible. */
static inline void tn_att_pair_groups(const tn_att_queries *q, const tn_att_keys *k, int i,
                                      uint32_t *seen, uint32_t *whole)
{
    uint32_t s = 0, w = 0;
    for (int j = 0; j < TN_ATT_GROUPS; j++) {
        uint32_t none =
            (uint32_t)(k->pos_min[j] > q->hi_max[i]) | (uint32_t)(k->pos_max[j] <= q->lo_min[i]) |
            (uint32_t)(k->doc_max[j] < q->doc_min[i]) | (uint32_t)(k->doc_min[j] > q->doc_max[i]);
        uint32_t all =
            (uint32_t)(k->pos_max[j] <= q->hi_min[i]) & (uint32_t)(k->pos_min[j] > q->lo_max[i]) &
            (uint32_t)(k->doc_min[j] == q->doc_max[i]) & (uint32_t)(k->doc_max[j] == q->doc_min[i]);
        s |= (none ^ 1u) << j;
        w |= all << j;
    }
    *seen = s;
    *whole = w;
}

/* No query of the block sees a key of the block; false also where only a closer look would tell. */
static inline bool tn_att_pair_none(const tn_att_queries *q, const tn_att_keys *k)
{
    enum { ALL = TN_ATT_GROUPS };
    return k->pos_min[ALL] > q->hi_max[ALL] || k->pos_max[ALL] <= q->lo_min[ALL] ||
           k->doc_max[ALL] < q->doc_min[ALL] || k->doc_min[ALL] > q->doc_max[ALL];
}

/* False: no query of the block sees a key of the block. */
TN_PHASE bool tn_att_pair_find(const tn_att_queries *q, const tn_att_keys *k, tn_att_pair *out)
{
    enum { ALL = TN_ATT_GROUPS };
    uint32_t seen[TN_ATT_GROUPS], whole[TN_ATT_GROUPS];
    if (tn_att_pair_none(q, k)) return false;
    bool full = k->pos_max[ALL] <= q->hi_min[ALL] && k->pos_min[ALL] > q->lo_max[ALL] &&
                k->doc_min[ALL] == q->doc_max[ALL] && k->doc_max[ALL] == q->doc_min[ALL];
    for (int i = 0; i < TN_ATT_GROUPS; i++) {
        if ((int64_t)i * TN_ATT_GROUP >= q->n) seen[i] = 0, whole[i] = 0xff;
        else if (full) seen[i] = whole[i] = 0xff;
        else tn_att_pair_groups(q, k, i, &seen[i], &whole[i]);
    }
    tn_att_pair_ranges(seen, whole, out);
    return true;
}

/* May a query of the block see any key of n blocks? */
static inline bool tn_att_pair_any(const tn_att_queries *q, const tn_att_keys *k, int64_t n)
{
    bool any = false;
    for (int64_t i = 0; i < n; i++) any = any || !tn_att_pair_none(q, k + i);
    return any;
}

/* The keys that some of the queries [q, q + rows) of one strip see: a range, empty where lo >= hi.
 */
static inline void tn_att_pair_keys(const tn_att_pair *pair, int64_t q, int64_t rows,
                                    int64_t *lo_out, int64_t *hi_out)
{
    int64_t i = q / TN_ATT_GROUP, j = (q + rows - 1) / TN_ATT_GROUP;
    if (pair->lo[i] >= pair->hi[i]) i = j;
    if (pair->lo[j] >= pair->hi[j]) j = i;
    *lo_out = pair->lo[i] < pair->lo[j] ? pair->lo[i] : pair->lo[j];
    *hi_out = pair->hi[i] > pair->hi[j] ? pair->hi[i] : pair->hi[j];
}

/* The keys of a row and kv head, from `first` on, in chunks: positions and documents of a chunk are
 * known at its begin, panels are packed when a block is first wanted. */
typedef struct tn_att_chunk {
    int64_t k, v;      /* elements of k and v in front of the chunk's first row */
    int64_t rows;      /* from there to the end of the data */
    int64_t n, packed; /* blocks; how many of them are packed */
} tn_att_chunk;

static inline tn_att_chunk tn_att_chunk_begin(const tn_att_plan *p, const tn_att_mem *m,
                                              int64_t row, int64_t kv_head, int64_t block,
                                              int64_t n)
{
    const tn_attention *a = p->a;
    const int64_t first = block * TN_ATT_BLOCK, at = (row * a->t + first) * a->g + kv_head;
    for (int64_t i = 0; i < n; i++)
        tn_attention_keys(a, row, first + i * TN_ATT_BLOCK, m->keys + i);
    return (tn_att_chunk){at * a->d, at * a->dv, a->t - first, n, 0};
}

/* Makes the panels up to and including `block`; the rows of the one after are fetched if it is to
 * be made. */
static inline void tn_att_chunk_want(const tn_att_plan *p, const tn_att_mem *m, tn_att_chunk *c,
                                     int64_t block, tn_att_fetch *fetch)
{
    const tn_attention *a = p->a;
    for (; c->packed <= block; c->packed++) {
        int64_t i = c->packed, first = i * TN_ATT_BLOCK, left = c->rows - first;
        int64_t rows = left < TN_ATT_BLOCK ? left : TN_ATT_BLOCK;
        tn_att_pack(a->bf16, tn_v_at(a->k, c->k + first * a->g * a->d, a->bf16), a->g * a->d, rows,
                    a->d, m->k + i * p->nd * TN_ATT_PANEL);
        tn_att_pack(a->bf16, tn_v_at(a->v, c->v + first * a->g * a->dv, a->bf16), a->g * a->dv,
                    rows, a->dv, m->v + i * p->nv * TN_ATT_PANEL);
    }
    if (block + 1 != c->packed || c->packed == c->n) return;
    int64_t next = c->packed * TN_ATT_BLOCK;
    tn_att_fetch_add(fetch, a->bf16, tn_v_at(a->k, c->k + next * a->g * a->d, a->bf16), a->g * a->d,
                     c->rows - next, a->d);
    tn_att_fetch_add(fetch, a->bf16, tn_v_at(a->v, c->v + next * a->g * a->dv, a->bf16),
                     a->g * a->dv, c->rows - next, a->dv);
}

/* The positions and documents of a strip's queries, to be compared with those of a key. */
typedef struct tn_att_sight {
    tn_vi lo, hi, doc;
} tn_att_sight;

TN_VI tn_att_sight tn_att_sight_of(const tn_att_queries *q, int64_t strip)
{
    return (tn_att_sight){tn_vi_load(q->lo + 16 * strip), tn_vi_load(q->hi + 16 * strip),
                          tn_vi_load(q->doc + 16 * strip)};
}

TN_VI tn_v tn_att_hide(const tn_att_sight *s, const tn_att_keys *k, int64_t key, tn_v t)
{
    tn_vmask seen =
        tn_vi_seen(s->doc, tn_vi_set(k->doc[key]), s->lo, tn_vi_set(k->pos[key]), s->hi);
    return tn_v_select(seen, t, tn_v_set(-__builtin_inff()));
}

#endif
