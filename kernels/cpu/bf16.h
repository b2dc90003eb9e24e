/* bf16.h - sixteen lanes of bf16 memory: widened exactly, rounded to nearest even, the same bits on
 * every instruction set (vec.h).
 *
 * Kernels that take both formats address arrays by element, tn_v_get(base, i, bf16), with a `bf16`
 * that is constant where it is inlined, so that the fp32 form stays what it was. Integer
 * instructions only: vcvtneps2bf16 takes subnormals as zero. NaN stays NaN. Masks are those of
 * tn_v_mask: the first lanes.
 */
#ifndef TN_KERNELS_CPU_BF16_H
#define TN_KERNELS_CPU_BF16_H
#include "kernels/cpu/vec.h"

#if defined TN_ISA_avx512

TN_VI tn_v tn_v_widen16(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
TN_VI tn_v tn_v_widen(const uint16_t *p)
{
    return tn_v_widen16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TN_VI tn_v tn_v_widen_mask(const uint16_t *p, tn_vmask m)
{
    return tn_v_widen16(_mm256_maskz_loadu_epi16(m, p));
}
/* The upper half of each lane is the bf16, the lower one is left over. */
TN_VI __m512i tn_v_rounded(tn_v x)
{
    __m512i i = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(i, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(i, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(up, nan, i, _mm512_set1_epi32(0x00400000));
}
TN_VI tn_v tn_v_round_bf16(tn_v x)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(tn_v_rounded(x), _mm512_set1_epi32((int)0xffff0000u)));
}
TN_VI void tn_v_narrow(uint16_t *p, tn_v x)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtepi32_epi16(_mm512_srli_epi32(tn_v_rounded(x), 16)));
}
TN_VI void tn_v_narrow_mask(uint16_t *p, tn_vmask m, tn_v x)
{
    _mm256_mask_storeu_epi16(p, m, _mm512_cvtepi32_epi16(_mm512_srli_epi32(tn_v_rounded(x), 16)));
}

#elif defined TN_ISA_avx2

TN_VI __m256 tn_v8_widen(const uint16_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
TN_VI __m256i tn_v8_rounded(__m256 x)
{
    __m256i i = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(i, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(i, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(i, _mm256_set1_epi32(0x00400000));
    return _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet),
                                                _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
TN_VI int tn_v_lanes(tn_vmask m)
{
    return __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.l)) |
                              (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m.h)) << 8);
}
TN_VI tn_v tn_v_widen(const uint16_t *p)
{
    return (tn_v){tn_v8_widen(p), tn_v8_widen(p + 8)};
}
TN_VI tn_v tn_v_round_bf16(tn_v x)
{
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000u);
    return (tn_v){_mm256_castsi256_ps(_mm256_and_si256(tn_v8_rounded(x.l), upper)),
                  _mm256_castsi256_ps(_mm256_and_si256(tn_v8_rounded(x.h), upper))};
}
TN_VI void tn_v_narrow(uint16_t *p, tn_v x)
{
    __m256i l = _mm256_srli_epi32(tn_v8_rounded(x.l), 16),
            h = _mm256_srli_epi32(tn_v8_rounded(x.h), 16);
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm256_permute4x64_epi64(_mm256_packus_epi32(l, h), 0xd8));
}

#else

typedef uint16_t tn_vh __attribute__((vector_size(32), aligned(2)));
typedef uint32_t tn_vu __attribute__((vector_size(64), aligned(4)));

TN_VI tn_vu tn_v_rounded(tn_v x)
{
    tn_vu i = (tn_vu)x, up = i + (((i >> 16) & 1) + 0x7fff), number = (tn_vu)(x == x);
    return (up & number) | ((i | 0x00400000) & ~number);
}
TN_VI int tn_v_lanes(tn_vmask m)
{
    int n = 0;
    for (int i = 0; i < 16; i++) n -= m[i];
    return n;
}
TN_VI tn_v tn_v_widen(const uint16_t *p)
{
    tn_vh x;
    memcpy(&x, p, sizeof x);
    return (tn_v)(__builtin_convertvector(x, tn_vu) << 16);
}
TN_VI tn_v tn_v_round_bf16(tn_v x)
{
    return (tn_v)(tn_v_rounded(x) & 0xffff0000u);
}
TN_VI void tn_v_narrow(uint16_t *p, tn_v x)
{
    tn_vh r = __builtin_convertvector(tn_v_rounded(x) >> 16, tn_vh);
    memcpy(p, &r, sizeof r);
}

#endif

#if !defined TN_ISA_avx512
TN_VI tn_v tn_v_widen_mask(const uint16_t *p, tn_vmask m)
{
    uint16_t t[TN_VL] = {0};
    memcpy(t, p, (size_t)tn_v_lanes(m) * sizeof *t);
    return tn_v_widen(t);
}
TN_VI void tn_v_narrow_mask(uint16_t *p, tn_vmask m, tn_v x)
{
    uint16_t t[TN_VL];
    tn_v_narrow(t, x);
    memcpy(p, t, (size_t)tn_v_lanes(m) * sizeof *t);
}
#endif

/* ---- elements i .. i + 15 of an array of fp32, or of bf16 */

TN_VI const void *tn_v_at(const void *p, int64_t i, const bool bf16)
{
    return bf16 ? (const void *)((const uint16_t *)p + i) : (const void *)((const float *)p + i);
}
TN_VI void *tn_v_from(void *p, int64_t i, const bool bf16)
{
    return bf16 ? (void *)((uint16_t *)p + i) : (void *)((float *)p + i);
}
TN_VI tn_v tn_v_get(const void *p, int64_t i, const bool bf16)
{
    return bf16 ? tn_v_widen((const uint16_t *)p + i) : tn_v_load((const float *)p + i);
}
TN_VI tn_v tn_v_get_mask(const void *p, int64_t i, tn_vmask m, const bool bf16)
{
    return bf16 ? tn_v_widen_mask((const uint16_t *)p + i, m)
                : tn_v_load_mask((const float *)p + i, m);
}
TN_VI void tn_v_put(void *p, int64_t i, tn_v x, const bool bf16)
{
    if (bf16) tn_v_narrow((uint16_t *)p + i, x);
    else tn_v_store((float *)p + i, x);
}
TN_VI void tn_v_put_mask(void *p, int64_t i, tn_vmask m, tn_v x, const bool bf16)
{
    if (bf16) tn_v_narrow_mask((uint16_t *)p + i, m, x);
    else tn_v_store_mask((float *)p + i, m, x);
}
/* As the array would keep it. */
TN_VI tn_v tn_v_as(tn_v x, const bool bf16)
{
    return bf16 ? tn_v_round_bf16(x) : x;
}

#endif
