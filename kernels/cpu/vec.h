/* vec.h - sixteen fp32 lanes, the same bits on AVX-512, AVX2 and portable C.
 *
 * Kernel files named *_isa.c are written once on tn_v and compiled once per instruction set, with
 * TN_ISA_avx512, TN_ISA_avx2 or TN_ISA_portable defined (configure.py gives the flags).
 * TN_ISA_NAME(x) appends the set's name, so that each object exports its own symbols; a table
 * chosen at run time picks one (kernels/cpu/isa.h).
 *
 * Every operation is an IEEE one, so the three agree; tails use masks with the same instructions.
 * tn_v_fma rounds once (the portable one too). tn_v_exp and tn_v_log are our own: libm differs
 * between machines.
 */
#ifndef TN_KERNELS_CPU_VEC_H
#define TN_KERNELS_CPU_VEC_H
#include <stdint.h>
#include <string.h>

#define TN_CAT2(a, b) a##_##b
#define TN_CAT(a, b) TN_CAT2(a, b)
#if defined TN_ISA_avx512
#define TN_ISA_NAME(x) TN_CAT(x, avx512)
#include <immintrin.h>
#elif defined TN_ISA_avx2
#define TN_ISA_NAME(x) TN_CAT(x, avx2)
#include <immintrin.h>
#else
#define TN_ISA_NAME(x) TN_CAT(x, portable)
#include <math.h>
#endif

#define TN_VI static inline __attribute__((always_inline, unused))
enum { TN_VL = 16 };

#if defined TN_ISA_avx512

typedef __m512 tn_v;
typedef __mmask16 tn_vmask;

TN_VI tn_v tn_v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
TN_VI void tn_v_store(float *p, tn_v x)
{
    _mm512_storeu_ps(p, x);
}
/* To memory past the caches (p aligned to 64): for what is larger than they are. tn_v_stream_end
 * before anybody reads it. */
TN_VI void tn_v_stream(float *p, tn_v x)
{
    _mm512_stream_ps(p, x);
}
TN_VI void tn_v_stream_end(void)
{
    _mm_sfence();
}
TN_VI tn_v tn_v_set(float x)
{
    return _mm512_set1_ps(x);
}
TN_VI tn_v tn_v_zero(void)
{
    return _mm512_setzero_ps();
}
TN_VI tn_v tn_v_add(tn_v a, tn_v b)
{
    return _mm512_add_ps(a, b);
}
TN_VI tn_v tn_v_sub(tn_v a, tn_v b)
{
    return _mm512_sub_ps(a, b);
}
TN_VI tn_v tn_v_mul(tn_v a, tn_v b)
{
    return _mm512_mul_ps(a, b);
}
TN_VI tn_v tn_v_div(tn_v a, tn_v b)
{
    return _mm512_div_ps(a, b);
}
TN_VI tn_v tn_v_sqrt(tn_v a)
{
    return _mm512_sqrt_ps(a);
}
/* max(a, b) = a > b ? a : b: the second operand when either is NaN, as the instruction does. */
TN_VI tn_v tn_v_max(tn_v a, tn_v b)
{
    return _mm512_max_ps(a, b);
}
TN_VI tn_v tn_v_min(tn_v a, tn_v b)
{
    return _mm512_min_ps(a, b);
}
TN_VI tn_v tn_v_fma(tn_v a, tn_v b, tn_v c)
{
    return _mm512_fmadd_ps(a, b, c);
}
TN_VI tn_v tn_v_round(tn_v a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
TN_VI tn_vmask tn_v_mask(int64_t n)
{
    return (tn_vmask)(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}
TN_VI tn_v tn_v_load_mask(const float *p, tn_vmask m)
{
    return _mm512_maskz_loadu_ps(m, p);
}
TN_VI void tn_v_store_mask(float *p, tn_vmask m, tn_v x)
{
    _mm512_mask_storeu_ps(p, m, x);
}
TN_VI tn_v tn_v_select(tn_vmask m, tn_v yes, tn_v no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
TN_VI tn_vmask tn_v_gt(tn_v a, tn_v b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
TN_VI tn_vmask tn_v_eq(tn_v a, tn_v b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
/* 2^n for integral n in [-126, 127], given as float */
TN_VI tn_v tn_v_pow2(tn_v n)
{
    __m512i i = _mm512_cvtps_epi32(n);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(127)), 23));
}
/* x = m * 2^e with m in [sqrt(1/2), sqrt(2)), x normal and positive */
TN_VI tn_v tn_v_frexp(tn_v x, tn_v *e)
{
    __m512i i = _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x3f3504f3));
    __m512i k = _mm512_srai_epi32(i, 23);
    *e = _mm512_cvtepi32_ps(k);
    return _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_castps_si512(x), _mm512_slli_epi32(k, 23)));
}

#elif defined TN_ISA_avx2

typedef struct {
    __m256 l, h;
} tn_v;
typedef struct {
    __m256i l, h;
} tn_vmask;

#define TN_V2(name, f)                                                                             \
    TN_VI tn_v name(tn_v a, tn_v b)                                                                \
    {                                                                                              \
        return (tn_v){f(a.l, b.l), f(a.h, b.h)};                                                   \
    }
TN_VI tn_v tn_v_load(const float *p)
{
    return (tn_v){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
TN_VI void tn_v_store(float *p, tn_v x)
{
    _mm256_storeu_ps(p, x.l);
    _mm256_storeu_ps(p + 8, x.h);
}
TN_VI void tn_v_stream(float *p, tn_v x)
{
    _mm256_stream_ps(p, x.l);
    _mm256_stream_ps(p + 8, x.h);
}
TN_VI void tn_v_stream_end(void)
{
    _mm_sfence();
}
TN_VI tn_v tn_v_set(float x)
{
    return (tn_v){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
TN_VI tn_v tn_v_zero(void)
{
    return (tn_v){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
TN_V2(tn_v_add, _mm256_add_ps)
TN_V2(tn_v_sub, _mm256_sub_ps)
TN_V2(tn_v_mul, _mm256_mul_ps)
TN_V2(tn_v_div, _mm256_div_ps)
TN_V2(tn_v_max, _mm256_max_ps)
TN_V2(tn_v_min, _mm256_min_ps)
#undef TN_V2
TN_VI tn_v tn_v_sqrt(tn_v a)
{
    return (tn_v){_mm256_sqrt_ps(a.l), _mm256_sqrt_ps(a.h)};
}
TN_VI tn_v tn_v_fma(tn_v a, tn_v b, tn_v c)
{
    return (tn_v){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}
TN_VI tn_v tn_v_round(tn_v a)
{
    return (tn_v){_mm256_round_ps(a.l, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(a.h, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
TN_VI tn_vmask tn_v_mask(int64_t n)
{
    int k = n >= 16 ? 16 : n <= 0 ? 0 : (int)n;
    __m256i c = _mm256_set1_epi32(k), i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (tn_vmask){_mm256_cmpgt_epi32(c, i),
                      _mm256_cmpgt_epi32(c, _mm256_add_epi32(i, _mm256_set1_epi32(8)))};
}
TN_VI tn_v tn_v_load_mask(const float *p, tn_vmask m)
{
    return (tn_v){_mm256_maskload_ps(p, m.l), _mm256_maskload_ps(p + 8, m.h)};
}
TN_VI void tn_v_store_mask(float *p, tn_vmask m, tn_v x)
{
    _mm256_maskstore_ps(p, m.l, x.l);
    _mm256_maskstore_ps(p + 8, m.h, x.h);
}
TN_VI tn_v tn_v_select(tn_vmask m, tn_v yes, tn_v no)
{
    return (tn_v){_mm256_blendv_ps(no.l, yes.l, _mm256_castsi256_ps(m.l)),
                  _mm256_blendv_ps(no.h, yes.h, _mm256_castsi256_ps(m.h))};
}
TN_VI tn_vmask tn_v_gt(tn_v a, tn_v b)
{
    return (tn_vmask){_mm256_castps_si256(_mm256_cmp_ps(a.l, b.l, _CMP_GT_OQ)),
                      _mm256_castps_si256(_mm256_cmp_ps(a.h, b.h, _CMP_GT_OQ))};
}
TN_VI tn_vmask tn_v_eq(tn_v a, tn_v b)
{
    return (tn_vmask){_mm256_castps_si256(_mm256_cmp_ps(a.l, b.l, _CMP_EQ_OQ)),
                      _mm256_castps_si256(_mm256_cmp_ps(a.h, b.h, _CMP_EQ_OQ))};
}
TN_VI __m256 tn_v8_pow2(__m256 n)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
TN_VI tn_v tn_v_pow2(tn_v n)
{
    return (tn_v){tn_v8_pow2(n.l), tn_v8_pow2(n.h)};
}
TN_VI __m256 tn_v8_frexp(__m256 x, __m256 *e)
{
    __m256i k = _mm256_srai_epi32(
        _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x3f3504f3)), 23);
    *e = _mm256_cvtepi32_ps(k);
    return _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(k, 23)));
}
TN_VI tn_v tn_v_frexp(tn_v x, tn_v *e)
{
    tn_v m;
    m.l = tn_v8_frexp(x.l, &e->l);
    m.h = tn_v8_frexp(x.h, &e->h);
    return m;
}

#else

/* The compiler's own vectors: it splits them into what the target has. */
#pragma GCC diagnostic ignored "-Wpsabi"
typedef float tn_v __attribute__((vector_size(64), aligned(4)));
typedef int32_t tn_vmask
    __attribute__((vector_size(64), aligned(4))); /* all bits of a lane, or none */
typedef double tn_vd __attribute__((vector_size(128), aligned(8)));
typedef int64_t tn_vl __attribute__((vector_size(128), aligned(8)));

TN_VI tn_v tn_v_load(const float *p)
{
    tn_v r;
    memcpy(&r, p, 64);
    return r;
}
TN_VI void tn_v_store(float *p, tn_v x)
{
    memcpy(p, &x, 64);
}
TN_VI void tn_v_stream(float *p, tn_v x)
{
    memcpy(p, &x, 64);
}
TN_VI void tn_v_stream_end(void)
{
}
TN_VI tn_v tn_v_set(float x)
{
    return (tn_v){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
}
TN_VI tn_v tn_v_zero(void)
{
    return (tn_v){0};
}
TN_VI tn_v tn_v_add(tn_v a, tn_v b)
{
    return a + b;
}
TN_VI tn_v tn_v_sub(tn_v a, tn_v b)
{
    return a - b;
}
TN_VI tn_v tn_v_mul(tn_v a, tn_v b)
{
    return a * b;
}
TN_VI tn_v tn_v_div(tn_v a, tn_v b)
{
    return a / b;
}
TN_VI tn_v tn_v_select(tn_vmask m, tn_v yes, tn_v no)
{
    return (tn_v)((m & (tn_vmask)yes) | (~m & (tn_vmask)no));
}
TN_VI tn_vmask tn_v_gt(tn_v a, tn_v b)
{
    return (tn_vmask)(a > b);
}
TN_VI tn_vmask tn_v_eq(tn_v a, tn_v b)
{
    return (tn_vmask)(a == b);
}
TN_VI tn_v tn_v_max(tn_v a, tn_v b)
{
    return tn_v_select(tn_v_gt(a, b), a, b);
}
TN_VI tn_v tn_v_min(tn_v a, tn_v b)
{
    return tn_v_select(tn_v_gt(b, a), a, b);
}
TN_VI tn_v tn_v_sqrt(tn_v a)
{
    for (int i = 0; i < 16; i++) a[i] = sqrtf(a[i]);
    return a;
}
#if defined __FP_FAST_FMAF
TN_VI tn_v tn_v_fma(tn_v a, tn_v b, tn_v c)
{
    for (int i = 0; i < 16; i++) a[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return a;
}
#else
/* One rounding without the instruction: the product of two floats is exact in double, so the sum's
 * rounding to double and then to float is that of the exact value, unless the double lies halfway
 * between two floats or below the normal ones. Then the sum is rounded to odd first (Boldo and
 * Melquiond 2008). Not inlined: it stands in every inner loop. */
typedef float tn_v2 __attribute__((vector_size(8)));
typedef double tn_v2d __attribute__((vector_size(16)));
typedef int64_t tn_v2l __attribute__((vector_size(16)));

static __attribute__((noinline, unused)) tn_v2 tn_v2_fma_odd(tn_v2d p, tn_v2d d)
{
    tn_v2d s = p + d, t = s - p, zero = {0}, err = (p - (s - t)) + (d - t);
    tn_v2l even = (((tn_v2l)s & 1) == 0), inexact = (tn_v2l)(err != zero) & (tn_v2l)(s - s == zero);
    tn_v2l up = (tn_v2l)((tn_v2l)(err > zero) == (tn_v2l)(s > zero)); /* -1: away from zero */
    tn_v2l step = (up & 1) | (~up & -1);
    s = (tn_v2d)((tn_v2l)s + (step & even & inexact));
    return __builtin_convertvector(s, tn_v2);
}

/* Bits of s that are halfway between floats, or too small to be told from that: not zero if in
 * doubt. */
TN_VI uint64_t tn_v_doubt(double s)
{
    uint64_t u, e;
    memcpy(&u, &s, 8);
    e = u >> 52 & 0x7ff;
    return (uint64_t)((u & 0x1fffffff) == 0x10000000) | (uint64_t)(e <= 897 && (u << 1) != 0);
}

/* Two lanes at a time: what every x86-64 and arm64 compiler turns into its own instructions. */
static __attribute__((noinline, unused)) tn_v tn_v_fma(tn_v a, tn_v b, tn_v c)
{
    tn_v2 x[8], y[8], z[8];
    memcpy(x, &a, 64);
    memcpy(y, &b, 64);
    memcpy(z, &c, 64);
    for (int i = 0; i < 8; i++) {
        tn_v2d p = __builtin_convertvector(x[i], tn_v2d) * __builtin_convertvector(y[i], tn_v2d);
        tn_v2d d = __builtin_convertvector(z[i], tn_v2d), s = p + d;
        if (tn_v_doubt(s[0]) | tn_v_doubt(s[1])) x[i] = tn_v2_fma_odd(p, d);
        else x[i] = __builtin_convertvector(s, tn_v2);
    }
    memcpy(&a, x, 64);
    return a;
}
#endif
/* |a| < 2^22. Adding and taking away 1.5 * 2^23 rounds to an integer; without -ffast-math nothing
 * may fold it. */
TN_VI tn_v tn_v_round(tn_v a)
{
    tn_v magic = tn_v_set(12582912.0f);
    return (a + magic) - magic;
}
TN_VI tn_vmask tn_v_mask(int64_t n)
{
    int32_t k = n >= 16 ? 16 : n <= 0 ? 0 : (int32_t)n;
    tn_vmask i = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return (tn_vmask)(i < k);
}
TN_VI tn_v tn_v_load_mask(const float *p, tn_vmask m)
{
    tn_v r = {0};
    for (int i = 0; i < 16; i++)
        if (m[i]) r[i] = p[i];
    return r;
}
TN_VI void tn_v_store_mask(float *p, tn_vmask m, tn_v x)
{
    for (int i = 0; i < 16; i++)
        if (m[i]) p[i] = x[i];
}
TN_VI tn_v tn_v_pow2(tn_v n)
{
    tn_vmask i = __builtin_convertvector(tn_v_select(tn_v_eq(n, n), n, tn_v_zero()),
                                         tn_vmask); /* NaN has no integer */
    return (tn_v)((i + 127) << 23);
}
TN_VI tn_v tn_v_frexp(tn_v x, tn_v *e)
{
    tn_vmask k = ((tn_vmask)x - 0x3f3504f3) >> 23;
    *e = __builtin_convertvector(k, tn_v);
    return (tn_v)((tn_vmask)x - (k << 23));
}
#endif

/* exp(x), about 1 ulp for x in [-87.3, 88.3]; below: 0 exactly at and under -103, clamped at the
 * ends otherwise; exp(0) = 1. Range reduction by ln 2 in two parts, degree 6 polynomial (Cephes
 * expf). NaN stays NaN. */
TN_VI tn_v tn_v_exp(tn_v x)
{
    tn_v lo = tn_v_set(-87.3f), hi = tn_v_set(88.3f);
    tn_v c = tn_v_min(hi, tn_v_max(lo, x)); /* min, max return their second operand on NaN */
    tn_v n = tn_v_round(tn_v_mul(c, tn_v_set(1.44269504088896341f)));
    tn_v r = tn_v_fma(n, tn_v_set(-0.693359375f), c);
    r = tn_v_fma(n, tn_v_set(2.12194440e-4f), r);
    tn_v p = tn_v_set(1.9875691500E-4f);
    p = tn_v_fma(p, r, tn_v_set(1.3981999507E-3f));
    p = tn_v_fma(p, r, tn_v_set(8.3334519073E-3f));
    p = tn_v_fma(p, r, tn_v_set(4.1665795894E-2f));
    p = tn_v_fma(p, r, tn_v_set(1.6666665459E-1f));
    p = tn_v_fma(p, r, tn_v_set(5.0000001201E-1f));
    p = tn_v_fma(p, tn_v_mul(r, r), tn_v_add(r, tn_v_set(1.0f)));
    p = tn_v_mul(p, tn_v_pow2(n));
    return tn_v_select(tn_v_gt(tn_v_set(-87.3f), x), tn_v_zero(), p);
}

/* log(x), about 1 ulp for normal positive x; the result for others is not meaningful (callers pass
 * sums of exp >= 1). */
TN_VI tn_v tn_v_log(tn_v x)
{
    tn_v e, m = tn_v_frexp(x, &e);
    tn_v f = tn_v_sub(m, tn_v_set(1.0f)), z = tn_v_mul(f, f);
    tn_v p = tn_v_set(7.0376836292E-2f);
    p = tn_v_fma(p, f, tn_v_set(-1.1514610310E-1f));
    p = tn_v_fma(p, f, tn_v_set(1.1676998740E-1f));
    p = tn_v_fma(p, f, tn_v_set(-1.2420140846E-1f));
    p = tn_v_fma(p, f, tn_v_set(1.4249322787E-1f));
    p = tn_v_fma(p, f, tn_v_set(-1.6668057665E-1f));
    p = tn_v_fma(p, f, tn_v_set(2.0000714765E-1f));
    p = tn_v_fma(p, f, tn_v_set(-2.4999993993E-1f));
    p = tn_v_fma(p, f, tn_v_set(3.3333331174E-1f));
    tn_v y = tn_v_mul(tn_v_mul(p, f), z);
    y = tn_v_fma(e, tn_v_set(-2.12194440e-4f), y);
    y = tn_v_fma(z, tn_v_set(-0.5f), y);
    y = tn_v_add(f, y);
    return tn_v_fma(e, tn_v_set(0.693359375f), y);
}

/* Row reductions: lane i holds the sum (max) of elements i mod 16; then a pairwise tree 0+8, 4, 2,
 * 1 (DESIGN.md 7 (12)). */
TN_VI float tn_v_sum(tn_v x)
{
    float t[16];
    tn_v_store(t, x);
    for (int h = 8; h; h /= 2)
        for (int i = 0; i < h; i++) t[i] = t[i] + t[i + h];
    return t[0];
}
TN_VI float tn_v_hmax(tn_v x)
{
    float t[16];
    tn_v_store(t, x);
    for (int h = 8; h; h /= 2)
        for (int i = 0; i < h; i++) t[i] = t[i] > t[i + h] ? t[i] : t[i + h];
    return t[0];
}
/* One value through the vector code, so that scalars use the same exp and log. */
TN_VI float tn_v_first(tn_v x)
{
    float t[16];
    tn_v_store(t, x);
    return t[0];
}

#endif
