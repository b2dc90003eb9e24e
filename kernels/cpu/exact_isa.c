/* exact_isa.c - adds floats, or their squares, to an exact sum; see exact.h.
 *
 * Every way here is exact, so which one a block takes cannot be seen in the result.
 *
 * Squares of a block whose exponents lie close (gradients nearly always) go through doubles. With
 * |x| < 2^(E - 126), E the largest exponent field, v = x^2 is exact and below 2^T, T = 2E - 252.
 * Adding and taking away 1.5 2^(T + 12) leaves q1, v rounded to a multiple of 2^(T - 40); r1 = v -
 * q1 is exact, at most 2^(T - 41). A block's 2^12 values of q1 sum up below 2^(T + 12), 52 bits
 * above the unit: exactly. What r1 consists of are multiples of 2^(2 e - 300), e the smallest
 * field; its sum, below 2^(T - 29), is exact if T - 29 - (2 e - 300) <= 53: E - e <= 17. For E - e
 * <= 37 r1 is split once more, at 2^(T - 81). Anything else is counted in integers, one bin per
 * exponent.
 */
#include "kernels/cpu/exact.h"

#include "kernels/cpu/vec.h"

/* As many doubles as one register holds. */
#if defined TN_ISA_avx512
enum { LANES = 8 };
#elif defined TN_ISA_avx2
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif
enum { BLOCK = 4096, STEP = 2 * LANES };

typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));

typedef struct range {
    uint32_t low, high; /* the smallest exponent field of a value that is not 0 (denormals: 1), and
                           the largest */
} range;

static range exponents(const float *x, int64_t n)
{
    uint32_t high = 0, low = UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof b);
        b &= 0x7fffffff;
        high = b > high ? b : high;
        low = b - 1 < low ? b - 1 : low; /* 0 becomes the largest */
    }
    range r = {(low + 1) >> 23, high >> 23};
    if (r.low == 0) r.low = 1;
    if (r.high == 0 && high > 0) r.high = 1;
    return r;
}

static double power_of_two(int e)
{
    uint64_t b = (uint64_t)(e + 1023) << 52;
    double d;
    memcpy(&d, &b, sizeof d);
    return d;
}

/* d is a multiple of a power of two that limbs can hold. */
static void put_double(tn_exact *sum, double d)
{
    uint64_t b;
    memcpy(&b, &d, sizeof b);
    const int e = (int)(b >> 52 & 2047);
    int64_t m = (int64_t)((b & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52);
    if (e == 0) return; /* 0: sums of squares of floats are far above the denormals */
    int zeros = __builtin_ctzll((uint64_t)m);
    m >>= zeros;
    tn_exact_put(sum, b >> 63 ? -m : m, e - 1075 + zeros);
}

TN_VI double lane_sum(doubles v, doubles w)
{
    double d[LANES], s = 0;
    v += w;
    memcpy(d, &v, sizeof d);
    for (int i = 0; i < LANES; i++) s += d[i];
    return s;
}

TN_VI doubles squares_at(const float *x)
{
    floats f;
    memcpy(&f, x, sizeof f);
    const doubles d = __builtin_convertvector(f, doubles);
    return d * d;
}

/* Two vectors at a time, so that their sums do not wait for each other. n is a multiple of STEP;
 * the splits are those above. */
static void squares_near(tn_exact *sum, const float *x, int64_t n, int T)
{
    const doubles zero = {0}, c1 = zero + 1.5 * power_of_two(T + 12);
    doubles s1 = zero, s2 = zero, t1 = zero, t2 = zero;
    for (int64_t i = 0; i < n; i += STEP) {
        const doubles v = squares_at(x + i), w = squares_at(x + i + LANES), q = (v + c1) - c1,
                      p = (w + c1) - c1;
        s1 += q;
        t1 += p;
        s2 += v - q;
        t2 += w - p;
    }
    put_double(sum, lane_sum(s1, t1));
    put_double(sum, lane_sum(s2, t2));
}

static void squares_far(tn_exact *sum, const float *x, int64_t n, int T)
{
    const doubles zero = {0}, c1 = zero + 1.5 * power_of_two(T + 12),
                  c2 = zero + 1.5 * power_of_two(T - 29);
    doubles s1 = zero, s2 = zero, s3 = zero, t1 = zero, t2 = zero, t3 = zero;
    for (int64_t i = 0; i < n; i += STEP) {
        const doubles v = squares_at(x + i), w = squares_at(x + i + LANES), q = (v + c1) - c1,
                      p = (w + c1) - c1;
        const doubles v2 = v - q, w2 = w - p, q2 = (v2 + c2) - c2, p2 = (w2 + c2) - c2;
        s1 += q;
        t1 += p;
        s2 += q2;
        t2 += p2;
        s3 += v2 - q2;
        t3 += w2 - p2;
    }
    put_double(sum, lane_sum(s1, t1));
    put_double(sum, lane_sum(s2, t2));
    put_double(sum, lane_sum(s3, t3));
}

/* ---- one bin per exponent ---- */

static void note_special(tn_exact *sum, uint32_t bits, bool squares)
{
    sum->special |= bits << 9 ? 1u : bits >> 31 && !squares ? 4u : 2u;
}

/* n <= BLOCK: 2^12 squared mantissas of 48 bits fit 64. Four sets of bins, so that equal exponents
 * do not wait for each other. */
static void squares_any(tn_exact *sum, const float *x, int64_t n)
{
    uint64_t bin[4][256] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof b);
        const uint32_t e = b >> 23 & 255;
        const uint64_t m = (b & 0x7fffff) | (uint32_t)(e != 0) << 23;
        bin[i & 3][e] += m * m;
        if (e == 255) note_special(sum, b, true);
    }
    for (int e = 0; e < 255; e++) {
        const uint64_t m = bin[0][e] + bin[1][e] + bin[2][e] + bin[3][e];
        if (m) tn_exact_put(sum, (int64_t)m, 2 * ((e ? e : 1) - 150));
    }
}

static void values_any(tn_exact *sum, const float *x, int64_t n)
{
    int64_t bin[4][256] = {{0}};
    for (int64_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof b);
        const uint32_t e = b >> 23 & 255;
        const int64_t m = (b & 0x7fffff) | (uint32_t)(e != 0) << 23;
        bin[i & 3][e] += b >> 31 ? -m : m;
        if (e == 255) note_special(sum, b, false);
    }
    for (int e = 0; e < 255; e++) {
        const int64_t m = bin[0][e] + bin[1][e] + bin[2][e] + bin[3][e];
        if (m) tn_exact_put(sum, m, (e ? e : 1) - 150);
    }
}

static void values(tn_exact *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += BLOCK) {
        values_any(sum, x + i, n - i < BLOCK ? n - i : BLOCK);
        tn_exact_carry(sum);
    }
}

static void squares(tn_exact *sum, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t m = n - i < BLOCK ? n - i : BLOCK, whole = m / STEP * STEP;
        const range r = exponents(x + i, whole);
        const int T = 2 * (int)r.high - 252;
        if (r.high == 255 || (r.high > 0 && r.high - r.low > 37)) squares_any(sum, x + i, whole);
        else if (r.high > 0 && r.high - r.low > 17) squares_far(sum, x + i, whole, T);
        else if (r.high > 0) squares_near(sum, x + i, whole, T);
        if (whole < m) squares_any(sum, x + i + whole, m - whole);
        tn_exact_carry(sum);
    }
}

extern const tn_exact_fns TN_ISA_NAME(tn_exact_fns);
const tn_exact_fns TN_ISA_NAME(tn_exact_fns) = {values, squares};
